"""What `wdspec explain` finds about the data that a spec names: codes W501 to W515, each at its source."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from commandline import within
from shardmaking import write_shard
from speechdata import encode, voice

from wdspec.advice.explanation import explain_spec
from wdspec.base.errors import install_command
from wdspec.cli.output import one_line
from wdspec.spec.load import load
from wdspec.spec.rules import all_codes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for shard in range(3):
        samples = [(f"{shard}{n:02d}", {"jpg": b"j", "cls": b"1", "seg.png": b"p"}) for n in range(100)]
        write_shard(folder / f"a-{shard:03d}.tar", samples)
        captions = [(key, {"txt": b"a word"}) for key, _ in samples]
        write_shard(folder / f"b-{shard:03d}.tar", captions)
    (folder / "classes" / "cat").mkdir(parents=True)
    (folder / "scores.csv").write_text("__key__,score\n000,1\n")
    (folder / "linked.tar").symlink_to("a-001.tar")
    (folder / "table.tar").write_bytes(b"PAR1" + bytes(600))
    return folder


ALL = "dataset:\n  - name: a\n    shards: 'a-{000..002}.tar'\n"
BUCKET = "dataset:\n  - {name: a, shards: 'gs://b/a-{000..009}.tar'}\n"
CASES: list[tuple[str, dict[str, str], list[str], tuple[str, ...]]] = [
    (ALL, {}, [], ()),
    (
        "dataset:\n  - {name: a, shards: 'a-{000..999}.tar'}\n",
        {},
        ["W501"],
        ("s.yaml:2:5", "997 of 1,000", "a-003.tar"),
    ),
    (
        "dataset:\n  - {name: a, shards: missing/a.tar}\n",
        {},
        ["W501"],
        ("the shard of `a`", "the directory ", "does not exist"),
    ),
    (
        "dataset:\n  - {name: a, shards: classes}\n",
        {},
        ["W502"],
        (
            "`classes` is a directory",
            "/classes -o 'train-%06d.tar' --classes",
            "if its folders are classes",
        ),
    ),
    (
        f"{ALL}    make: {{ids: {{tokenize: cls, file: scores.csv}}}}\n",
        {},
        ["W441"],
        ("`make: ids`: ", "scores.csv is not a tokenizer", "write the path of a `tokenizer.json`"),
    ),
    (f"{ALL}    fetch: {{image: {{url: cls, root: classes/}}}}\n", {}, [], ()),
    (
        f"{ALL}    fetch: {{image: {{url: cls, root: clases/, missing: none}}}}\n",
        {},
        ["W501"],
        ("s.yaml:2:5", "the `root` of `fetch: image` does not exist", "/clases/"),
    ),
    ("dataset:\n  - {name: a, shards: a-000.tra}\n", {}, ["W501"], ("`a-000.tra`", "compare")),
    (
        "dataset:\n  - {name: a, shards: ../data0}\n",
        {},
        ["W502"],
        ("`../data0` is a directory", "write `../data0/`"),
    ),
    ("dataset:\n  - {name: a, shards: table.tar}\n", {}, ["W502"], ("Parquet", "wdspec create")),
    (ALL + "    extensions: png cls\n", {}, ["W503"], ("`png`", "`jpg`")),
    (ALL + "    extensions: png;jpg cls\n", {}, [], ()),
    (ALL + "    extensions: '*.png cls'\n", {}, [], ()),
    (
        ALL + "    extensions: png cls\n    missing: skip\n",
        {},
        ["W503"],
        ("`png`, so `missing: skip` drops all",),
    ),
    (ALL + "    extensions: png cls\n    missing: none\n", {}, [], ()),
    (ALL + "    rename: {image: png;webp}\n", {}, ["W503"], ("`png;webp`",)),
    (ALL + "    rename: {image: jpg}\nfields: image cls\n", {}, [], ()),
    (ALL + "fields: image label\n", {}, ["W503", "W503"], ("`image`", "`label`", "`jpg`")),
    (ALL + "to_tuple: jpg clss\n", {}, ["W503"], ("did you mean `cls`",)),
    (ALL + "    tags: {year: 1}\nto_tuple: jpg year\n", {}, [], ()),
    (ALL + "    tags: {cls: 1}\n", {}, ["W380"], ("`cls`", "another name")),
    (ALL + "    rename: {label: cls}\n    tags: {cls: 1}\n", {}, [], ()),
    (ALL + "    join: {shards: 'b-{000..002}.tar'}\n    extensions: jpg txt\n", {}, [], ()),
    (ALL + "    join: {shards: 'b-{000..002}.tar', fields: txt}\n    extensions: jpg txt\n", {}, [], ()),
    (
        ALL
        + "    join: {shards: 'b-{000..002}.tar', fields: txt, rename: {text: txt}}\n    extensions: jpg txt\n",
        {},
        ["W503"],
        ("`txt`",),
    ),
    (ALL + "    lookup: {table: scores.csv, fields: score}\nfields: jpg score\n", {}, [], ()),
    (ALL + "    decode: {png: rgb8}\n", {}, [], ()),  # it is the end of seg.png
    (ALL + "    decode: {webp: rgb8}\n", {}, ["W504"], ("`decode: {webp: rgb8}`", "`jpg`")),
    (ALL + "    decode: {image: rgb8}\n    rename: {image: jpg}\n", {}, [], ()),
    (ALL + "    decode: audio\n", {}, ["W504"], ("`decode: audio`", "`jpg`")),
    (ALL + "    decode: rgb8 json\n", {}, ["W504"], ("`decode: json`",)),
    (ALL.replace("'a-", "'b-") + "    decode: text\n", {}, [], ()),  # what decodes txt by default
    (ALL.replace("'a-", "'b-") + "    decode: json\n", {}, ["W504"], ("`decode: json`", "`txt`")),
    (ALL, {"WDS_REWRITE": "s3://b/=/mnt/"}, ["W505"], ("WDS_REWRITE", "`s3://b/`", "a-000.tar")),
    (ALL, {"WDS_REWRITE": "a-=a-"}, ["W505"], ()),
    (BUCKET, {"WDS_REWRITE": "gs://b/=nowhere/"}, ["W501"], ("10 of 10",)),
    (BUCKET, {"AIS_ENDPOINT": "http://h:1"}, ["W506"], ("USE_AIS_FOR=gs", "gs://")),
    (BUCKET, {"AIS_ENDPOINT": "http://h:1", "USE_AIS_FOR": "gs"}, [], ()),
    (BUCKET, {}, [], ()),
    (ALL, {"AIS_ENDPOINT": "http://h:1"}, [], ()),
    (ALL + "epoch: 10\nbatch: 8\n", {}, ["W507"], ("10 samples", "about 300", "training loop")),
    (ALL + "epoch: 90\nbatch: 10\n", {}, ["W507"], ("90 samples", "about 300", "to read every sample once")),
    (ALL + "epoch: 304\nbatch: 8\n", {}, [], ()),  # there are 300 samples
    (ALL + "epoch: 90\nbatch: 10\nlimit: 180\n", {}, [], ()),
    (
        ALL + "  - {name: b, shards: '*-001.tar'}\n",
        {},
        ["W508"],
        ("s.yaml:4:5", "`a-001.tar` is also a shard of `a`"),
    ),
    (  # each keeps other samples of them, but the last one
        "dataset:\n"
        + "".join(
            f"  - {{name: {name}, shards: '{glob}-001.tar', subset: [{part}], weight: 1}}\n"
            for name, glob, part in (
                ("b", "a", "0%, 40%"),
                ("c", "?", "40%, 60%"),
                ("d", "*", "60%, 100%"),
                ("e", "a*", "50%, 60%"),
            )
        ),
        {},
        ["W508"],
        ("s.yaml:5:5", "`a-001.tar` is also a shard of `c`"),
    ),
    (
        "dataset:\n  - {name: a, shards: [a-001.tar, linked.tar]}\n",
        {},
        ["W508"],
        ("`linked.tar` is listed twice",),
    ),
]


@pytest.mark.parametrize(("spec", "variables", "codes", "says"), CASES)
def test_data_problems_are_warnings_with_a_code(
    folder: Path, spec: str, variables: dict[str, str], codes: list[str], says: tuple[str, ...]
) -> None:
    (folder / "s.yaml").write_text(spec)
    report: dict[str, Any] = json.loads(
        within(
            "explain", "s.yaml", "--format", "json", folder=folder, code=int("W501" in codes), **variables
        )[0]
    )
    found = [next(word for word in text.split() if word in all_codes()) for text in report["warnings"]]
    assert found == codes
    assert all(word in "\n".join(report["warnings"]) for word in says), report["warnings"]


def test_a_missing_file_is_reported_once(folder: Path) -> None:
    spec = ALL + "    extensions: jpg;png seg.png\n    rename: {image: jpg;seg.png;jpg}\n"
    (folder / "twice.yaml").write_text(spec)
    shown, _ = within("explain", "twice.yaml", folder=folder)
    assert "image = jpg|png|seg.png (bytes)" in shown


def test_missing_functions_are_found_without_running_modules(folder: Path) -> None:
    (folder / "fns_of_data.py").write_text("raise SystemExit('it ran')\ndef identity(sample): ...\n")
    for name, code in (("idnet", 1), ("identity", 0)):
        (folder / "f.yaml").write_text(ALL + f"    select: fns_of_data:{name}\nmap: no_such_module:f\n")
        shown = within("explain", "f.yaml", folder=folder, code=code)[0]
        assert ("W514 `select: fns_of_data:idnet`" in shown) == bool(code)
        assert ("did you mean `identity`?" in shown) == bool(code)


def test_missing_decoder_libraries_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdspec.spec.language.decoders.find_spec", lambda name: None)
    (folder / "l.yaml").write_text(
        ALL + "    extensions: jpg cbor\n    missing: none\n    decode: {jpg: rgb8}\n"
    )
    spec = load(folder / "l.yaml")
    said = [one_line(each) for each in explain_spec(spec, 1, 1, 0).advice]
    assert any(
        "W515" in each and "`decode: cbor` needs cbor2" in each and install_command("wdspec[formats]") in each
        for each in said
    )


def test_missing_store_libraries_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "b.yaml").write_text(BUCKET)
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gcsfs" else find(name))
    said = [one_line(each) for each in explain_spec(load(folder / "b.yaml"), 1, 1, 0).advice]
    assert said == [f"W515 nothing installed reads gs://: {install_command('wdspec[gcs]')}"]


def test_a_command_for_a_spec_says_how_to_read_shards(tmp_path):
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"a"})])
    one = "".join(within("check", "a.tar", folder=tmp_path, code=1))
    assert "name a YAML file with `dataset: [{shards: a.tar}]`; `wdspec ls a.tar` lists a shard" in one
    several = "".join(within("check", "d/a.tar", "d/b.tar", folder=tmp_path, code=2))
    assert "this takes one spec, not 2 files; to read shards, name a YAML file with" in several
    assert "`dataset: [{shards: 'd/*.tar'}]`" in several
    assert "shards" not in "".join(within("check", "a.yaml", "b.yaml", folder=tmp_path, code=2))


def test_samples_of_different_lengths_can_be_packed(tmp_path):
    write_shard(
        tmp_path / "a.tar", [(str(n), {"json": json.dumps(list(range(n + 1))).encode()}) for n in range(4)]
    )
    spec = {"dataset": [{"shards": "a.tar", "rename": {"ids": "json"}, "map": "packed_module:as_array"}]}
    (tmp_path / "packed_module.py").write_text(
        "import numpy\ndef as_array(sample): return {**sample, 'ids': numpy.array(sample['ids'])}\n"
    )
    for batch, code in (({"size": 2}, 1), ({"pack": {"fields": "ids", "length": 8}}, 0)):
        (tmp_path / "s.yaml").write_text(json.dumps({**spec, "batch": batch}))
        shown = "".join(within("check", "s.yaml", "--jobs", "0", folder=tmp_path, code=code))
        assert ("D210" in shown) == bool(code)


@pytest.mark.parametrize(
    ("rates", "channels", "decoder", "code"),
    [
        ((8000, 16000), (1, 1), "audio", "D231"),
        ((8000, 8000), (1, 2), "audio", "D232"),
        ((8000, 16000), (1, 2), "audio+rate=8000+mono", ""),
    ],
)
def test_check_finds_recordings_that_do_not_belong_into_one_batch(tmp_path, rates, channels, decoder, code):
    files = [
        (str(n), {"wav": encode(voice(n, rate, count), rate)})
        for n, (rate, count) in enumerate(zip(rates, channels, strict=True))
    ]
    write_shard(tmp_path / "a.tar", files)
    pads = {"size": 2, "collate": {"wav": {"pad": {"axis": -1}}}}
    spec = {"dataset": [{"shards": "a.tar", "decode": {"wav": decoder}}], "batch": pads}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    shown = "".join(within("check", "s.yaml", "--jobs", "0", folder=tmp_path, code=bool(code)))
    assert [each for each in ("D231", "D232", "D210") if each in shown] == [code] * bool(code)


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        ("import nowhere_xyz\n", "install `nowhere_xyz`, in every worker too"),
        ("def f(s)\n return s\n", "correct this line"),
        ("\n1 / 0\n", "correct line 2 of"),
    ],
)
def test_the_remedy_for_a_module_that_fails_is_about_its_cause(tmp_path, module, remedy):
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"a"})])
    (tmp_path / "failing_module.py").write_text(module)
    (tmp_path / "s.yaml").write_text("dataset: [{shards: a.tar, map: 'failing_module:f'}]\n")
    said = "".join(within("head", "s.yaml", folder=tmp_path, code=1))
    assert remedy in said
    assert "PYTHONPATH" not in said


def test_the_values_that_keys_of_looks_up_are_shown(tmp_path):
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"cat\n"})])
    (tmp_path / "s.yaml").write_text("dataset: [{shards: a.tar, keys: [dog], keys_of: txt}]\n")
    said = "".join(within("head", "s.yaml", folder=tmp_path, code=1))
    assert r"`keys` has keys such as 'dog', but the values of `txt` look like 'cat\n'" in said


def test_what_functions_say_after_a_semicolon_is_no_remedy(tmp_path):
    write_shard(tmp_path / "a.tar", [(str(n), {"txt": b"a"}) for n in range(3)])
    (tmp_path / "odd_module.py").write_text(
        "def f(sample):\n    raise ValueError('odd header; byte 3 is wrong')\n"
    )
    (tmp_path / "s.yaml").write_text("dataset: [{shards: a.tar, map: 'odd_module:f'}]\n")
    shown, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=tmp_path, code=1)
    assert shown.count("odd header; byte 3 is wrong") == 3


def test_a_remedy_is_shown_once_for_each_kind_of_damage(tmp_path):
    for n in range(3):
        (tmp_path / f"{n}.tar").write_bytes(b"")
    (tmp_path / "s.yaml").write_text("dataset: [{shards: '{0..2}.tar'}]\n")
    shown, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=tmp_path, code=1)
    assert shown.count("0 bytes; fetch or write the shard again") == 1
    assert shown.count("the shard is empty: 0 bytes [byte 0]") == 2
