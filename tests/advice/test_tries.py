"""Mistakes that no single sample shows: a run warns of them, and `explain`, `head` and `check` say the same."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from commandline import within
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.base.trials import Trial, collect

FACTS = {"boxes": [[6, 5, 8, 9]], "kind": "cat", "name": "1.txt"}
ITEMS = [{"items": [{"box": [1, 2, 3, 4]}, {"class": "cat"}]}, {"items": []}]
"""Lists of maps, half of which are empty."""
CROP = {"crop": "jpg", "size": 8, "boxes": {"moved": "json.bxes"}}


def spec_of(folder: Path, source: dict[str, Any], samples: int = 24, **top: Any) -> Path:
    file = io.BytesIO()
    Image.new("RGB", (12, 10)).save(file, "JPEG")
    facts = [json.dumps({**FACTS, "kind": kind}).encode() for kind in ("cat", "dog")]
    fields = [{"jpg": file.getvalue(), "json": each} for each in facts]
    write_shard(folder / "a.tar", [(f"{number:04}", fields[number % 2]) for number in range(samples)])
    (folder / "1.txt").write_text("text")
    spec = {"dataset": [{"name": "a", "shards": "a.tar", "decode": "rgb8", **source}], **top}
    (folder / "s.yaml").write_text(json.dumps(spec))
    return folder / "s.yaml"


def warnings_of_run(path: Path, samples: int = 60) -> list[str]:
    with warnings.catch_warnings(record=True) as found, wdspec.loader(path, num_workers=0) as loader:
        warnings.simplefilter("always")
        for _ in zip(range(samples), loader, strict=False):
            pass
    return [
        str(each.message) for each in found if each.category is UserWarning
    ]  # not of what others left open


def warnings_of_command(folder: Path, *command: str) -> list[str]:
    report = json.loads(within(*command, "s.yaml", "--format", "json", folder=folder)[0])
    if "problems" in report:
        return [each["message"] for each in report["problems"] if each["code"] in ("W531", "D341")]
    return [each.partition("W531 `a`: ")[2] for each in report["warnings"] if "W531" in each]


NONE = {"missing": "none"}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "boxes": (
        {**NONE, "make": {"image": CROP}},
        "`make: image` finds no `json.bxes` in any of the first samples, so `image` and `moved` are None; `json` has "
        "the keys boxes, kind, name (did you mean `boxes`?)",
    ),
    "image": (
        {**NONE, "make": {"image": {"crop": "jgp", "size": 8}}},
        "`make: image` finds no `jgp` in any of the first samples, so `image` is None; did you mean `jpg`?",
    ),
    "format": (
        {"make": {"image": {**CROP, "boxes": {"moved": "json.boxes"}, "box_format": "xywh"}}},
        "samples have a box that is partly outside the image, such as [6.0, 5.0, 8.0, 9.0] in 12×10 pixels; "
        "`box_format` is `xywh`",
    ),
    "label": (
        {"make": {"kind": {"label": "json.kind", "names": ["cow"], "unknown": -100}}},
        "names, and gives them -100: 'cat' (",
    ),
    "spelling": (
        {"make": {"kind": {"label": "json.kind", "names": ["Cat", "dog"], "unknown": -100}}},
        "`label` has no class for 'cat', but 'Cat', and gives -100; add the spelling of the data to `aliases`",
    ),
    "alias": (
        {
            "make": {
                "kind": {
                    "label": "json.kind",
                    "names": ["kitten", "dog"],
                    "aliases": {"ct": "kitten"},
                    "unknown": 9,
                }
            }
        },
        "`label` has no class for 'cat', but 'ct', and gives 9; add the spelling of the data to `aliases`",
    ),
    "take": (
        {"make": {"kind": {"take": "json.knd", "default": "none"}}},
        "`make: kind` finds no `json.knd` in any of the first samples, so it is always the default; `json` has",
    ),
    "choose": (
        {"make": {"kind": {"choose": ["json.kind", "json.nam"]}}},
        "`make: kind` finds no `json.nam` in any of the first samples; `json` has the keys boxes, kind, name (did you "
        "mean `name`?)",
    ),
    "fetch": (
        {**NONE, "fetch": {"text": {"url": "json.nme", "root": "."}}},
        "objects: `json.nme` is null or empty, or the sample lacks it; `json` has the keys boxes, kind, name (did you "
        "mean `name`?)",
    ),
    "root": (
        {"fetch": {"text": {"url": "texts/{json.name}", "root": ".", "missing": "none"}}},
        "`fetch: text` has none of the first",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_run_and_commands_warn_of_a_mistake_that_no_sample_shows(tmp_path: Path, mistake: str) -> None:
    source, said = MISTAKES[mistake]
    path = spec_of(tmp_path, source)
    of_run = warnings_of_run(path)
    assert of_run[0].startswith("`a`: ")  # the source, as there may be others
    for found in (
        of_run,
        *(warnings_of_command(tmp_path, *each) for each in (["explain"], ["head", "-n", "1"])),
    ):
        assert len(found) == 1
        assert said in found[0]
    [found] = warnings_of_command(tmp_path, "check")
    assert (": 'cat' (12)" if "label" in str(source) else said) in found


@pytest.mark.parametrize(
    "source",
    [
        {**NONE, "make": {"image": {**CROP, "boxes": {"moved": "json.boxes"}}}},
        {"make": {"kind": {"label": "json.kind", "names": ["cat", "dog"], "unknown": -100}}},
        {"make": {"kind": {"choose": ["json.kind", "txt"]}}},
        {**NONE, "fetch": {"text": {"url": "json.name", "root": "."}}},
    ],
)
def test_samples_that_fit_give_no_warning(tmp_path: Path, source: dict[str, Any]) -> None:
    path = spec_of(tmp_path, source)
    assert not warnings_of_run(path)
    assert not warnings_of_command(tmp_path, "explain")


@pytest.mark.parametrize("policy", ["none", "skip", "error"])
def test_a_root_that_does_not_exist_is_not_taken_for_a_wrong_reference(tmp_path: Path, policy: str) -> None:
    """Samples without a reference are the only ones that can be read then."""
    fetch = {"text": {"url": "json.note", "root": "texts", "missing": policy}}
    path = spec_of(tmp_path, {"fetch": fetch})
    facts = [json.dumps({"note": note}).encode() for note in (None, "1.txt")]
    write_shard(tmp_path / "a.tar", [(f"{number:04}", {"json": facts[number % 2]}) for number in range(24)])
    report = json.loads(within("explain", path, "--format", "json", folder=tmp_path, code=1)[0])
    assert {each.split()[1] for each in report["warnings"]} == {"W501", "W504"}  # there are no images
    report = json.loads(within("check", path, "--format", "json", folder=tmp_path, code=1)[0])
    assert {each["code"] for each in report["problems"]} <= {"D211", "D262", "D304"}


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_misspelled_reference_is_noticed_also_where_objects_must_exist(tmp_path: Path, policy: str) -> None:
    fetch = {"text": {"url": "json.nme", "root": ".", "missing": policy}}
    path = spec_of(tmp_path, {"fetch": fetch})
    [said] = warnings_of_command(tmp_path, "explain")
    assert (
        "`json.nme` is null or empty, or the sample lacks it; `json` has the keys boxes, kind, name (did you mea"
        in said
    )
    whose = {
        "error": r"`json.nme` is null.*\(did you mean `name`\?\); set `missing: skip`",
        "skip": "yielded nothing",
    }
    with pytest.raises(wdspec.WdspecError, match=whose[policy]):
        warnings_of_run(path)


def test_a_wrong_root_is_named_where_other_samples_have_no_reference(tmp_path: Path) -> None:
    fetch = {"texts": {"url": "names", "root": "./wrong", "missing": "none"}}
    spec_of(tmp_path, {"shards": "a.jsonl", "fetch": fetch})
    (tmp_path / "wrong").mkdir()
    rows = [{"names": [f"{number}.txt"]} if number % 4 else {"n": number} for number in range(24)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    [said] = warnings_of_command(tmp_path, "explain")
    assert "has none of the first 24 objects: there is no object `" in said
    assert said.endswith("; correct `url` or `root`")


@pytest.mark.parametrize(("lacking", "policy"), [(12, "skip"), (4, "skip"), (3, "skip"), (12, "none")])
def test_many_samples_that_skip_drops_for_lack_of_a_reference_are_noticed(
    tmp_path: Path, lacking: int, policy: str
) -> None:
    fetch = {"texts": {"url": "names", "root": ".", "missing": policy}}
    spec_of(tmp_path, {"shards": "a.jsonl", "fetch": fetch})
    rows = [{"n": number, "names": ["1.txt"] if number >= lacking else None} for number in range(40)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for command in (["explain"], ["head", "-n", "1"], ["check"]):
        said = warnings_of_command(tmp_path, *command)
        assert len(said) == (policy == "skip" and lacking >= 4)
        for each in said:
            assert (
                f"{lacking} of the first 40 samples name no object in `names`, and `missing: skip` leaves"
                in each
            )


def test_a_misspelled_reference_leads_to_the_column_that_no_other_key_asks_for(tmp_path: Path) -> None:
    fetch = {"text": {"url": "paht", "root": "."}}
    spec_of(tmp_path, {"shards": "a.jsonl", "fetch": fetch}, fields=["text"])
    (tmp_path / "a.jsonl").write_text((json.dumps({"path": "1.txt", "n": 1}) + "\n") * 3)
    [said] = warnings_of_command(tmp_path, "explain")
    assert said.endswith("`paht` is null or empty, or the sample lacks it; did you mean `path`?")


def test_commands_judge_by_the_few_samples_that_there_are(tmp_path: Path) -> None:
    source, said = MISTAKES["boxes"]
    spec_of(tmp_path, source, samples=3)
    [found] = warnings_of_command(tmp_path, "explain")
    assert said in found


def test_what_is_collected_does_not_count_for_a_run() -> None:
    trial = Trial(lambda samples, wrong: f"{wrong.total()} of {samples}", least=0.5)
    with collect() as messages:
        for number in range(4):
            trial.note("x" if number % 2 else None)
    assert messages == ["2 of 4"]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(25):
            trial.note("x")
    assert [str(each.message) for each in found] == ["20 of 20"]


def spec_of_items(folder: Path, make: dict[str, Any], **source: Any) -> Path:
    path = spec_of(folder, {"make": make, **source})
    image = (folder / "1.jpg", Image.new("RGB", (12, 10)))
    image[1].save(image[0])
    files = [{"jpg": image[0].read_bytes(), "json": json.dumps(each).encode()} for each in ITEMS]
    write_shard(folder / "a.tar", [(f"{number:04}", files[number % 2]) for number in range(24)])
    return path


@pytest.mark.parametrize(
    "make",
    [
        {"moved": {"take": "json.items[:].bx"}},
        {"image": {**CROP, "boxes": {"moved": "json.items[:].bx"}}},
    ],
)
def test_a_path_that_no_item_of_lists_has_is_a_warning(tmp_path: Path, make: dict[str, Any]) -> None:
    spec_of_items(tmp_path, make, errors="skip")
    [said] = warnings_of_command(tmp_path, "explain")
    assert said.startswith(
        f"`make: {next(iter(make))}` finds no `json.items[:].bx` in any of the first samples; "
    )
    assert said.endswith("`json.items[:]` has the keys box, class (did you mean `box`?); correct the path")
    if "image" not in make:  # whose errors `check` lists, too
        assert said in warnings_of_command(tmp_path, "check")


@pytest.mark.parametrize("missing", ["error", "skip", "none"])
def test_a_path_into_a_list_without_its_brackets_is_shown_with_them(tmp_path: Path, missing: str) -> None:
    path = spec_of_items(tmp_path, {"moved": {"take": "json.items.box"}}, missing=missing)
    remedy = "`json.items` is a list, so write `json.items[:].box`"
    [said] = warnings_of_command(tmp_path, "explain")
    assert said.endswith(remedy)
    if missing == "error":
        with pytest.raises(wdspec.FieldError) as caught, wdspec.loader(path, num_workers=0) as loader:
            next(iter(loader))
        assert caught.value.message.endswith(remedy)


def test_a_path_that_some_items_have_is_no_mistake(tmp_path: Path) -> None:
    spec_of_items(tmp_path, {"moved": {"take": "json.items[:].box"}})
    assert not warnings_of_command(tmp_path, "explain")


def test_boxes_that_no_item_has_are_an_error_with_the_names_of_the_items(tmp_path: Path) -> None:
    path = spec_of_items(tmp_path, {"image": {**CROP, "boxes": {"moved": "json.items[:].bx"}}})
    with (
        pytest.raises(wdspec.FieldError, match=r"has the keys box, class \(did you mean `box`"),
        wdspec.loader(path, num_workers=0) as loader,
    ):
        for _ in zip(range(24), loader, strict=False):
            pass
