"""`wdspec check`: what it reads, how it reports, and what it says when shards are compared."""

import io
import json
import os
import re
import sqlite3
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from commandline import within
from PIL import Image
from shardmaking import write_shard, write_source

import wdspec
from wdspec.jobs.check import job as run_check
from wdspec.jobs.engine import LocalEngine
from wdspec.spec.rules import all_codes


@pytest.fixture
def folder(tmp_path):
    write_source(tmp_path, "a", shards=6, samples=20)
    (tmp_path / "s.yaml").write_text('wdspec: 1\ndataset:\n  - {name: a, shards: "a-{000..005}.tar"}\n')
    return tmp_path


def found(folder, *arguments, code=1, file="s.yaml", **variables):
    out, _ = within(
        "check", file, "--jobs", "0", "--format", "json", *arguments, folder=folder, code=code, **variables
    )
    return json.loads(out)


def codes(report):
    return sorted({problem["code"] for problem in report["problems"]})


def spec(folder, dataset, **top):
    keys = "".join(f"{key}: {json.dumps(value)}\n" for key, value in top.items())
    (folder / "s.yaml").write_text(f"wdspec: 1\n{keys}dataset: {json.dumps(dataset)}\n")


def picture(seed, quality=95, size=32):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC).save(
        buffer, "jpeg", quality=quality
    )
    return buffer.getvalue()


def test_a_report_contains_no_secrets(folder):
    spec(folder, [{"name": "a", "shards": "http://me:s3cret@127.0.0.1:9/a.tar"}])
    _, said = within("check", "s.yaml", "--jobs", "0", "--report", "r.db", folder=folder, code=1)
    assert "its URLs contain a secret, which the report would store" in said
    assert b"s3cret" not in (folder / "r.db").read_bytes()


def test_unlisted_problems_are_counted_and_sources_are_not_shards(folder):
    expect = {"samples": 150, "fields": {"cls": {"classes": 1}}}
    spec(folder, [{"name": "a", "shards": "a-{000..003}.tar", "expect": expect}])
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=folder, code=1)
    *_, summary = out.splitlines()
    listed = sum(": D213 " in line for line in out.splitlines())
    [row] = [line.split() for line in out.splitlines() if line.startswith("a       D213")]
    assert row == ["a", "D213", "79"]
    assert (listed, summary) == (79, "4 shards checked: 80 errors")


@pytest.mark.parametrize(
    ("samples", "damaged", "rate"),
    [(48, 1, 0.05), (77, 7, 0.2), (990, 20, 0.05), (2000, 3, 0.003), (3000, 10, 0.01)],
)
def test_the_suggested_rate_lets_training_go_on_for_any_number_of_passes(tmp_path, samples, damaged, rate):
    whole = {"cls": b"1", "txt": b"a"}
    lacking = [(f"{number:04}", {"cls": b"0"}) for number in range(damaged)]
    write_shard(tmp_path / "a.tar", lacking + [(f"{number:04}", whole) for number in range(damaged, samples)])
    source = {
        "name": "a",
        "shards": f"{tmp_path}/a.tar",
        "extensions": "cls txt",
        "order": "sequential",
        "shuffle": 0,
    }
    spec(tmp_path, [source])
    assert found(tmp_path, "--all")["max_rates"] == {"a": rate}
    epoch = {"epoch": 4 * samples, "batch": 5}
    with wdspec.loader(
        {"dataset": [{**source, "errors": {"max_rate": rate}}], **epoch}, num_workers=0
    ) as loader:
        assert sum(len(batch["cls"]) for batch in loader) == 4 * samples // 5 * 5
        assert sum(loader.stats().sources["a"].skipped.values()) > 2 * damaged


def test_samples_are_checked_though_a_plan_needs_costs_that_stats_has_measured_otherwise(folder):
    source = [{"name": "a", "shards": "a-{000..005}.tar"}]
    costs = {"mix": {"shares_in": "cost"}, "stats": "s.stats.json"}
    spec(folder, source, **costs, batch={"window": 8, "cost": "txt.length", "max_cost": 40})
    within("stats", "s.yaml", "--jobs", "0", folder=folder)
    spec(folder, source, **costs, batch={"window": 8, "cost": "txt.length + 1", "max_cost": 40})
    assert "`stats` has" in within("explain", "s.yaml", folder=folder, code=1)[1]
    (folder / "a-003.tar").write_bytes((folder / "a-003.tar").read_bytes()[:3000])
    assert codes(found(folder, "--all")) == ["D107"]


def test_samples_that_a_selection_drops_do_not_count_for_the_suggested_rate(tmp_path):
    samples = [(f"{n:03}", {"cls": b"%d" % n, **({} if n == 7 else {"txt": b"a"})}) for n in range(2000)]
    write_shard(tmp_path / "a.tar", samples)
    source = {"name": "a", "shards": f"{tmp_path}/a.tar", "extensions": "cls txt", "where": "cls < 50"}
    spec(tmp_path, [source])
    assert found(tmp_path, "--all")["max_rates"] == {"a": 0.04}


def test_errors_are_totalled_and_a_sufficient_rate_is_suggested(folder, monkeypatch):
    for number in (1, 3):
        (folder / f"a-{number:03}.tar").write_bytes((folder / f"a-{number:03}.tar").read_bytes()[:3000])
    (folder / "a-005.tar").unlink()
    report = found(folder, "--all")
    assert report["totals"] == [
        {"source": "a", "code": "D101", "problems": 1},
        {"source": "a", "code": "D107", "problems": 2},
    ]
    assert report["max_rates"] == {"a": 0.1}
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=folder, code=1)
    assert out.count("fetch or write the shard again") == 1
    assert out.count(": D107 truncated: the shard ends at byte 3000, before byte 3072") == 2
    assert "to train without these samples of `a`: `errors: {max_rate: 0.1}`" in out
    assert found(folder, "--sample", "5")["max_rates"] == {}
    source = {"name": "a", "shards": "a-{000..005}.tar", "errors": {"max_count": 3}}
    spec(folder, [source])
    assert found(folder, "--all")["max_rates"] == {}
    spec(folder, [{**source, "errors": {"max_rate": 0.002}}])
    assert found(folder, "--all")["max_rates"] == {"a": 0.1}
    monkeypatch.syspath_prepend(folder)
    (folder / "odd_ones.py").write_text(
        "def keep(s):\n    return {'1': s}[s['__key__'][-1]] if s['cls'] == 3 else s\n"
    )
    spec(folder, [{**source, "map": "odd_ones:keep", "errors": {"max_count": 30}}])
    assert found(folder, "--all")["max_rates"] == {"a": 0.2}
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=folder, code=1)
    assert "`errors: {skip: [shard, decode, map], max_rate: 0.2}`" in out


def test_problems_of_the_environment_are_checked_again(folder):
    source = {"name": "a", "shards": "a-{000..001}.tar", "map": "of_reports:keep"}
    spec(folder, [source])
    assert codes(found(folder, "--report", "r.db")) == ["D211"]
    (folder / "of_reports.py").write_text("def keep(sample):\n    return sample\n")
    assert codes(found(folder, "--report", "r.db", code=0)) == []


def test_ignored_problems_are_not_counted(folder):
    expect = {"fields": {"cls": {"classes": 1}}}
    spec(folder, [{"name": "a", "shards": "a-{000..003}.tar", "expect": expect}])
    arguments = ("check", "s.yaml", "--all", "--jobs", "0", "--ignore", "D213")
    out, _ = within(*arguments, folder=folder, code=0)
    assert out == "4 shards checked: no problems\n"


def test_every_code_of_data_is_reported_somewhere_and_has_a_page():
    root = Path(wdspec.__file__).parent
    tables = root / "spec" / "problems"
    texts = [path.read_text(encoding="utf-8") for path in root.rglob("*.py") if path.parent != tables]
    used = {code for text in texts for code in re.findall(r'"(D\d{3})"', text)}
    assert used == {code for code in all_codes() if code.startswith("D")}


def test_good_shards_have_no_problems(folder):
    report = found(folder, "--all", code=0)
    assert report["problems"] == []
    about = report["sources"]["a"]
    assert (about["shards"], about["read"], about["samples"], about["delivered"]) == (6, 6, 120, 120)
    assert about["fields"]["cls"]["types"] == {"int": 120}


def test_some_shards_are_read_and_the_others_only_looked_up(folder):
    (folder / "a-001.tar").unlink()
    (folder / "a-004.tar").write_bytes(b"<html>")
    report = found(folder, "--sample", "2")
    assert [(each["code"], each["shard"]) for each in report["problems"]] == [("D101", "a-001.tar")]
    assert report["sources"]["a"]["read"] == 2
    assert codes(found(folder, "--all")) == ["D101", "D106"]


def test_reading_continues_after_damage(folder):
    data = bytearray((folder / "a-002.tar").read_bytes())
    data[2048 + 3] ^= 1
    data[20_480 + 5] ^= 1
    (folder / "a-002.tar").write_bytes(data)
    report = found(folder, "--all")
    assert [(each["code"], each["offset"]) for each in report["problems"]] == [
        ("D108", 2048),
        ("D108", 20_480),
    ]
    assert report["sources"]["a"]["delivered"] >= 120 - 4


def test_the_text_report_names_shard_code_and_place(folder):
    (folder / "a-003.tar").write_bytes((folder / "a-003.tar").read_bytes()[:3000])
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=folder, code=1)
    first, rate, last = out.splitlines()
    assert "`errors: {max_rate: 0.02}`" in rate
    assert first.startswith("a-003.tar: D107 truncated: the shard ends at byte 3000")
    assert first.endswith("[member a0030001.txt, key a0030001, byte 2048]")
    assert last == "6 shards checked: 1 error"


def test_github_points_at_the_source_and_junit_has_a_case_for_each_shard(folder):
    (folder / "a-003.tar").unlink()
    out, _ = within("check", "s.yaml", "--jobs", "0", "--format", "github", folder=folder, code=1)
    assert out.startswith("::error file=s.yaml,line=3,col=5,")
    assert "title=D101::a-003.tar: no such file" in out
    out, _ = within("check", "s.yaml", "--jobs", "0", "--format", "junit", folder=folder, code=1)
    cases = ElementTree.fromstring(out).findall(".//testcase")
    assert [case.get("name") for case in cases] == [f"a-00{n}.tar" for n in range(6)]
    assert [case.get("name") for case in cases if case.find("failure") is not None] == ["a-003.tar"]


def test_warnings_fail_only_with_strict_and_can_be_ignored(folder):
    (folder / "a-005.tar").rename(folder / "a-005.tar.gz")
    spec(folder, [{"name": "a", "shards": ["a-{000..004}.tar", "a-005.tar.gz"]}])
    assert codes(found(folder, "--all", code=0)) == ["D309"]
    found(folder, "--all", "--strict", code=1)
    assert codes(found(folder, "--all", "--strict", "--ignore", "d309", code=0)) == []
    _, said = within("check", "s.yaml", "--ignore", "D999", folder=folder, code=2)
    assert "not the code of a data problem" in said


def test_several_processes_find_what_one_finds(folder):
    (folder / "a-001.tar").write_bytes(b"")
    alone = found(folder, "--all")
    out, _ = within("check", "s.yaml", "--all", "--jobs", "2", "--format", "json", folder=folder, code=1)
    assert json.loads(out) == alone


def test_sorted_shards_come_with_an_interleave_suggestion(folder):
    for shard in range(10):
        samples = [(f"s{shard}{n:03d}", {"cls": b"%d" % shard, "txt": b"%d" % n}) for n in range(60)]
        write_shard(folder / f"sorted-{shard}.tar", samples)
    source = {"name": "s", "shards": "sorted-{0..9}.tar", "interleave": 2, "shuffle": 30}
    spec(folder, [source])
    (problem,) = found(folder, "--all", code=0)["problems"]
    assert problem["code"] == "D307"
    assert "set `interleave: 10`" in problem["message"]
    spec(folder, [source | {"interleave": 10}])
    assert found(folder, "--all", code=0)["problems"] == []


def test_mixed_shards_are_not_reported_as_sorted(folder):
    for shard in range(4):
        samples = [(f"s{shard}{n:03d}", {"cls": b"%d" % (n * 7 % 10)}) for n in range(60)]
        write_shard(folder / f"mixed-{shard}.tar", samples)
    spec(folder, [{"name": "s", "shards": "mixed-{0..3}.tar", "interleave": 1, "shuffle": 2}])
    assert found(folder, "--all", code=0)["problems"] == []


def test_a_key_in_two_shards_is_reported_with_its_kind(folder):
    write_shard(folder / "b-0.tar", [("one", {"txt": b"1" * 90, "cls": b"1"}), ("half", {"txt": b"h"})])
    write_shard(folder / "b-1.tar", [("half", {"cls": b"2"}), ("one", {"txt": b"1" * 90, "cls": b"1"})])
    write_shard(folder / "b-2.tar", [("one", {"txt": b"another", "cls": b"3"})])
    spec(folder, [{"name": "b", "shards": "b-{0..2}.tar"}])
    said = {
        (each["shard"], each["key"]): each["message"]
        for each in found(folder, "--all", code=0)["problems"]
        if each["code"] == "D301"
    }
    assert "split over two shards" in said["b-1.tar", "half"]
    assert "the same sample is in `b-0.tar`" in said["b-1.tar", "one"]
    assert "another sample with this key is in `b-1.tar`" in said["b-2.tar", "one"]


def test_shared_bytes_between_sources_are_reported_and_shared_keys_are_not(folder):
    write_shard(folder / "b-0.tar", [("000", {"txt": b"b" * 90}), ("001", {"txt": b"x" * 90})])
    write_shard(folder / "c-0.tar", [("000", {"txt": b"c" * 90}), ("007", {"txt": b"x" * 90})])
    spec(folder, [{"name": "b", "shards": "b-0.tar"}, {"name": "c", "shards": "c-0.tar"}])
    (problem,) = found(folder, "--all", code=0)["problems"]
    assert (problem["code"], problem["source"], problem["key"]) == ("D302", "c", "007")
    assert "`b-0.tar` has it as `001`" in problem["message"]


def test_overlap_of_splits_is_found_by_bytes_and_by_perceptual_hash(folder):
    write_shard(folder / "t.tar", [(f"t{n}", {"jpg": picture(n)}) for n in range(20)])
    write_shard(
        folder / "v.tar",
        [("v0", {"jpg": picture(3)}), ("v1", {"jpg": picture(5, quality=70)}), ("v2", {"jpg": picture(99)})],
    )
    (folder / "m.yaml").write_text(
        "wdspec: 1\ndefaults: {decode: rgb8}\nsplits:\n  train: {dataset: [{name: t, shards: t.tar}]}\n"
        "  val: {dataset: [{name: v, shards: v.tar}]}\n"
    )
    report = found(folder, "--all", "--against", "m.yaml#val", file="m.yaml#train", code=0)
    assert {(each["code"], each["key"]) for each in report["problems"]} == {("D308", "t3"), ("D308", "t5")}
    assert found(folder, "--all", file="m.yaml#train", code=0)["problems"] == []


def test_inconsistent_fields_are_counted(folder):
    samples = [(f"k{n:02d}", {"txt": b"t"} | ({"cls": b"1"} if n != 7 else {})) for n in range(20)]
    write_shard(folder / "b-0.tar", samples)
    spec(folder, [{"name": "b", "shards": "b-0.tar"}])
    (problem,) = found(folder, "--all", code=0)["problems"]
    assert (problem["code"], problem["key"]) == ("D303", "k07")
    assert "1 of 20 samples lack `cls`" in problem["message"]


def test_only_images_of_one_group_need_one_shape(folder):
    shapes = [(64, 64), (64, 128), (64, 64), (64, 128), (32, 64)]
    pictures = [io.BytesIO() for _ in shapes]
    for file, size in zip(pictures, shapes, strict=True):
        Image.new("L" if size == (32, 64) else "RGB", size).save(file, "png")
    write_shard(folder / "b-0.tar", [(f"k{n}", {"png": each.getvalue()}) for n, each in enumerate(pictures)])
    source = [{"name": "b", "shards": "b-0.tar", "decode": "rgb8"}]
    for group_by, expected in (("png.width + png.height", []), ("png.width", ["D210"])):
        spec(folder, source, batch={"size": 2, "group_by": group_by})
        problems = {each["code"]: each for each in found(folder, "--all", code=bool(expected))["problems"]}
        assert {*problems} - {"D304"} == {*expected, "D305"}
        assert "the decoder converts them" in problems["D305"]["message"]


def test_more_slots_than_shards_are_reported(folder):
    spec(folder, [{"name": "a", "shards": "a-{000..005}.tar"}], elastic={"ranks": 4, "workers": 4}, batch=4)
    assert codes(found(folder, code=0)) == ["W512"]


def test_more_slots_than_the_shards_of_several_sources_are_one_warning(folder):
    sources = [{"name": name, "shards": "a-{000..005}.tar"} for name in "ab"]
    spec(folder, sources, elastic={"ranks": 4, "workers": 4}, batch=4)
    [seen] = [each for each in found(folder, code=0)["problems"] if each["code"] == "W512"]
    assert "(a in 3, b in 3)" in seen["message"]
    said = within("validate", "s.yaml", folder=folder)[0]
    assert said.count("W361") == 1
    assert "other sources with too few are `b`" in said


def test_user_functions_run_and_their_errors_are_reported(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "steps_of_check.py").write_text(
        "def odd(sample):\n    if sample['cls'] == 3:\n        raise KeyError('three')\n    return sample\n"
    )
    spec(folder, [{"name": "a", "shards": "a-{000..005}.tar", "map": "steps_of_check:odd"}])
    (problem,) = found(folder, "--all")["problems"]
    assert (problem["code"], problem["key"]) == ("D203", "a0000003")
    assert problem["offset"] == 6 * 1024


def test_a_missing_function_is_one_problem_and_shards_are_still_read(folder):
    spec(folder, [{"name": "a", "shards": "a-{000..005}.tar", "map": "nowhere:f"}])
    (folder / "a-002.tar").write_bytes(b"")
    assert [each["code"] for each in found(folder, "--all")["problems"]] == ["D211", "D103"]


def test_secure_mode_forbids_functions(folder):
    spec(folder, [{"name": "a", "shards": "a-{000..005}.tar", "map": "os:getcwd"}])
    _, said = within("check", "s.yaml", "--jobs", "0", folder=folder, code=1, WDS_SECURE="1")
    assert "WDS_SECURE" in said


def test_many_problems_of_one_kind_are_summarized(folder):
    write_shard(folder / "b-0.tar", [(f"k{n:03d}", {"json": b"{"}) for n in range(50)])
    spec(folder, [{"name": "b", "shards": "b-0.tar"}])
    report = found(folder, "--all")
    assert len(report["problems"]) == 20
    assert report["hidden"] == {"D202": 30}
    assert report["totals"] == [{"source": "b", "code": "D202", "problems": 50}]
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=folder, code=1)
    assert "b       D202        50                45\n" in out


def test_no_secret_is_shown(folder):
    spec(
        folder, [{"name": "h", "shards": "http://user:hunter2@localhost:1/a.tar", "errors": {"retry": "1ms"}}]
    )
    out, said = within("check", "s.yaml", "--all", "--jobs", "0", folder=folder, code=1)
    assert "hunter2" not in out + said
    assert "D102" in out


def test_one_source_can_be_selected(folder):
    write_source(folder, "b", shards=1)
    spec(folder, [{"name": "a", "shards": "a-{000..005}.tar"}, {"name": "b", "shards": "b-000.tar"}])
    assert list(found(folder, "--source", "b", code=0)["sources"]) == ["b"]
    _, said = within("check", "s.yaml", "--source", "c", folder=folder, code=1)
    assert "no source `c`" in said


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE shards SET samples = '{\"smples\": 1}'",
        "UPDATE shards SET samples = 'x'",
        "UPDATE shards SET samples = x'ff'",
        "UPDATE shards SET problems = '[{\"a\": 1}]'",
        'UPDATE shards SET problems = \'[{"code": "D101", "message": 3}]\'',
        "UPDATE shards SET hidden = '[1]'",
        "UPDATE shards SET keys = x'010203'",
        "UPDATE shards SET contents = 'abc'",
        "UPDATE shards SET seconds = 'x'",
        "ALTER TABLE shards RENAME COLUMN keys TO kees",
        0,
        4096,
        8192,
    ],
)
def test_a_damaged_report_is_an_error_with_its_path(folder, damage):
    found(folder, "--report", "r.db", code=0)
    if isinstance(damage, int):
        with open(folder / "r.db", "r+b") as file:
            file.seek(damage)
            file.write(bytes(4096))
    else:
        database = sqlite3.connect(folder / "r.db", isolation_level=None)
        database.execute(damage)
        database.close()
    for option in ("--report", "--changed"):
        out, said = within("check", "s.yaml", "--jobs", "0", option, "r.db", folder=folder, code=1)
        assert "`r.db`" in out + said


def test_names_that_are_not_utf_8_can_be_in_a_report(folder):
    shard = os.fsencode(folder) + b"/b\xe9.tar"
    with tarfile.open(os.fsdecode(shard), "w", encoding="latin-1", format=tarfile.GNU_FORMAT) as tar:
        for name in ("a.txt", "caf\xe9.txt", "caf\xe9.cls", "caf\xe9.cls"):
            tar.addfile(tarfile.TarInfo(name))
    spec(folder, [{"name": "b", "shards": "b*.tar"}])
    first = found(folder, "--all", "--report", "seen.db")
    assert any("\udce9" in each["shard"] for each in first["problems"])
    assert found(folder, "--all", "--report", "seen.db")["problems"] == first["problems"]


def test_a_report_saves_checking_unchanged_shards_again(folder, monkeypatch):
    (folder / "a-001.tar").write_bytes(b"")
    first = found(folder, "--all", "--report", "seen.db")
    read = []
    look = run_check.look_at
    monkeypatch.setattr(run_check, "look_at", lambda task: read.append(facts := look(task)) or facts)
    write_source(folder, "a", shards=1, samples=3)
    again = found(folder, "--all", "--report", "seen.db")
    assert sum(not facts.is_unchanged for facts in read) == 1
    assert again["problems"] == first["problems"]
    assert again["sources"]["a"]["samples"] == first["sources"]["a"]["samples"] - 17
    read.clear()
    spec(folder, [{"name": "a", "shards": "a-{000..005}.tar", "extensions": "txt"}])
    found(folder, "--all", "--changed", "seen.db")
    assert sum(not facts.is_unchanged for facts in read) == 6, "the fields are others now"
    assert [each["code"] for each in found(folder, "--all", "--report", "seen.db")["problems"]] == ["D103"]


def test_with_a_lock_only_changed_shards_are_checked(folder):
    (folder / "a-001.tar").write_bytes(b"")
    within("lock", "s.yaml", folder=folder)
    shown, _ = within("check", "s.yaml", "--all", "--jobs", "0", "--changed", "s.lock.json", folder=folder)
    assert shown.splitlines() == ["6 shards as locked, not checked", "0 shards checked: no problems"]
    (folder / "a-002.tar").write_bytes(bytes(50_000))
    (folder / "a-004.tar").unlink()
    write_source(folder, "a-more", shards=1, samples=7)
    text = (
        (folder / "s.yaml").read_text().replace('"a-{000..005}.tar"', '["a-{000..005}.tar", a-more-000.tar]')
    )
    (folder / "s.yaml").write_text(text + "  - {name: new, shards: a-more-000.tar}\n")
    report = found(folder, "--all", "--changed", "s.lock.json", "--report", "seen.db")
    about = report["sources"]["a"]
    assert (about["as_locked"], about["read"], about["samples"]) == (4, 2, 7)
    assert report["sources"]["new"]["samples"] == 7
    named = {(problem["shard"], problem["code"]) for problem in report["problems"] if problem["code"] < "D2"}
    assert named == {("a-002.tar", "D104"), ("a-004.tar", "D101")}
    # The report knows nothing of what was not looked at.
    whole = found(folder, "--all", "--report", "seen.db")
    assert (whole["sources"]["a"]["as_locked"], whole["sources"]["a"]["samples"]) == (0, 67)
    (folder / "cut.json").write_text((folder / "s.lock.json").read_text()[:-20])
    said = within("check", "s.yaml", "--changed", "cut.json", folder=folder, code=1)[1]
    assert "this is not a lock that `wdspec lock` wrote" in said


def test_an_interrupted_check_resumes(folder, monkeypatch):
    look, read = run_check.look_at, []

    def interrupted(task):
        if len(read) == 3:
            raise KeyboardInterrupt
        read.append(task.shard.text)
        return look(task)

    monkeypatch.setattr(run_check, "look_at", interrupted)
    within("check", "s.yaml", "--all", "--jobs", "0", "--report", "seen.db", folder=folder, code=130)
    monkeypatch.setattr(run_check, "look_at", lambda task: read.append(task.known is None) or look(task))
    assert found(folder, "--all", "--report", "seen.db", code=0)["sources"]["a"]["samples"] == 120
    assert read[3:] == [False] * 3 + [True] * 3


def test_a_file_that_is_not_a_report_is_not_overwritten(folder):
    (folder / "text").write_text("no database at all, but a text of some length")
    for option, file in (("--changed", "nowhere.db"), ("--changed", "text"), ("--report", "text")):
        _, said = within("check", "s.yaml", "--jobs", "0", option, file, folder=folder, code=1)
        assert file in said
    assert (folder / "text").read_text().startswith("no database")
    assert not (folder / "nowhere.db").exists()


def test_the_documented_commands_run(folder):
    page = (Path(__file__).parents[2] / "docs" / "checking.md").read_text(encoding="utf-8")
    commands = [
        line for block in re.findall(r"^```bash\n(.*?)^```", page, re.M | re.S) for line in block.splitlines()
    ]
    (folder / "train.yaml").write_text(f"{(folder / 's.yaml').read_text()}batch: 4\nepoch: 100\n")
    (folder / "data.yaml").write_text(
        'wdspec: 1\nsplits:\n  train: {dataset: [{name: t, shards: "a-{000..002}.tar"}]}\n'
        '  val: {dataset: [{name: v, shards: "a-{003..005}.tar"}]}\n'
    )
    (folder / "clean.yaml").write_text((folder / "train.yaml").read_text())
    for command in commands:
        program, *arguments = command.replace("--jobs 16", "--jobs 0").replace("1200", "12").split()
        assert program == "wdspec"
        more = ["--jobs", "0"] if arguments[0] in ("check", "dedup") and "--jobs" not in arguments else []
        within(*arguments, *more, folder=folder)
    assert len(commands) >= 7


def test_a_source_that_cannot_be_listed_does_not_stop_the_others(folder):
    (folder / "a-002.tar").write_bytes(b"")
    good = {"name": "a", "shards": "a-{000..005}.tar", "weight": 2}
    spec(folder, [{"name": "g", "shards": "nothing-*.tar", "weight": 1}, good])
    report = found(folder, "--all")
    assert [(each["code"], each["source"]) for each in report["problems"]] == [("D101", "g"), ("D103", "a")]
    spec(folder, [{"name": "g", "shards": "nothing-*.tar"}])
    assert codes(found(folder)) == ["D101"]


def test_a_source_with_a_probability_can_be_checked_alone(folder):
    shards = {"shards": "a-{000..005}.tar"}
    spec(folder, [{"name": "a", "probability": 0.7} | shards, {"name": "b", "probability": 0.3} | shards])
    assert found(folder, "--source", "b", code=0)["sources"]["b"]["read"] == 4


def test_a_shard_listed_twice_is_reported_once(folder):
    spec(folder, [{"name": "a", "shards": ["a-{000..005}.tar", "a-001.tar"]}])
    (problem,) = [
        each for each in found(folder, "--all", code=0)["problems"] if "are listed" not in each["message"]
    ]
    assert (problem["code"], problem["shard"]) == ("D301", "a-001.tar")


def test_a_lookup_keeps_earlier_results_of_a_shard(folder):
    found(folder, "--all", "--report", "seen.db", code=0)
    assert found(folder, "--sample", "1", "--report", "seen.db", code=0)["sources"]["a"]["read"] == 6
    assert found(folder, "--all", "--changed", "seen.db", code=0)["sources"]["a"]["samples"] == 120


@pytest.mark.parametrize("cache", [False, True])
def test_remote_shards_are_looked_up_and_read_like_local_ones(folder, nginx, cache):
    write_source(nginx.root, "check", shards=4, samples=20)
    (nginx.root / "check-001.tar").write_bytes((nginx.root / "check-001.tar").read_bytes()[:3000])
    (nginx.root / "check-002.tar").unlink()
    write_shard(nginx.root / "check-003.tar", [("bad", {"txt": b"t", "json": b"{"})])
    shards = f"{nginx.url}/check-{{000..003}}.tar"
    spec(
        folder,
        [
            {"name": "h", "shards": shards, "errors": {"retry": "1ms"}}
            | ({"cache": "copies"} if cache else {})
        ],
    )
    problems = found(folder, "--all")["problems"]
    result = [(each["code"], each["shard"][-7:], each["member"], each["offset"]) for each in problems]
    assert ("D107", "001.tar", "check0010001.txt", 2048) in result
    assert ("D101", "002.tar", None, None) in result
    assert ("D202", "003.tar", "bad.json", 1024) in result
    assert {code for code, *_ in result} == {"D101", "D107", "D202"}
    assert [each["code"] for each in found(folder, "--sample", "1")["problems"]] == ["D101"]


def test_memory_per_shard_is_small(folder):
    checked = wdspec.load(str(folder / "s.yaml"))
    report = run_check.check_data(checked, LocalEngine(0), most=None)
    (source,) = report.collection.own
    assert source.facts.layouts["txt cls"].times == 120
    assert source.facts.fields["cls"].kinds["int"].first.shard == "a-000.tar"
    for looked in source.shards:
        assert looked.facts.samples.samples == 20
        assert not looked.facts.samples.fields
        assert isinstance(looked.facts.keys, np.memmap)


def test_a_shard_whose_process_was_killed_is_reported(folder, monkeypatch):
    class Killed(LocalEngine):
        def run(self, do, works, lost):
            for work in works:
                yield work, lost("killed") if work.number == 2 else do(work)

    report = run_check.check_data(wdspec.load(str(folder / "s.yaml")), Killed(0), most=None)
    assert [(each.code, each.source, each.shard, each.message) for each in report.problems] == [
        ("D102", "a", "a-002.tar", "killed")
    ]


def test_sources_with_different_fields_are_said_in_one_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"txt": "a"}\n' * 4)
    (tmp_path / "b.jsonl").write_text('{"other": "a"}\n' * 4)
    (tmp_path / "s.yaml").write_text(
        "dataset: [{name: a, shards: a.jsonl}, {name: b, shards: b.jsonl}]\nbatch: 2\n"
    )
    said = "".join(within("check", "s.yaml", folder=tmp_path, code=1))
    assert "cannot be batched: a: txt; b: other; perhaps: in b: rename: {txt: other}" in said


TOO_LONG = (
    "a.jsonl: D202 the sample costs 9, and `max_cost` is 8; raise it, or set `overlong` to `drop` or `alone`"
)


@pytest.mark.parametrize(
    ("keys", "said", "code"),
    [
        ("", TOO_LONG, 1),
        (", overlong: alone", "1 shard checked: no problems", 0),
        (", overlong: drop", "1 shard checked: no problems", 0),
    ],
)
def test_a_sample_that_no_batch_can_have_is_an_error_as_in_training(tmp_path, keys, said, code):
    (tmp_path / "a.jsonl").write_text(
        "".join(f'{{"txt": "{"x" * length}"}}\n' for length in (3, 9, *[4] * 20))
    )
    batch = f"batch: {{cost: txt.length, max_cost: 8, window: 10{keys}, collate: {{txt: list}}}}\n"
    (tmp_path / "s.yaml").write_text(f"dataset: [{{name: a, shards: a.jsonl}}]\n{batch}")
    assert said in "".join(within("check", "s.yaml", folder=tmp_path, code=code))


def test_a_made_field_that_is_longer_than_a_row_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"txt": "{"x" * length}"}}\n' for length in (3, 9, 4)))
    (tmp_path / "steps.py").write_text(
        "def ids(sample):\n    return {**sample, 'ids': list(sample['txt'].encode())}\n"
    )
    (tmp_path / "s.yaml").write_text(
        "dataset: [{name: a, shards: a.jsonl}]\nmap: [{call: 'steps:ids', sets: ids}]\n"
        "batch: {window: 10, pack: {fields: ids, length: 8}}\n"
    )
    said = "".join(within("check", "s.yaml", folder=tmp_path, code=1))
    assert "D202 the sample has 9 elements of `ids`, and `length` of `pack` is 8" in said


def test_other_limits_are_checked_anew(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"txt": "123456789"}\n' * 4)
    batch = "batch: {cost: txt.length, max_cost: %d, window: 10, collate: {txt: list}}\n"
    for most, code in ((9, 0), (8, 1), (9, 0)):
        (tmp_path / "s.yaml").write_text(f"dataset: [{{name: a, shards: a.jsonl}}]\n{batch % most}")
        within("check", "s.yaml", "--report", "kept.json", folder=tmp_path, code=code)


def test_an_empty_field_that_is_packed_is_left_out_as_the_error_says(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"ids": [1, 2]}\n{"ids": []}\n{"ids": null}\n' * 2)
    spec = "dataset: [{name: a, shards: a.jsonl%s}]\nbatch: {window: 10, pack: {fields: ids, length: 8}}\n"
    (tmp_path / "s.yaml").write_text(spec % "")
    said = "".join(within("check", "s.yaml", folder=tmp_path, code=1))
    assert "`ids` is empty; leave such samples out by `where: ids.length > 0`" in said
    (tmp_path / "s.yaml").write_text(spec % ", where: 'default(ids.length, 0) > 0'")
    within("check", "s.yaml", folder=tmp_path)
