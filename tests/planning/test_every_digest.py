"""A change of a key moves exactly the digests that the key declares: of the order, the samples, and of measurements."""

import pytest
from keychanges import (
    CHOSEN,
    CONTENT,
    CONTEXTS,
    DECODED,
    EXAMPLES,
    KEYS,
    NOT_IN_SOURCES,
    SHARD,
    draw_changes,
    made,
    moves,
    write_data,
)
from oracle.data import write_data as write_drawn_data

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
NAMES = sorted(set(KEYS) - NOT_IN_SOURCES - {"top wdspec"})  # which has one legal value


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


def declared(name, title):
    """The digests that a change of a key moves in a context, and those that it may move, by what the key declares."""
    key, context = KEYS[name], CONTEXTS[title]
    affects = key.affects
    must = {affects.what} & {"order", "samples"}
    if name in (
        "source name",
        "source companions",
    ):  # the samples are described by name, also those of companions
        must.add("samples")
    if affects.order_if_skipping and context.source.get("missing") == "skip":
        must |= {"order", "costing"}
    may = {"order", "costing"} if affects.order_if_read else set()
    if name == "source make":  # only what a selection reads
        may.add("keeping")
    if affects.in_plan:
        must, may = must - {"order"}, may | {"order"}
    steps = {
        "content": CONTENT,
        "shards": SHARD,
        "decoding": DECODED,
        "keeping": CHOSEN,
        "costing": context.costing,
    }
    its = key.steps
    if name == "top costs" and "q" not in context.source.get("where", ""):  # it has no use
        its = its - {"choice"}
    return must | {digest for digest, each in steps.items() if its & set(each.split())}, may


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_key_moves_exactly_the_digests_that_it_declares(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    assert name in EXAMPLES, "add a change of the key to tests/support/keychanges.py"
    found = list(moves(name, *(made(name, change) for change in EXAMPLES[name])))
    assert found, f"`{name}` is legal in no context"
    for title, both, moved in found:
        must, may = declared(name, title)
        assert moved - may == must & both - may, title
    if KEYS[name].affects.in_plan:
        assert any("order" in moved for _, _, moved in found)


def is_drawn(name):
    return (
        name.split()[1] not in ("probability", "weight", "samples", "bytes", "mean_cost")
        and "mix." not in name
    )


def check_drawn(name, count):
    for before, after in draw_changes(name, count):
        for title, _, moved in moves(name, made(name, before), made(name, after)):
            must, may = declared(name, title)
            assert moved <= must | may, (title, before, after)


@pytest.fixture(scope="module")
def drawn_data(folder):
    write_drawn_data(folder)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("count", [1, 12])
@pytest.mark.usefixtures("drawn_data")
def test_no_change_between_values_that_the_schema_allows_moves_another_digest(
    count, part, folder, monkeypatch
):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for name in filter(is_drawn, NAMES[part::4]):
        check_drawn(name, count)
