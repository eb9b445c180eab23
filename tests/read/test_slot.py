"""One slot: draws decide which source is next, and the state covers all sources after the last batch."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs import Listed
from shardmaking import write_source

from wdspec.planning.topology import Seat
from wdspec.read.slot import Mixture
from wdspec.read.source import pack_slot
from wdspec.spec.load import load

BATCHES = 60


@pytest.fixture(scope="module", params=["one", "several", "interleaved"])
def slot_of(request, tmp_path_factory):
    """Makes slots of a plan; batches are of 3, so that draws ahead end at different places."""
    folder = tmp_path_factory.mktemp("slot")
    names = "a" if request.param == "one" else "abcdefg"
    dataset = [
        {"name": n, "shards": write_source(folder, n, 3, 11), "weight": w} for w, n in enumerate(names, 1)
    ]
    options = {"shuffle": 40, **({"interleave": 2} if request.param == "interleaved" else {})}
    spec = load({"dataset": dataset, "defaults": options, "batch": 3, "seed": 2})
    run = Listed.of(spec).run(Seat(), 4)

    def make(state=None):
        return Mixture(run.plan, run.reader()._sources, run.plan.draws(), 0, 1, state)

    make.plan = run.plan
    return make


def keys(samples):
    return [sample["__key__"] for sample in samples]


def test_the_draws_select_the_sources(slot_of):
    slot = slot_of()
    drawn = slot_of.plan.draws().batches(0, 1, 0, BATCHES)
    alone = [iter(stream) for stream in slot_of()._streams]
    for m in range(BATCHES):
        assert keys(slot.take(m)) == [next(alone[source])["__key__"] for source in drawn[m]]


@given(packed=st.sets(st.integers(0, BATCHES - 1)), stop=st.integers(0, BATCHES - 1))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_state_covers_all_sources_even_if_rarely_requested(slot_of, packed, stop):
    slot = slot_of()
    for m in range(stop):
        slot.take(m)
        if m in packed:
            assert slot.pack() == pack_slot([stream.state for stream in slot._streams])
    state = slot.pack()
    assert state == pack_slot([stream.state for stream in slot._streams])
    again = slot_of(state)
    assert again.pack() == state
    for m in itertools.islice(itertools.count(stop), 10):
        assert keys(again.take(m)) == keys(slot.take(m))
        assert again.pack() == slot.pack()
