"""Boxes that stay while the image beside them is moved (W530), wherever they are; the remedy is followed literally."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from commandline import within
from PIL import Image
from shardmaking import write_shard

import wdspec

BOX = [[1.0, 2.0, 8.0, 9.0]]
OBJECTS = {"objects": [{"bbox": [1, 2, 8, 9]}], "id": 4}


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (12, 10)).save(file, kind)
    return file.getvalue()


def of_npy(folder: Path) -> dict[str, Any]:
    file = io.BytesIO()
    np.save(file, np.array(BOX, np.float32))
    write_shard(
        folder / "a.tar", [(f"{n}", {"png": picture("png"), "boxes.npy": file.getvalue()}) for n in range(3)]
    )
    return {"shards": "a.tar", "rename": {"gt_boxes": "boxes.npy"}, "decode": "rgb8+hflip=0.5"}


def of_json(folder: Path) -> dict[str, Any]:
    files = {"png": picture("png"), "json": json.dumps(OBJECTS).encode()}
    write_shard(folder / "a.tar", [(f"{n}", files) for n in range(3)])
    return {"shards": "a.tar", "decode": "rgb8+random_resized_crop=8x6+hflip=0.5"}


def of_parquet(folder: Path) -> dict[str, Any]:
    pq.write_table(pa.table({"image": [picture("jpeg")] * 3, "boxes": [BOX] * 3}), folder / "a.parquet")
    return {"shards": "a.parquet", "decode": {"image": "rgb8+hflip=0.5"}}


def of_fetch(folder: Path) -> dict[str, Any]:
    (folder / "1.png").write_bytes(picture("png"))
    (folder / "a.jsonl").write_text((json.dumps({"file": "1.png", "bboxes": BOX}) + "\n") * 3)
    fetch = {"picture": {"url": "file", "root": "."}}
    return {"shards": "a.jsonl", "fetch": fetch, "decode": {"picture": "rgb8+hflip=0.5"}}


def of_step(folder: Path) -> dict[str, Any]:
    step = {"crop": "image", "size": 8, "hflip": 0.5}
    return {**of_parquet(folder), "decode": {"image": "rgb8"}, "make": {"cropped": step}}


PLACES = {
    of_npy: ("png", "gt_boxes"),
    of_json: ("png", "json.objects[:].bbox"),
    of_parquet: ("image", "boxes"),
    of_fetch: ("picture", "bboxes"),
    of_step: ("cropped", "boxes"),
}


def explain(folder: Path, source: dict[str, Any], **keys: Any) -> list[str]:
    spec = {"seed": 1, "dataset": [{"name": "a", **source}], **keys}
    (folder / "s.yaml").write_text(yaml.safe_dump(spec))
    said = json.loads(within("explain", "s.yaml", "--format", "json", folder=folder)[0])["warnings"]
    return [text for text in said if "W530" in text]


@pytest.mark.parametrize("data", PLACES)
def test_boxes_stay_wherever_they_are_until_the_remedy_is_followed(tmp_path: Path, data: Any) -> None:
    source, (image, place) = data(tmp_path), PLACES[data]
    [said] = explain(tmp_path, source)
    assert f"flips or crops `{image}`, but `{place}` stays as it is" in said
    for field, written in re.findall(r"write `make: \{(\w+): (.*?)\}` in place", said):
        source["make"] = {field: yaml.safe_load(written)}
        decode = source["decode"]
        source["decode"] = "rgb8" if isinstance(decode, str) else dict.fromkeys(decode, "rgb8")
    for written in re.findall(r"add `(.*?)` to the step", said):
        source["make"]["cropped"] |= yaml.safe_load(f"{{{written}}}")
    fields = re.findall(r"deliver `(\w+)` and `(\w+)` by", said)[0]
    assert not explain(tmp_path, source, fields=list(fields))
    with wdspec.loader(tmp_path / "s.yaml", num_workers=0) as loader:
        sample = next(iter(loader))
    assert sample[fields[0]].ndim == 3
    assert sample[fields[1]].shape == (1, 4)


@pytest.mark.parametrize("fields", [["image"], ["boxes"]])
def test_boxes_without_the_image_or_an_image_without_boxes_are_no_problem(
    tmp_path: Path, fields: list[str]
) -> None:
    assert not explain(tmp_path, of_parquet(tmp_path), fields=fields)


def test_boxes_that_a_step_has_moved_are_delivered_in_place_of_those_that_stay(tmp_path: Path) -> None:
    source = of_step(tmp_path)
    source["make"]["cropped"]["boxes"] = {"moved": "boxes"}
    [said] = explain(tmp_path, source, fields=["cropped", "boxes"])
    assert "flips or crops `cropped`, but `boxes` stays as it is" in said
    assert "`moved` of the step has the moved boxes: deliver it by `fields`, without `boxes`" in said
    assert not explain(tmp_path, source, fields=["cropped", "moved"])
    assert not explain(tmp_path, source)  # nothing says which of them are used


def test_points_that_stay_beside_boxes_that_a_step_moves_are_added_to_it(tmp_path: Path) -> None:
    source = of_step(tmp_path)
    columns = {"image": [picture("jpeg")] * 3, "boxes": [BOX] * 3, "keypoints": [[[1.0, 2.0]]] * 3}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source["make"]["cropped"]["boxes"] = {"moved": "boxes"}
    [said] = explain(tmp_path, source, fields=["cropped", "moved", "keypoints"])
    assert "but `keypoints` stays as it is" in said
    [written] = re.findall(r"add `(.*?)` to the step", said)
    source["make"]["cropped"] |= yaml.safe_load(f"{{{written}}}")
    assert not explain(tmp_path, source, fields=["cropped", "moved", "points"])


def test_records_that_have_moved_boxes_may_be_delivered_for_what_else_they_have(tmp_path: Path) -> None:
    source = {**of_json(tmp_path), "decode": "rgb8"}
    step = {"crop": "png", "size": 8, "hflip": 0.5, "boxes": {"moved": "json.objects[:].bbox"}}
    source["make"] = {"cropped": step}
    assert not explain(tmp_path, source, fields=["cropped", "moved", "json"])


def resized(folder: Path, objects: Any = OBJECTS) -> dict[str, Any]:
    files = {"png": picture("png"), "json": json.dumps(objects).encode()}
    write_shard(folder / "a.tar", [(f"{n}", files) for n in range(3)])
    return {"shards": "a.tar", "decode": "rgb8+resize=24x20"}


@pytest.mark.parametrize(
    ("make", "fields"),
    [({}, ["png", "json"]), ({"boxes": {"take": "json.objects[:].bbox"}}, ["png", "boxes"])],
)
def test_boxes_in_pixels_beside_a_resized_image_stay_until_the_remedy_is_followed(
    tmp_path: Path, make: dict[str, Any], fields: list[str]
) -> None:
    source = {**resized(tmp_path), **({"make": make} if make else {})}
    [said] = explain(tmp_path, source, fields=fields)
    assert "resizes `png`, but `json.objects[:].bbox` stays as it is, in pixels" in said
    [(field, written)] = re.findall(r"write `make: \{(\w+): (.*?)\}` in place", said)
    source |= {"make": {field: yaml.safe_load(written)}, "decode": "rgb8"}
    names = re.findall(r"deliver `(\w+)` and `(\w+)` by", said)[0]
    assert not explain(tmp_path, source, fields=list(names))
    with wdspec.loader(tmp_path / "s.yaml", num_workers=0) as loader:
        sample = next(iter(loader))
    assert sample[names[0]].shape == (24, 20, 3)
    assert sample[names[1]][0].tolist() == pytest.approx([20 / 12, 4.8, 8 * 20 / 12, 9 * 2.4], abs=2)


def test_boxes_in_fractions_fit_a_resized_image(tmp_path: Path) -> None:
    source = resized(tmp_path, {"objects": [{"bbox": [0.1, 0.2, 0.8, 1]}]})
    assert not explain(tmp_path, source, fields=["png", "json"])


def test_the_remedy_for_a_center_crop_draws_nothing(tmp_path: Path) -> None:
    source = {**of_json(tmp_path), "decode": "rgb8+resize=9+center_crop=8"}
    [said] = explain(tmp_path, source)
    assert "size: 8, scale: [1, 1], ratio: [1, 1], boxes: " in said
