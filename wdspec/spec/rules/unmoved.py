"""Rules for boxes, points and masks that are delivered as they are, beside an image that is moved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from wdspec.spec.build import Composition
from wdspec.spec.language.decoder_options import option_values
from wdspec.spec.language.decoders import makes_media
from wdspec.spec.language.expressions import Path, describe_path
from wdspec.spec.language.making import Crop, Take, names_made, path_of
from wdspec.spec.rules.fields import MAGIC, decoders_of, likely_fields, right_sources
from wdspec.spec.rules.making import changes_before, makes_of
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.spec import Source, Spec

MOVING = frozenset({"hflip", "random_resized_crop", "center_crop"})
"""Options of decoders after which boxes are elsewhere, also those in fractions of width and height."""
POINTS = frozenset({"keypoints", "landmarks", "polygon", "polygons"})
BOXES = frozenset({"boxes", "bboxes", "bbox", *POINTS})


def words_of(name: object) -> set[str]:
    """The words in the name of a field or key: `gt_boxes` has two."""
    return set(str(name).lower().replace(".", "_").split("_"))


def moves(decoder: str | None, options: Collection[str] = MOVING) -> bool:
    """Whether a decoder flips or crops images, or has some of other options."""
    try:
        return (
            decoder is not None
            and ":" not in decoder
            and not option_values(decoder).keys().isdisjoint(options)
        )
    except ValueError:  # another rule reports it
        return False


def write_crop(image: str, decoder: str, option: str) -> str:
    """A `crop` in place of options of a decoder, with an option for what belongs to the image."""
    options = option_values(decoder)
    size = next(
        (options[key] for key in ("random_resized_crop", "center_crop", "resize") if key in options), 224
    )
    height, width = size if isinstance(size, tuple) else (size, size)
    size = [*size] if isinstance(size, tuple) else size
    flip = f", hflip: {options['hflip']}" if "hflip" in options else ""
    if "center_crop" in options:
        flip += f", scale: [1, 1], ratio: [{width / height:.4g}, {width / height:.4g}]"
    elif "random_resized_crop" not in options:  # the whole image
        flip += ", scale: [1, 1], ratio: [0.01, 100]"
    return f"{{crop: {image}, size: {size}{flip}, {option}}}"


ADVICE_ON_FORMATS = "; write `box_format: xywh` or `cxcywh` with it, unless boxes are two corners (`xyxy`)"


def find_taken(spec: Spec, source: Source) -> tuple[str, str, str] | None:
    """Find boxes that `take` delivers beside a moved image: their field, what was seen, and what to do."""
    asked = {name for entry in spec.to_tuple or spec.fields or () for name in entry.split(";")}
    is_all = not asked or any(MAGIC.intersection(name) for name in asked)
    if spec.map or source.map:
        return None
    crops = {new: step for new, step in source.make.items() if isinstance(step, Crop)}
    beside = {path for step in crops.values() for path in step.origins}
    made = dict(names_made(source.make))
    for new, step in source.make.items():
        if not isinstance(step, Take) or not (is_all or new in asked):
            continue
        path = step.origins[0]
        kind = next((each for each in (POINTS, BOXES) if (words_of(new) | words_of(path[-1])) & each), None)
        if kind is None or path in beside or path[0] in made:
            continue
        image, decoder = _moved_image(source, crops, asked, is_all)
        if image:
            place = describe_path(path)
            option = f'{"points" if kind is POINTS else "boxes"}: {{{new}: "{place}"}}'
            if decoder is None:
                do = f"remove `make: {{{new}: …}}`, and add `{option}` to `make: {{{image}: …}}`"
            else:
                written = write_crop(image, decoder, option)
                do = f"remove these options, or replace them and `make: {{{new}: …}}` by `make: {{image: {written}}}`, "
                do += f"and deliver `image` and `{new}`"
            do += ADVICE_ON_FORMATS * (kind is BOXES)
            return new, f"`{decoder or 'crop'}` flips or crops `{image}`, but `{new}` stays as it is", do
    return None


def _moved_image(
    source: Source, crops: Iterable[str], asked: set[str], is_all: bool
) -> tuple[str, str | None]:
    """The name of a delivered image that is moved, and the decoder that moves it, if no step does; "" for none."""
    for name in crops:
        if is_all or name in asked:
            return name, None
    for name in likely_fields(source, asked):
        if (is_all or name in asked) and name not in source.make:
            for decoder in decoders_of(source, name):
                if makes_media(decoder) and moves(decoder):
                    return name, decoder
    return "", None


@rule("W530", keys="make")
def taken_parts(composition: Composition) -> Findings:
    """Boxes and points that `take` delivers beside an image that is flipped or cropped."""
    if {"fields", "to_tuple", "map"} & composition.bad:
        return
    for _, source, node in makes_of(composition, is_mixed=True):
        if (found := find_taken(composition.spec, source)) is not None:
            yield Finding(node.value_or_self(found[0]), *found[1:])


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
    "  val:\n    epoch: pass\n    fields: [jpg, boxes]\n"
    "    dataset: [{shards: b.tar, decode: {jpg: rgb8+resize=224x224}, make: {boxes: {take: json.boxes}}}]\n",
    good="defaults: {extensions: jpg json, decode: {jpg: rgb8}}\nsplits:\n"
    "  train:\n    fields: [image, boxes]\n"
    "    dataset: [{shards: a.tar, make: {image: {crop: jpg, size: 224, boxes: {boxes: json.boxes}}}}]\n"
    "  val:\n    epoch: pass\n    fields: [image, boxes]\n    dataset:\n      - shards: b.tar\n        make:\n"
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
            if not source.map and find_taken(spec, source) is None:  # which is W530
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
    size = next((each["resize"] for each in options if "resize" in each), None)
    if size is None and source.scale is None and "scaleprob" not in source.model_fields_set:
        return what, "remove it"
    place = describe_path(part.path)
    place = f'"{place}"' if "[" in place else place
    form = f", box_format: {part.step.box_format}" if part.step.box_format != "xyxy" else ""
    form += ", relative: true" if part.step.relative else ""
    moved = new if new in source.make else f"moved_{new}"
    size = [*size] if isinstance(size, tuple) else size or 224
    step = f"crop: {part.image}, size: {size}, scale: [1, 1], ratio: [0.01, 100]"
    step += f", {part.kind}: {{{moved}: {place}}}{form}"
    instead = f" in place of `make: {{{new}: …}}`" if new in source.make else ""
    hint = f"remove it, write `make: {{image: {{{step}}}}}`{instead}, which resizes both, and deliver `image` and "
    hint += f"`{moved}`"
    return what, hint
