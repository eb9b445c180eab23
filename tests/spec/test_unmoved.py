"""Boxes beside an image that only one split crops with them (W458), or that `take` delivers beside a
moved image (W530); the remedies are followed literally."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.spec.load import check

WHOLE = [[0, 0, 10, 20], [5, 10, 5, 10]]
"""The whole of a picture of 10 x 20 pixels, and a quarter of it: left, top, width and height."""
CROP = {"crop": "png", "size": 8, "boxes": {"boxes": "json.objects[:].bbox"}, "box_format": "xywh"}


def splits(decode: str, take: str = "json.objects[:].bbox", **keys: Any) -> dict[str, Any]:
    train = {"fields": "image boxes", "dataset": [{"shards": "a.tar", "make": {"image": CROP}}]}
    source = {"shards": "b.tar", "decode": {"png": decode}, "make": {"boxes": {"take": take}}}
    val = {"fields": "png boxes", "dataset": [source], "epoch": "pass", **keys}
    defaults = {"extensions": "png json", "decode": {"png": "rgb8"}}
    return {"seed": 1, "defaults": defaults, "splits": {"train": train, "val": val}}


def find(spec: dict[str, Any]) -> list[Any]:
    return [each for each in check(spec)[1] if each.code == "W458"]


@pytest.mark.parametrize(
    ("decode", "keys", "seen"),
    [
        ("rgb8+resize=8x8", {}, True),
        ("rgb8+resize=8", {"fields": None}, True),
        ("rgb8+upright", {"fields": None, "to_tuple": "png boxes"}, True),
        ("rgb8+hflip=0.5", {}, False),  # which is W530
        ("rgb8", {}, False),
        ("rgb8+resize=8x8", {"fields": "png json"}, False),
        ("rgb8+resize=8x8", {"fields": "boxes"}, False),
        ("rgb8+resize=8x8", {"take": "json.objects[:].area"}, False),
        ("rgb8+resize=8x8", {"map": "mylib:function"}, False),
    ],
)
def test_boxes_that_another_split_crops_stay_beside_a_resized_image(decode, keys, seen) -> None:
    spec = splits(decode, **keys)
    spec["splits"]["val"] = {key: each for key, each in spec["splits"]["val"].items() if each is not None}
    assert [each.message.split(",")[0] for each in find(spec)] == [f"`decode: {decode}` changes `png`"] * seen


def test_fractions_of_an_image_may_stay_beside_it_if_it_is_only_resized() -> None:
    spec = splits("rgb8+resize=8x8")
    spec["splits"]["train"]["dataset"][0]["make"] = {"image": {**CROP, "relative": True}}
    assert not find(spec)


def test_a_mask_that_stays_is_decoded_with_the_same_options() -> None:
    decode = {"png": "rgb8", "seg": "l8"}
    step = {"crop": "png", "size": 8, "masks": {"mask": "seg"}}
    train = {"fields": "image mask", "dataset": [{"shards": "a.tar", "make": {"image": step}}]}
    val = {
        "fields": "png seg",
        "dataset": [{"shards": "b.tar", "decode": {**decode, "png": "rgb8+resize=8x8"}}],
    }
    defaults = {"extensions": "png seg.png", "rename": {"seg": "seg.png"}, "decode": decode}
    spec = {"seed": 1, "defaults": defaults, "splits": {"train": train, "val": val}}
    assert [each.hint for each in find(spec)] == [
        "decode both with the same `resize`, `center_crop` and `hflip`"
    ]
    val["dataset"][0]["decode"]["seg"] = "l8+resize=8x8"
    assert not find(spec)


def test_the_remedy_moves_boxes_with_the_whole_image(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (10, 20)).save(file, "png")
    files = {
        "png": file.getvalue(),
        "json": json.dumps({"objects": [{"bbox": each} for each in WHOLE]}).encode(),
    }
    for name in "ab":
        write_shard(tmp_path / f"{name}.tar", [(f"{name}{n}", files) for n in range(40)])
    spec = splits("rgb8+resize=8x6")
    [hint] = [each.hint for each in find(spec)]
    assert "in place of `make: {boxes: …}`" in hint
    source = spec["splits"]["val"]["dataset"][0]
    del source["decode"]
    source["make"] = yaml.safe_load(re.findall(r"write `make: ([^`]*)`", hint)[0])
    spec["splits"]["val"] |= {
        "fields": ["image", "boxes"],
        "batch": {"size": 40, "collate": {"boxes": "list"}},
    }
    assert not find(spec)
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(spec))
    with wdspec.loader(tmp_path / "s.yaml", split="val", num_workers=0) as loader:
        [batch] = loader
    assert batch["image"].shape[:3] == (40, 8, 6)
    for boxes in batch["boxes"]:
        assert np.allclose(boxes, [[0, 0, 6, 8], [3, 4, 3, 4]], atol=0.5)  # a crop may be a pixel smaller


TAKE = {"boxes": {"take": "json.objects[:].bbox"}}
MOVED = {"crop": "png", "size": 8, "hflip": 0.5}


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ({"make": {**TAKE, "image": MOVED}}, "`crop` flips or crops `image`, but `boxes`"),
        ({"make": {"gt": {"take": "json.keypoints"}, "image": MOVED}}, "`image`, but `gt`"),
        ({"make": TAKE, "decode": "rgb8+random_resized_crop=8+hflip=0.5"}, "crops `png`, but `boxes`"),
        ({"make": TAKE, "decode": {"png": "rgb8+center_crop=8"}}, "crops `png`, but `boxes`"),
        ({"make": TAKE, "decode": "rgb8"}, ""),
        ({"make": {"area": {"take": "json.area"}, "image": MOVED}}, ""),
        ({"make": {**TAKE, "image": CROP | {"boxes": {"moved": "json.objects[:].bbox"}}}}, ""),
        ({"make": {**TAKE, "image": MOVED}, "map": "mylib:function"}, ""),
    ],
)
def test_boxes_that_are_taken_stay_beside_a_moved_image(source, seen) -> None:
    names = {"png": None, **dict.fromkeys(source["make"])}
    spec = {"seed": 1, "fields": [*names], "dataset": [{"shards": "a.tar", "decode": "rgb8", **source}]}
    found = [each.message for each in check(spec)[1] if each.code == "W530"]
    assert [seen in each for each in found] == [True] * bool(seen)
    spec["fields"] = [name for name in names if name not in ("boxes", "gt", "area")]
    assert "W530" not in [each.code for each in check(spec)[1]]


@pytest.mark.parametrize("decode", ["rgb8", "rgb8+random_resized_crop=8+hflip=0.5"])
def test_the_remedy_takes_the_boxes_from_the_crop(decode: str) -> None:
    source = {"shards": "a.tar", "decode": decode, "make": dict(TAKE)}
    if decode == "rgb8":
        source["make"]["image"] = dict(MOVED)
    spec = {"seed": 1, "fields": ["image", "boxes"], "dataset": [source]}
    if decode != "rgb8":
        spec["fields"][0] = "png"
    [hint] = [each.hint for each in check(spec)[1] if each.code == "W530"]
    assert ("; write `box_format: xywh` or" in hint) == ("boxes: {" in hint)
    del source["make"]["boxes"]
    if decode == "rgb8":
        option = re.findall(r"add `(.*?)` to", hint)[0]
        source["make"]["image"] |= yaml.safe_load(f"{{{option}}}")
    else:
        source |= {"decode": "rgb8", "make": yaml.safe_load(re.findall(r"by `make: (.*?)`,", hint)[0])}
        spec["fields"][0] = "image"
    _, problems = check(spec)
    assert not [each for each in problems if each.code[0] == "E" or each.code in ("W458", "W530")]
