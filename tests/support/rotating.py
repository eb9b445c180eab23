"""Steps by workers that take turns as worker processes do, but in this process."""

from __future__ import annotations

import pickle
from collections import deque

from wdspec.run.loader import Loader
from wdspec.run.stats import Tally
from wdspec.run.stream import Stream
from wdspec.run.tasks import Pace, TaskReader, Tasks, deal_steps


class _Steady(Pace):
    """As many batches in a delivery as at the start."""

    def note(self, delivery):
        pass


class Rotating:
    """Asks W workers in turn, from worker 0 on at each start, and reads ahead of what it delivers.

    Every worker has its own copy of the run, made by pickling, and everything that crosses between processes
    is pickled too. Items that were read ahead but not delivered when an iteration is left are lost, as with DataLoader.
    """

    def __init__(self, run, workers, prefetch, persistent):
        self.tally = Tally(run.slot_count)
        self.tasks = Tasks(run, workers)
        self.prefetch, self.persistent = prefetch, persistent
        self.copies = [pickle.dumps(TaskReader(run)) for _ in range(workers)]
        self.workers = None

    @property
    def requested(self):
        return self.tasks.requested

    def read(self, work):
        if self.workers is None or not self.persistent:
            self.workers = [pickle.loads(copy) for copy in self.copies]
        self.tasks.start(work)
        yield from deal_steps(self._deliver(self.workers), self.tasks, self.tally)

    def _deliver(self, workers):
        ahead = deque()
        for n, task in enumerate(self.tasks):
            ahead.append(pickle.dumps(workers[n % len(workers)][pickle.loads(pickle.dumps(task))]))
            if len(ahead) >= self.prefetch * len(workers):
                yield pickle.loads(ahead.popleft())
        while ahead:
            yield pickle.loads(ahead.popleft())

    def fail(self, error):
        pass

    def samples(self, work):
        return None

    def slot_states(self, noted):
        return noted

    def draw_by(self, changes):
        self.tasks.changes = changes

    def forget(self):
        pass

    def count(self):
        pass

    def close(self):
        pass


def rotating_loader(run, workers, prefetch=2, persistent=True, together=1):
    """A Loader with this many workers, none of which is a process, and `together` batches in a delivery."""
    loader = Loader(run, 0)
    steps = Rotating(run, max(1, workers), prefetch, persistent)
    steps.tasks.pace = _Steady()
    steps.tasks.pace.steps = together
    loader._stream = Stream(run, steps)
    return loader
