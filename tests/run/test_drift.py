"""With `shares_in: cost`, `stats()` has the realised shares of the cost, and a drift is a warning."""

import logging
import random
from types import SimpleNamespace

import numpy as np
import pytest
from shardmaking import write_shard

import wdspec
from wdspec.read.error_budget import SourceCounts
from wdspec.run.stats import Tally


def spec(folder, declared, lengths, **more):
    """Two sources of texts with an even share of the cost; `declared` and `lengths` are mean costs by source."""
    draws = random.Random(0)
    for name, length in lengths.items():
        for shard in range(2):
            texts = [b"x" * max(1, round(draws.gauss(length, length / 4))) for _ in range(300)]
            write_shard(
                folder / f"{name}-{shard}.tar",
                [(f"{name}{shard}{n:04d}", {"txt": text}) for n, text in enumerate(texts)],
            )
    sources = [
        {"name": name, "shards": str(folder / f"{name}-{{0..1}}.tar"), "weight": 1, "mean_cost": mean}
        for name, mean in declared.items()
    ]
    batch = {
        "cost": "txt.length",
        "max_cost": 400,
        "padded": False,
        "window": 100,
        "collate": {"txt": "list"},
    }
    described = {"dataset": sources, "mix": {"shares_in": "cost"}, "batch": batch, "epoch": {"batches": 300}}
    return described | more


def read(described, workers=0):
    """The stats of an epoch, and the cost of each source, counted in its batches."""
    cost = dict.fromkeys((source["name"] for source in described["dataset"]), 0)
    with wdspec.loader(described, num_workers=workers) as loader:
        for batch in loader:
            for source, text in zip(batch["__source__"], batch["txt"], strict=True):
                cost[source] += len(text)
        return loader.stats(), cost


@pytest.mark.parametrize("workers", [0, 2])
def test_right_mean_costs_give_the_shares_of_the_spec(tmp_path, caplog, workers):
    means = {"long": 40, "short": 10}
    stats, cost = read(spec(tmp_path, means, means), workers)
    assert {name: source.cost for name, source in stats.sources.items()} == cost
    for name, source in stats.sources.items():
        assert source.cost_share == cost[name] / sum(cost.values())
        assert source.cost_share == pytest.approx(0.5, abs=0.02)
        assert source.planned_cost_share == pytest.approx(0.5, abs=0.01)
    assert "drift" not in caplog.text


def test_wrong_mean_costs_are_one_warning(tmp_path, caplog):
    described = spec(tmp_path, {"long": 20, "short": 10}, {"long": 40, "short": 10})
    stats, _ = read(described, 2)
    assert stats.sources["long"].cost_share == pytest.approx(2 / 3, abs=0.02)
    assert stats.sources["long"].planned_cost_share == pytest.approx(1 / 2, abs=0.01)
    [record] = [each for each in caplog.records if "drift" in each.message]
    assert record.levelno == logging.WARNING
    assert "by more than 2%: 'long' has 6" in record.message
    assert "% instead of 50." in record.message
    assert "run `wdspec stats` again" in record.message
    flat = stats.flat()
    assert flat["cost_share/long"] == stats.sources["long"].cost_share


def test_chance_deviations_cause_no_warning(tmp_path, caplog):
    """A few samples whose costs differ a hundredfold say little about their mean."""
    described = spec(tmp_path, {"wild": 30, "short": 10}, {"wild": 30, "short": 10})
    draws = random.Random(1)
    texts = [b"x" * (400 if draws.random() < 0.05 else 10) for _ in range(300)]
    write_shard(tmp_path / "wild-0.tar", [(f"w{n:04d}", {"txt": text}) for n, text in enumerate(texts)])
    described["epoch"] = {"batches": 64}
    described["batch"]["max_size"] = 4
    stats, _ = read(described)
    assert abs(stats.sources["wild"].cost_share - stats.sources["wild"].planned_cost_share) > 0.005
    assert "drift" not in caplog.text


def count_drifts(right, runs=300):
    """In how many runs of three corpora with long-tailed lengths a drift is found, if one's mean is off by a factor."""
    draw, means, found = np.random.default_rng(0), (300, 600, 1200), 0
    for _ in range(runs):
        lengths = [np.zeros(0)] * 3
        for step in range(6):
            for number, documents in enumerate((390, 98, 16)):  # 60, 30 and 10% of the tokens
                more = draw.lognormal(np.log(means[number]) - 0.5, 1, documents << max(0, step - 1))
                lengths[number] = np.append(lengths[number], more * (1 if number < 2 else right))
            counts = [
                SourceCounts(measured=len(each), measured_cost=each.sum(), measured_squares=(each**2).sum())
                for each in lengths
            ]
            if Tally.drifts(SimpleNamespace(totals=lambda _, counts=counts: counts), means, 0.02):
                found += 1
                break
    return found


def test_a_few_documents_of_a_corpus_with_long_ones_are_no_drift():
    assert count_drifts(1) <= 1
    assert count_drifts(0.5) == count_drifts(1.8) == 300


def test_without_shares_of_cost_no_share_is_planned(tmp_path):
    described = spec(tmp_path, {"a": 10, "b": 10}, {"a": 10, "b": 10}, mix={})
    stats, cost = read(described)
    assert stats.sources["a"].planned_cost_share is None
    assert stats.sources["a"].cost_share == cost["a"] / sum(cost.values())
    stats, _ = read(
        {**described, "batch": {"cost": "txt.length", "max_cost": 400, "collate": {"txt": "list"}}}
    )
    assert all(isinstance(value, (int, float)) for value in stats.flat().values())


def test_pieces_of_a_sample_are_counted_once(tmp_path):
    """Samples that are split cost as much together as the whole, so the mean cost stays that of the source."""
    import io

    def npy(length):
        file = io.BytesIO()
        np.save(file, np.zeros(length, np.int64))
        return file.getvalue()

    for name, length in (("a", 300), ("b", 50)):
        write_shard(tmp_path / f"{name}.tar", [(f"{name}{n:03d}", {"npy": npy(length)}) for n in range(100)])
    sources = [
        {"name": name, "shards": str(tmp_path / f"{name}.tar"), "weight": 1, "mean_cost": cost}
        for name, cost in (("a", 300), ("b", 50))
    ]
    described = {
        "dataset": sources,
        "mix": {"shares_in": "cost"},
        "batch": {"window": 70, "overlong": "split", "pack": {"fields": ["npy"], "length": 128}},
        "epoch": {"batches": 400},
    }
    with wdspec.loader(described) as loader:
        tokens = sum(batch["__tokens__"] for batch in loader)
        stats = loader.stats()
    assert sum(source.tokens for source in stats.sources.values()) == tokens
    assert sum(source.cost for source in stats.sources.values()) == tokens
    for source in stats.sources.values():
        assert source.cost_share == pytest.approx(source.planned_cost_share, abs=0.01)
