"""Annotations in the format of COCO as rows of a manifest: one for each image, with its boxes and labels."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from wdspec.base.errors import UsageError


def rows_of_coco(content: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (where it is, row) of each image, in the order of the file.

    A row has what `images` says of the image, a `__key__` from its `file_name`, `boxes` (float32 (N, 4): left, top,
    width, height), `labels` (int64 (N,): the `category_id` of each), and all its `annotations`. `boxes` and `labels`
    leave out crowds and boxes without an area.

    Args:
        content: the object in the file.
        name: the name of the file, for messages.

    Raises:
        UsageError: an entry lacks a part or has an invalid one, two images have the same id or key, or an annotation
            is of no image.
    """
    images: dict[Any, tuple[dict[str, Any], str, list[dict[str, Any]]]] = {}
    for number, image in enumerate(_list(content, "images", name)):
        where = f"{name}: image {number}"
        identity = _get(image, "id", where)
        if identity in images:
            raise UsageError(
                f"{where} has the id {identity!r:.40} of another image; give each image its own id"
            )
        images[identity] = (image, where, [])
    for number, annotation in enumerate(_list(content, "annotations", name)):
        where = f"{name}: annotation {number}"
        of = _get(annotation, "image_id", where)
        if of not in images:
            raise UsageError(
                f"{where} is of image {of!r:.40}, which is not in `images`; add it, or remove this one"
            )
        images[of][2].append(_checked(annotation, where))
    keys: dict[str, str] = {}
    for image, where, own in images.values():
        key = _key_of(_get(image, "file_name", where), where)
        if key in keys:
            raise UsageError(
                f"{where} and {keys[key]} would be the same sample, `{key}`; rename one of the files"
            )
        keys[key] = where
        kept = [each for each in own if not each.get("iscrowd") and min(each["bbox"][2:]) > 0]
        yield (
            where,
            {
                **image,
                "__key__": key,
                "boxes": np.array([each["bbox"] for each in kept], np.float32).reshape(-1, 4),
                "labels": np.array([each["category_id"] for each in kept], np.int64),
                "annotations": own,
            },
        )


def _list(content: dict[str, Any], key: str, name: str) -> list[Any]:
    entries = content[key]
    if not isinstance(entries, list):
        raise UsageError(f"{name}: `{key}` must be a list, not {type(entries).__name__}")
    return entries


def _get(entry: Any, key: str, where: str) -> Any:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, (int, str)):
        raise UsageError(f"{where} has no `{key}`, as COCO's files have; add it")
    return value


def _key_of(path: Any, where: str) -> str:
    """The key of an image: its path without the last suffix, whose other dots become `_`."""
    if not isinstance(path, str) or not path:
        raise UsageError(f"{where} has {path!r:.60} as `file_name` instead of the path of a file")
    place, slash, last = os.path.splitext(path)[0].rpartition("/")
    return f"{place}{slash}{last.replace('.', '_')}"


def _checked(annotation: dict[str, Any], where: str) -> dict[str, Any]:
    box, label = annotation.get("bbox"), annotation.get("category_id")
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
        raise UsageError(
            f"{where} has {box!r:.60} as `bbox`; write left, top, width and height: [10, 20, 30, 40]"
        )
    if type(label) is not int:
        raise UsageError(f"{where} has {label!r:.60} as `category_id`; write the number of a category")
    return annotation


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
