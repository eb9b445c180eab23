"""Boxes and points that stay where they are, though the image beside them is flipped, cropped or resized.

A resized image changes those in pixels: boxes in fractions of width and height fit it.

The fields of a few samples are looked at: members of tars, columns, and objects that `fetch` puts beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from wdspec.base.errors import WdspecError
from wdspec.fields.extensions import is_reserved
from wdspec.fields.measures import Measures
from wdspec.fields.samples import SampleFields
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts
from wdspec.shards.shards import Shards
from wdspec.spec.language.decoders import choose_decoder
from wdspec.spec.language.expressions import EACH, MISSING, Path, describe_path
from wdspec.spec.language.making import Crop, Take, path_of
from wdspec.spec.rules.unmoved import BOXES, MOVING, POINTS, moves, words_of
from wdspec.spec.spec import Source, Spec

MOST_SAMPLES = 20
"""Samples of a source that are looked at."""
_DEPTH = 3
"""How deep to look for boxes."""


_CHANGING = MOVING | {"resize"}


class StayingBoxes(NamedTuple):
    """Boxes or points next to an image that is moved."""

    image: str
    """The field with the image."""
    decoder: str | None
    """The decoder that moves it; None for the step `crop`."""
    place: str
    """The path of the boxes."""
    kind: str
    """`boxes` or `points`."""
    fields: tuple[str, ...]
    """All fields of the sample."""
    moved: str | None = None
    """The field in which the step has them where they are after moving the image; None for none."""


def find_staying_boxes(spec: Spec, shards: Shards) -> dict[str, StayingBoxes]:
    """Look for boxes next to moved images in samples of local sources, by name; runs no user functions."""
    found = {}
    for source in spec.sources:
        urls = shards.lists.get(source.name)
        if spec.map or source.map or source.name not in shards.local or not urls or not _moves_images(source):
            continue
        with suppress(WdspecError):  # W502 reports it
            whole = spec.model_copy(update={"fields": None, "to_tuple": None, "batch": None})
            parts = SourceParts.of(whole, source.model_copy(update={"missing": "none"}), shards)
            with closing(parts.open(Piece(urls[0]), on_error=lambda error: None)) as samples:
                seen = (
                    _find(spec, source, parts.transform.fields, raw) for raw in islice(samples, MOST_SAMPLES)
                )
                first = next(filter(None, seen), None)
            if first is not None:
                found[source.name] = first
    return found


def _crops(source: Source) -> dict[str, Crop]:
    """The steps that crop and flip images, by the field of the image."""
    return {name: recipe for name, recipe in source.make.items() if isinstance(recipe, Crop)}


def _moves_images(source: Source) -> bool:
    decode = source.decode
    decoders = () if decode is None else (*decode.names, *decode.fields.values())
    return bool(_crops(source)) or any(moves(each, _CHANGING) for each in decoders)


def _find(spec: Spec, source: Source, fields: SampleFields, raw: dict[str, Any]) -> StayingBoxes | None:
    """Find boxes in a raw sample that are delivered beside an image that is moved."""
    names = fields.naming.arrange([name for name in raw if not is_reserved(name)]) or {}
    stored = {
        name: fields.naming.suffixes.get(file, file) for name, file in names.items() if file is not None
    }
    asked = spec.to_tuple or spec.fields
    delivered = None if asked is None else {name for entry in asked for name in entry.split(";")}
    rules = fields.rules
    crops = _crops(source)
    moved: dict[str, str | None] = dict.fromkeys(crops)
    for name, suffix in stored.items():
        chosen = choose_decoder(rules.names, rules.fields, name, suffix)
        moved |= {name: chosen} if rules.makes_media(name, suffix) and moves(chosen, _CHANGING) else {}
    image = next((name for name in moved if delivered is None or name in delivered), None)
    if image is None:
        return None
    step = crops.get(image)
    in_pixels = step is None and not moves(moved[image])
    every = tuple(dict.fromkeys((*stored, *source.make)))
    for new, taken in source.make.items() if in_pixels else ():  # of others, `validate` says it
        if isinstance(taken, Take) and (delivered is None or new in delivered):
            path = taken.origins[0]
            (value,) = Measures(fields, [path], [path])(raw) or (MISSING,)
            if any(_find_boxes({path[-1]: value}, (), in_pixels)):
                return StayingBoxes(image, moved[image], describe_path(path), "boxes", every)
    parts = () if step is None else (*step.boxes.items(), *step.points.items())
    beside = {path_of(origin): new for new, origin in parts}
    for name, suffix in stored.items():
        if (delivered is not None and name not in delivered) or rules.makes_media(name, suffix):
            continue
        if isinstance(raw.get(names[name] or ""), bytes) and suffix.rpartition(".")[2] not in _STRUCTURED:
            continue
        (value,) = Measures(fields, [(name,)], [(name,)])(raw) or (MISSING,)
        for path in _find_boxes({name: value}, (), in_pixels):
            if beside and (len(path) > 1 or (path in beside and delivered is None)):
                continue  # what is trained on is moved, and its field may be delivered for what else it has
            kind = "points" if words_of(path[-1]) & POINTS else "boxes"
            return StayingBoxes(image, moved[image], describe_path(path), kind, every, beside.get(path))
    return None


_STRUCTURED = frozenset({"json", "npy", "npz", "cbor", "msgpack", "mp"})
"""Suffixes of members in which boxes may be."""


def _find_boxes(value: object, path: Path, in_pixels: bool) -> Iterator[Path]:
    """Yield the paths of lists of numbers with the name of boxes or points; `[:]` is each item of a list of maps.

    Args:
        in_pixels: whether only those with numbers above 1 count.
    """
    if len(path) > _DEPTH:
        return
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value, path = value[0], (*path, EACH)
    for name, inner in value.items() if isinstance(value, dict) else ():
        if words_of(name) & BOXES and _are_numbers(inner):
            if not in_pixels or _are_pixels(inner):
                yield (*path, str(name))
        else:
            yield from _find_boxes(inner, (*path, str(name)), in_pixels)


def _are_numbers(value: Any) -> bool:
    """Whether this is an array of numbers, a list of numbers, or of such lists."""
    if hasattr(value, "dtype"):
        return bool(value.size) and value.ndim > 0 and value.dtype.kind in "iuf"
    if not isinstance(value, list) or not value:
        return False
    first = value[0]
    return _are_numbers(first) or (isinstance(first, (int, float)) and not isinstance(first, bool))


def _are_pixels(value: Any) -> bool:
    """Whether an array of numbers, or a list of numbers or of such lists, has some above 1."""
    if isinstance(value, list):
        return any(map(_are_pixels, value))
    return bool(np.any(value > 1)) if hasattr(value, "dtype") or isinstance(value, (int, float)) else False
