"""Single samples read without the calls of a batch: the same samples and states as with them, at every sample."""

import itertools

import pytest
from shardmaking import write_source

import wdspec
from wdspec.read.reader import Reader

WAYS = {
    "one source": {},
    "in order": {"defaults": {"order": "sequential", "shuffle": 0}},
    "raw, three lanes": {"defaults": {"decode": "raw", "shuffle": 0, "interleave": 3}},
    "four slots": {"elastic": {"ranks": 1, "workers": 4}},
    "tuples": {"to_tuple": ["txt", "__key__"]},
    "a sample lost": {"defaults": {"errors": "skip", "decode": {"txt": "json"}}},
}


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return {name: write_source(folder, name, shards, 9) for name, shards in (("a", 3), ("b", 2), ("c", 1))}


def make(urls, way, sources):
    return {
        "seed": 5,
        "dataset": [{"name": name, "shards": urls[name]} for name in sources],
        "epoch": {"samples": 60},
        **WAYS[way],
    }


def samples_and_states(spec, stop=None):
    """The samples of two epochs, each with the state after it; of the first only some."""
    dataset = wdspec.compile(spec)
    found = []
    for samples in (itertools.islice(dataset, stop), dataset, dataset):
        found += [(sample, dataset.state_dict()) for sample in samples]
    dataset.close()
    return found


@pytest.mark.parametrize("sources", ["a", "abc"])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "a sample lost"])
def test_samples_and_states_equal_those_of_batches_of_one(urls, way, sources, monkeypatch):
    spec = make(urls, way, sources)
    found = samples_and_states(spec, 17)
    with monkeypatch.context() as patch:
        patch.setattr(Reader, "is_one_by_one", False)
        expected = samples_and_states(spec, 17)
    assert found == expected
    for at in (0, 16, 59, 60):
        dataset = wdspec.compile(spec)
        dataset.load_state_dict(found[at][1])
        assert list(itertools.islice(itertools.chain(dataset, dataset), 20)) == [
            sample for sample, _ in found[at + 1 : at + 21]
        ]


def test_set_shares_apply_from_the_next_sample(urls):
    dataset = wdspec.compile(make(urls, "one source", "ab"))
    samples = iter(dataset)
    for _ in range(10):
        next(samples)
    dataset.set_shares({"a": 0, "b": 1})
    assert {sample["__source__"] for sample in itertools.islice(samples, 30)} == {"b"}


def test_an_error_is_raised_again_until_a_state_is_loaded(urls):
    spec = make(urls, "a sample lost", "a")
    spec["defaults"]["errors"] = "raise"
    dataset = wdspec.compile(spec)
    state = dataset.state_dict()
    for _ in range(2):
        with pytest.raises(wdspec.FieldError, match="cannot decode as json"):
            next(iter(dataset))
    with pytest.raises(wdspec.UsageError, match="there is no state"):
        dataset.state_dict()
    dataset.load_state_dict(state)
    assert dataset.state_dict() == state
    tuples = wdspec.compile({**make(urls, "one source", "a"), "to_tuple": ["txt", "absent"]})
    for _ in range(2):
        with pytest.raises(wdspec.FieldError, match="absent"):
            next(iter(tuples))


def test_an_older_iteration_cannot_continue(urls):
    dataset = wdspec.compile(make(urls, "one source", "a"))
    old = iter(dataset)
    next(old)
    new = iter(dataset)
    next(new)
    with pytest.raises(wdspec.UsageError, match="newer iteration"):
        next(old)
    assert len(list(new)) == 58
