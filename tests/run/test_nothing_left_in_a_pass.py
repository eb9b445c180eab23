"""A loader warns once, at the end of a pass, about a source of which nothing is left."""

import logging

import pytest
from shardmaking import write_shard

import wdspec


@pytest.fixture
def spec(tmp_path):
    for name in "ab":
        write_shard(
            tmp_path / f"{name}.tar", [(f"{name}{n:03d}", {"cls": b"%d" % (n % 3)}) for n in range(20)]
        )
    sources = [{"name": name, "shards": str(tmp_path / f"{name}.tar")} for name in "ab"]
    sources[0]["where"] = "cls > 7"
    return {"dataset": sources, "batch": 4, "epoch": "pass"}


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"where": "cls > 7"}, "20 of 20 left out by `where`; correct `where: cls > 7`"),
        (
            {"select": "builtins:callable"},
            "20 of 20 left out by `select`; correct the function `builtins:callable`",
        ),
        (
            {"extensions": "cls txt", "missing": "skip"},
            "20 of 20 left out by `missing`; compare the names with ",
        ),
    ],
)
def test_a_loader_names_the_source_and_why(spec, keys, why, caplog):
    del spec["dataset"][0]["where"]
    spec["dataset"][0] |= keys
    with wdspec.loader(spec, num_workers=0) as loader:
        list(loader)
    (message,) = warnings(caplog)
    assert message.startswith(f"no sample of `a` is left: {why}")
    assert (caplog.records[0].code, caplog.records[0].source) == ("W393", "a")


def test_it_warns_after_the_first_whole_pass_alone(spec, caplog):
    with wdspec.loader(spec, num_workers=0) as loader:
        next(iter(loader))
        assert warnings(caplog) == []
        list(loader)
        assert len(warnings(caplog)) == 1
        list(loader)
    assert len(warnings(caplog)) == 1


def test_workers_and_compiled_datasets_warn_as_well(spec, caplog):
    with wdspec.loader(spec | {"loader": {"kind": "threads"}}, num_workers=2) as loader:
        list(loader)
    list(wdspec.compile(spec))
    list(wdspec.compile({key: value for key, value in spec.items() if key != "batch"}))
    assert len(warnings(caplog)) == 3


def test_the_rest_of_a_pass_is_judged_by_what_it_has(spec, caplog):
    first, second = wdspec.loader(spec, num_workers=0), wdspec.loader(spec, num_workers=0)
    next(iter(first))
    second.load_state_dict(first.state_dict())
    list(second)
    assert [message.split(";")[0] for message in warnings(caplog)] == [
        "no sample of `a` is left: 16 of 16 left out by `where`"
    ]


@pytest.mark.parametrize("where", ["cls == 2", None])
def test_a_source_with_samples_gives_no_warning(spec, where, caplog):
    spec["dataset"][0]["where"] = where
    list(wdspec.loader(spec, num_workers=0))
    assert warnings(caplog) == []


@pytest.mark.parametrize(("samples", "warns"), [(150, False), (250, True)])
def test_a_rank_only_judges_a_large_part(tmp_path, spec, samples, warns, caplog):
    write_shard(tmp_path / "a.tar", [(f"{n:03d}", {"cls": b"1"}) for n in range(samples)])
    list(wdspec.loader(spec, num_workers=0, rank=0, world_size=2))
    assert len(warnings(caplog)) == warns
    assert all("left out by `where` (in what rank 0 of 2 has read)" in each for each in warnings(caplog))
