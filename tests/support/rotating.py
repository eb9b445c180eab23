"""Stands in for torch's DataLoader under a Loader: its workers and their rotation, in this process."""

from __future__ import annotations

import pickle
from collections import deque

from wdspec.run.loader import Loader


class Rotation:
    """Asks W workers in turn, from worker 0 on at each `iter()`, and reads ahead of what it delivers.

    Every worker has its own copy of the dataset, made by pickling, and everything that crosses between processes
    is pickled too. What was read ahead and not delivered when an iteration is left is lost, as with DataLoader.
    """

    def __init__(self, dataset, sampler, workers, prefetch, persistent):
        self.sampler, self.prefetch, self.persistent = sampler, prefetch, persistent
        self.copies = [pickle.dumps(dataset) for _ in range(max(1, workers))]
        self.num_workers, self.worker_init_fn = 0, None  # no processes
        self.persistent_workers = True  # none to end
        self.workers = None
        self._iterator = None  # what a Loader ends when it is closed

    def __iter__(self):
        if self.workers is None or not self.persistent:
            self.workers = [pickle.loads(copy) for copy in self.copies]
        return self._deliver(self.workers)

    def _deliver(self, workers):
        ahead = deque()
        for n, task in enumerate(self.sampler):
            ahead.append(pickle.dumps(workers[n % len(workers)][pickle.loads(pickle.dumps(task))]))
            if len(ahead) >= self.prefetch * len(workers):
                yield pickle.loads(ahead.popleft())
        while ahead:
            yield pickle.loads(ahead.popleft())


def rotating_loader(blueprint, seat, workers, prefetch=2, persistent=True, together=1):
    """A Loader with so many workers, none of which is a process, and so many batches in a delivery."""
    loader = Loader(blueprint, seat, workers)
    loader._tasks.pace.steps = together
    sampler = loader._loader.sampler
    loader._loader = Rotation(loader._dataset, sampler, workers, prefetch, persistent)
    return loader
