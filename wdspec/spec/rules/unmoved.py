"""A rule for boxes, points and masks that one split crops with their image, and another delivers as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wdspec.spec.build import Composition
from wdspec.spec.language.decoder_options import option_values
from wdspec.spec.language.expressions import Path, describe_path
from wdspec.spec.language.making import Crop, Take, path_of
from wdspec.spec.rules.fields import MAGIC, decoders_of, right_sources
from wdspec.spec.rules.making import changes_before, makes_of
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.spec import Source


class _Part(NamedTuple):
    """What a step crops with an image."""

    image: str
    path: Path
    kind: str
    """`boxes`, `points` or `masks`."""
    step: Crop
    split: str


@rule(
    "W458",
    "boxes beside an image that is resized",
    "A split crops boxes, points or masks with their image. Another one delivers them as they are, next to an image "
    "that its `decode` or `scale` resizes, crops, flips or turns, so they do not match it. A `crop` with `scale: [1, "
    "1]` and `ratio: [0.01, 100]` resizes the whole image (of a few images, all but a row of pixels at an edge) and "
    "all that belongs to it.",
    needs="splits",
    bad="defaults: {extensions: jpg json}\nsplits:\n"
    "  train:\n    fields: [image, boxes]\n"
    "    dataset:\n      - shards: a.tar\n        decode: {jpg: rgb8}\n"
    "        make: {image: {crop: jpg, size: 224, boxes: {boxes: json.boxes}}}\n"
    "  val:\n    fields: [jpg, boxes]\n"
    "    dataset: [{shards: b.tar, decode: {jpg: rgb8+resize=224x224}, make: {boxes: {take: json.boxes}}}]\n",
    good="defaults: {extensions: jpg json, decode: {jpg: rgb8}}\nsplits:\n"
    "  train:\n    fields: [image, boxes]\n"
    "    dataset: [{shards: a.tar, make: {image: {crop: jpg, size: 224, boxes: {boxes: json.boxes}}}}]\n"
    "  val:\n    fields: [image, boxes]\n    dataset:\n      - shards: b.tar\n        make:\n"
    "          image: {crop: jpg, size: 224, scale: [1, 1], ratio: [0.01, 100], boxes: {boxes: json.boxes}}\n",
)
def unmoved_parts(splits: Sequence[Composition]) -> Findings:
    """Boxes, points and masks that are delivered next to an image that is changed, and that another split crops."""
    cropped = [
        _Part(str(step.origins[0][0]), path_of(origin), kind, step, each.variant.split or "")
        for each in splits
        for _, source, _ in makes_of(each)
        for step in source.make.values()
        if isinstance(step, Crop)
        for kind in ("boxes", "points", "masks")
        for origin in getattr(step, kind).values()
    ]
    for each in splits if cropped else ():
        spec = each.spec
        entries = spec.to_tuple or spec.fields
        if spec.map or {"fields", "to_tuple", "map"} & each.bad:
            continue
        delivered = {name for entry in entries or () for name in entry.split(";")}
        is_all = not delivered or any(MAGIC.intersection(name) for name in delivered)
        for leaf, source in right_sources(each, "decode", "scale", "make", "map", "rename"):
            if not source.map:
                beside = ((part, {part.image, *map(str, part.path), *source.make}) for part in cropped)
                found = (
                    _find_unmoved(source, every if is_all else delivered, part) for part, every in beside
                )
                if (first := next(filter(None, found), None)) is not None:
                    yield Finding(leaf.node.value_or_self("decode"), *first)


def _find_unmoved(source: Source, delivered: set[str], part: _Part) -> tuple[str, str] | None:
    """Return what a source delivers next to a changed image, and what to do about it."""
    made = {name: source.make[name] for name in delivered if name in source.make}
    named = [name for name, step in made.items() if isinstance(step, Take) and part.path in step.origins]
    named += [name for name in delivered if part.path == (name,) and name not in source.make]
    if not named or part.image not in delivered or part.image in source.make:
        return None
    new, mask = named[0], named[0] if part.kind == "masks" else None
    change = changes_before(source, part.image, mask, part.step.relative)
    if not change:
        return None
    what = f"{change} changes `{part.image}`, but not `{new}`, which the split `{part.split}` crops with it"
    if mask is not None:
        return what, "decode both with the same `resize`, `center_crop` and `hflip`"
    options = [option_values(decoder) for decoder in decoders_of(source, part.image) if decoder]
    size = next((each["resize"] for each in options if "resize" in each), 224)
    place = describe_path(part.path)
    place = f'"{place}"' if "[" in place else place
    form = f", box_format: {part.step.box_format}" if part.step.box_format != "xyxy" else ""
    form += ", relative: true" if part.step.relative else ""
    moved = new if new in source.make else f"moved_{new}"
    size = [*size] if isinstance(size, tuple) else size
    step = f"crop: {part.image}, size: {size}, scale: [1, 1], ratio: [0.01, 100]"
    step += f", {part.kind}: {{{moved}: {place}}}{form}"
    hint = f"remove it, write `make: {{image: {{{step}}}}}`, which resizes both, and deliver `image` and `{moved}`"
    return what, hint
