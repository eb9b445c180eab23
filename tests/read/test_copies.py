"""No batch has a sample twice if a window spans several passes, or if a shard is in the spec twice."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

import wdspec
from wdspec.jobs.engine import LocalEngine
from wdspec.jobs.stats import StatsJob

pytestmark = pytest.mark.filterwarnings("ignore:the `stats` of the spec cannot be used")
STATES = json.loads(
    (Path(__file__).parents[1] / "support" / "states" / "windows-with-copies.json").read_text(
        encoding="utf-8"
    )
)
"""Specs, states of format 5 inside a window with copies, and the batches that the older release gave of the rest."""

SAMPLES = {"few": 40, "some": 90, "many": 900}
BATCHES = {
    "padded": {"cost": "text.length", "max_cost": 400, "window": 200},
    "sums": {"cost": "text.length", "max_cost": 400, "padded": False, "window": 200},
    "balanced": {"cost": "text.length", "max_cost": 400, "window": 200, "balance": "text.length"},
    "by size": {"cost": "1", "max_cost": 9, "window": 200},
    "groups": {"size": 12, "group_by": "text.length > 50", "group_wait": 200, "window": 60},
    "merged groups": {
        "cost": "text.length",
        "max_cost": 500,
        "group_by": "text.length > 50",
        "group_wait": 200,
        "window": 60,
        "incomplete": "merge",
    },
}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    for name, count in SAMPLES.items():
        lines = (json.dumps({"__key__": f"{n:02d}", "text": "x" * (1 + n * 37 % 101)}) for n in range(count))
        (folder / f"{name}-0.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def source(name, **keys):
    return {"name": name, "shards": f"{name}-0.jsonl", "shuffle": 40, **keys}


def spec_of(batch, *sources, **keys):
    return {"dataset": list(sources), "batch": {**batch, "collate": {"text": "list"}}, **keys}


def names_of(batch):
    mask = batch.get("__mask__")
    present = [True] * len(batch["__key__"]) if mask is None else mask.tolist()
    pairs = zip(batch["__url__"], batch["__key__"], strict=True)
    return [pair for pair, is_present in zip(pairs, present, strict=True) if is_present]


def read(spec, count=None, state=None):
    """The names of the samples of each batch, and the state after them."""
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        found = [names_of(batch) for batch in islice(loader, count)]
        return found, loader.state_dict()


def assert_without_copies(batches):
    for batch in batches:
        assert len(set(batch)) == len(batch)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("names", [["few"], ["few", "many"], ["few", "some", "many"]], ids=len)
def test_batches_have_different_samples(kind, names):
    spec = spec_of(BATCHES[kind], *map(source, names))
    batches, _ = read(spec, 120)
    assert_without_copies(batches)
    before, state = read(spec, 31)
    assert before + read(spec, 89, state)[0] == batches


@pytest.mark.parametrize("kind", BATCHES)
def test_a_window_still_has_all_of_its_samples(kind):
    plain = {"dataset": [source("few"), source("some")], "batch": {"size": 200, "collate": {"text": "list"}}}
    windows, _ = read(plain, 3)
    batches = iter(read(spec_of(BATCHES[kind], source("few"), source("some")), 300)[0])
    for window in windows:
        found = []
        while len(found) < 200:
            found += next(batches)
        assert Counter(found) == Counter(window)


@pytest.mark.parametrize("repeat", [0.5, 1, 2.5, 5])
@pytest.mark.parametrize("kind", BATCHES)
def test_passes_have_different_samples_in_each_batch(kind, repeat, tmp_path):
    elastic = {"ranks": 1, "workers": 1} if kind == "padded" else {"ranks": 2, "workers": 2}
    stats = str(tmp_path / "stats.json")
    sources = source("few", repeat=repeat), source("some", where="text.length > 4")
    spec = spec_of(BATCHES[kind], *sources, epoch="pass", elastic=elastic, stats=stats)
    batches, _ = read(spec)
    assert_without_copies(batches)
    counts = Counter(name for batch in batches for name in batch)
    of_few = [counts["few-0.jsonl", f"{n:02d}"] for n in range(40)]
    assert all(int(repeat) <= count <= -(-repeat // 1) for count in of_few)
    StatsJob(wdspec.load(spec), stats).run(LocalEngine(0))
    assert read(spec)[0] == batches
    before, state = read(spec, 2 * elastic["ranks"])
    assert before + read(spec, None, state)[0] == batches


@pytest.mark.parametrize("epoch", [{"batches": 40}, "pass"], ids=["endless", "pass"])
@pytest.mark.parametrize("kind", BATCHES)
def test_a_shard_that_is_listed_twice_has_copies(kind, epoch):
    twice = {**source("few"), "shards": ["few-0.jsonl", "some-0.jsonl", "few-0.jsonl"]}
    assert_without_copies(read(spec_of(BATCHES[kind], twice, epoch=epoch))[0])
    again = {**source("few"), "name": "again"}
    batches, _ = read(spec_of(BATCHES[kind], source("few"), again, source("some"), epoch=epoch))
    assert_without_copies(batches)
    if epoch == "pass":
        counts = Counter(name for batch in batches for name in batch)
        assert Counter(counts.values()) == {2: 40, 1: 90}


def test_records_with_the_same_key_are_different_samples_of_a_pass(tmp_path):
    path = tmp_path / "same-0.jsonl"
    path.write_text("".join(json.dumps({"__key__": "k", "text": "xx"}) + "\n" for _ in range(30)))
    same = {"name": "same", "shards": str(path), "repeat": 2}
    batches, _ = read(spec_of({"cost": "text.length", "max_cost": 20, "window": 60}, same, epoch="pass"))
    assert [len(batch) for batch in batches] == [10] * 6


@pytest.mark.parametrize("kind", STATES)
def test_an_open_window_of_an_older_release_is_finished_as_it_was_planned(kind):
    written = STATES[kind]
    for first in (0, 2, 5):
        before, state = read(written["spec"], first, written["state"])
        after, _ = read(written["spec"], len(written["rest"]) - first, state)
        assert [[key for _, key in batch] for batch in before + after] == written["rest"]
    more, _ = read(written["spec"], len(written["rest"]) + 20, written["state"])
    assert any(len(set(batch)) < len(batch) for batch in written["rest"])
    assert_without_copies(more[len(written["rest"]) :])


def test_what_a_stage_yields_is_not_compared(tmp_path, monkeypatch):
    (tmp_path / "twice_stage.py").write_text(
        "def twice(samples):\n    for sample in samples:\n        yield sample\n        yield dict(sample)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    stage = {"call": "twice_stage:twice", "every": 100}
    batches, _ = read(spec_of(BATCHES["padded"], source("many"), stage=stage), 30)
    assert any(len(set(batch)) < len(batch) for batch in batches)


def test_copies_are_kept_apart_in_a_pass_though_map_changes_their_keys(tmp_path, monkeypatch):
    (tmp_path / "renaming.py").write_text(
        "import itertools\n"
        "numbers = itertools.count()\n"
        "def rename(sample):\n"
        "    return sample | {'__key__': f\"{sample['__key__']}-{next(numbers)}\", 'n': len(sample['text'])}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    batch = {"cost": "n", "max_cost": 400, "padded": False, "window": 200}
    function = {"call": "renaming:rename", "sets": "n"}
    spec = spec_of(batch, source("few", repeat=3), map=function, epoch="pass")
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = [[key.partition("-")[0] for key in each["__key__"]] for each in loader]
    assert Counter(key for keys in batches for key in keys) == {f"{n:02d}": 3 for n in range(SAMPLES["few"])}
    assert all(len({*keys}) == len(keys) for keys in batches)
