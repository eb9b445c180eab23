"""`loader.stats()` counts what all workers have read, whatever ends and starts meanwhile."""

import json
import logging
import pickle
from collections import Counter
from dataclasses import asdict, dataclass, fields

import pytest
from shardmaking import write_shard, write_source
from torch.utils.data import DataLoader

import wdspec
from wdspec.read import error_budget as budget_module
from wdspec.read.error_budget import ErrorBudget, SourceCounts
from wdspec.run import stats as run_stats
from wdspec.run.stats import RunStats, SourceStats, Tally, describe_stats
from wdspec.spec.language.options import Errors


def spec(folder):
    a, b = write_source(folder, "a"), write_source(folder, "b")
    sources = [{"name": "a", "shards": a, "weight": 3}, {"name": "b", "shards": b, "weight": 1}]
    return {"dataset": sources, "defaults": {"shuffle": 0, "interleave": 1}, "batch": 4, "epoch": 80}


@pytest.mark.parametrize(("workers", "persistent"), [(0, None), (2, True), (2, False)])
def test_delivered_samples_are_counted_over_workers_and_epochs(tmp_path, workers, persistent):
    more = {} if persistent is None else {"persistent_workers": persistent}
    with wdspec.loader(spec(tmp_path), num_workers=workers, **more) as loader:
        assert loader.stats().batches == 0
        for _ in range(2):
            for _ in loader:
                pass
        stats = loader.stats()
        given = sum(source.delivered for source in stats.sources.values())
        assert (stats.batches, given) == (40, 160)
        assert stats.sources["a"].delivered == 120
        assert stats.sources["a"].passes >= 1
        assert stats.sources["a"].shards >= 4
        assert 0 < stats.waited <= stats.seconds
        loader.close()
        assert sum(source.delivered for source in loader.stats().sources.values()) == 160


def test_an_epoch_left_early_counts_only_delivered_batches(tmp_path):
    with wdspec.loader(spec(tmp_path), num_workers=2) as loader:
        for _ in zip(range(3), loader, strict=False):
            pass
        assert loader.stats().batches == 3


def test_skipped_samples_are_counted_by_cause(tmp_path):
    samples = [(f"k{n:02d}", {"cls": b"x" if n % 5 == 0 else b"1", "txt": b"t"}) for n in range(20)]
    write_shard(tmp_path / "c.tar", samples)
    write_shard(tmp_path / "d.tar", [(f"d{n}", {"txt": b"d"} if n % 2 else {"cls": b"2"}) for n in range(8)])
    sources = [
        {"name": "c", "shards": str(tmp_path / "c.tar"), "errors": "skip"},
        {"name": "d", "shards": str(tmp_path / "d.tar"), "extensions": "cls", "missing": "skip"},
    ]
    with wdspec.loader({"dataset": sources, "epoch": "pass"}) as loader:
        for _ in loader:
            pass
        stats = loader.stats()
    assert stats.sources["c"].skipped == {"D202": 4}
    assert stats.sources["d"].dropped == {"missing": 4}
    flat = stats.flat()
    assert (flat["skipped/c"], flat["skipped/c/D202"], flat["delivered/c"]) == (4, 4, 16)
    assert all(isinstance(value, (int, float)) for value in flat.values())


def test_bytes_and_cache_hits_are_counted(tmp_path, nginx):
    folder, address = nginx.root, nginx.url
    write_source(folder, "a", shards=2)
    size = sum(path.stat().st_size for path in folder.glob("a-*.tar"))
    spec = {
        "dataset": [{"name": "a", "shards": f"{address}/a-{{000..001}}.tar"}],
        "cache": str(tmp_path / "cache"),
        "epoch": "pass",
    }
    found = []
    for _ in range(2):
        with wdspec.loader(spec) as loader:
            for _ in loader:
                pass
            found.append(loader.stats().sources["a"])
    assert [each.shards for each in found] == [2, 2]
    assert found[1].cache_hits == 2
    assert found[1].bytes == size


def test_lines_are_written_and_logged(tmp_path, caplog):
    with wdspec.loader(spec(tmp_path)) as loader:
        loader.log_stats(str(tmp_path / "stats.jsonl"), every=1e-9)
        for _ in loader:
            pass
        lines = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
        assert lines[-1]["sources"]["a"]["delivered"] == 60
        assert lines[0]["time"] > 1e9
        loader.log_stats(every=1e-9)
        with caplog.at_level(logging.INFO, "wdspec"):
            next(iter(loader))
        assert "% waiting; a 6" in caplog.text
        with pytest.raises(wdspec.UsageError, match="seconds above 0"):
            loader.log_stats(every=0)


def test_training_goes_on_if_stats_cannot_be_written(tmp_path, caplog):
    with wdspec.loader(spec(tmp_path)) as loader, caplog.at_level(logging.INFO, "wdspec"):
        loader.log_stats(str(tmp_path), every=1e-9)
        read = len(list(loader))
    assert read > 2
    assert (
        caplog.text.count(f"stats cannot be written to {tmp_path}: Is a directory; they are logged here") == 1
    )
    assert caplog.text.count("% waiting") >= read - 1


def test_the_line_of_many_sources_has_the_largest_and_those_that_lost_samples():
    def counts(delivered, **skipped):
        return SourceStats(delivered, {}, skipped, 0.0, 1, 0, 0)

    sources = {f"s{n:03d}": counts(n) for n in range(100)} | {"bad": counts(1, D202=3)}
    line = describe_stats(RunStats(7, 2.0, 1.0, sources))
    assert line.startswith("7 batches, 50% waiting; s080 80; s081 81; ")
    assert line.endswith("; s099 99; bad 1, D202 3; 80 more sources 3,160")


@pytest.mark.parametrize("batch", [4, None])
def test_a_compiled_dataset_counts_what_it_reads_in_its_process(tmp_path, batch):
    dataset = wdspec.compile({**spec(tmp_path), "batch": batch})
    steps = 80 // (batch or 1)
    assert (dataset.stats().batches, dataset.stats().seconds) == (0, 0)
    for _ in dataset:
        pass
    state = dataset.state_dict()
    next(iter(dataset))
    stats = dataset.stats()
    assert (stats.batches, stats.waited) == (steps + 1, None)
    assert sum(source.delivered for source in stats.sources.values()) >= 80 + (batch or 1)
    assert stats.seconds > 0
    assert stats.sources["a"].shards >= 4
    assert "waited" not in stats.flat()
    given = stats.flat()["delivered/a"]
    dataset.close()
    dataset.load_state_dict(state)
    assert (dataset.stats().batches, dataset.stats().flat()["delivered/a"]) == (steps + 1, given)
    assert len(list(dataset)) == steps
    assert dataset.stats().batches == 2 * steps + 1
    copy = pickle.loads(pickle.dumps(dataset))
    assert (copy.stats().batches, copy.stats().sources["a"].delivered) == (0, 0)


def test_samples_are_counted_once_although_the_position_jumps_while_they_are_read(tmp_path):
    dataset = wdspec.compile({**spec(tmp_path), "batch": None})
    early = next(iter(dataset)) and dataset.state_dict()
    older = iter(dataset)
    for _ in range(20):
        next(older)
    dataset.load_state_dict(early)
    assert dataset.stats().batches == 21
    newer = iter(dataset)
    for _ in range(5):
        next(newer)
    assert dataset.stats().batches == 26
    older.close()
    next(newer)
    assert dataset.stats().batches == 27
    dataset.skip_steps(40, 50)
    last = iter(dataset)
    next(last)
    newer.close()
    next(last)
    assert dataset.stats().batches == 29


def test_a_compiled_dataset_counts_skipped_samples_after_stages(tmp_path):
    write_shard(tmp_path / "c.tar", [(f"k{n}", {"cls": b"x" if n % 5 == 0 else b"1"}) for n in range(20)])
    source = {"name": "c", "shards": str(tmp_path / "c.tar"), "errors": "skip"}
    dataset = wdspec.compile({"dataset": [source], "batch": 4, "epoch": "pass"}).map(lambda batch: batch)
    for _ in range(2):
        assert len(list(dataset)) == 5
    stats = dataset.stages[0].stats()
    assert (stats.batches, stats.sources["c"].skipped) == (10, {"D202": 8})
    assert stats.sources["c"].passes == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_completed_passes_are_counted_if_some_workers_read_nothing(tmp_path, workers):
    write_shard(tmp_path / "c.tar", [(f"k{n}", {"cls": b"1"}) for n in range(7)])
    source = {"name": "c", "shards": str(tmp_path / "c.tar")}
    elastic = {"ranks": 1, "workers": workers}
    with wdspec.loader({"dataset": [source], "batch": 4, "epoch": "pass", "elastic": elastic}) as loader:
        next(iter(loader))
        assert loader.stats().sources["c"].passes < 1
    with wdspec.loader({"dataset": [source], "batch": 4, "epoch": "pass", "elastic": elastic}) as loader:
        assert len(list(loader)) == 2
        assert loader.stats().sources["c"].passes == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_compiled_dataset_in_workers_reports_that_it_has_no_counts(tmp_path, workers):
    dataset = wdspec.compile(spec(tmp_path))
    for _ in DataLoader(dataset, batch_size=None, num_workers=workers):
        pass
    if not workers:
        assert dataset.stats().batches == 20
        return
    with pytest.raises(
        wdspec.UsageError, match="each keeps its own counts, which only a Loader adds up; use wdspec"
    ):
        dataset.stats()


def test_closed_readers_are_counted_exactly_once():
    tally = Tally(2)
    tally.take(1, {0: {"delivered": 3, "dropped": {"select": 1}, "passes": 2}})
    tally.take(1, {0: {"delivered": 5, "dropped": {"select": 2}, "passes": 4}})
    tally.take(2, {0: {"delivered": 7, "skipped": {"D202": 1}}})
    tally.settle()
    tally.take(3, {0: {"delivered": 1}})
    stats = tally.stats(["a", "b"]).sources
    assert (stats["a"].delivered, stats["a"].dropped, stats["a"].skipped) == (
        13,
        {"select": 2},
        {"D202": 1},
    )
    assert stats["a"].passes == 2
    assert stats["b"].delivered == 0


@pytest.mark.parametrize("counter", [each.name for each in fields(SourceCounts)])
def test_every_counter_is_sent_and_added_up_under_its_name(counter):
    budgets, tally = [ErrorBudget(Errors(), "a") for _ in range(2)], Tally(1)
    is_by_cause = isinstance(getattr(budgets[0], counter), Counter)
    for reader, budget in enumerate(budgets):
        setattr(budget, counter, Counter(cause=5) if is_by_cause else 5)
        tally.take(reader, {0: pickle.loads(pickle.dumps(budget.counts))})
    expected = {**asdict(SourceCounts()), counter: {"cause": 10} if is_by_cause else 10}
    assert {name: getattr(tally.totals(1)[0], name) for name in expected} == expected
    shown = asdict(tally.stats(["a"]).sources["a"])
    assert {name: shown[name] for name in expected if name in shown} == {
        name: expected[name] for name in expected if name in shown
    }


def test_a_new_counter_is_one_line(monkeypatch):
    @dataclass(eq=False)
    class Counts(SourceCounts):
        blinks: int = 0

    @dataclass(frozen=True)
    class Shown(SourceStats):
        blinks: int = 0

    monkeypatch.setattr(budget_module, "COUNTERS", [each.name for each in fields(Counts)])
    monkeypatch.setattr(run_stats, "SourceCounts", Counts)
    monkeypatch.setattr(run_stats, "SourceStats", Shown)
    tally, budget = Tally(1), ErrorBudget(Errors(), "a")
    budget.blinks = 3
    for reader in range(2):
        tally.take(reader, {0: budget.counts})
    tally.settle()
    assert tally.stats(["a"]).flat()["blinks/a"] == 6


def test_counts_can_be_read_while_another_thread_counts():
    class Busy(Counter):
        """Gets another cause while Python code goes through it."""

        def items(self):
            for number, item in enumerate(super().items()):
                self[f"new {number}"] += 1
                yield item

    budget = ErrorBudget(Errors(), "a")
    budget.dropped, budget.skipped = Busy(select=2), Busy(D202=1)
    budget.tally("where")[0] = 3
    assert budget.counts == {"dropped": {"select": 2, "where": 3}, "skipped": {"D202": 1}}
    assert budget.all_dropped == {"select": 2, "where": 3}
