"""Warnings: cases that they must find besides their own example, and cases that they must ignore."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from wdspec.spec.load import check
from wdspec.spec.rules.rule import RULES, Code

SPLIT_PAGES = [each.about for each in RULES if each.needs and each.about.bad]


def warnings_of(spec: dict[str, Any]) -> list[str]:
    problems = check(spec)[1]
    assert not any(problem.is_error for problem in problems), problems
    return [problem.code for problem in problems]


def of_shards(*shards: str) -> list[str]:
    return warnings_of({"dataset": [{"name": "s", "shards": list(shards)}]})


@pytest.mark.parametrize(
    ("shards", "codes"),
    [
        # W311
        ("a-{0...9}.tar", ["W311"]),
        ("a-{000..1O0}.tar", ["W311"]),
        ("a-{0..x}.tar", ["W311"]),
        ("a-{a..f}.tar", []),
        ("a-{0.9}.tar", ["W311"]),
        ("a-{0:9}.tar", ["W311"]),
        ("a-[000-123].tar", ["W311"]),
        ("a-[0-9][0-9].tar", []),
        ("a-000..009.tar", ["W311"]),
        ("a-(1..2)-{0..9}.tar", ["W311"]),
        ("a-{000 .. 123}.tar", []),  # what the shell leaves alone too
        ("a-{x-y}.tar", []),
        ("a-{0..9}-{x,y}.tar", []),
        # W320
        (r"a-[0-9]+\.tar", ["W320"]),
        ("a-(x|y).tar", ["W320"]),
        ("a.*.tar", []),
        ("c++.tar", []),
        ("a-[0-9]*.tar", []),
        ("a-[ab]{1,2}.tar", []),
        ("data/a(1).tar", []),
        (r"a\[1\].tar", []),
        ('pipe:grep "a|b\\.c"', ["W314"]),
        # W312
        ("a-%d.tar", ["W312"]),
        ("a-{:05d}.tar", ["W312"]),
        ("a-{i:05d}.tar", ["W312"]),
        ("a-{}.tar", ["W312"]),
        ("a-{index}.tar", ["W312"]),
        ("http://h/a%20b.tar", []),
        ("a-###.tar", ["W312"]),
        ("a#1.tar", []),
        # W313
        ("a.tar:b.tar", ["W313"]),
        ("http://h/a.tar:80/b.tar", ["W313"]),
        ("a.tar b.tar", ["W313"]),
        ("a.tar,b.tar", ["W313"]),
        ("a.tar; b.tar", ["W313"]),
        ("a.tar - b.tar", ["W313"]),
        ("a.tar.gz,s3://b/a.tar.gz", ["W313"]),
        ("a.tar::b.tar", []),
        ("{a.tar,b.tar}", []),
        ("my data/a.tar", []),
        ("pipe:cat a.tar b.tar", []),
        # W314
        (r"C:\data\a.tar", ["W314"]),
        (r"a-\{0..9\}.tar", []),
        (r"a-\*.tar", []),
        (r"pipe:printf '\n' | cat a.tar", ["W314"]),
        (r"pipe:printf '\\n' | cat a.tar", []),
        # W315
        ("a-{000..12}.tar", ["W315"]),
        ("a-{0..12}.tar", []),
        ("a-{00..99}.tar", []),
        ("a-{8..12}.tar", []),
        # W316
        ("a.zip", ["W316"]),
        ("a/*.JPG", ["W316"]),
        ("@list.txt", []),
        ("a.jsonl", []),
        ("https://h/x?format=.zip", []),
        # W317
        ("s3://b/train", ["W317"]),
        ("s3://b/train-00012", []),
        ("s3://b/train/", []),
        ("data/train", []),  # a file may be called so
        # W318, W319
        ("$DATA/a.tar", ["W318"]),
        ("pipe:cat $DATA/a.tar", []),
        (r"\$DATA/a.tar", []),
        ("a$1.tar", []),
        ("@a.jsonl", []),  # a list may be called so
        ("@lists/a.tar.gz", ["W319"]),
        # W105
        ("http//h/a.tar", ["W105"]),
        ("“a.tar”", ["W105"]),
        ("a\u00a0b.tar", ["W105"]),
        ("s3:b/a.tar", ["W105"]),
        ("C:/data/a.tar", ["W105"]),
        ("c:/data/a.tar", []),
        ("www.h.org/a.tar", ["W105"]),
        ("www.tar", []),
        ("s3.tar", []),
        ("s3/a.tar", []),
        # W321, W322
        ("file:///home/ann/a.tar", ["W321"]),
        ("@/Users/ann/list.txt", ["W321"]),
        ("~/a.tar", ["W321"]),
        ("/homes/a.tar", []),
        ("s3://home/ann/a.tar", []),
        # W323
        ("https://h/a.tar?X-Amz-Signature=0123456789abcdef", ["W323"]),
        ("s3://b/a.tar", []),
    ],
)
def test_shard_patterns(shards: str, codes: list[str]) -> None:
    assert of_shards(shards) == codes


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("a-{0..9}.tar", "a-7.tar", True),
        ("a-{0..9}.tar", "a-07.tar", False),
        ("a-{000000..999999}.tar", "a-000123.tar", True),
        ("a-{000000..999999}.tar", "a-123.tar", False),
        ("a-000123.tar", "a-{000000..999999}.tar", True),
        ("a-{000000..499999}.tar", "a-{400000..999999}.tar", True),
        ("a-{000000..499999}.tar", "a-{500000..999999}.tar", False),
        ("a-{0..499999}.tar", "a-{400000..999999}.tar", True),
        ("./x/../a.tar", "a.tar", True),
        ("s3://b/a.tar", "s3://c/a.tar", False),
        ("data/", "data/", True),
        ("data/*.tar", "data/*.tar", True),
        ("@a.txt", "a.txt", False),
        ("{a,b}-{0..9}.tar", "b-3.tar", True),
    ],
)
def test_shards_of_two_sources_are_found_without_expanding_them(
    first: str, second: str, shared: bool
) -> None:
    sources = [{"name": "one", "shards": first}, {"name": "two", "shards": second}]
    assert ("W301" in warnings_of({"dataset": sources})) is shared
    assert ("W303" in of_shards(first, second)) is shared
    assert "W301" not in of_shards(first, second)


def test_splits_are_compared_and_their_environments_are_not(tmp_path: Path) -> None:
    spec: dict[str, Any] = {
        "splits": {
            "train": {"dataset": [{"shards": "a-{0..8}.tar"}]},
            "val": {"dataset": [{"shards": "a-9.tar"}], "epoch": "pass"},
        },
        "environments": {"here": {"seed": 1}},
    }
    assert warnings_of(spec) == []
    spec["splits"]["test"] = {"dataset": [{"shards": "a-{5..9}.tar"}], "epoch": "pass"}
    assert warnings_of(spec) == ["W302"]
    assert [[problem.code for problem in check(spec, split=name)[1]] for name in spec["splits"]] == [
        ["W302"],
        ["W302"],
        ["W302"],
    ]
    spec["splits"]["train"]["dataset"][0]["shards"] = "b.tar"
    assert [problem.code for problem in check(spec, split="train")[1]] == []


@pytest.mark.parametrize("page", SPLIT_PAGES, ids=[each.code for each in SPLIT_PAGES])
def test_a_chosen_split_has_the_warnings_of_comparing_it(page: Code, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    for text in filter(None, (page.bad, page.good)):
        path.write_text(text)
        whole = check(path)[1]
        assert check(f"{path}#val")[1] == whole
        assert (page.code in {problem.code for problem in whole}) is (text == page.bad)


def test_a_chosen_split_has_no_problems_of_another_one() -> None:
    spec: dict[str, Any] = {
        "rewrite": [{"from": "gs://", "to": "/mnt/"}],
        "splits": {
            "train": {"dataset": [{"shards": "gs://b/a.tar"}]},
            "val": {"dataset": [{"shards": "b.tar"}], "epoch": "pass"},
            "test": {"dataset": [{"shards": "c.tar"}], "epoch": "pass", "bach": 8},
        },
    }
    assert [problem.code for problem in check(spec, split="test")[1]] == ["E201"]
    assert check(spec, split="val")[1] == check(spec, split="train")[1] == []


@pytest.mark.parametrize(
    ("train", "val", "is_shared"),
    [
        ("data/*.tar", "data/val-{0..9}.tar", True),
        ("data/val-3.tar", "data/*.tar", True),
        ("data/", "data/val-*.tar", True),
        ("gs://b/*.tar", "gs://b/val-{0000..9999}.tar", True),
        ("data/*/*.tar", "data/val/*.tar", True),
        ("{a,b}/*.tar", "b/x.tar", True),
        ("data/train-*.tar", "data/val-*.tar", False),
        ("data/*.tar", "data/val/*.tar", False),
        ("data/[a-m]*.tar", "data/val.tar", False),
        ("pipe:cat *.tar", "pipe:cat a.tar", False),
    ],
)
def test_a_glob_that_matches_shards_of_another_split_is_reported(
    train: str, val: str, is_shared: bool
) -> None:
    splits = {name: {"dataset": [{"name": "s", "shards": each}]} for name, each in (("t", train), ("v", val))}
    assert ("W302" in [each.code for each in check({"splits": splits})[1]]) == is_shared
    sources = [{"name": "t", "shards": train, "weight": 1}, {"name": "v", "shards": val, "weight": 1}]
    assert warnings_of({"dataset": sources}) == ["W301"] * is_shared


def test_many_sources_are_compared_quickly() -> None:
    for shards in ("a-{000..099}.tar", "a-*.tar"):
        begin = time.process_time()
        check({"dataset": [{"name": f"s{n}", "shards": f"d{n}/{shards}", "weight": 1} for n in range(2000)]})
        assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("rules", "codes"),
    [
        ([("gs://", "/mnt/")], []),
        ([("gs://b/(.*)", r"s3://c/\1")], []),
        ([("gs://c/", "/mnt/")], ["W331"]),
        ([("gs://", "gs://")], ["W331"]),
        ([("gs://b/a-00", "/x/"), ("gs://", "/mnt/")], []),
        ([("gs://", "/mnt/"), ("gs://b/a-00", "/x/")], ["W332"]),
        ([("gs://", "pipe:cat /mnt/")], []),
        ([("gs://", "pipe:curl -s https://storage/")], []),
        ([("gs://", "pipe:rclone cat ")], ["W333"]),
        ([("(gs://.*)", r"pipe:gsutil cat \1")], []),
        ([(r"gs://(?:[^/]+/)*(.*)", r"/mnt/\1")], []),  # each repeat ends with what it cannot match
        ([(r"gs://(\w+/)+a", "/mnt/")], []),
    ],
)
def test_rewrite_rules(rules: list[tuple[str, str]], codes: list[str]) -> None:
    rewrite = [{"from": old, "to": new} for old, new in rules]
    assert warnings_of({"rewrite": rewrite, "dataset": [{"shards": "gs://b/a-{00..99}.tar"}]}) == codes


@pytest.mark.parametrize("shards", ["gs://b/*.tar", "gs://b/", "gs://b/a{000000..999999}.tar"])
def test_a_rewrite_rule_for_shards_that_were_not_tried_is_not_reported(shards: str) -> None:
    spec = {"rewrite": [{"from": "gs://b/a1234", "to": "/m/"}], "dataset": [{"name": "s", "shards": shards}]}
    assert warnings_of(spec) == []
    spec["rewrite"][0]["from"] = "gs://c/"  # type: ignore[index]
    assert warnings_of(spec) == ["W331"]


def test_a_rewrite_rule_for_one_of_the_splits_is_not_reported() -> None:
    sources = [{"name": "s", "shards": f"gs://{bucket}/a.tar"} for bucket in "ab"]
    spec = {
        "rewrite": [{"from": "gs://a/", "to": "/a/"}],
        "splits": {"train": {"dataset": sources[:1]}, "val": {"dataset": sources[1:], "epoch": "pass"}},
        "environments": {"here": {"rewrite": [{"from": "gs://b/", "to": "/b/"}]}},
    }
    assert warnings_of(spec) == []
    spec["environments"]["here"]["rewrite"][0]["from"] = "gs://c/"  # type: ignore[index]
    assert warnings_of(spec) == ["W331"]


def test_a_rewrite_rule_for_urls_in_a_list_is_not_reported() -> None:
    spec = {"rewrite": [{"from": "s3://", "to": "/m/"}], "dataset": [{"name": "s", "shards": "@list.txt"}]}
    assert warnings_of(spec) == []


def test_an_overlay_can_precede_the_rules_of_the_spec() -> None:
    spec = {
        "rewrite": [{"from": "gs://", "to": "/mnt/"}],
        "environments": {"here": {"rewrite": [{"from": "gs://", "to": "/data/"}]}},
        "dataset": [{"shards": "gs://b/a.tar"}],
    }
    assert warnings_of(spec) == []
    spec["environments"]["here"]["rewrite"][0]["from"] = "s3://"  # type: ignore[call-overload, index]
    assert warnings_of(spec) == ["W331"]


@pytest.mark.parametrize(
    ("spec", "codes"),
    [
        ({"epoch": {"batches": 10}, "batch": {"global_size": 100}, "elastic": {"ranks": 1}}, ["W341"]),
        ({"epoch": 10_000}, []),
        ({"epoch": "pass"}, []),
        ({}, []),
    ],
)
def test_unreachable_sources(spec: dict[str, Any], codes: list[str]) -> None:
    sources: list[dict[str, Any]] = [
        {"name": "a", "shards": "a-{0..9}.tar"},
        {"name": "b", "shards": "b-{0..9}.tar"},
    ]
    if spec.get("epoch") != "pass":
        sources[0]["weight"], sources[1]["weight"] = 1_999, 1
    assert warnings_of({**spec, "dataset": sources}) == codes


def test_shares_multiply_in_nested_mixes() -> None:
    rare = {"name": "rare", "shards": "r.tar", "weight": 1}
    often = {"name": "often", "shards": "o.tar", "weight": 99}
    spec = {
        "epoch": 1_000,
        "dataset": [
            {"name": "main", "shards": "m.tar", "weight": 99},
            {"name": "side", "weight": 1, "dataset": [rare, often]},
        ],
    }
    assert warnings_of(spec) == ["W341"]
    assert warnings_of({**spec, "epoch": 100_000}) == []


def test_names_without_a_variable_are_not_reported() -> None:
    shards = "${root}/train-{000..009}.tar"
    assert warnings_of({"vars": {"root": "s3://b"}, "dataset": [{"shards": shards}]}) == []


@pytest.mark.parametrize("errors", [{"max_count": 10}, {"max_rate": 0.01}, "raise"])
def test_skips_with_a_limit_are_not_reported(errors: Any) -> None:
    assert warnings_of({"errors": errors, "dataset": [{"shards": "a.tar"}]}) == []
    assert "W374" in warnings_of({"errors": {"max_rate": 1.0}, "dataset": [{"shards": "a.tar"}]})


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ({"extensions": "jpg cls"}, ["W371"]),
        ({"extensions": "jpg cls", "decode": {"jpg": "pil"}}, ["W371"]),
        ({"extensions": "jpg cls", "decode": {"jpg": "torchrgb"}}, []),
        ({"extensions": "jpg cls", "map": "m:f"}, []),
        ({"extensions": "txt cls"}, []),
        ({}, []),
        ({"extensions": "jpg cls", "scale": 0.5}, []),
        ({"extensions": "wav cls"}, ["W371"]),
        ({"extensions": "mp4 cls"}, ["W371"]),
        ({"extensions": "wav cls", "decode": "audio"}, []),
    ],
)
def test_images_and_audio_in_a_batch(source: dict[str, Any], codes: list[str]) -> None:
    assert warnings_of({"batch": 4, "dataset": [{"shards": "a.tar", **source}]}) == codes


@pytest.mark.parametrize("source", [{}, {"decode": "pil"}, {"decode": {"jpg": "pil"}}])
@pytest.mark.parametrize(
    ("said", "codes"),
    [
        ({"ragged": "list"}, []),
        ({"collate": {"jpg": "list"}}, []),
        ({"collate": {"jpg": "m:f"}}, []),
        ({"collate": "m:f"}, []),
        ({"collate": {"cls": "list"}}, ["W371"]),
        ({"collate": {"jpg": "stack"}}, ["W371"]),
    ],
)
def test_images_collated_as_a_list(source: dict[str, Any], said: dict[str, Any], codes: list[str]) -> None:
    dataset = [{"shards": "a.tar", "extensions": "jpg cls", **source}]
    assert warnings_of({"batch": {"size": 4, **said}, "dataset": dataset}) == codes


def test_loading_reports_only_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    from wdspec.spec.load import load
    from wdspec.spec.rules.rule import RULES

    def refuse(*_: Any) -> Any:
        raise AssertionError("a warning was looked for")

    rules = [r if r.about.is_error else r._replace(check=refuse) for r in RULES]
    monkeypatch.setattr("wdspec.spec.rules.RULES", rules)
    load({"dataset": [{"shards": "a.tar"}]})
    with pytest.raises(AssertionError, match="was looked for"):
        check({"dataset": [{"shards": "a.tar"}]})


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({}, ["W107"]),
        ({"rewrite": [{"from": "gs://", "to": "ais://"}]}, []),
        ({"dataset": [{"shards": ["gs://b/a.tar", "ais://b/a.tar"]}]}, []),
        ({"dataset": [{"shards": "https://h/a.tar"}]}, []),
        ({"aistore": {"endpoint": "http://h", "use_for": "gs"}}, []),
    ],
)
def test_an_unused_cluster(more: dict[str, Any], codes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USE_AIS_FOR", raising=False)
    spec = {"aistore": {"endpoint": "http://h"}, "dataset": [{"shards": "gs://b/a.tar"}], **more}
    assert warnings_of(spec) == codes
    monkeypatch.setenv("USE_AIS_FOR", "gs")
    assert warnings_of(spec) == []


def test_auto_is_the_default_decoder() -> None:
    from wdspec.spec.load import load

    def decode(value: Any) -> Any:
        return load({"dataset": [{"shards": "a.tar", "decode": value}]}).sources[0].decode

    for nothing in ("auto", ["auto"]):
        assert decode(nothing) == type(decode("rgb8"))()
    assert decode(["rgb8", "auto"]) == decode("rgb8")
    assert decode({"jpg": "rgb8", "json": "auto"}) == decode({"jpg": "rgb8"})


_IMAGES = {"name": "a", "shards": "a.tar", "extensions": "jpg cls", "weight": 1}
_ON_CPU = "rgb8+resize=32x32+device=cpu"


@pytest.mark.parametrize(
    ("first", "second", "top", "codes"),
    [
        ("rgb8+resize=32x32", "rgb8+resize=64x64", {}, ["E320"]),
        ("rgb8+random_resized_crop=64", "rgb8+resize=64+center_crop=32", {}, ["E320"]),
        ("rgb8", "torchrgb8", {}, ["E320"]),
        ("rgb8", "rgb", {}, ["E320"]),
        ("rgb8", "l8", {}, ["E320"]),
        ("rgb8", {"jpg": "rgb16"}, {}, ["E320"]),
        ("rgb8", "rgb8+resize=64x64", {}, []),
        ("rgb8+resize=64x64", "rgb8+center_crop=64", {}, []),
        ("rgb8+resize=64", "rgb8+resize=64+center_crop=64", {}, ["W371"]),
        ("rgb8", "torchrgb8", {"mix": {"unit": "batch"}}, []),
        ("rgb8", "torchrgb8", {"batch": 1}, []),
        ("rgb8", "torchrgb8", {"batch": {"size": 4, "ragged": "list"}}, []),
        ("rgb8", "torchrgb8", {"batch": {"size": 4, "collate": {"jpg": "list"}}}, []),
        ("rgb8", "torchrgb8", {"map": "m:f"}, []),
        ("rgb8", "torchrgb8", {"map": {"jpg": "m:f"}}, []),
        ("rgb8+resize=64", "rgb8", {"map": {"jpg": "m:f"}}, []),
        ("rgb8", "mine:read", {}, []),
        (_ON_CPU, "rgb8+resize=32x32", {}, ["E320"]),
        (_ON_CPU, {"jpg": "rgb8+resize=32x32"}, {}, ["E320"]),
        (_ON_CPU, "mine:read", {}, ["E320"]),
        (_ON_CPU, _ON_CPU + "+hflip=0.5", {}, ["E320"]),
        (_ON_CPU, _ON_CPU.replace("cpu", "cuda"), {}, ["E320"]),
        (_ON_CPU, "rgb8+device=cpu+resize=32x32", {}, []),
        (_ON_CPU, "rgb8", {"fields": "cls"}, ["W376"] * 2),
    ],
)
def test_images_of_all_sources_must_stack(first: Any, second: Any, top: Any, codes: list[str]) -> None:
    sources = [{**_IMAGES, "decode": first}, {**_IMAGES, "name": "b", "shards": "b.tar", "decode": second}]
    assert [each.code for each in check({"batch": 4, "dataset": sources, **top})[1]] == codes


@pytest.mark.parametrize("keys", [{}, {"rename": {"image": "jpg;png"}}, {"extensions": "jpg"}])
def test_images_of_all_sources_are_decoded_on_one_device(keys: dict[str, Any]) -> None:
    sources = [{"name": "a", "shards": "a.tar", "weight": 1, **keys, "decode": _ON_CPU}]
    sources.append({**sources[0], "name": "b", "shards": "b.tar", "decode": "rgb8+resize=32x32"})
    [problem] = [each for each in check({"batch": 4, "dataset": sources})[1] if each.code == "E320"]
    field = "image" if "rename" in keys else "jpg"
    assert problem.file == "spec['dataset'][1]['decode']"
    assert problem.message == (
        f"`{field}` is decoded by `rgb8+resize=32x32` here, and decoded by `{_ON_CPU}` in `a` "
        "(spec['dataset'][0]['decode']), which do not stack in a batch"
    )


def test_a_problem_of_two_sources_names_the_line_of_the_other(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        "batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg, decode: rgb8}\n"
        "  - {shards: b.tar, extensions: jpg, decode: torchrgb8}\n"
    )
    [problem] = check(tmp_path / "spec.yaml")[1]
    assert (problem.code, problem.line) == ("E320", 4)
    assert "in `a` (line 3)" in problem.message


@pytest.mark.parametrize(
    ("keys", "top", "codes"),
    [
        ({"decode": _ON_CPU}, {}, []),
        ({"decode": _ON_CPU}, {"batch": {"size": 4, "collate": {"jpg": "list"}}}, ["E360"]),
        ({"decode": _ON_CPU}, {"batch": {"size": 4, "collate": {"txt": "list"}}}, []),
        ({"decode": _ON_CPU, "map": {"jpg": "m:f"}}, {}, ["E361"]),
        ({"decode": _ON_CPU, "map": {"txt": "m:f"}}, {}, []),
        ({"decode": _ON_CPU}, {"map": {"jpg": "m:f"}}, ["E361"]),
        ({"decode": _ON_CPU, "expect": {"fields": {"jpg": {"shape": [32, 32, 3]}}}}, {}, ["E361"]),
        ({"decode": _ON_CPU, "expect": {"fields": {"txt": "str"}}}, {}, []),
        ({"decode": {"jpg": _ON_CPU, "png": "rgb8"}}, {}, []),
    ],
)
@pytest.mark.parametrize("is_renamed", [False, True])
def test_images_for_a_device_are_stacked_and_not_changed(
    keys: dict[str, Any], top: dict[str, Any], codes: list[str], is_renamed: bool
) -> None:
    spec: dict[str, Any] = {"batch": 4, "dataset": [{"shards": "a.tar", **keys}], **top}
    if is_renamed:
        text = json.dumps(spec).replace('"jpg"', '"image"').replace('"decode": {"image"', '"decode": {"jpg"')
        spec = json.loads(text)
        spec["dataset"][0]["rename"] = {"image": "jpg"}
    assert [each.code for each in check(spec)[1] if each.is_error] == codes


def test_files_of_one_field_have_one_decoder_on_a_device() -> None:
    decode = {"jpg": _ON_CPU, "png": "rgb8+resize=32x32"}
    source = {"shards": "a.tar", "rename": {"image": "jpg;png"}, "decode": decode}
    [problem] = check({"batch": 4, "dataset": [source]})[1]
    assert problem.code == "E360"
    assert problem.message == (
        f"`image` is decoded by `{_ON_CPU}` from `jpg` and by `rgb8+resize=32x32` from `png`"
    )


@pytest.mark.parametrize(
    ("source", "top", "code"),
    [
        ({}, {"map": {"jpg": "m:f"}}, "E316"),
        ({"map": {"jpg": "m:f"}}, {}, "E316"),
        ({"expect": {"fields": {"jpg": {"shape": [3]}}}}, {}, "E316"),
        ({}, {"batch": {"size": 4, "collate": {"jpg": "list"}}}, "E316"),
        ({}, {"batch": {"size": 4, "collate": {"png": "pad"}}}, "E316"),
        ({}, {"batch": {"cost": "jpg.pixels", "max_cost": 1e6}}, "E316"),
        ({}, {"to_tuple": "jpg cls"}, "E308"),
        ({}, {"fields": "jpg;png cls"}, "E308"),
    ],
)
def test_a_field_has_its_new_name_after_rename(
    source: dict[str, Any], top: dict[str, Any], code: str
) -> None:
    spec = {"dataset": [{"shards": "a.tar", "rename": {"image": "jpg;png"}, **source}], **top}
    [problem] = check(spec)[1]
    assert problem.code == code
    assert "makes it `image`" in problem.message
    assert problem.hint == "write `image`"
    right = json.loads(json.dumps(spec).replace('"rename": {"image": "jpg;png"}', '"rename": {"x": "y"}'))
    assert [each for each in check(right)[1] if each.is_error] == []
    if "map" not in source:
        spec["dataset"][0]["map"] = "m:f"  # which may add the field
        assert code not in [
            each.code for each in check(spec)[1] if "batch" not in top or "cost" not in top["batch"]
        ]


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ({"decode": ["rgb8", "raw"]}, []),
        ({"decode": "raw"}, ["E309"]),
        ({"decode": {"jpg": "raw"}}, ["E309"]),
        ({"decode": {"picture": "raw"}, "rename": {"picture": "jpg"}}, ["E309"]),
        ({"decode": {"txt": "raw"}}, []),
    ],
)
def test_images_that_are_rescaled_are_decoded(source: dict[str, Any], codes: list[str]) -> None:
    assert [
        each.code for each in check({"dataset": [{"shards": "a.tar", "scale": 0.5, **source}]})[1]
    ] == codes


def test_decode_keys_are_not_patterns() -> None:
    [problem] = check({"dataset": [{"shards": "a.tar", "decode": {"*": "rgb8"}}]})[1]
    assert problem.code == "E315"
    assert "`decode: rgb8`" in problem.hint


@pytest.mark.parametrize(
    ("decode", "batch", "codes"),
    [
        ("pil", 4, ["W371"]),
        ("pil", {"size": 4, "collate": {"image": "list"}}, []),
        ({"jpg": "pil"}, {"size": 4, "collate": {"image": "list"}}, []),
        ({"image": "pil"}, 4, ["W371"]),
        ("rgb8+resize=64", 4, ["W371"]),
        ("rgb8+resize=64", {"size": 4, "collate": {"image": "list"}}, []),
    ],
)
def test_renamed_images_of_a_source_without_extensions_stack(
    decode: Any, batch: Any, codes: list[str]
) -> None:
    source = {"shards": "a.tar", "rename": {"image": "jpg"}, "decode": decode}
    assert [each.code for each in check({"batch": batch, "dataset": [source]})[1]] == codes


def test_images_of_a_disabled_source_need_not_stack() -> None:
    off = {**_IMAGES, "name": "b", "shards": "b.tar", "decode": "torchrgb8", "weight": 0}
    assert warnings_of({"batch": 4, "dataset": [{**_IMAGES, "decode": "rgb8"}, off]}) == []
    nested = {
        "name": "n",
        "weight": 0,
        "dataset": [off | {"weight": 1}, off | {"name": "c", "shards": "c.tar"}],
    }
    assert warnings_of({"batch": 4, "dataset": [{**_IMAGES, "decode": "rgb8"}, nested]}) == []


_FLIP, _TO_IMAGE = (f"torchvision.transforms.v2:{name}" for name in ("RandomHorizontalFlip", "ToImage"))


@pytest.mark.parametrize(
    ("source", "top", "hint"),
    [
        ({"decode": "rgb8", "map": {"jpg": _FLIP}}, {}, "write `decode: torchrgb8`"),
        (
            {"extensions": "jpg cls", "decode": "rgb8+upright"},
            {"map": {"jpg": [{"call": _FLIP}]}},
            "torchrgb8+upright",
        ),
        ({"extensions": "jpg cls", "decode": "rgb16"}, {"map": _FLIP}, "`decode: torchrgb`"),
        ({"rename": {"image": "jpg;png"}, "decode": "l"}, {"map": {"image": _FLIP}}, "torchl"),
        ({"rename": {"image": "jpg;png"}, "decode": "rgb"}, {"map": _FLIP}, "torchrgb"),
        ({"decode": "rgb8"}, {"map": _FLIP}, "torchrgb8"),
        ({"decode": {"txt": "mine:read"}}, {"map": _FLIP}, None),
        ({"extensions": "jpg", "scale": 0.5}, {"map": {"jpg": _FLIP}}, "torchrgb8"),
        ({"extensions": "jpg", "decode": "torchrgb8"}, {"map": {"jpg": _FLIP}}, None),
        ({"extensions": "jpg", "decode": "pil"}, {"map": _FLIP}, None),
        ({"extensions": "jpg", "decode": "rgb8"}, {"map": {"jpg": [_TO_IMAGE, _FLIP]}}, None),
        ({"extensions": "jpg", "decode": "rgb8", "map": "mine:convert"}, {"map": {"jpg": _FLIP}}, None),
        ({"extensions": "jpg", "decode": "mine:read"}, {"map": {"jpg": _FLIP}}, None),
        ({"extensions": "jpg png", "decode": {"jpg": "rgb8", "png": "pil"}}, {"map": _FLIP}, None),
    ],
)
def test_transforms_of_torchvision_need_tensors(source: Any, top: Any, hint: str | None) -> None:
    found = [
        each for each in check({"dataset": [{"shards": "a.tar", **source}], **top})[1] if each.code == "W379"
    ]
    assert [hint in each.hint for each in found if hint] == [True] * (hint is not None), found
    assert hint is not None or not found


def test_a_problem_of_all_sources_is_reported_once() -> None:
    sources = [
        {"name": f"s{n}", "shards": f"{n}.tar", "extensions": "jpg txt", "weight": 1} for n in range(3)
    ]
    spec = {
        "batch": {"size": 4, "collate": {"txt": "pad"}},
        "dataset": sources,
        "defaults": {"decode": "rgb8"},
        "map": {"jpg": [_FLIP, _FLIP]},
    }
    assert [each.code for each in check(spec)[1]] == ["E319", "W379"]


PACKED: dict[str, Any] = {
    "batch": {"pack": {"fields": "ids", "length": 512}},
    "epoch": {"tokens": 1_000_000},
    "dataset": [
        {"name": "web", "shards": "a.tar", "weight": 90, "mean_cost": 200},
        {"name": "books", "shards": "b.tar", "weight": 10, "mean_cost": 900},
    ],
}
SCHEDULE = [{"at": 0, "shares": {"web": 1, "books": 1}}, {"at": 9000, "shares": {"web": 98, "books": 2}}]


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, ["W490"]),
        ({"mix": {"shares_in": "samples"}}, []),
        ({"mix": {"shares_in": "tokens"}}, []),
        ({"epoch": "pass"}, []),
        ({"mix": {"draw": "round_robin"}}, []),
        ({"batch": {"cost": "ids.length", "max_cost": 512}, "epoch": {"batches": 9}}, []),
    ],
)
def test_shares_of_samples_in_a_spec_of_tokens(change: dict[str, Any], codes: list[str]) -> None:
    found = [problem.code for problem in check(PACKED | change)[1]]
    assert [code for code in found if code == "W490"] == codes


@pytest.mark.parametrize(("books", "is_found"), [(200, False), (500, True), (None, False)])
def test_shares_of_samples_are_compared_with_those_of_tokens(books: int | None, is_found: bool) -> None:
    sources = [dict(each, weight=None) for each in PACKED["dataset"]]
    sources[1]["mean_cost"] = books
    spec = PACKED | {"dataset": sources, "mix": {"schedule": SCHEDULE}, "seed": 1}
    found = [problem for problem in check(spec)[1] if problem.code == "W490"]
    assert bool(found) is is_found
    if found:
        assert (
            "the share of `books`, 2.0%, is one of samples: it has about 4.9% of the tokens"
            in found[0].message
        )


@pytest.mark.parametrize(
    ("at", "epoch", "is_found"),
    [
        (200_000, {"tokens": 100_000}, True),  # 1,100 epochs of about 182 samples
        (15_000, {"tokens": 100_000}, False),
        ({"tokens": 15_000_000}, {"tokens": 100_000}, False),  # 150 epochs
        ({"tokens": 150e9}, {"tokens": 100_000}, True),
        ({"batches": 20_000}, {"batches": 100}, False),
        ({"batches": 20_000_000}, {"batches": 100}, True),
    ],
)
def test_a_step_after_very_many_epochs_is_doubted(at: Any, epoch: dict[str, Any], is_found: bool) -> None:
    sources = [dict(each, weight=None) for each in PACKED["dataset"]]
    mix = {"shares_in": "tokens", "schedule": [SCHEDULE[0], SCHEDULE[1] | {"at": at}]}
    found = [each.message for each in check(PACKED | {"dataset": sources, "mix": mix, "epoch": epoch})[1]]
    assert any("which is after more than" in each for each in found) is is_found


def test_a_step_in_samples_is_compared_with_an_epoch_of_samples() -> None:
    for at, codes in ((2_000_000, []), (20_000_000, ["W492"])):
        steps = [SCHEDULE[0], SCHEDULE[1] | {"at": at}]
        sources = [{"name": name, "shards": f"{name}.tar"} for name in ("web", "books")]
        spec = {"dataset": sources, "mix": {"schedule": steps}, "epoch": 1000, "batch": {"global_size": 10}}
        assert [code for code in warnings_of(spec) if code == "W492"] == codes
