"""`wdspec explain`: what a spec means."""

import json
import re

import pytest
import yaml
from click.testing import CliRunner
from commandline import on_terminal, wdspec, within
from shardmaking import write_shard, write_source

from wdspec import loader
from wdspec.advice.words import fields_in_words
from wdspec.cli.explain import explain
from wdspec.fields.samples import SampleFields
from wdspec.spec.load import load

AT_THE_TOP_OF_THE_LANGUAGE = """\
dataset:
  - shards: gs://nvdata-ocropus-tess/ia1-{000000..000033}.tar
    scaleprob: 0.3
  - shards: gs://nvdata-ocropus-tess/cdipsub-{000000..000022}.tar
    scale: [1.0, 3.0]
  - shards: gs://nvdata-ocropus-tess/gsub-{000000..000167}.tar
    scale: [0.4, 1.0]
  - shards: gs://nvdata-ocropus-tess/bin-gsub-{000000..000167}.tar
    extensions: nrm.jpg
    scale: [0.3, 1.0]
  - shards: gs://nvdata-ocropus/rendered.tar
    scaleprob: 1.0
"""
NESTED = """\
name: pages
seed: 5
dataset:
  - name: scans
    probability: 0.75
    dataset:
      - {name: a, shards: "a-{000..003}.tar", weight: 2}
      - {name: b, shards: "b-{000..001}.tar", weight: 1, shuffle: 40, order: sequential}
  - {name: drawn, shards: "gs://bucket/c-{0..9}.tar", probability: 0.25, samples: 4000}
  - {name: idle, shards: "nowhere-*.tar", probability: 0}
batch: 8
epoch: 1000
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("WDS_REWRITE", "GOPEN_REWRITE", "WDS_SECURE", "WDSPEC_ENV", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_source(".", "a", shards=4, samples=10)
    write_source(".", "b", shards=2, samples=15)
    (tmp_path / "nested.yaml").write_text(NESTED)
    (tmp_path / "top.yaml").write_text(AT_THE_TOP_OF_THE_LANGUAGE)
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(explain, arguments)
    assert result.exit_code == code, result.output
    return result.output


def meaning(*arguments):
    return json.loads(run(*arguments, "--format", "json"))


def sources(report):
    return {source["name"]: source for source in report["sources"]}


def test_the_opening_document_is_explained_without_its_shards():
    shown = run("top.yaml")
    assert "ia1        8.63%      34        ?       86.3      86           1  shuffled" in shown
    assert "nrm.jpg (rgb8)" in shown
    assert "scale 0.5 to 2 (0.3 of samples)" in shown
    assert "endless (no `epoch`)" in shown
    report = meaning("top.yaml")
    assert [source["shards"] for source in report["sources"]] == [34, 23, 168, 168, 1]
    assert report["epoch"] is None
    assert sum(source["expected"] for source in report["sources"]) == pytest.approx(1000)


def test_a_report_looks_like_this():
    # The whole of it, so that a change of its looks is seen.
    assert run("nested.yaml", "--slots", "1").splitlines() == [
        "pages",
        "file      nested.yaml",
        "seed      5",
        "topology  1 rank x 1 worker = 1 slot (one process, loader.workers is 0)",
        "batch     8 samples per rank",
        "epoch     125 batches per rank = 1,000 samples",
        "draw      even",
        "memory    about 347 B to hold and order samples for shuffling in a worker, 1.8 MB in the buffers of its open "
        "shards, "
        "excluding the samples of 1 source of unknown size",
        "",
        "source   share  shards  samples  per epoch  passes  buffer  interleave  order",
        "scans   75.00%       6      ~70        750   ~10.7",
        "  a     50.00%       4      ~40        500   ~12.5     500           4  shuffled",
        "  b     25.00%       2      ~30        250   ~8.33      16           1  sequential",
        "drawn   25.00%      10    4,000        250  0.0625     250           2  shuffled",
        "idle       off                                                          shuffled",
        "",
        "source             fields",
        "a, b, drawn, idle  every field, images as bytes",
        "",
        "rank  worker  source  first 3 shards",
        "0     0       a       a-002.tar, a-000.tar, a-003.tar",
        "              b       b-000.tar, b-001.tar, b-000.tar",
        "              drawn   c-9.tar, c-2.tar, c-5.tar",
    ]


def test_sample_counts_from_the_first_shard_are_marked_as_estimates():
    report = sources(meaning("nested.yaml"))
    assert (report["a"]["samples"], report["a"]["estimated"]) == (40, True)
    assert (report["drawn"]["samples"], report["drawn"]["estimated"]) == (4000, False)
    alone = sources(meaning("nested.yaml", "--set", 'dataset=[{name: a, shards: "a-000.tar"}]'))
    assert (alone["a"]["samples"], alone["a"]["estimated"]) == (10, False)


def test_samples_in_record_files_are_measured_without_tar_headers(folder):
    (folder / "r.jsonl").write_text('{"txt": "a"}\n')
    shown = run("nested.yaml", "--set", "dataset=[{name: r, shards: r.jsonl}]")
    assert "W502" not in shown
    assert (
        sources(meaning("nested.yaml", "--set", "dataset=[{name: r, shards: r.jsonl}]"))["r"]["samples"]
        is None
    )


def test_passes_are_draws_per_epoch_divided_by_samples():
    report = sources(meaning("nested.yaml"))
    assert report["a"]["passes"] == pytest.approx(500 / 40)
    assert report["scans"]["passes"] == pytest.approx(750 / 70)


def test_options_set_the_topology_and_the_number_of_slots_shown():
    report = meaning("nested.yaml", "--ranks", "2", "--workers", "4", "--slots", "3")
    assert report["topology"] == {"ranks": 2, "workers": 4, "slots": 8, "why": "--ranks, --workers"}
    assert report["batch"] == {"per_rank": 8, "global": 16}
    assert {(slot["rank"], slot["worker"]) for slot in report["slots"]} == {(0, 0), (0, 1), (0, 2)}
    assert meaning("nested.yaml", "--slots", "0")["slots"] == []


def test_the_ranks_of_a_running_job_are_used(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    report = meaning("nested.yaml")
    assert report["topology"]["ranks"] == 4
    assert "of the running job" in report["topology"]["why"]


def test_an_elastic_spec_keeps_its_topology_in_a_smaller_run():
    elastic = ("nested.yaml", "--set", "elastic={ranks: 4, workers: 6}", "--ranks", "2", "--workers", "3")
    report = meaning(*elastic)
    assert report["topology"] == {"ranks": 4, "workers": 6, "slots": 24, "why": "elastic"}
    assert report["run"] == {"ranks": 2, "workers": 3}
    assert report["batch"] == {"per_rank": 16, "global": 32}
    assert "2 ranks x 3 workers, 4 slots per worker" in run(*elastic)


def test_the_slots_of_a_pass_read_every_shard_once(monkeypatch):
    report = meaning("nested.yaml", "--workers", "2", "--slots", "2")
    first_pass = [
        slot["first"][turn]["url"] for slot in report["slots"] if slot["source"] == "a" for turn in (0, 1)
    ]
    assert sorted(first_pass) == [f"a-{n:03d}.tar" for n in range(4)]


def test_fewer_shards_than_slots_are_reported_as_read_in_parts():
    shown = run("nested.yaml", "--workers", "4")
    assert re.search(r"b-00[01]\.tar \[[12]/2\]", shown)
    assert "warning: W512 fewer shards than the 4 slots, so each shard is read in parts (b in 2)" in shown


def test_an_epoch_that_batches_do_not_divide_is_reported_as_shorter():
    assert "epoch: 1001 is not a multiple of the batch of 8; an epoch is 1,000 samples" in run(
        "nested.yaml", "--set", "epoch=1001"
    )


def test_windows_that_need_much_memory_cause_a_warning(monkeypatch):
    monkeypatch.setattr("wdspec.advice.explanation.memory_of_machine", lambda: 1000)
    monkeypatch.setattr("wdspec.advice.explanation.CHUNK", 1)
    assert "more than a quarter of this machine's 1.0 kB; lower `shuffle`" in run(
        "nested.yaml", "--workers", "2"
    )
    monkeypatch.setattr("wdspec.advice.explanation.memory_of_machine", lambda: 10**9)
    assert "lower `shuffle`" not in run("nested.yaml", "--workers", "2")


def test_interleave_is_shown_and_its_buffers_are_counted_in_the_memory(folder, monkeypatch):
    lanes = ("--set", "defaults.interleave=12")  # 6, 3 and 3 by their shares
    shown = run("nested.yaml", *lanes)
    assert "2.4 MB in the buffers of its open shards" in shown  # 4 of a, 2 of b, 3 of drawn
    assert "source   share  shards  samples  per epoch  passes  buffer  interleave  order" in shown
    assert "  a     50.00%       4      ~40        500   ~12.5     500           6  shuffled" in shown
    report = meaning("nested.yaml", *lanes, "--workers", "2")
    assert report["buffer_bytes_per_worker"] == (2 + 1 + 3) * 256 * 1024
    assert sources(report)["a"]["interleave"] == 6
    monkeypatch.setattr("wdspec.advice.explanation.memory_of_machine", lambda: 8 * 10**6)
    assert "hold 2.4 MB, more than a quarter of this machine's 8.0 MB; lower `interleave`" in run(
        "nested.yaml", *lanes
    )


def test_the_memory_counts_only_members_that_are_read(folder):
    write_shard(folder / "big.tar", [(f"{n}", {"jpg": bytes(5000), "txt": b"12345"}) for n in range(20)])
    (folder / "big.yaml").write_text("dataset: [{shards: big.tar, extensions: txt}]")
    assert sources(meaning("big.yaml"))["big"]["held_bytes"] == 20 * 5


def test_the_memory_of_a_large_shuffle_counts_the_numbers_that_order_it(folder, monkeypatch):
    write_shard(folder / "few.tar", [(f"{n}", {"txt": b"12345"}) for n in range(20)])
    (folder / "few.yaml").write_text("dataset: [{shards: few.tar, shuffle: 1_000_000_000}]")
    monkeypatch.setattr("wdspec.advice.explanation.memory_of_machine", lambda: 32 * 10**9)
    report = meaning("few.yaml")
    assert report["held_bytes_per_worker"] == 20 * 5 + 48 * 2**28
    assert any("W513" in each and "lower `shuffle`" in each for each in report["warnings"])


def test_fields_are_shown_with_their_files_and_decoders(folder):
    (folder / "fields.yaml").write_text(
        "defaults: {extensions: jpg;png cls json txt, rename: {image: jpg, label: cls}}\n"
        "dataset:\n"
        "  - {name: a, shards: 'gs://b/a.tar', decode: {image: rgb8, json: raw}, select: 'm:f', tags: {x: 1}}\n"
        "  - {name: b, shards: 'gs://b/b.tar', map: {call: 'm:g', args: {n: 2}}, missing: skip}\n"
    )
    shown = run("fields.yaml")
    assert 'image = jpg|png (rgb8), label = cls, json (bytes), txt  select m:f, tags {"x": 1}' in shown
    assert "image = jpg|png (bytes), label = cls, json, txt" in shown
    assert "map m:g(n=2), missing: skip" in shown
    fields = sources(meaning("fields.yaml"))["a"]["field_list"]
    assert fields[0] == {"name": "image", "files": ["jpg", "png"], "decoder": "rgb8"}


def test_a_damaged_or_missing_first_shard_is_only_a_warning(folder):
    (folder / "a-000.tar").write_bytes(b"x" * 2000)
    (folder / "b-000.tar").unlink()
    report = meaning("nested.yaml")
    assert sources(report)["a"]["samples"] is None
    assert len([warning for warning in report["warnings"] if "source a," in warning]) == 1
    assert len([warning for warning in report["warnings"] if "of `b` do not exist" in warning]) == 1


def test_a_large_compressed_shard_is_measured_by_its_start(folder, monkeypatch):
    import gzip

    write_shard(folder / "z.tar", [(f"{n:04d}", {"txt": b"%d" % n}) for n in range(2000)])
    (folder / "z.tar").write_bytes(gzip.compress((folder / "z.tar").read_bytes()))
    (folder / "z.yaml").write_text("dataset: [{shards: z.tar}]")
    monkeypatch.setattr("wdspec.advice.measure.MOST_UNPACKED", 500_000)
    report = sources(meaning("z.yaml"))["z"]
    assert report["estimated"]
    assert 400 < report["samples"] < 8000


def test_neither_torch_nor_user_code_is_imported(folder):
    functions = "".join(f"def {name}(value): return value\n" for name in "fgh")
    (folder / "mine.py").write_text(f"raise SystemExit('this must not run')\n{functions}")
    (folder / "mine.yaml").write_text(
        "dataset: [{shards: a-000.tar, map: 'mine:f', select: 'mine:g', decode: {txt: 'mine:h'}}]"
    )
    spy = (
        "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules, 'mine' in sys.modules)); "
    )
    shown, _ = wdspec("explain", "mine.yaml", folder=folder, before=spy, PYTHONPATH=str(folder))
    assert shown.endswith("False False\n")


def test_a_hundred_sources_and_a_million_shards_stay_quick_and_bounded(folder):
    rows = "".join(f"  - {{name: s{n}, shards: 'gs://b/s{n}-{{000000..999999}}.tar'}}\n" for n in range(100))
    (folder / "many.yaml").write_text("dataset:\n" + rows)
    shown = run("many.yaml", "--ranks", "64", "--workers", "8")
    assert "(slots 1 of 512, see --slots)" in shown
    assert "s0, s1, s2, s3 and 96 more" in shown
    assert len(shown.splitlines()) < 250


def test_output_to_a_pipe_is_neither_coloured_nor_truncated(folder):
    name = "a-name-that-is-much-longer-than-any-column-of-a-terminal-would-like-to-be-" * 3
    (folder / "long.yaml").write_text(f"dataset: [{{name: {name}, shards: a-000.tar}}]")
    shown, _ = wdspec("explain", "long.yaml", folder=folder, COLUMNS="40")
    assert shown.count(name) == 3
    assert "\x1b" not in shown
    assert not [line for line in shown.splitlines() if line != line.rstrip()]


def test_tables_fit_the_width_of_the_terminal(folder):
    shown = on_terminal("explain", "nested.yaml", folder=folder, width=80)
    assert "\x1b[1" in shown
    assert "───" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert "…" not in plain


def test_no_color_is_honoured_on_a_terminal(folder):
    assert "\x1b[" not in on_terminal("explain", "nested.yaml", folder=folder, NO_COLOR="1")


def test_problems_of_the_spec_are_printed_in_full_and_exit_1(folder):
    (folder / "split.yaml").write_text(
        "splits: {train: {dataset: [{shards: a.tar}]}, val: {dataset: [{shards: b.tar}]}}"
    )
    _, said = within("explain", "split.yaml", folder=folder, code=1)
    assert "split.yaml:1:1: E103 the spec has splits, but none is chosen" in said
    assert "choose one of `train`, `val`: write `split.yaml#train` in place of `split.yaml`" in said
    _, said = within("explain", "missing.yaml", folder=folder, code=1)
    assert "the file does not exist" in said
    _, said = within(
        "explain",
        "nested.yaml",
        "--set",
        "batch.global_size=9",
        "--set",
        "batch.size=null",
        "--ranks",
        "2",
        folder=folder,
        code=1,
    )
    assert "batch.global_size 9 cannot be shared evenly by 2 ranks; use 8 or 10" in said


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (["at: 4500"], "shares change at batch 450, after 4 epochs;"),
        (["at: 1000", "at: {batches: 450}"], "shares change at batch 100, 450, the first after 1 epoch;"),
        (["at: 999"], "shares change at batch 100, after 1 epoch;"),
        (["at: 45", "at: 4500"], "shares change at batch 5, 450;"),
        (["ramp: linear, at: 4500"], "shares change at batch 450 (ramp);"),
    ],
)
def test_a_change_of_shares_after_the_first_epoch_is_shown_with_the_epochs_before_it(steps, says, tmp_path):
    schedule = ", ".join(f"{{{step}, shares: {{a: 1, b: 2}}}}" for step in ("at: 0", *steps))
    (tmp_path / "spec.yaml").write_text(
        f"batch: 10\nepoch: 1000\nmix: {{schedule: [{schedule}]}}\n"
        "dataset:\n  - {name: a, shards: a.tar}\n  - {name: b, shards: b.tar}\n"
    )
    assert says in CliRunner().invoke(explain, [str(tmp_path / "spec.yaml")]).output


@pytest.mark.parametrize(
    ("batch", "mix", "is_shown"),
    [
        ("{pack: {fields: ids, length: 64}}", "{}", True),
        ("{cost: ids.length, max_tokens: 64}", "{}", True),
        ("{pack: {fields: ids, length: 64}}", "{shares_in: tokens}", False),
        ("{size: 8}", "{}", False),
    ],
)
def test_shares_of_samples_beside_batches_of_tokens_are_shown_as_such(batch, mix, is_shown, tmp_path):
    (tmp_path / "spec.yaml").write_text(
        f"batch: {batch}\nmix: {mix}\nepoch: {{batches: 10}}\ndefaults: {{mean_cost: 9, weight: 1}}\n"
        "dataset:\n  - {name: a, shards: a.jsonl}\n  - {name: b, shards: b.jsonl}\n"
    )
    shown = CliRunner().invoke(explain, [str(tmp_path / "spec.yaml")]).output
    assert ("by shares of samples (not of tokens: `shares_in: tokens`)" in shown) is is_shown
    assert "draw " in shown


def test_a_schedule_is_shown_with_mean_shares_over_an_epoch(tmp_path):
    (tmp_path / "spec.yaml").write_text(
        "batch: 10\nepoch: 100\nmix:\n  unit: batch\n  schedule:\n    - {at: 0, shares: {a: 1}}\n"
        "    - {at: 45, shares: {a: 1, b: 1}}\n    - {at: 1000, shares: {c: 1}}\n"
        "dataset:\n  - {name: a, shards: a.tar}\n  - {name: b, shards: b.tar}\n  - {name: c, shards: c.tar}\n"
    )
    found = CliRunner().invoke(explain, [str(tmp_path / "spec.yaml")]).output
    assert "even, one source a batch" in found
    assert "shares change at batch 5, 100; the table of sources shows their means over an epoch\n" in found
    assert "share   from 0  from 45  from 1,000\na      100.00%   50.00%       0.00%\n" in found
    found = found.partition("\n\nsource ")[2]
    rows = {
        line.split()[0]: line.split()[1]
        for line in found.splitlines()
        if line.count(" ") and line.split()[1].endswith("%")
    }
    assert rows == {"a": "75.00%", "b": "25.00%", "c": "0.00%"}


def test_a_schedule_with_ramps_shows_the_shares_of_its_steps(tmp_path):
    steps = "".join(f", {{at: {100 * n}, shares: {{a: {n}, m: 1}}, ramp: linear}}" for n in range(1, 12))
    (tmp_path / "spec.yaml").write_text(
        f"batch: 10\nmix:\n  schedule: [{{at: 0, shares: {{a: 1}}}}{steps}]\ndataset:\n  - {{name: a, shards: a.tar}}\n"
        "  - {name: m, dataset: [{name: b, shards: b.tar, weight: 1}, {name: c, shards: c.tar, weight: 3}]}\n"
    )
    shown = CliRunner().invoke(explain, [str(tmp_path / "spec.yaml")]).output
    [_, heading, a, b, c] = shown.partition("shares by sample")[2].splitlines()[:5]
    assert heading.split("  ")[-2:] == ["ramp to 600", "… ramp to 1,100"]
    assert [line.split()[:3] for line in (a, b, c)] == [
        ["a", "100.00%", "50.00%"],
        ["b", "0.00%", "12.50%"],
        ["c", "0.00%", "37.50%"],
    ]
    found = CliRunner().invoke(explain, [str(tmp_path / "spec.yaml"), "--format", "json"]).output
    schedule = json.loads(found)["schedule"]
    assert schedule[1] == {
        "at": 100,
        "batch": 10,
        "ramp": True,
        "shares": {"a": 0.5, "b": 0.125, "c": 0.375},
    }
    assert len(schedule) == 12


def test_the_yield_of_a_selection_is_estimated_from_samples(tmp_path):
    samples = [(f"k{n:03d}", {"json": b'{"score": %d}' % n, "cls": b"1"}) for n in range(100)]
    for shard in range(6):
        write_shard(tmp_path / f"a-{shard}.tar", samples)
    (tmp_path / "s.yaml").write_text(
        "batch: 4\nepoch: {batches: 30}\ndataset:\n"
        "- {name: a, shards: 'a-{0..5}.tar', where: json.score >= 75, subset: [0%, 100%], exclude: [k075, x]}\n"
    )
    printed, _ = within("explain", "s.yaml", folder=tmp_path)
    assert "24.00% of `a`, estimated from 400 samples in 4 shards" in printed
    assert "where json.score >= 75, subset 0% to 100%, exclude k075 x" in printed
    row = next(line for line in printed.splitlines() if line.startswith("a "))
    assert "~144" in row  # 24 % of 600


def test_a_selection_that_stats_has_not_counted_is_said_to_be_estimated_for_that_reason(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(10)))
    spec = "batch: 4\nstats: s.json\ndataset:\n- {name: a, shards: a.jsonl, where: n > WHERE}\n"

    def explained(least):
        (tmp_path / "s.yaml").write_text(spec.replace("WHERE", str(least)))
        shown, _ = within("explain", "s.yaml", folder=tmp_path)
        return next(line for line in shown.splitlines() if line.startswith("selected "))

    assert explained(5).endswith("estimated from 10 samples in 1 shard")
    within("stats", "s.yaml", folder=tmp_path)
    assert "counted by `stats` over all 10 samples" in explained(5)
    stale = "estimated from 10 samples in 1 shard, as `stats` has not counted this selection: run `wdspec stats SPEC`"
    assert stale in explained(6)
    within("stats", "s.yaml", folder=tmp_path)
    assert "counted by `stats` over all 10 samples" in explained(6)


@pytest.mark.parametrize("batch", ["{size: 7}", "{cost: n, max_cost: 20}"])
@pytest.mark.parametrize("has_stats", [False, True])
def test_a_pass_counts_only_the_samples_that_a_selection_keeps(tmp_path, batch, has_stats):
    for shard in range(2):
        rows = "".join(f'{{"n": {n + 1}}}\n' for n in range(10))
        (tmp_path / f"a-{shard}.jsonl").write_text(rows)
        (tmp_path / f"b-{shard}.jsonl").write_text(rows)
    (tmp_path / "s.yaml").write_text(
        f"epoch: pass\nbatch: {batch}\n{'stats: s.json' * has_stats}\ndataset:\n"
        "- {name: a, shards: a-*.jsonl, where: n <= 3, repeat: 2}\n- {name: b, shards: b-*.jsonl}\n"
    )
    if has_stats:
        within("stats", "s.yaml", "--jobs", "0", folder=tmp_path)
    report = json.loads(within("explain", "s.yaml", "--format", "json", folder=tmp_path)[0])
    assert {each["name"]: each["expected"] for each in report["sources"]} == pytest.approx({"a": 12, "b": 20})
    assert [each["passes"] for each in report["sources"]] == pytest.approx([2, 1])
    assert [each["share"] for each in report["sources"]] == pytest.approx([12 / 32, 20 / 32])
    printed, _ = within("explain", "s.yaml", folder=tmp_path)
    about = "" if has_stats else "about "
    assert f"= {about}32 samples" in printed
    assert (f", and {about}28 empty places (`__mask__`)" in printed) == (not has_stats and "size" in batch)
    if "size" in batch:  # passes by cost draw nothing
        simulated = json.loads(
            within("simulate", "s.yaml", "--probe", "--format", "json", folder=tmp_path)[0]
        )
        assert [each["coverage"]["passes"] for each in simulated["sources"]] == pytest.approx([2, 1])


def test_passes_of_batches_by_cost_are_estimated_from_windows(tmp_path):
    for shard in range(2):
        (tmp_path / f"a-{shard}.jsonl").write_text('{"n": 2}\n' * 50)
    (tmp_path / "s.yaml").write_text(
        "epoch: {batches: 60}\nbatch: {cost: n, max_cost: 10, window: 50}\n"
        "dataset: [{name: a, shards: a-*.jsonl, samples: 100}]\n"
    )
    printed, _ = within("explain", "s.yaml", folder=tmp_path)
    assert "60 batches per canonical rank = about 300 samples" in printed
    assert re.search(r"^a +100\.00% +2 +100 +~300 +~3 ", printed, re.MULTILINE)


@pytest.mark.parametrize(
    ("epoch", "size", "lost"),
    [
        (
            "{pass: drop, reshuffle: true}",
            32,
            "leaves out 8 of 40 samples (20%), other ones each time: `drop`",
        ),
        ("{pass: drop}", 32, "leaves out 8 of 40 samples (20%): `drop`"),
        ("{pass: pad}", 32, ""),
        ("{pass: drop}", 19, ""),
    ],
)
def test_a_pass_that_drops_a_large_part_of_the_samples_causes_a_warning(folder, epoch, size, lost):
    write_shard(folder / "forty.tar", [(f"{number:03}", {"txt": b"x"}) for number in range(40)])
    text = f"batch: {size}\ndataset: [{{name: a, shards: forty.tar}}]\nepoch: {epoch}\n"
    (folder / "rest.yaml").write_text(text)
    found = [each for each in meaning("rest.yaml")["warnings"] if "W511" in each]
    assert len(found) == bool(lost)
    assert all(lost in each for each in found)


def test_a_window_that_fills_no_batch_causes_a_warning(folder):
    write_shard(folder / "texts.tar", [(f"{number:03}", {"txt": b"x" * 10}) for number in range(200)])
    batch = "{cost: txt.length, max_cost: 5000, window: WINDOW, collate: {txt: list}}"
    for window, is_warned in ((50, True), (2000, False)):
        text = f"batch: {batch}\ndataset: [{{name: a, shards: texts.tar}}]\nepoch: {{batches: 9}}\n"
        (folder / "windows.yaml").write_text(text.replace("WINDOW", str(window)))
        report = meaning("windows.yaml")
        said = (
            "W398 a window of 50 samples costs 10.0% of `max_cost`, so batches are never full; raise `window`, of "
            "which 500 samples would fill one batch, or lower `max_cost` if it is too large"
        )
        assert (said in report["warnings"]) == is_warned
        assert any("W398" in each for each in report["warnings"]) == is_warned


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "shards: a.jsonl, extensions: says n views, decode: {views: rgb8}",
            "says (as stored), n (as stored), views",
        ),
        ("shards: a.jsonl, extensions: text views, decode: {views: rgb8}", "views (rgb8)"),
        ("shards: a.jsonl", "every field, as stored"),
        ("shards: a.jsonl, decode: {views: rgb8}", "every field, as stored, views (rgb8)"),
        ("shards: a.jsonl, decode: rgb8", "every field, images as rgb8"),
        ("shards: a.tar, extensions: jpg txt", "jpg (bytes), txt"),
        ("shards: a.tar, decode: {seg.png: l8}", "every field, images as bytes, seg.png (l8)"),
        ("shards: '@list.txt', extensions: says", "says (bytes)"),
    ],
)
def test_fields_say_what_becomes_of_their_values(source, said):
    spec = load(yaml.safe_load(f"dataset: [{{name: a, {source}}}]"))
    fields = SampleFields.of(spec.sources[0])
    assert said in fields_in_words(spec.sources[0], fields)


def test_classes_are_shown_with_all_names_that_sources_give_them(tmp_path):
    write_source(tmp_path, "a", 1, 4)
    write_source(tmp_path, "b", 1, 4)
    many = ",".join(f"n{number}" for number in range(900))
    (tmp_path / "s.yaml").write_text(
        "dataset:\n"
        "  - {name: a, shards: a-000.tar, make: {kind: {label: txt, names: {cat: 0, dog: 1, car: -100}}}}\n"
        "  - name: b\n    shards: b-000.tar\n    make:\n"
        "      kind: {label: txt, names: {cat: 0, dog: 1, car: -100}, aliases: {hound: dog}}\n"
        f"      wide: {{label: txt, names: [{many}]}}\n"
    )
    shown, _ = within("explain", "s.yaml", "--slots", "0", folder=tmp_path)
    rows = [line.split(maxsplit=2) for line in shown.partition("field  ")[2].splitlines()]
    assert rows[1:4] == [
        ["kind", "-100", "(no class)  car"],
        ["kind", "0", "cat"],
        ["kind", "1", "dog, hound"],
    ]
    assert rows[4] == ["wide", "0", "n0"]
    assert len(rows) < 60


@pytest.mark.parametrize("epoch", ["pass", "{pass: pad, reshuffle: true}", "{pass: drop, reshuffle: true}"])
def test_a_pass_in_packed_rows_has_the_tokens_and_the_empty_rows_that_a_loader_gives(tmp_path, epoch):
    lengths = [64 if number < 10 else 1 + number % 7 for number in range(30)]
    (tmp_path / "a.jsonl").write_text("".join(f'{{"ids": {list(range(each))}}}\n' for each in lengths))
    (tmp_path / "s.yaml").write_text(
        f"epoch: {epoch}\ndataset: [{{name: a, shards: a.jsonl, mean_cost: {sum(lengths) / len(lengths):g}}}]\n"
        "stats: stats.json\nbatch: {window: 20, pack: {fields: ids, length: 64}}\nelastic: {ranks: 2, workers: 2}\n"
    )
    within("stats", "s.yaml", folder=tmp_path)
    said = json.loads(within("explain", "s.yaml", "--format", "json", folder=tmp_path)[0])
    batches = list(loader(str(tmp_path / "s.yaml"), num_workers=0))  # one rank reads both
    keys = {key for batch in batches for key in batch["__key__"]}
    tokens = sum(lengths[int(key.partition("/")[2])] for key in keys)
    if "drop" not in epoch:
        assert len(keys) == 30
        assert said["tokens"]["per_epoch"] == tokens
        assert (count := sum(not any(batch["__mask__"]) for batch in batches))
        assert (
            f" = 30 samples, across all ranks, and {count} empty batches (`__mask__`)"
            in within("explain", "s.yaml", folder=tmp_path)[0]
        )
    else:
        assert abs(said["tokens"]["per_epoch"] - tokens) < 0.2 * tokens < 0.2 * sum(lengths)
        assert any("W511 each epoch leaves out about" in each for each in said["warnings"])
