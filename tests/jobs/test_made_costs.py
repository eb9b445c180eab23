"""`wdspec stats` measures what costs read of made fields: passes use it, and other files are measured again."""

import random
import warnings

import pytest
from shardmaking import write_shard
from tokenizers_made import END, trained, words

import wdspec
from wdspec.cli.samples import first_samples
from wdspec.jobs.engine import LocalEngine
from wdspec.jobs.stats import StatsJob
from wdspec.steps import tokenize as module

PACK = {"window": 20, "overlong": "split", "pack": {"fields": "ids", "length": 64, "segment_ids": "segments"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained("bpe").save("tokenizer.json")
    draw, known = random.Random(0), words()
    for name in "ab":
        texts = [" ".join(draw.choices(known, k=draw.randint(1, 30))).encode() for _ in range(50)]
        write_shard(
            tmp_path / f"{name}.tar", [(f"{name}{n:03}", {"txt": text}) for n, text in enumerate(texts)]
        )
    return tmp_path


def spec_of(**keys):
    make = {"ids": {"tokenize": "txt", "file": "tokenizer.json", "eos": END}}
    sources = [{"name": name, "shards": f"{name}.tar", "weight": 1} for name in "ab"]
    return {"dataset": sources, "defaults": {"make": make}, "batch": PACK, **keys}


def measure(spec):
    """Measure what is not measured yet; return the number of shards that were."""
    job = StatsJob(wdspec.load(spec), "stats.json")
    job.run(LocalEngine(0))
    return len(job.tasks)


def test_a_pass_tokenizes_only_what_it_reads_if_stats_has_the_lengths(folder, monkeypatch):
    spec = spec_of(epoch="pass", stats="stats.json")
    for source in spec["dataset"]:
        del source["weight"]
    measure(spec)
    calls, encode = [], module.encode
    monkeypatch.setattr(module, "encode", lambda *arguments: calls.append(1) or encode(*arguments))
    with wdspec.loader(spec, num_workers=0) as loader:
        counted = len(calls)
        assert sum(len(row) for batch in loader for row in batch["__key__"]) >= 100
    assert counted == 0
    assert len(calls) == 100


def test_other_contents_of_a_file_are_measured_again_and_reported_until_then(folder):
    spec = spec_of(stats="stats.json", mix={"shares_in": "cost"})
    assert measure(spec) == 2
    assert measure(spec) == 0
    mean = wdspec.load(spec).sources[0].mean_cost
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(first_samples(wdspec.load(spec), 2))) == 2  # without batches, nothing is measured
    library = trained("wordpiece")
    library.add_special_tokens([END])
    library.save("tokenizer.json")
    with pytest.warns(
        UserWarning, match="the share of `a` follows its mean cost, which was measured with other files"
    ):
        wdspec.plan(spec)
    assert measure(spec) == 2
    assert wdspec.load(spec).sources[0].mean_cost != mean
    assert measure(spec) == 0
