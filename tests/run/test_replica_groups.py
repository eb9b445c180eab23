"""Replica groups that come and go between two steps, as in torchft: the others continue with the same batches."""

import pytest
from shardmaking import write_source

import wdspec


@pytest.fixture
def spec(tmp_path):
    return {
        "seed": 4,
        "dataset": [
            {"name": "a", "shards": write_source(tmp_path, "a", 5, 40), "weight": 2, "shuffle": 30},
            {"name": "b", "shards": write_source(tmp_path, "b", 3, 30), "weight": 1, "select": "picks:most"},
        ],
        "batch": {"global_size": 12},
        "elastic": {"ranks": 4, "workers": 2},
    }


class Groups:
    """As many replica groups as there are now; after each step each of them has the states of all."""

    def __init__(self, spec, count, states=None):
        self.loaders = [wdspec.loader(spec, rank=rank, world_size=count) for rank in range(count)]
        for loader in self.loaders:
            if states is not None:
                loader.load_state_dict(wdspec.merge_states(states))
        self.iterations = [iter(loader) for loader in self.loaders]
        self.states = states

    def step(self):
        found = [key for iteration in self.iterations for key in next(iteration)["__key__"]]
        self.states = [loader.state_dict() for loader in self.loaders]
        return found

    def close(self):
        for loader in self.loaders:
            loader.close()


@pytest.mark.parametrize("quorums", [[4, 3, 4], [2, 3, 1, 4], [4, 2, 6, 3, 12, 4]])
def test_remaining_groups_continue_with_the_original_batches(spec, quorums):
    alone = Groups(spec, 1)
    expected = [alone.step() for _ in range(5 * len(quorums))]
    alone.close()
    seen, states = [], None
    for count in quorums:
        groups = Groups(spec, count, states)
        seen += [groups.step() for _ in range(5)]
        # One dies within a step: what it had read of it is read again by those that are left.
        states = groups.states
        next(groups.iterations[0])
        groups.close()
    assert seen == expected
