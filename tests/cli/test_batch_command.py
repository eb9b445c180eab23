"""`wdspec batch` names the samples that a run gets, for any spec, topology and step, by the headers of its shards."""

import json
import random
from pathlib import Path

import pyarrow
import pytest
from commandline import within
from firsttrydata import END, train_tokenizer
from pyarrow import feather, parquet
from shardmaking import UNEVEN, write_shard, write_uneven_sources

import wdspec
from wdspec.cli import batch as header_parts
from wdspec.cli.batch import trace_steps
from wdspec.fields.samples import SampleFields


def trace_step(spec, step, **options):
    """The samples of one global batch."""
    (trace,) = trace_steps(spec, range(step, step + 1), **options)
    return trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uneven")
    write_uneven_sources(folder)
    return folder


def random_run(folder, seed):
    """(spec, ranks, workers, step) drawn at random."""
    rng = random.Random(seed)
    sources = []
    for name in rng.sample(sorted(UNEVEN), rng.randint(1, 4)):
        source = {
            "name": name,
            "shards": str(folder / f"{name}-{{000..{UNEVEN[name][0] - 1:03d}}}.tar"),
            "weight": rng.choice([1, 2, 5]),
            "shuffle": rng.choice([0, 10, 200]),
            "interleave": rng.choice([1, 3, 8]),
            "order": rng.choice(["shuffled", "shuffled", "sequential", "resampled"]),
            "extensions": "txt",
        }
        if rng.random() < 0.3:
            source |= {"extensions": "txt cls", "missing": "skip"}
        sources.append(source)
    ranks, workers = rng.choice([1, 2, 4]), rng.choice([0, 1, 3])
    spec = {"dataset": sources, "seed": rng.randint(0, 99), "fields": "txt"}
    kind = rng.choice(["stream", "stream", "pass", "random", "elastic", "unit"])
    if kind == "pass":
        spec["dataset"] = [{**source, "order": "sequential"} for source in sources]
        for source in spec["dataset"]:
            del source["weight"], source["interleave"]
        spec["epoch"] = "pass"
    elif kind == "random":
        spec["mix"] = {"draw": "random"}
    elif kind == "elastic":
        spec["elastic"] = {
            "ranks": ranks * rng.choice([1, 2]),
            "workers": max(1, workers) * rng.choice([1, 2]),
        }
    elif kind == "unit":
        spec["mix"] = {"unit": "batch"}
    spec["batch"] = rng.choice([1, 3, 4])
    return spec, ranks, workers, rng.randint(0, 5 if kind == "pass" else 40)


def delivered(spec, ranks, workers, step):
    """The keys of a step, rank by rank, as loaders give them; None where the pass has no such step."""
    found = []
    for rank in range(ranks):
        with wdspec.loader(spec, rank=rank, world_size=ranks, num_workers=0) as loader:
            if spec.get("epoch") == "pass" and step >= len(loader):
                return None
            found.append(next(batch for number, batch in enumerate(loader) if number == step)["__key__"])
    return found


def agrees(folder, seed):
    spec, ranks, workers, step = random_run(folder, seed)
    if "elastic" not in spec:  # in one process, with the order of this many workers
        spec["elastic"] = {"ranks": ranks, "workers": max(1, workers)}
    expected = delivered(spec, ranks, workers, step)
    if expected is None:
        return
    trace = trace_step(wdspec.load(spec), step, ranks=ranks)
    found = [[each.key for each in trace.samples if each.rank == rank] for rank in range(ranks)]
    assert found == expected, (seed, spec, ranks, workers, step)


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_what_a_run_delivers(folder, seed):
    agrees(folder, seed)


def write_rows(folder, name, form, field):
    """A shard of 12 samples with keys of their own, and no field but this one."""
    path, rows = folder / f"{name}-0.{form}", [{"__key__": f"k.{n}", field: f"{n}"} for n in range(12)]
    if form == "tar":
        write_shard(path, [(row["__key__"], {field: row[field].encode()}) for row in rows])
    elif form in ("parquet", "arrow"):
        table = pyarrow.Table.from_pylist(rows)
        if form == "parquet":
            parquet.write_table(table, path, row_group_size=5)
        else:
            feather.write_feather(table, path)
    else:
        with wdspec.RecordWriter(path, form.removesuffix("s")) as writer:
            for row in rows:
                writer.write(row)
    return {"name": name, "shards": str(folder / f"{name}-{{0..0}}.{form}")}


@pytest.mark.parametrize("more", ["", "join", "cost", "pass"])
@pytest.mark.parametrize("form", ["tar", "parquet", "arrow", "jsonl", "cbors", "msgpack"])
def test_keys_are_those_of_the_samples_in_any_format(tmp_path, form, more):
    source = write_rows(tmp_path, "a", form, "txt")
    spec = {"dataset": [source], "batch": 4, "elastic": {"ranks": 1, "workers": 1}}
    if form == "tar":
        source["key"] = "last_dot"
    if more == "join":
        partner = write_rows(tmp_path, "b", form, "cap")
        source["join"] = [{"shards": partner["shards"]}]
    elif more == "cost":
        spec["batch"] = {"cost": "1", "max_cost": 4, "window": 8}
    elif more == "pass":
        spec["epoch"] = "pass"
    trace = trace_step(wdspec.load(spec), 1)
    assert [[each.key for each in trace.samples]] == delivered(spec, 1, 1, 1)
    assert sorted({each.number for each in trace.samples} & {*range(12)}) == sorted(
        int(each.key.removeprefix("k.")) for each in trace.samples
    )


@pytest.mark.long
def test_two_hundred_steps_are_what_runs_deliver(folder):
    for seed in range(1000, 1200):
        agrees(folder, seed)


def one_source(folder, **more):
    shards = str(folder / "a-{000..004}.tar")
    return {
        "dataset": [{"name": "a", "shards": shards, "extensions": "txt", "shuffle": 20}],
        "batch": 4,
    } | more


def test_no_sample_is_decoded_if_headers_suffice(folder, monkeypatch):
    monkeypatch.setattr(SampleFields, "__call__", lambda *_: pytest.fail("decoded"))
    spec = wdspec.load(one_source(folder))
    assert not header_parts.needs_samples(spec, spec.sources[0])
    assert len(trace_step(spec, 30, ranks=2, workers=2).samples) == 8


def test_offsets_and_indexes_are_those_of_the_shard(folder):
    trace = trace_step(wdspec.load(one_source(folder)), 3)
    for each in trace.samples:
        shard = Path(each.url).read_bytes()
        assert shard[each.offset : each.offset + 100].startswith(f"{each.key}.txt".encode())
        assert each.key.endswith(f"{each.number:04d}")


def test_a_state_is_resumed_and_determines_the_topology(folder, tmp_path, monkeypatch):
    spec = one_source(folder, epoch=4000)
    with wdspec.loader(spec, num_workers=2) as loader:
        batches = iter(loader)
        keys = [next(batches)["__key__"] for _ in range(9)]
        state = loader.state_dict()
        keys += [next(batches)["__key__"] for _ in range(12)]
    for step in (2, 9, 17, 20):
        trace = trace_step(wdspec.load(spec), step, state=state)
        assert [each.key for each in trace.samples] == keys[step]
    (tmp_path / "state.json").write_text(json.dumps(state))
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    arguments = ("batch", "s.yaml", "--step", "17", "--state", "state.json", "--format", "json")
    out, _ = within(*arguments, folder=tmp_path)
    assert [each["key"] for each in json.loads(out)["samples"]] == keys[17]


def test_shares_set_at_run_time_are_in_the_state(folder):
    spec = one_source(folder)
    spec["dataset"].append({"name": "b", "shards": str(folder / "b-000.tar"), "extensions": "txt"})
    spec["dataset"] = [{**source, "weight": 1} for source in spec["dataset"]]
    with wdspec.loader(spec) as loader:
        batches = iter(loader)
        next(batches)
        loader.set_shares({"a": 0.9, "b": 0.1})
        keys = [next(batches)["__key__"] for _ in range(6)]
        state = loader.state_dict()
    trace = trace_step(wdspec.load(spec), 6, state=state)
    assert [each.key for each in trace.samples] == keys[5]


def test_samples_come_as_the_run_decodes_them(folder, tmp_path):
    write_shard(tmp_path / "n.tar", [(f"k{n}", {"json": b'{"n": %d}' % n}) for n in range(30)])
    spec = {"dataset": [{"name": "n", "shards": str(tmp_path / "n.tar")}], "batch": 3}
    trace = trace_step(wdspec.load(spec), 4, decoded=True)
    assert [each.sample["json"] for each in trace.samples] == [
        {"n": int(each.key[1:])} for each in trace.samples
    ]


def test_epochs_and_ranks_select_steps(folder, tmp_path):
    (tmp_path / "s.yaml").write_text(json.dumps(one_source(folder, epoch={"batches": 5})))

    def traced(*arguments, code=0):
        shown, said = within("batch", "s.yaml", *arguments, folder=tmp_path, code=code)
        return json.loads(shown) if not code else said

    second = traced("--epoch", "1", "--step", "2", "--ranks", "2", "--format", "json")
    assert (second["step"], second["epoch"]) == (7, 1)
    assert second == traced("--step", "7", "--ranks", "2", "--format", "json")
    mine = traced("--step", "7", "--ranks", "2", "--rank", "1", "--format", "json")["samples"]
    assert mine == second["samples"][4:]
    assert "step 5 is not one of them" in traced("--epoch", "1", "--step", "5", code=1)
    assert "unknown rank 2; the number of ranks is 2" in traced(
        "--step", "1", "--ranks", "2", "--rank", "2", code=2
    )
    shown, _ = within("batch", "s.yaml", "--step", "1", "--samples", folder=tmp_path)
    assert shown.splitlines()[0] == "step 1, epoch 0, 1 rank x 1 worker"
    assert "1 character" in shown


def test_an_assumed_topology_is_shown_with_a_warning(folder, tmp_path):
    (tmp_path / "s.yaml").write_text(json.dumps(one_source(folder)))
    (tmp_path / "e.yaml").write_text(json.dumps(one_source(folder, elastic={"ranks": 2})))

    def shown(*arguments):
        return within("batch", *arguments, "--step", "1", folder=tmp_path)[0]

    assert "assuming 1 rank x 1 worker" in shown("s.yaml")
    assert "pass --ranks and --workers, or a --state" in shown("s.yaml")
    assert "pass --workers, or a --state" in shown("s.yaml", "--ranks", "2")
    assert "assuming" not in shown("s.yaml", "--ranks", "2", "--workers", "3")
    assert "epoch 0, 2 ranks x 1 worker\n" in (known := shown("e.yaml"))
    assert "assuming" not in known
    facts = json.loads(shown("s.yaml", "--workers", "2", "--format", "json"))["topology"]
    assert facts == {"ranks": 1, "workers": 2, "assumed": ["ranks"]}


def test_padding_of_a_pass_is_reported(folder, tmp_path):
    spec = {
        "dataset": [{"name": "b", "shards": str(folder / "b-000.tar"), "extensions": "txt"}],
        "epoch": "pass",
    }
    trace = trace_step(wdspec.load(spec | {"batch": 4}), 2)
    assert [each.is_padding for each in trace.samples] == [False, True, True, True]


def test_workers_that_cannot_share_the_slots_are_rejected(folder):
    spec = {"dataset": [{"shards": str(folder / "a-{000..001}.tar")}], "batch": 2}
    with pytest.raises(wdspec.UsageError, match="3 workers"):
        trace_step(wdspec.load({**spec, "elastic": {"ranks": 1, "workers": 4}}), 0, workers=3)


def test_samples_from_a_stage_are_labelled(folder, tmp_path):
    name = sorted(UNEVEN)[0]
    (tmp_path / "stages_of_batch.py").write_text(
        "def make(samples):\n    for n, _ in enumerate(samples):\n        yield {'n': n}\n"
    )
    (tmp_path / "s.yaml").write_text(
        f"dataset: [{{shards: '{folder}/{name}-{{000..{UNEVEN[name][0] - 1:03d}}}.tar'}}]\nbatch: 2\n"
        "stage: stages_of_batch:make\nepoch: 8\n"
    )
    out, _ = within("batch", "s.yaml", "--step", "1", folder=tmp_path)
    assert out.count("created by `stage`") == 2
    out, _ = within("preview", "s.yaml", "-n", "1", "--samples", "2", folder=tmp_path)
    assert "preview.html" in out


def test_a_skipped_step_is_marked_and_moves_no_other_step(folder, tmp_path):
    plain, skipping = (
        one_source(folder, elastic={"ranks": 1, "workers": 2}, **more) for more in ({}, {"skip": "3..6"})
    )
    before, after = (trace_step(wdspec.load(spec), 5) for spec in (plain, skipping))
    assert (before.is_skipped, after.is_skipped) == (False, True)
    assert after.samples == before.samples
    assert trace_step(wdspec.load(skipping), 7) == trace_step(wdspec.load(plain), 7)
    with wdspec.loader(plain, num_workers=0) as loader:
        items = iter(loader)
        [next(items) for _ in range(9)]
        state = loader.state_dict()
    assert not trace_step(wdspec.load(skipping), 5, state=state).is_skipped  # the run had it
    (tmp_path / "s.yaml").write_text(json.dumps(skipping))
    out, _ = within("batch", "s.yaml", "--step", "5", folder=tmp_path)
    assert "this step is skipped" in out


def test_a_range_of_steps_has_the_samples_of_each_step_alone(folder):
    for seed in range(12):
        spec, ranks, workers, _ = random_run(folder, seed)
        checked, options = wdspec.load(spec), {"ranks": ranks, "workers": workers, "decoded": bool(seed % 2)}
        first = 0 if checked.is_pass else seed % 5
        ranged = list(trace_steps(checked, range(first, first + 3), **options))
        assert ranged == [trace_step(checked, step, **options) for step in range(first, first + 3)]


def test_a_range_is_printed_as_one_line_for_each_sample(folder, tmp_path):
    text = {"dataset": [one_source(folder)["dataset"][0]], "batch": 4, "elastic": {"ranks": 2, "workers": 1}}
    (tmp_path / "spec.json").write_text(json.dumps(text))
    out, _ = within("batch", tmp_path / "spec.json", "--steps", "3..5", "--format", "jsonl")
    rows = list(map(json.loads, out.splitlines()))
    assert [row["step"] for row in rows] == [3] * 8 + [4] * 8 + [5] * 8
    traces = trace_steps(wdspec.load(text), range(3, 6))
    expected = [(each.rank, each.key, each.url, each.source) for trace in traces for each in trace.samples]
    assert [(row["rank"], row["key"], row["shard"], row["source"]) for row in rows] == expected


def test_lines_have_the_number_of_tokens(tmp_path):
    rows = [{"ids": list(range(1, 2 + n % 5))} for n in range(20)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "spec.yaml").write_text(
        "dataset: [{shards: a.jsonl}]\nbatch: {pack: {fields: ids, length: 16}}\nelastic: {ranks: 1, workers: 1}\n"
    )
    out, _ = within(
        "batch", "spec.yaml", "--steps", "0..1", "--format", "jsonl", "--samples", folder=tmp_path
    )
    for row in map(json.loads, out.splitlines()):
        assert row["tokens"] == len(rows[int(row["key"].split("/")[1])]["ids"])


def test_tokens_of_steps_are_counted_and_shown_as_text(tmp_path):
    texts = [f"document {n} " + "more words " * (n % 3) for n in range(12)]
    tokenizer = train_tokenizer(texts, tmp_path / "tokenizer.json")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    make = {"ids": {"tokenize": "text", "file": "tokenizer.json", "eos": END, "labels": "labels"}}
    spec = {
        "dataset": [{"shards": "a.jsonl", "make": make}],
        "batch": 2,
        "elastic": {"ranks": 1, "workers": 1},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    out, _ = within(
        "batch", "spec.json", "--steps", "0..3", "--format", "jsonl", "--samples", folder=tmp_path
    )
    lines = list(map(json.loads, out.splitlines()))
    assert len(lines) == 8
    for line in lines:
        text = texts[int(line["key"].split("/")[1])]
        assert line["tokens"] == len(tokenizer.encode(text).ids) + 1
        values = {field["name"]: field["preview"] for field in line["fields"]}
        shown = " ".join(f"{text}{END}".split())
        assert values["ids"] == values["labels"] == (shown if len(shown) <= 60 else f"{shown[:60]}…")
    shown, _ = within("batch", "spec.json", "--step", "0", "--samples", folder=tmp_path)
    assert "tokens" in shown.splitlines()[1]
    assert END in shown


@pytest.mark.parametrize(("text", "message"), [("5..3", "5..3"), ("0:10", "0..10"), ("-1", "step")])
def test_a_range_that_is_none_is_an_error_with_the_right_form(folder, tmp_path, text, message):
    (tmp_path / "spec.json").write_text(json.dumps(one_source(folder)))
    _, said = within("batch", tmp_path / "spec.json", f"--steps={text}", code=2)
    assert message in said
