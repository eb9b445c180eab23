"""Advice on values of samples, and on shards and orders that people expect elsewhere or otherwise."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from commandline import within
from PIL import Image
from shardmaking import write_shard

Describe = Callable[[int], Any]


def warned(
    folder: Path, fields: dict[str, Describe], code: str, source: dict[str, Any], count: int = 40, **top: Any
) -> list[str]:
    """The advice with a code that `explain` gives of a source with samples of these fields."""
    write_samples(folder / "a.tar", fields, count)
    spec = {"dataset": [{"name": "a", "shards": "a.tar", **source}], "batch": 4, **top}
    (folder / "s.yaml").write_text(json.dumps(spec))
    found = json.loads(within("explain", "s.yaml", "--format", "json", folder=folder)[0])["warnings"]
    return [text for text in found if f" {code} " in f" {text}"]


def write_samples(path: Path, fields: dict[str, Describe], count: int) -> None:
    samples = []
    for number in range(count):
        values = {name: describe(number) for name, describe in fields.items()}
        samples.append((f"{number:04}", {name: as_bytes(value) for name, value in values.items()}))
    write_shard(path, samples)


def as_bytes(value: Any) -> bytes:
    if isinstance(value, tuple):
        file = io.BytesIO()
        Image.new("RGB", value).save(file, "JPEG")
        return file.getvalue()
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def of_values(values: Sequence[Any]) -> dict[str, Describe]:
    return {"txt": lambda number: "x", "json": lambda number: {"v": values[number % len(values)]}}


TEXT = {"extensions": "txt"}
FRACTIONS, PERCENTS = [0.04, 0.37, 0.95, 0], [4, 37, 95]


@pytest.mark.parametrize(
    ("values", "where", "meant"),
    [
        (FRACTIONS, "json.v < 20", "json.v < 0.2"),
        (FRACTIONS, "json.v >= 20 and txt.length > 0", "json.v >= 0.2"),
        (PERCENTS, "json.v < 0.2", "json.v < 20"),
        (PERCENTS, "json.v < 20", None),
        (FRACTIONS, "json.v < 0.2", None),
        ([0, 1, 2, 9], "json.v < 20", None),  # counts
        ([0, 1], "json.v < 20", None),
        ([-0.9, 0.3], "json.v < 20", None),
        (["0.3", "0.4"], "json.v == '0.3'", None),
        ([900, 700], "json.v > 0.2", None),
    ],
)
def test_a_threshold_on_another_scale(
    tmp_path: Path, values: Sequence[Any], where: str, meant: str | None
) -> None:
    found = warned(tmp_path, of_values(values), "W525", {**TEXT, "where": where})
    assert len(found) == bool(meant)
    assert meant is None or f"write `{meant}`" in found[0]


@pytest.mark.parametrize(
    ("values", "subset", "form"),
    [
        (["en", "en", "de", "sw"], {"of": "json.v", "part": "50%"}, "subset: 50%"),
        (["en", "de"], {"of": "json.v", "part": ["50%", "100%"]}, "subset: [50%, 100%]"),
        ([f"user{number}" for number in range(10)], {"of": "json.v", "part": "50%"}, None),
        (["en", "de"], "50%", None),
    ],
)
def test_a_part_of_few_values(tmp_path: Path, values: Sequence[str], subset: Any, form: str | None) -> None:
    found = warned(tmp_path, of_values(values), "W526", {**TEXT, "subset": subset})
    assert len(found) == bool(form)
    assert form is None or f"write `{form}`" in found[0]


@pytest.mark.parametrize(
    ("keys", "top", "is_warned"),
    [
        ({"order": "sequential"}, {}, True),
        ({"order": "sequential", "shuffle": 0}, {}, False),
        ({"order": "sequential"}, {"defaults": {"shuffle": 50}}, False),
        ({"order": "sequential"}, {"epoch": "pass"}, False),
        ({}, {}, False),
    ],
)
def test_shards_in_order_whose_samples_are_shuffled(
    tmp_path: Path, keys: dict[str, Any], top: dict[str, Any], is_warned: bool
) -> None:
    found = warned(tmp_path, of_values([1]), "W527", {**TEXT, **keys}, **top)
    assert len(found) == is_warned
    assert not found or ("1,000" in found[0] and "write `shuffle: 0`" in found[0])


@pytest.mark.parametrize(
    ("shapes", "decode", "form"),
    [
        ([(128, 96)], "rgb8+resize=64x48", "resize=48x64"),
        ([(128, 96)], {"jpg": "rgb8+resize=64x48"}, "resize=48x64"),
        ([(96, 128)], "rgb8+resize=64x48", None),
        ([(128, 96), (96, 128)], "rgb8+resize=64x48", None),
        ([(128, 96)], "rgb8+resize=64x64", None),
        ([(128, 96)], "rgb8+resize=64", None),
        ([(300, 96)], "rgb8+resize=64x48", None),  # neither fits
    ],
)
def test_sides_in_another_order(
    tmp_path: Path, shapes: Sequence[tuple[int, int]], decode: Any, form: str | None
) -> None:
    fields: dict[str, Describe] = {"jpg": lambda number: shapes[number % len(shapes)]}
    found = warned(tmp_path, fields, "W528", {"extensions": "jpg", "decode": decode}, count=4)
    assert len(found) == bool(form)
    assert form is None or f"write `{form}`" in found[0]


@pytest.mark.parametrize(
    ("group_by", "is_warned"), [("txt.length", True), ("ceil(txt.length / 20)", False), ("json.lang", False)]
)
def test_groups_of_equal_lengths(tmp_path: Path, group_by: str, is_warned: bool) -> None:
    fields: dict[str, Describe] = {
        "txt": lambda number: "x" * (number % 20 * 4 + 1),
        "json": lambda number: {"lang": ["en", "de"][number % 2]},
    }
    batch = {"size": 8, "group_by": group_by, "group_wait": 100}
    found = warned(
        tmp_path, fields, "W529", {"extensions": "txt json", "shuffle": 0}, batch=batch, epoch={"batches": 9}
    )
    assert len(found) == is_warned
    assert not found or "write `group_by: ceil(txt.length / 20)`" in found[0]


@pytest.mark.parametrize(
    ("place", "shards", "hint"),
    [
        (
            "data",
            "data/a-{0..1}.tar",
            "this is `configs/deep/data/a-0.tar`: write `shards: ../../data/a-{0..1}.tar`",
        ),
        ("configs/data", "data/a-{0..1}.tar", "write `shards: ../data/a-{0..1}.tar`"),
        ("data", "other/a-{0..1}.tar", "paths in a spec are relative to the spec"),
    ],
)
def test_shards_that_exist_elsewhere(tmp_path: Path, place: str, shards: str, hint: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / "configs/deep").mkdir(parents=True)
    for shard in range(2):
        write_samples(tmp_path / place / f"a-{shard}.tar", of_values([1]), 2)
    spec = tmp_path / "configs/deep/s.yaml"
    spec.write_text(json.dumps({"dataset": [{"name": "a", "shards": shards}]}))
    said = within("explain", "configs/deep/s.yaml", folder=tmp_path, code=1)[0]
    assert hint in said
    if "../" in hint:
        spec.write_text(
            json.dumps({"dataset": [{"name": "a", "shards": hint.rpartition("shards: ")[2][:-1]}]})
        )
        within("explain", "configs/deep/s.yaml", folder=tmp_path)


BOXES = {"boxes": [[1, 2, 8, 9]], "label": 3}
COCO = {"objects": [{"bbox": [1, 2, 8, 9]}], "id": 4}
CROP = {"crop": "jpg", "size": 8, "hflip": 0.5}
FLIP = {"extensions": "jpg json", "decode": {"jpg": "rgb8+hflip=0.5"}}
STEP = {"extensions": "jpg json", "decode": "rgb8", "make": {"image": CROP}}


@pytest.mark.parametrize(
    ("facts", "source", "top", "said"),
    [
        (
            BOXES,
            FLIP,
            {},
            "but `json.boxes` stays as it is; write `make: {image: {crop: jpg, size: 224, hflip: 0.5, scale: [1, 1], ",
        ),
        (
            {"Keypoints": [[1, 2]]},
            FLIP,
            {},
            "but `json.Keypoints` stays as it is; write `make: {image: {crop: jpg",
        ),
        (COCO, FLIP, {}, "but `json.objects[:].bbox` stays as it is"),
        (BOXES, {"decode": {"jpg": "rgb8+random_resized_crop=8"}}, {}, "but `json.boxes` stays"),
        (
            BOXES,
            STEP,
            {},
            "`crop` of `a` flips or crops `image`, but `json.boxes` stays as it is; add `boxes: {boxes:",
        ),
        (BOXES, STEP, {"to_tuple": "image json"}, "but `json.boxes` stays"),
        (BOXES, STEP, {"to_tuple": "image"}, None),
        (BOXES, STEP | {"make": {"image": CROP | {"boxes": {"boxes": "json.boxes"}}}}, {}, None),
        (
            BOXES,
            FLIP | {"decode": "rgb8+resize=8x8"},
            {},
            "resizes `jpg`, but `json.boxes` stays as it is, in pixels",
        ),
        ({"boxes": [[0, 0.5, 1, 1]]}, FLIP | {"decode": "rgb8+resize=8x8"}, {}, None),
        (BOXES, FLIP | {"map": "my.module:flip"}, {}, None),
        ({"boxes": 4, "bbox": "none", "points": [1, 2]}, FLIP, {}, None),
        ([[1, 2, 3, 4]], FLIP, {}, None),
    ],
)
def test_boxes_that_stay_while_the_image_is_moved(
    tmp_path: Path, facts: Any, source: dict[str, Any], top: dict[str, Any], said: str | None
) -> None:
    fields = {"jpg": lambda number: (12, 10), "json": lambda number: facts}
    found = warned(tmp_path, fields, "W530", source, count=3, **top)
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
