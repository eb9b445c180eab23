"""`wdspec head`: the first samples, as training receives them."""

import io
import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from commandline import NO_TORCH, on_terminal, wdspec, within
from PIL import Image
from shardmaking import write_shard, write_source

from wdspec.base.errors import install_command
from wdspec.cli.head import head
from wdspec.cli.samples import PREVIEW, describe_value

SPEC = """\
dataset:
  - {name: a, shards: "a-{000..003}.tar", probability: 0.5}
  - {name: b, shards: "b-{000..003}.tar", probability: 0.5, extensions: txt}
batch: 4
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("WDS_REWRITE", "GOPEN_REWRITE", "WDS_SECURE", "WDSPEC_ENV", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_source(".", "a")
    write_source(".", "b")
    (tmp_path / "s.yaml").write_text(SPEC)
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(head, arguments)
    assert result.exit_code == code, result.output
    return result.output


def samples(*arguments):
    return json.loads(run(*arguments, "--format", "json"))["samples"]


def picture(folder):
    buffer = io.BytesIO()
    Image.fromarray(np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)).save(buffer, "png")
    fields = {
        "png": buffer.getvalue(),
        "txt": b"a line\nof text" * 20,
        "json": json.dumps({"a": [1, 2]}).encode(),
        "bin": bytes(2048),
        "cls": b"7",
    }
    write_shard(folder / "p.tar", [("one/00", fields)] * 1)
    (folder / "p.yaml").write_text("dataset: [{name: p, shards: p.tar, decode: {png: rgb8}}]")
    return "p.yaml"


def test_each_sample_shows_its_origin_and_a_summary_of_each_field(folder):
    lines = run(picture(folder), "-n", "1").splitlines()
    assert lines[0].split() == ["#", "field", "type", "shape", "or", "size", "value"]
    rows = {line[3:].split()[0]: line[3:].split(maxsplit=1)[1] for line in lines[1:]}
    assert rows["__key__"] == "one/00"
    assert rows["__source__"] == "p"
    assert rows["__url__"] == "p.tar"
    assert rows["png"].split("  ")[0] == "uint8 array"
    assert "6 x 8 x 3" in rows["png"]
    assert rows["png"].endswith("0 to 143")
    assert "280 characters" in rows["txt"]
    assert "a line of text" in rows["txt"]
    assert rows["txt"].endswith("…")
    assert rows["json"].endswith('{"a": [1, 2]}')
    assert "2.0 kB" in rows["bin"]
    assert rows["cls"].split() == ["int", "7"]


def test_json_gives_shapes_and_lengths_as_numbers(folder):
    (sample,) = samples(picture(folder), "-n", "1")
    assert (sample["index"], sample["key"], sample["source"], sample["url"]) == (0, "one/00", "p", "p.tar")
    fields = {field["name"]: field for field in sample["fields"]}
    assert fields["png"]["shape"] == [6, 8, 3]
    assert fields["bin"]["length"] == 2048


def test_sources_that_cannot_be_batched_together_can_be_shown():
    shown = samples("s.yaml", "-n", "8")
    assert {sample["source"]: len(sample["fields"]) for sample in shown} == {"a": 2, "b": 1}


def test_the_order_is_that_of_training_without_batches():
    import wdspec

    pipeline = wdspec.compile("s.yaml", overrides={"batch": None}, rank=0, world_size=1)
    trained = [sample["__key__"] for sample, _ in zip(pipeline, range(12), strict=False)]
    assert [sample["key"] for sample in samples("s.yaml", "-n", "12")] == trained


def test_one_source_can_be_selected_even_if_it_is_off():
    shown = samples("s.yaml", "--source", "b", "-n", "3", "--set", "dataset=null", "--set", _with_b_off())
    assert [sample["source"] for sample in shown] == ["b"] * 3
    result = CliRunner().invoke(head, ["s.yaml", "--source", "c"])
    assert "no source `c`; its sources are a, b" in str(result.exception)


def _with_b_off():
    return 'dataset=[{name: a, shards: "a-000.tar", weight: 1}, {name: b, shards: "b-000.tar", weight: 0}]'


def test_canonical_ranks_show_different_samples():
    elastic = ("--set", "elastic={ranks: 4, workers: 2}")
    assert len(samples("s.yaml", "-n", "9", *elastic)) == 9


def test_a_limit_in_the_spec_applies():
    assert len(samples("s.yaml", "-n", "9", "--set", "limit=2")) == 2


@pytest.mark.parametrize("epoch", ["pass", "{pass: drop, reshuffle: true}"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_of_a_pass_of_several_ranks_as_many_samples_are_shown_as_asked(count, epoch):
    elastic = ("--set", "elastic={ranks: 2, workers: 2}", "--set", f"epoch={epoch}")
    off = ("--set", "dataset=[{name: a, shards: a-000.tar}]")
    assert len(samples("s.yaml", "-n", str(count), *elastic, *off)) == count


def test_functions_of_the_working_directory_are_found_and_run(folder):
    (folder / "mine_of_head.py").write_text("def f(sample):\n    return {'double': 2 * sample['cls']}\n")
    shown, _ = wdspec(
        "head", "s.yaml", "--source", "a", "-n", "1", "--set", "map=mine_of_head:f", folder=folder
    )
    assert "double" in shown


def test_an_error_in_a_user_function_shows_only_user_code(folder):
    (folder / "broken_of_head.py").write_text("def f(sample):\n    return sample['nope']\n")
    _, said = wdspec("head", "s.yaml", "--set", "map=broken_of_head:f", folder=folder, code=1)
    assert "KeyError: 'nope'" in said
    assert "return sample['nope']" in said
    assert said.count('  File "') == 1


def test_wds_secure_forbids_functions_of_the_spec(folder):
    (folder / "evil.py").write_text("raise SystemExit('this must not run')")
    _, said = wdspec("head", "s.yaml", "--set", "map=evil:f", folder=folder, code=1, WDS_SECURE="1")
    assert "WDS_SECURE" in said
    assert "must not run" not in said


def test_samples_before_an_error_are_shown_and_the_error_exits_1(folder):
    whole = (folder / "a-000.tar").read_bytes()
    (folder / "cut.tar").write_bytes(whole[: 5 * 2048 + 700])
    (folder / "cut.yaml").write_text("dataset: [{name: cut, shards: cut.tar, shuffle: 0, order: sequential}]")
    shown, said = within("head", "cut.yaml", "-n", "9", folder=folder, code=1)
    assert shown.count("__key__") == 5
    assert "cut.tar" in said
    assert "byte" in said


def test_skipped_errors_are_reported_as_warnings(folder):
    (folder / "a-000.tar").write_bytes(b"x" * 5000)
    _, said = wdspec("head", "s.yaml", "--source", "a", "-n", "30", "--set", "errors=skip", folder=folder)
    assert said.startswith("warning: skipped (")


def test_it_needs_no_torch_unless_a_decoder_does(folder):
    shown, _ = wdspec("head", "s.yaml", "-n", "1", folder=folder, before=NO_TORCH)
    assert "__key__" in shown
    file = picture(folder)
    _, said = wdspec(
        "head",
        file,
        "--set",
        "dataset=[{shards: p.tar, decode: torchrgb}]",
        folder=folder,
        before=NO_TORCH,
        code=1,
    )
    assert (
        said
        == f"`decode: torchrgb` needs torch, which is not installed: {install_command('wdspec[torch]')}\n"
    )


def test_member_names_cannot_control_the_terminal(folder):
    write_shard(folder / "n.tar", [("\x1b[31mred", {"txt": b"\x1b[2Jgone"})])
    (folder / "n.yaml").write_text("dataset: [{shards: n.tar}]")
    shown, _ = within("head", "n.yaml", "-n", "1", folder=folder)
    assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown
    assert "\\x1b[2Jgone" in shown


def test_on_a_terminal_a_table_is_drawn(folder):
    shown = on_terminal("head", "s.yaml", "-n", "2", folder=folder, width=70)
    assert "───" in shown
    assert "characters" in shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("NoneType", "", "None")),
        (True, ("bool", "", "True")),
        (1.5, ("float", "", "1.5")),
        (b"\x89PNG", ("bytes", "4 B", "\\x89PNG")),
        ("x" * 100, ("str", "100 characters", "x" * PREVIEW + "…")),
        (np.zeros((2, 3), np.float32), ("float32 array", "2 x 3", "0")),
        (np.zeros((0, 3)), ("float64 array", "0 x 3", "")),
        (np.array(["a"]), ("<U1 array", "1", "")),
        (np.float32(2), ("float32 array", "scalar", "2")),
        (Image.new("RGB", (4, 3)), ("RGB image", "4 x 3", "")),
        ([1, {"a": 2}], ("list", "2 entries", '[1, {"a": 2}]')),
        ({1, 2}, ("set", "2 entries", "{1, 2}")),
    ],
)
def test_values_of_all_kinds_are_described(value, expected):
    assert tuple(describe_value(value)) == expected


def test_tensors_are_described_like_arrays():
    import torch

    assert tuple(describe_value(torch.arange(6).reshape(2, 3))) == ("int64 tensor", "2 x 3", "0 to 5")


def test_arrays_inside_values_are_described_by_type_and_shape():
    sound = (np.zeros((2, 1600), np.float32), 8000)
    assert tuple(describe_value(sound)) == ("tuple", "2 entries", '["float32 array 2 x 1600", 8000]')
    assert describe_value({"a": np.ones(3), "b": {1, 2}}).preview == '{"a": "float64 array 3", "b": "{1, 2}"}'


def test_a_field_that_is_not_text_does_not_crash(folder):
    (folder / "odd.py").write_text("def odd(sample):\n    return {'__key__': sample['__key__'], 3: 4}\n")
    shown, _ = within(
        "head", "s.yaml", "-n", "1", "--set", "map=odd:odd", "--set", "batch=null", folder=folder
    )
    assert re.search(r"\b3 +int +4", shown)


def test_a_batch_is_shown_as_training_receives_it(folder):
    spec = "dataset: [{shards: a-000.tar, decode: {txt: raw}}]\nbatch: {size: 4, collate: {txt: %s:lengths}}"
    (folder / "b.yaml").write_text(spec % __name__)
    rows = {row["name"]: row for row in json.loads(run("b.yaml", "--batch", "--format", "json"))["fields"]}
    assert rows["cls"]["type"] == "int64 tensor"
    assert rows["cls"]["shape"] == [4]
    assert rows["txt.0"]["preview"].startswith("5 to") or rows["txt.0"]["shape"] == [4]
    assert "4 entries" in run("b.yaml", "--batch")


def lengths(values):
    return np.array([len(value) for value in values]), values


def test_a_spec_without_batches_has_none_to_show(folder):
    (folder / "n.yaml").write_text("dataset: [{shards: a-000.tar}]")
    assert "omit --batch" in CliRunner().invoke(head, ["n.yaml", "--batch"]).exception.args[0]
