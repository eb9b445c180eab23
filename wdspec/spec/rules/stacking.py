"""Rules for what a batch makes of the values of a field: those that cannot be padded, and images that do not stack.

And for images that a batch, or an evaluation, has in another form than the training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from wdspec.spec.build import Composition
from wdspec.spec.language.decoder_options import GEOMETRY, option_values
from wdspec.spec.language.decoders import BY_NAME, RAW, ImageSpec, split_decoder
from wdspec.spec.language.making import Chat, Crop
from wdspec.spec.rules.fields import (
    MAGIC,
    decoders_of,
    files_of,
    image_of,
    is_image,
    likely_fields,
    right_sources,
)
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shards import formats_of
from wdspec.spec.rules.sources import EVALUATING, SPARE
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import Node, locate


@rule(
    "E319",
    "a field that cannot be padded",
    "`pad` and `nested` take tensors, arrays or lists of numbers, which have a length. Convert text to numbers "
    "first, with a function in `map`. Single numbers are stacked.",
    keys="collate",
    bad="batch: {size: 4, collate: {txt: pad}}\ndataset:\n  - {shards: a.tar, extensions: txt}\n",
    good="batch: {size: 4, collate: {txt: list}}\ndataset:\n  - {shards: a.tar, extensions: txt}\n",
)
def padded_fields(composition: Composition) -> Findings:
    """Text and single numbers that `collate` pads, unless a function may change them."""
    spec = composition.spec
    collated = spec.batch.collate.fields if spec.batch is not None and spec.batch.collate else {}
    for field, how in collated.items() if "batch" not in composition.bad else ():
        if how.way not in ("pad", "nested") or any(call.field in (field, None) for call in spec.map):
            continue
        found = (
            (leaf.name, row)
            for leaf, source in right_sources(composition, "extensions", "rename", "decode", "map")
            if (row := _find_unpadded(source, field)) is not None
        )
        for name, (_, kind, hint) in islice(found, 1):
            at = locate(composition.top.entries["batch"].value, ("collate", field))
            yield Finding(
                at, f"`{how.way}` needs numbers with a length, but `{field}` of `{name}` is {kind}", hint
            )


def _find_unpadded(source: Source, field: str) -> tuple[str, str, str] | None:
    """The row of `_UNPADDED` that all values of a field are like, unless a function may change them."""
    if (
        any(call.field in (field, None) for call in source.map)
        or field in source.tags
        or {*formats_of(source.format, source.shards or ())}
        - {"tar", ""}  # whose values may have any type already
    ):
        return None
    rows = [BY_NAME.get(decoder or RAW) for decoder in decoders_of(source, field)]
    return next((each for each in _UNPADDED if rows and all(row is BY_NAME[each[0]] for row in rows)), None)


_UNPADDED = (
    ("txt", "text", "make numbers of it in `map`, for example with a tokenizer, or remove it from `collate`"),
    ("cls", "a single number", "remove it from `collate`: single numbers are stacked"),
)
"""Decoders of values that have no length in numbers: one name, the kind of the values, and what to do."""


@rule(
    "W371",
    "images or audio that do not stack",
    "A batch stacks arrays and tensors of the same shape. PIL images raise an error, unless `ragged` or `collate` "
    "says what to do with them. `resize` with one number keeps the aspect of images, which may differ. Images, audio "
    "and video that are not decoded become a list of bytes, and so do objects that samples name (`fetch`).",
    keys="batch",
    bad="batch: 8\ndataset:\n  - {shards: a.tar, extensions: jpg cls, decode: pil}\n",
    good="batch: 8\ndataset:\n  - {shards: a.tar, extensions: jpg cls, decode: rgb8}\n",
)
def unstackable_images(composition: Composition) -> Findings:
    """Sources whose images are PIL images or keep their aspect, or whose images, audio or video are not decoded."""
    spec = composition.spec
    if not _stacks(spec):
        return
    for leaf, source in right_sources(composition, "extensions", "decode", "scale"):
        if any(call.field is None for call in source.map):
            continue
        written = leaf.node.get("decode")
        if written is not None and _gives_pil(source, spec):
            hint = "decode to an array (`rgb8`) or a tensor (`torchrgb`), or make one in `map`"
            yield Finding(written, "images of `pil` cannot be stacked in a batch", hint)
        elif written is not None and (decoder := _find_resized(source, spec)) is not None:
            options = option_values(decoder)
            if "bucket" in options:
                hint = "add `batch: {group_by: image.bucket}`, with the name of the field"
                yield Finding(written, "images of two buckets do not stack", hint)
                continue
            side = options["resize"]
            hint = f"write `resize={side}x{side}`, or add `+center_crop={side}`"
            yield Finding(
                written, f"`resize={side}` keeps the aspect, so images of two aspects do not stack", hint
            )
        elif (field := _find_encoded(source, spec)) is not None:
            at: Node = leaf.node.value_or_self("extensions")
            decoder = "rgb8" if is_image(field) else _medium(field)
            hint = f"add `decode: {decoder}`, or convert it to a tensor in `map`"
            yield Finding(at, f"`{field}` is not decoded: the batch will have a list of bytes", hint)


@rule("W371", keys="fetch")
def fetched_bytes(composition: Composition) -> Findings:
    """Objects that are delivered in batches as they are fetched, though nothing says that bytes are meant."""
    spec = composition.spec
    for leaf, source in (
        right_sources(composition, "fetch", "rename", "decode", "map") if _stacks(spec) else ()
    ):
        is_known = all(call.field is not None for call in source.map)
        for name in _list_fetched_bytes(source, spec) if is_known else ():
            hint = f"add `decode: {{{name}: rgb8}}` if they are images, or `{name}: raw` if bytes are meant"
            what = f"the objects of `{name}` are not decoded: the batch will have a list of bytes"
            yield Finding(locate(leaf.node.value_or_self("fetch"), (name,)), what, hint)


def _gives_pil(source: Source, spec: Spec) -> bool:
    decoders = (each for field in _list_stacked_images(source, spec) for each in decoders_of(source, field))
    return any(each is not None and each.startswith("pil") for each in decoders)


def _find_resized(source: Source, spec: Spec) -> str | None:
    """A decoder that resizes the shorter side of images and does not crop them."""
    fields = [*_list_stacked_images(source, spec), *_list_padded(source, spec)]
    decoders = (each for field in fields for each in decoders_of(source, field))
    is_grouped = spec.batch is not None and "bucket" in (spec.batch.group_by or "")
    return next((each for each in decoders if each and _keeps_aspect(each, is_grouped)), None)


def _list_padded(source: Source, spec: Spec) -> list[str]:
    """The fields that `collate` pads along their first axis alone, such as lists of images; others must be equal."""
    ways = spec.batch.collate.fields if spec.batch is not None and spec.batch.collate is not None else {}
    mapped = {call.field for call in (*source.map, *spec.map)}
    padded = [name for name, way in ways.items() if way.padding is not None and way.padding.axis == (0,)]
    return [] if None in mapped else [name for name in padded if name not in mapped]


def _keeps_aspect(decoder: str, is_grouped: bool) -> bool:
    options = option_values(decoder)
    if "bucket" in options:
        return not is_grouped
    return isinstance(options.get("resize"), int) and "center_crop" not in options


def _find_encoded(source: Source, spec: Spec) -> str | None:
    """A field with images, audio or video that `extensions` names, if the source neither decodes nor rescales."""
    decodes = source.decode is not None and (source.decode.names or source.decode.fields)
    if decodes or source.scale is not None or source.extensions is None:
        return None
    names = (entry.split(";")[0] for entry in source.extensions)
    found = (name for name in names if is_image(name) or _medium(name))
    return next((name for name in found if not _is_collated(name, source, spec)), None)


def _list_fetched_bytes(source: Source, spec: Spec) -> list[str]:
    """The objects that are delivered, and for which the spec has neither a decoder nor `raw`."""
    kept = {name for entry in spec.to_tuple or spec.fields or () for name in entry.split(";")}
    written = {} if source.decode is None else source.decode.fields
    new_names = {old: new for new, olds in source.rename.items() for old in olds}
    steps = (step for step in source.make.values() if isinstance(step, Chat) and step.images)
    of_chats = {str(path[0]) for step in steps for path in step.optional}
    return [
        name
        for name in source.fetch
        if not kept or new_names.get(name, name) in kept or any(map(MAGIC.intersection, kept))
        if not {name, new_names.get(name)} & written.keys()
        if name in of_chats or not _is_collated(name, source, spec)
        if not any(decoders_of(source, new_names.get(name, name)))
    ]


def _medium(field: str) -> str:
    """`audio` or `video`, by the field's name; empty for others."""
    last = field.rsplit(".", 1)[-1].lower()
    return next((name for name in ("audio", "video") if last in BY_NAME[name].extensions), "")


def _is_collated(field: str, source: Source, spec: Spec) -> bool:
    """Whether `map` or `collate` names a field, by this name or a new one."""
    batch = spec.batch
    if batch is None:
        return True
    names = {call.field for call in (*source.map, *spec.map)} | _list_collated_fields(spec)
    return field in names or any(new in names for new, olds in source.rename.items() if field in olds)


class _Form(NamedTuple):
    """What is known of the images of a field before they are read."""

    image: ImageSpec
    sides: tuple[int, int] | None
    """Height and width; None if they depend on the data."""

    def stacks_with(self, other: _Form) -> bool:
        """Whether batches can have images of both forms, as far as is known."""
        return self.image == other.image and (None in (self.sides, other.sides) or self.sides == other.sides)

    def __str__(self) -> str:
        height, width = self.sides or ("height", "width")
        shape = self.image.shape.replace("height", str(height)).replace("width", str(width))
        return f"{self.image.gives} of shape {shape}" if shape else self.image.gives


@rule(
    "E320",
    "images of two sources that do not stack",
    "A batch stacks images of all sources, so decoders must return the same type, and the same shape if they "
    "resize. With `device`, one decoder decodes the whole batch, so all sources need the same decoder with the same "
    "options. Or name the field in `batch: {collate: …}`, or draw one source for each batch with `mix: {unit: "
    "batch}`.",
    keys="decode scale",
    bad="batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg, decode: rgb8+resize=32x32, weight: 1}\n"
    "  - {shards: b.tar, extensions: jpg, decode: rgb8+resize=64x64, weight: 1}\n",
    good="batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg, decode: rgb8+resize=64x64, weight: 1}\n"
    "  - {shards: b.tar, extensions: jpg, decode: rgb8+resize=64x64, weight: 1}\n",
)
def unlike_images(composition: Composition) -> Findings:
    """The first source whose images have another type, shape or device, if batches may have samples of all sources."""
    spec, batch = composition.spec, composition.spec.batch
    is_mixed = (not spec.is_pass or spec.reshuffles) and spec.mix.unit != "batch" and not spec.mix.schedule
    if batch is None or batch.size == 1 or spec.stage or not is_mixed or not _stacks(spec):
        return
    off = {
        leaf.name
        for each in composition.lists
        for draft in each.drafts
        if _is_off(draft)
        for leaf in draft.leaves
    }
    found = right_sources(composition, "extensions", "rename", "decode", "scale", "map")
    drawn = [(leaf, source) for leaf, source in found if leaf.name not in off]
    names = dict.fromkeys(field for _, source in drawn for field in _list_stacked_images(source, spec))
    known: dict[str, dict[str | None, tuple[Draft, Node]]] = {}
    for leaf, source in drawn:
        at = leaf.node.value_or_self("decode")
        for field in _list_stacked_images(source, spec, names):
            decoder, *others = dict.fromkeys(decoders_of(source, field)) or (None,)
            if others:
                continue
            for other, (first, place) in known.setdefault(field, {}).items():
                if (kinds := _unlike(decoder, other)) is not None:
                    where = f"line {place.line}" if place.origin is at.origin else str(place.position)
                    message = (
                        f"`{field}` is {kinds[0]} here, and {kinds[1]} in `{first.name}` ({where}), which do not "
                        "stack in a batch"
                    )
                    yield Finding(at, message, "use one decoder with the same options for both")
                    return
            known[field].setdefault(decoder, (leaf, at))


def _unlike(one: str | None, other: str | None) -> tuple[str, str] | None:
    """What two decoders give, if a batch cannot have both; None if it can, as far as is known."""
    if _is_deferred(one) or _is_deferred(other):
        names = [f"decoded by `{each}`" if each else "not decoded" for each in (one, other)]
        return None if _options(one) == _options(other) else (names[0], names[1])
    first, second = _form(one), _form(other)
    if first is None or second is None or "pil" in (first.image.container, second.image.container):
        return None
    return None if first.stacks_with(second) else (str(first), str(second))


class _Look(NamedTuple):
    """How a source decodes the images of a field."""

    leaf: Draft
    owner: str
    """The source or the split."""
    decoder: str
    form: _Form
    is_cropped: bool
    """Whether a step `crop` makes the field, which sets the size."""

    @property
    def normalization(self) -> str:
        """The option with which pixels are normalized; empty if they are not."""
        return next((each for each in self.decoder.split("+") if each.startswith("normalize=")), "")

    def is_normalized_as(self, other: _Look) -> bool:
        one, two = (option_values(each.decoder).get("normalize") for each in (self, other))
        return bool(one == two)


def _looks_of(composition: Composition, owner: str = "") -> Iterator[tuple[str, _Look]]:
    """The fields of all sources whose images are decoded in one way, which is known, and not changed later."""
    spec = composition.spec
    sources = right_sources(composition, "extensions", "rename", "decode", "scale", "make", "map")
    for leaf, source in sources if _stacks(spec) else ():
        kept = spec.to_tuple or spec.fields or source.make
        crops = {name: step for name, step in source.make.items() if isinstance(step, Crop) and name in kept}
        mine = [name for name in crops if not _is_collated(name, source, spec)]
        for field in dict.fromkeys((*_list_stacked_images(source, spec), *mine)):
            step = crops.get(field)
            origin = field if step is None else str(step.origins[0][0])
            decoders = {*decoders_of(source, origin)}
            form = _form(decoder) if (decoder := next(iter(decoders), None)) else None
            if (
                form is None
                or decoder is None
                or len(decoders) > 1
                or (step is None and field in source.make)
            ):
                continue
            if step is not None:
                form = _Form(form.image, (step.size, step.size) if isinstance(step.size, int) else step.size)
            yield field, _Look(leaf, owner or f"`{leaf.name}`", decoder, form, step is not None)


@rule(
    "W480",
    "images that are decoded in two ways",
    "A split that evaluates decodes a field in another way than the training: with another normalization, into "
    "arrays of another layout or type, or to another size. Or two sources of a mix normalize a field in two ways. A "
    "model then sees other pixels than it has learned from, and its results are worse without an error. Sizes are "
    "compared if the spec says them. Ignore the warning if you evaluate with larger images on purpose.",
    keys="decode",
    bad="splits:\n"
    "  train: {dataset: [{shards: a.tar}], defaults: {decode: rgb8+random_resized_crop=224}}\n"
    "  val: {dataset: [{shards: b.tar}], defaults: {decode: rgb8+resize=256+center_crop=192}}\nbatch: 8\n",
    good="splits:\n"
    "  train: {dataset: [{shards: a.tar}], defaults: {decode: rgb8+random_resized_crop=224}}\n"
    "  val: {dataset: [{shards: b.tar}], defaults: {decode: rgb8+resize=256+center_crop=224}, epoch: pass}\n"
    "batch: 8\n",
)
def normalizations_of_two_sources(composition: Composition) -> Findings:
    """The first source that normalizes a field in another way than one before it."""
    known: dict[str, _Look] = {}
    for field, look in _looks_of(composition):
        other = known.setdefault(field, look)
        if look.form.image == other.form.image and not look.is_normalized_as(other):
            yield _describe_normalization(field, look, other)
            return


@rule("W480", needs="splits")
def unlike_evaluations(splits: Sequence[Composition]) -> Findings:
    """What splits for evaluation decode in another way than the first other split that has the field."""
    trained: dict[str, _Look] = {}
    for each in splits:
        split = each.variant.split or ""
        for field, look in () if EVALUATING.match(split) else _looks_of(each, f"the split `{split}`"):
            trained.setdefault(field, look)
    for each in splits:
        split, seen = each.variant.split or "", set[tuple[str, str]]()
        for field, look in _looks_of(each, f"the split `{split}`") if EVALUATING.match(split) else ():
            other = trained.get(field)
            if other is None or (field, look.decoder) in seen:
                continue
            seen.add((field, look.decoder))
            if not look.form.stacks_with(other.form):
                yield _describe_form(field, look, other)
            if not look.is_normalized_as(other):
                yield _describe_normalization(field, look, other)


def _describe_form(field: str, look: _Look, other: _Look) -> Finding:
    message = f"`{field}` is {look.form} in {look.owner}, and {other.form} in {other.owner}"
    return Finding(look.leaf.node.value_or_self("decode"), message, _decode_alike(look, other))


def _describe_normalization(field: str, look: _Look, other: _Look) -> Finding:
    ways = [each.normalization or "no `normalize`" for each in (look, other)]
    ways = [f"`{way}`" if "`" not in way else way for way in ways]
    message = f"`{field}` has {ways[0]} in {look.owner}, and {ways[1]} in {other.owner}"
    return Finding(look.leaf.node.value_or_self("decode"), message, _decode_alike(look, other))


def _decode_alike(look: _Look, other: _Look) -> str:
    """What to write so that one source decodes images as another one does; it keeps how it resizes if it can."""
    options, sides = look.decoder.split("+")[1:], other.form.sides
    if look.is_cropped:
        return "give both the same `size`, decoder and `normalize`"
    if sides is not None and look.form.sides not in (None, sides):
        options = [each for each in options if each.partition("=")[0] not in GEOMETRY]
        crop = f"{sides[0]}" if sides[0] == sides[1] else f"{sides[0]}x{sides[1]}"
        options = [f"resize={round(max(sides) * SPARE)}", f"center_crop={crop}", *options]
    options = [each for each in options if not each.startswith("normalize=")]
    options += [other.normalization] * bool(other.normalization)
    return f"write `{'+'.join((other.decoder.split('+')[0], *options))}`"


_BATCH = "batch: 8\n"
_ON_GPU = "dataset:\n  - {shards: a.tar, extensions: jpg cls, decode: {jpg: rgb8+resize=32x32+device=cuda}}\n"


@rule(
    "E360",
    "images for a device that are not stacked",
    "With `device`, workers send encoded images, and the loader decodes a batch of them at once. So it needs `batch`, "
    "which stacks the images: without `stage`, without batches by cost, and without `collate` or `ragged` for them. "
    "All files of a field need the same decoder with the same options.",
    keys="decode",
    bad=_ON_GPU,
    good=_BATCH + _ON_GPU,
)
def unstacked_on_device(composition: Composition) -> Findings:
    """Sources with images for a device, if batches do not stack them, or if files of a field differ in decoders."""
    spec = composition.spec
    if composition.bad & {"batch", "stage"}:
        return
    for leaf, source in right_sources(composition, "extensions", "rename", "decode"):
        if not _uses_device(source):
            continue
        at = leaf.node.value_or_self("decode")
        if _is_made_otherwise(spec) or any(
            _is_on_device(source, name) for name in _list_collated_fields(spec)
        ):
            hint = "add `batch`" if spec.batch is None else "let the batch stack the images"
            yield Finding(at, "`device` needs a batch that stacks the images", f"{hint}, or remove `device`")
            continue
        for field in _list_stacked_images(source, spec):
            by_file = {decoder: suffix for suffix, decoder in files_of(source, field)}
            if any(map(_is_deferred, by_file)) and len(set(map(_options, by_file))) > 1:
                found = (f"by `{each}` from `{suffix}`" for each, suffix in by_file.items())
                hint = "with `device`, use one decoder with the same options for all files of a field"
                yield Finding(at, f"`{field}` is decoded {' and '.join(found)}", hint)


@rule(
    "E361",
    "a function of images that are not decoded yet",
    "With `device`, images are decoded after workers have sent them. Functions in `select` and `map`, and `expect`, "
    "run in workers and cannot use the pixels. Specify the field that a function changes, and transform the batch "
    "in the training loop.",
    keys="decode",
    bad="map: package.module:function\n" + _BATCH + _ON_GPU,
    good="map: {cls: package.module:function}\n" + _BATCH + _ON_GPU,
)
def functions_before_device(composition: Composition) -> Findings:
    """Sources with images for a device, and functions that get them before."""
    spec = composition.spec
    for leaf, source in right_sources(
        composition, "extensions", "rename", "decode", "map", "select", "expect"
    ):
        if not _uses_device(source):
            continue
        calls = [
            each
            for each in (*source.map, *spec.map)
            if each.field is None or _is_on_device(source, each.field)
        ]
        functions = [*source.selects, *(call.call for call in calls)]
        expected = () if source.expect is None else source.expect.fields
        if functions or any(_is_on_device(source, name) for name in expected):
            who = f"`{functions[0]}` gets" if functions else "`expect` checks"
            hint = "name the field that a function changes (`map: {txt: …}`), or remove `device`"
            at = leaf.node.value_or_self("decode")
            yield Finding(at, f"{who} images before they are decoded, because of `device`", hint)


def _uses_device(source: Source) -> bool:
    """Whether a decoder of a source has `device`."""
    decode = source.decode
    return decode is not None and any(map(_is_deferred, (*decode.names, *decode.fields.values())))


def _is_on_device(source: Source, field: str) -> bool:
    """Whether a field, by its name after `rename`, may be an image for a device."""
    return any(map(_is_deferred, decoders_of(source, field)))


def _is_deferred(decoder: str | None) -> bool:
    return decoder is not None and "device" in split_decoder(decoder)[1]


def _options(decoder: str | None) -> frozenset[str]:
    """The name and the options of a decoder, which may be in any order."""
    return frozenset((decoder or RAW).split("+"))


def _is_made_otherwise(spec: Spec) -> bool:
    """Whether batches are not made by stacking a known number of samples."""
    batch = spec.batch
    return (
        batch is None
        or spec.stage is not None
        or batch.group_by is not None
        or (batch.size is None and batch.global_size is None)
        or batch.ragged == "list"
        or bool(batch.collate and batch.collate.call)
    )


def _list_collated_fields(spec: Spec) -> set[str]:
    """The fields that `collate` names, other than to stack them."""
    batch = spec.batch
    if batch is None:
        return set()
    fields = {} if batch.collate is None else batch.collate.fields
    return {name for name, how in fields.items() if how.way != "stack"}


def _stacks(spec: Spec) -> bool:
    """Whether batches stack the fields that are not named elsewhere, as they were decoded."""
    batch = spec.batch
    return not (
        batch is None
        or any(call.field is None for call in spec.map)
        or batch.ragged == "list"
        or (batch.collate and batch.collate.call)
    )


def _list_stacked_images(source: Source, spec: Spec, others: Iterable[str] = ()) -> list[str]:
    """The fields of a source that may be images and are stacked as they were decoded.

    Args:
        others: names of fields of other sources, which this one may have as well.
    """
    kept = {name for entry in spec.to_tuple or spec.fields or () for name in entry.split(";")}
    renamed = {old for olds in source.rename.values() for old in olds}
    if any(call.field is None for call in source.map) or any(MAGIC.intersection(name) for name in kept):
        return []
    return [
        name
        for name in likely_fields(source, others)
        if name not in renamed and (not kept or name in kept) and name not in source.tags
        if not _is_collated(name, source, spec)
    ]


def _is_off(draft: Draft) -> bool:
    """Whether a source is never drawn."""
    model = draft.model
    return model is not None and 0 in (model.probability, model.weight, model.upsample)


def _form(decoder: str | None) -> _Form | None:
    """The form of the images that a decoder gives; None if it gives no images."""
    image = image_of(decoder)
    if image is None:
        return None
    options = option_values(str(decoder))
    crop = options.get("random_resized_crop") or options.get("center_crop")
    resize = options.get("resize")
    sides = (crop, crop) if isinstance(crop, int) else crop or (resize if isinstance(resize, tuple) else None)
    return _Form(image, sides)
