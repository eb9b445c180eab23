"""Ranks compare what they are going to read without waiting for each other."""

import itertools
import threading
from collections import Counter
from types import SimpleNamespace

import pytest
import torch.distributed as distributed
from runs import Listed
from shardmaking import write_source

from wdspec.base.errors import UsageError
from wdspec.planning.topology import Seat
from wdspec.run import ranks as rank_agreement
from wdspec.run.loader import Loader
from wdspec.run.ranks import check_ranks_agree, compare
from wdspec.spec.load import load

ORDER = {"seed": 1, "sources": {"a": {"share": "1", "shards": "3:x"}}}
SHARDS = {"a": ["a-0.tar", "a-1.tar", "a-2.tar"]}


def describe(seed=1, shards=("a-0.tar", "a-1.tar", "a-2.tar")):
    texts = list(shards)
    order = {"seed": seed, "sources": {"a": {"share": "1", "shards": f"{len(texts)}:{hash(shards)}"}}}
    return order, {"a": texts}


class Patient(distributed.HashStore):
    """A store where waiting would be noticed."""

    def get(self, key):
        assert self.check([key]), f"{key} is waited for"
        return super().get(key)


class InTurns:
    """Lets two ranks, in threads, use a store in the order of a schedule of their numbers, then as they like."""

    def __init__(self, schedule):
        self.store, self.schedule, self.changed = Patient(), list(schedule), threading.Condition()
        self.done = set()

    def of(self, rank):
        return RankStore(self, rank)

    def use(self, rank, name, arguments):
        with self.changed:
            self.changed.wait_for(lambda: self.turn() in (rank, None))
            if self.schedule:
                self.schedule.pop(0)
            result = getattr(self.store, name)(*arguments)
            self.changed.notify_all()
            return result

    def end(self, rank):
        with self.changed:
            self.done.add(rank)
            self.changed.notify_all()

    def turn(self):
        while self.schedule and self.schedule[0] in self.done:
            self.schedule.pop(0)
        return self.schedule[0] if self.schedule else None


class RankStore:
    def __init__(self, turns, rank):
        self.turns, self.rank = turns, rank

    def __getattr__(self, name):
        return lambda *arguments: self.turns.use(self.rank, name, arguments)


def test_ranks_that_agree_pass_in_any_order():
    for ranks in ([0, 1, 2], [2, 0, 1]):
        store = Patient()
        for rank in ranks:
            compare(store, "k", rank, 3, *describe())


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            describe(shards=("a-0.tar", "b-1.tar", "a-2.tar")),
            r"source 'a', shard 1 is b-1.tar on rank 1 and a-1.tar on rank 0 \(3 and 3 in all\)",
        ),
        (describe(shards=("a-0.tar",)), "shard 1 is missing on rank 1 and a-1.tar on rank 0"),
        (describe(seed=2), r"rank 1 \('now'\) has another spec than rank 0 \('was'\):\n  seed: was 1, now 2"),
    ],
)
def test_the_error_for_a_differing_rank_names_the_difference(other, says):
    store = Patient()
    compare(store, "k", 0, 2, *describe())
    with pytest.raises(UsageError, match=says):
        compare(store, "k", 1, 2, *other)


def test_one_of_two_differing_ranks_notices_in_any_interleaving():
    def come(rank):
        try:
            compare(turns.of(rank), "k", rank, 2, *describe(seed=rank))
        except UsageError:
            found.append(rank)
        finally:
            turns.end(rank)

    finders = set()
    for schedule in itertools.product((0, 1), repeat=8):
        turns, found = InTurns(schedule), []
        ranks = [threading.Thread(target=come, args=(rank,)) for rank in (0, 1)]
        for thread in ranks:
            thread.start()
        for thread in ranks:
            thread.join()
        assert found, schedule
        finders.add(tuple(sorted(found)))
    assert finders >= {(0,), (1,)}


def test_other_comparisons_are_not_affected():
    store = Patient()
    compare(store, "k", 0, 2, *describe())
    compare(store, "other", 0, 2, *describe(seed=2))


def test_ranks_that_skip_different_steps_notice(tmp_path, monkeypatch):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a")}], "batch": 2}
    store = Patient()

    def loader_of(rank, **more):
        group = SimpleNamespace(_get_default_store=lambda: store)
        world = SimpleNamespace(get_rank=lambda: rank, get_world_size=lambda: 2, distributed_c10d=group)
        monkeypatch.setattr(rank_agreement, "initialised_distributed", lambda: world)
        monkeypatch.setattr(rank_agreement, "_comparisons", Counter())
        return Loader(Listed.of(load({**spec, **more})).run(Seat(rank, 2), 0), 0)

    check_ranks_agree(loader_of(0, skip=["3..5", 9]).run)
    check_ranks_agree(loader_of(1, skip=[9, "3..4", 5]).run)
    with pytest.raises(
        UsageError, match=r"rank 1 \('now'\) has another spec .*\n  skip: was \"3 to 5, 9\", now \"3 to 5\""
    ):
        check_ranks_agree(loader_of(1, skip="3..5").run)
    loader_of(0).skip_steps(3, 5)
    loader_of(1).skip_steps(3, 5)
    with pytest.raises(
        UsageError,
        match=r"rank 1 \('now'\) skips other steps than rank 0 .*\n  skip: was \"3 to 5\", now \"4\"",
    ):
        loader_of(1).skip_steps(4)
