"""Rules for fields: those that no sample has, and how fields are decoded, scaled and changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from wdspec.base.errors import did_you_mean, nearest
from wdspec.spec.build import Composition
from wdspec.spec.language.decoders import (
    BY_NAME,
    DEFAULT_IMAGE_DECODER,
    IMAGE_FIELDS,
    RAW,
    DecoderRow,
    ImageSpec,
    choose_decoder,
    first_taking,
    key_for,
    makes_media,
    measures_of,
    split_decoder,
    split_packing,
)
from wdspec.spec.language.expressions import (
    Expression,
    ExpressionError,
    Path,
    PathBeforeMap,
    describe_path,
    parse_expression,
    suggest_path,
)
from wdspec.spec.language.making import behind, names_in
from wdspec.spec.language.samples import Call, Decode
from wdspec.spec.language.values import MASK
from wdspec.spec.problems import list_names
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shards import all_formats_of
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source
from wdspec.spec.tree import ListNode, MapNode, Node, Scalar, locate

MAGIC = frozenset("*?[")
"""Characters that make an item of `extensions` a pattern of several fields."""
_ALWAYS = frozenset({"__key__", "__url__", "__source__", MASK})
OF_FIELDS = ("extensions", "rename", "fetch", "lookup", "join", "make", "map", "tags")
"""Keys that say which fields samples have: if one has a wrong value, which ones they lack is not known."""
LARGEST_SCALE = 16

Known = dict[str, Sequence[str]]
"""The fields of each source whose fields are known, by the source's name."""


def right_sources(composition: Composition, *keys: str) -> list[tuple[Draft, Source]]:
    """The sources of the mix in which none of these keys has a wrong value."""
    return [(leaf, source) for leaf, source in composition.mixed if not leaf.bad.intersection(keys)]


def all_right_sources(composition: Composition, *keys: str) -> list[tuple[Draft, Source]]:
    """The same with the sources of companions, for rules about what is in one source."""
    return [(leaf, source) for leaf, source in composition.models if not leaf.bad.intersection(keys)]


def visible_fields(source: Source) -> tuple[str, ...] | None:
    """The names of the fields of every sample; None if they depend on the data or on user functions."""
    if (
        source.extensions is None
        or any(call.field is None for call in source.map)
        or any(MAGIC.intersection(e) for e in source.extensions)
    ):
        return None
    fields = dict.fromkeys(entry.split(";")[0] for entry in source.extensions)
    if len(fields) != len(source.extensions):
        return None
    for new, olds in source.rename.items():
        for old in olds:
            fields.pop(old, None)
        fields.setdefault(new)
    columns = [*source.fetch, *(name for lookup in source.lookup for name in lookup.names)]
    return tuple(dict.fromkeys((*fields, *columns, *(source.make and source.made_names), *source.tags)))


def _columns(source: Source) -> Iterator[str]:
    """The fields that tables add."""
    return (name for lookup in source.lookup for name in lookup.names)


def known_fields(sources: Iterable[tuple[Draft, Source]]) -> Known:
    """The fields of the sources whose fields are known."""
    found = ((leaf.name, visible_fields(source)) for leaf, source in sources)
    return {name: fields for name, fields in found if fields is not None}


def files_of(source: Source, field: str) -> list[tuple[str, str | None]]:
    """The suffixes of the files that a field may be made of, and the decoder of each; None for bytes."""
    olds = source.rename.get(field, (field,))
    files = {entry.split(";")[0]: entry.split(";") for entry in source.extensions or olds}
    suffixes = [suffix for old in olds for suffix in files.get(old, ()) if not MAGIC.intersection(suffix)]
    decode = source.decode or Decode()
    return [(suffix, choose_decoder(decode.names, decode.fields, field, suffix)) for suffix in suffixes]


def decoders_of(source: Source, field: str) -> list[str | None]:
    """The decoders that a field may have, one for each file that it may be made of; None for bytes."""
    return [decoder for _, decoder in files_of(source, field)]


def find_unreadable(at: Node, text: str, named: Mapping[str, str]) -> Findings:
    """Find what is wrong with the grammar of an expression."""
    try:
        parse_expression(text, named)
    except ExpressionError as error:
        column = at.column_at(error.column) if isinstance(at, Scalar) and at.value == text else None
        yield Finding(at, f"the expression {error.message}", error.hint, column)


def find_unknown(
    at: Node,
    names: Iterable[str],
    known: Known,
    sources: Iterable[tuple[Draft, Source]],
    *,
    before_map: Path | None = None,
    adder: Call | None = None,
    in_expression: bool = True,
) -> Findings:
    """Find fields that samples do not have.

    Args:
        at: the place that names the fields.
        names: the fields.
        known: the sources whose fields are known; those of "" are what `fields` or `to_tuple` keeps.
        sources: the sources that may have other fields, of which only `rename` is known.
        before_map: the path that is read before `map`, if the only field is read there.
        adder: a function of `map` that may set a field without saying so, for the hint.
        in_expression: whether the field is in an expression, where it may have a default.
    """
    listed, others = list(names), list(sources)
    if before_map is not None:
        renames = {leaf.name: source.rename for leaf, source in others}
        yield from find_absent(at, [before_map], known, renames, adder, in_expression)
    else:
        yield from _find_absent_here(at, listed, known)
    yield from _find_renamed(at, listed, others)


def _find_absent_here(at: Node, names: Iterable[str], known: Known) -> Findings:
    """Find fields that samples do not have after the steps so far."""
    for name in dict.fromkeys(names):
        if name.startswith("__") and name != MASK:
            continue
        for source, fields in known.items():
            if name not in fields:
                has = f"samples of `{source}` have" if source else "`to_tuple` or `fields` keeps"
                where = at.key_or_self(name) if isinstance(at, MapNode) else at
                hint = did_you_mean(name, fields) or "use the name of an existing field"
                yield Finding(
                    where, f"there is no field `{name[:60]}` here: {has} {list_names(fields, 8)}", hint
                )
                break


def _find_renamed(at: Node, names: Iterable[str], sources: Sequence[tuple[Draft, Source]]) -> Findings:
    """Find fields that `rename` gives another name, in sources whose other fields are not known.

    Those of sources whose fields are known are among the fields that samples do not have.
    """
    for name in dict.fromkeys(names):
        found = ((leaf.name, new) for leaf, source in sources if (new := _find_new_name(source, name)))
        for source, new in islice(found, 1):
            where = at.key_or_self(name) if isinstance(at, MapNode) else at
            message = f"there is no field `{name[:60]}` here: `rename` of `{source}` makes it `{new}`"
            yield Finding(where, message, f"write `{new}`")


def _find_new_name(source: Source, name: str) -> str | None:
    """The name that `rename` gives a field of all samples; None if it keeps its own, or if that is not known."""
    if any(call.field is None for call in source.map) or visible_fields(source) is not None:
        return None
    others = (*_columns(source), *(each for join in source.join for each in join.names))
    if name in source.rename or name in source.tags or name in others:
        return None
    return next((new for new, olds in source.rename.items() if name in olds), None)


def find_absent(
    at: Node,
    paths: Iterable[Path],
    known: Known,
    renames: Mapping[str, Mapping[str, Sequence[str]]],
    adder: Call | None = None,
    in_expression: bool = True,
) -> Findings:
    """Find fields that the samples of a source do not have before `map`.

    Args:
        at, known, adder, in_expression: as for `find_unknown`.
        paths: what is read, one path of each field.
        renames: the `rename` of each source, by the source's name.
    """
    for path in paths:
        name = str(path[0])
        for source, fields in known.items():
            if name not in fields and not name.startswith("__"):
                has = f"samples of `{source}` have {list_names(fields, 8)}"
                hint = suggest_path(path, fields, renames.get(source, {}))
                default = f", or write `default({describe_path(path)}, 0)`" * in_expression
                hint = hint or f"name one of these{default}"
                if adder is not None:
                    hint = f"if `{adder.call}` adds it, write `map: [{{call: '{adder.call}', sets: {name}}}]`"
                yield Finding(at, f"there is no field `{name[:60]}` before `map`: {has}", hint)
                break


def find_unmeasurable(
    at: Node,
    expression: Expression,
    sources: Sequence[tuple[Draft, Source]],
    set_by: Mapping[str, Collection[str]] = {},
) -> Findings:
    """Find parts of texts, integers and images that these do not have.

    Only in tars does the name of a field say what it is: a column `id` may be a text.

    Args:
        at: the place of the expression.
        expression: what reads the parts.
        sources: the sources.
        set_by: the fields of sources that are read after `map`, whose parts are not known.
    """
    paths = dict.fromkeys((path[:2], isinstance(path, PathBeforeMap)) for path in expression.paths)
    for (name, part), is_before in ((ends, before) for ends, before in paths if len(ends) > 1):
        for leaf, source in sources:
            others = (*source.tags, *source.made_names, *_columns(source))
            set_here = () if is_before else set_by.get(leaf.name, ())
            if name in others or name in set_here or all_formats_of(source) - {"tar"}:
                continue
            found = [measures_of(*file) for file in files_of(source, str(name))]
            measures = dict.fromkeys(each for known in found for each in known or ())
            if found and None not in found and part not in measures:
                path = describe_path((name, part))
                has = f"has {list_names(list(measures))}" if measures else "is an integer"
                hint = (
                    did_you_mean(str(part), list(measures))
                    or f"write `{describe_path((name, *measures)[:2])}`"
                )
                yield Finding(at, f"there is no `{path}`: `{name}` of `{leaf.name}` {has}", hint)
                break


def is_media(source: Source, suffix: str, decoder: str | None) -> bool:
    """Whether a file of a source is decoded to pixels, frames or sound."""
    ending = split_packing(suffix.lower())[0].rpartition(".")[2]
    return makes_media(decoder) or (source.scale is not None and ending in IMAGE_FIELDS)


def is_image(field: str) -> bool:
    """Whether a field is an image, judging by its name."""
    return field.rsplit(".", 1)[-1].lower() in IMAGE_FIELDS


@rule(
    "E308",
    "a field that no sample has",
    "`extensions` excludes a field that `rename`, `fields` or `to_tuple` requires, so every sample would raise an "
    "error.",
    keys="rename",
    bad="dataset:\n  - {shards: a.tar, extensions: png, rename: {image: jpg}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: png, rename: {image: png}}\n",
)
def unreadable_renames(composition: Composition) -> Findings:
    """New names for fields that `extensions` leaves out."""
    for leaf, source in all_right_sources(composition, "extensions", "rename", "fetch", "lookup"):
        patterns = [pattern for entry in source.extensions or () for pattern in entry.split(";")]
        patterns += (*source.fetch, *_columns(source)) if patterns else ()
        if not patterns or source.missing == "none" or any(MAGIC.intersection(each) for each in patterns):
            continue
        known = {pattern.lower() for pattern in patterns}
        for new, olds in source.rename.items():
            if known.isdisjoint(old.lower() for old in olds):
                at = locate(leaf.node.entries["rename"].value, (new,))
                kept = f"`extensions` keeps only {list_names(patterns, 8)}"
                hint = f"add `{olds[0]}` to `extensions`, or rename one of those"
                if new.lower() in known:
                    hint = f"write the new name first: `{{{olds[0]}: {new}}}`"
                yield Finding(at, f"`{new}` cannot be made from `{';'.join(olds)}`: {kept}", hint)


@rule(
    "E321",
    "a new name that another field has",
    "`rename` gives a field the name of another field that `extensions` keeps, so every sample would raise an error.",
    keys="rename",
    bad="dataset:\n  - {shards: a.tar, extensions: cls txt, rename: {cls: txt}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: cls txt, rename: {label: txt}}\n",
)
def taken_names(composition: Composition) -> Findings:
    """New names of fields that `extensions` requires and that are not renamed themselves."""
    for leaf, source in all_right_sources(composition, "extensions", "rename"):
        kept = {entry.split(";")[0] for entry in source.extensions or () if not MAGIC.intersection(entry)}
        kept -= {old for olds in source.rename.values() for old in olds}
        for new in source.rename if source.missing == "error" else ():
            if new in kept:
                at = locate(leaf.node.value_or_self("rename"), (new,))
                both = ";".join((new, *source.rename[new]))
                hint = f"choose another name, or prefer one of them: `{{{new}: {both}}}`"
                yield Finding(at, f"the samples of `{leaf.name}` have another field `{new}`", hint)


@rule("E308", keys="fields to_tuple")
def unknown_masks(composition: Composition) -> Findings:
    """`__mask__` outside of a pass."""
    if not composition.spec.is_pass and "epoch" not in composition.bad:
        for at, entry in _find_wanted(composition, "fields", "to_tuple"):
            if entry == MASK:
                hint = "remove it; all samples are real here"
                yield Finding(at, "only samples of `epoch: pass` have the field `__mask__`", hint)


@rule("E308", keys="fields to_tuple")
def absent_fields(composition: Composition) -> Findings:
    """Fields that no sample of a source has. User functions may add any field."""
    if composition.top.get("map") is not None or composition.top.get("map_batches") is not None:
        return
    known = [
        (leaf.name, fields, source)
        for leaf, source in right_sources(composition, *OF_FIELDS)
        if source.missing != "none" and (fields := visible_fields(source)) is not None
    ]
    for at, entry in _find_wanted(composition, "fields", "to_tuple"):
        for name, fields, source in known:
            if not _could_have(entry, fields):
                hint = f"it has {list_names(fields, 8)}; rename one, or write `missing: none`"
                hint = _advise_result(entry, source) or hint
                yield Finding(at, f"samples of `{name}` never have the field `{entry}`", hint)
                break
        for leaf, source in right_sources(composition, "extensions", "rename", "map", "tags"):
            new = [_find_new_name(source, name) for name in entry.split(";")]
            if None not in new and source.missing != "none":
                message = (
                    f"samples of `{leaf.name}` never have the field `{entry}`: `rename` makes it `{new[0]}`"
                )
                yield Finding(at, message, f"write `{new[0]}`")
                break


def _advise_result(entry: str, source: Source) -> str:
    """What makes a step make a further field that has the name of one of its options; empty if none does."""
    for name, recipe in source.make.items():
        for option in recipe.further:
            written = getattr(recipe, option)
            if option == entry and not written:
                return f"write `{option}: {option}` in `{recipe.step}` of `{name}`, which then makes it"
            if option == entry and isinstance(written, str):
                return f"`{recipe.step}` of `{name}` makes it under the name `{written}`: write that"
    return ""


@rule("E308", keys="to_tuple")
def dropped_fields(composition: Composition) -> Findings:
    """Fields of `to_tuple` that `fields` leaves out."""
    kept = composition.spec.fields
    if not kept or composition.top.get("map") is not None or any(MAGIC.intersection(each) for each in kept):
        return
    names = tuple(entry.split(";")[0] for entry in kept)
    for at, entry in _find_wanted(composition, "to_tuple"):
        if not _could_have(entry, names):
            hint = f"add it to `fields`, which keeps only {list_names(names, 8)}"
            yield Finding(at, f"`fields` removes `{entry}`, so `to_tuple` cannot have it", hint)


def _find_wanted(composition: Composition, *keys: str) -> Iterator[tuple[Node, str]]:
    """Yield the fields that keys ask samples for; a tuple may also have those that a batch adds."""
    batch = composition.spec.batch
    added = () if batch is None or "batch" in composition.bad else batch.added
    for key in keys:
        for index, entry in enumerate(getattr(composition.spec, key) or ()):
            if key == "to_tuple" and entry in added:
                continue
            yield locate(composition.top.entries[key].value, (index,)), entry


def _could_have(entry: str, fields: tuple[str, ...]) -> bool:
    return any(name in fields or name in _ALWAYS or MAGIC.intersection(name) for name in entry.split(";"))


@rule(
    "E316",
    "a field of map, where, expect or batch that no sample has",
    "`map`, `where`, `subset`, `expect` or a key of `batch` names a field that samples do not have at that point, "
    "so the run would fail at its first sample or batch.",
    keys="map",
    bad="batch: {size: 4, collate: {tokns: pad}}\ndataset:\n  - {shards: a.tar, extensions: tokens.npy,"
    " rename: {tokens: tokens.npy}}\n",
    good="batch: {size: 4, collate: {tokens: pad}}\ndataset:\n  - {shards: a.tar, extensions: tokens.npy,"
    " rename: {tokens: tokens.npy}}\n",
)
def mapped_fields(composition: Composition) -> Findings:
    """Fields in `map`, of a source or after mixing."""
    sources = right_sources(composition, *OF_FIELDS)
    for leaf, source in sources:
        if "map" in leaf.node.entries:
            own = [(leaf, source)]
            named = [call.field for call in source.map if call.field is not None]
            yield from find_unknown(leaf.node.entries["map"].value, named, known_fields(own), own)
    if "map" in composition.top.entries and not composition.bad & {"map", "fields", "to_tuple", "batch"}:
        # A function of whole samples may add any field.
        calls = takewhile(lambda call: call.field is not None, composition.spec.map)
        named = [call.field for call in calls if call.field is not None]
        others = right_sources(composition, "extensions", "rename", "map", "tags")
        yield from find_unknown(composition.top.entries["map"].value, named, known_fields(sources), others)


_LIKE_CALL = frozenset({"callable", "fn", "func", "function", "_target_", "transform", "transforms"})
"""Keys under which other tools expect a function."""


@rule(
    "W378",
    "a field that looks like the key `call`",
    "A map below `map` names fields, unless it has the key `call`. A misspelled `call` is read as a field.",
    keys="map",
    bad="map: [{cal: 'mylib:augment'}]\ndataset:\n  - {shards: a.tar}\n",
    good="map: [{call: 'mylib:augment'}]\ndataset:\n  - {shards: a.tar}\n",
)
def misspelt_calls(composition: Composition) -> Findings:
    """Fields of `map` that no source names and no decoder is for, such as `cal`."""
    named = {name for _, source in composition.models for name in (*source.rename, *source.tags)}
    named.update(each for _, source in composition.models for each in visible_fields(source) or ())
    holders = [(composition.top, composition.spec.map, composition.bad)]
    holders += [(leaf.node, source.map, leaf.bad) for leaf, source in composition.models]
    for node, calls, bad in holders:
        for field in dict.fromkeys(call.field for call in calls) if "map" not in bad else ():
            if field is None or field in named or field in BY_NAME or is_image(field):
                continue
            if field.lower() in _LIKE_CALL or nearest(field, ("call",)):
                at = _find_key(node.entries["map"].value, field)
                hint = "write `call` if it is a function of whole samples; if it is a field, name it in `extensions`"
                yield Finding(at, f"`{field[:60]}` is read as a field of the samples", hint)


def _find_key(at: Node, key: str) -> Node:
    """The key of a map, which may be in a list."""
    items = at.items if isinstance(at, ListNode) else (at,)
    return next((item.key(key) for item in items if isinstance(item, MapNode) and key in item.entries), at)


_TORCHVISION = re.compile(r"torchvision\.transforms\.v2:(?!To[A-Z]|Lambda|PILTo)")
"""Transforms that leave arrays as they are. Those that convert arrays, `ToImage` and others, may come before them."""


@rule(
    "W379",
    "a transform that ignores arrays",
    "Transforms of torchvision v2 change tensors and PIL images, and leave numpy arrays as they are, silently. Decode "
    "to a tensor, or put `torchvision.transforms.v2:ToImage` before them.",
    keys="map",
    bad="dataset:\n  - {shards: a.tar, extensions: jpg, decode: rgb8}\n"
    "map: {jpg: {call: 'torchvision.transforms.v2:RandomHorizontalFlip'}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: jpg, decode: torchrgb8}\n"
    "map: {jpg: {call: 'torchvision.transforms.v2:RandomHorizontalFlip'}}\n",
)
def ignored_arrays(composition: Composition) -> Findings:
    """Transforms of torchvision v2 that are the first function of images that are arrays."""
    if "map" in composition.bad:
        return
    reported: list[Node] = []  # a function of all sources is named once
    for leaf, source in right_sources(composition, "extensions", "rename", "decode", "map"):
        touched: set[str | None] = set()
        for call in (*source.map, *composition.spec.map):
            is_first = not touched & {call.field, None}
            touched.add(call.field)
            if not is_first or not _TORCHVISION.match(call.call):
                continue
            fields = (call.field,) if call.field is not None else likely_fields(source)
            decoders = [each for field in fields for each in decoders_of(source, field)]
            images = [(each, image) for each in decoders if (image := image_of(each)) is not None]
            own = call in source.map and "map" in leaf.node.entries
            holder = (leaf.node if own else composition.top).value_or_self("map")
            at = _find_key(holder, call.field or "call")
            is_numpy = bool(images) and all(image.container == "numpy" for _, image in images)
            if is_numpy and not any(at is each for each in reported):
                reported.append(at)
                name = call.call.rpartition(":")[2]
                message = f"`{name}` leaves images of `{leaf.name}` as they are, as they are numpy arrays"
                yield Finding(at, message, f"write `decode: {_twin(images[0][0])}`")


def image_of(decoder: str | None) -> ImageSpec | None:
    """What a decoder of images returns; None for others."""
    row = BY_NAME.get(split_decoder(decoder or "")[0])
    return None if row is None else row.image


def _twin(decoder: str | None) -> str:
    """The decoder of tensors that is like one of arrays, with its options."""
    base, *options = str(decoder).split("+")
    return "+".join((twin if (twin := f"torch{base}") in BY_NAME else f"torch{base.rstrip('16')}", *options))


class _Selection(NamedTuple):
    """An expression that chooses samples of a source."""

    draft: Draft
    source: Source
    key: str
    at: Node
    text: str
    named: Mapping[str, str]
    """The `costs` that it may use, by name."""

    def find_unreadable(self) -> Findings:
        """Find what is wrong with its grammar."""
        return find_unreadable(self.at, self.text, self.named)

    def parse(self, *keys: str) -> Expression | None:
        """Parse it; None if that is impossible, or if one of these keys of the source has a wrong value."""
        if self.draft.bad.intersection(keys) or any(True for _ in self.find_unreadable()):
            return None
        return parse_expression(self.text, self.named)


def _list_selections(composition: Composition) -> Iterator[_Selection]:
    """The expressions in `where`, `subset` and `keys_of`."""
    costs = {} if "costs" in composition.bad else composition.spec.costs
    for leaf, source in composition.models:
        if source.where is not None and "where" not in leaf.bad:
            at = leaf.node.value_or_self("where")
            yield _Selection(leaf, source, "where", at, source.where, costs)
        if source.subset is not None and source.subset.of is not None and "subset" not in leaf.bad:
            at = locate(leaf.node.value_or_self("subset"), ("of",))
            yield _Selection(leaf, source, "subset", at, source.subset.of, {})
        if source.keys_of is not None and "keys_of" not in leaf.bad:
            at = leaf.node.value_or_self("keys_of")
            yield _Selection(leaf, source, "keys_of", at, source.keys_of, {})


@rule("E330", keys="where subset keys_of")
def unreadable_selections(composition: Composition) -> Findings:
    """Expressions of `where` and `subset` that are not in the grammar, or read no field."""
    for each in _list_selections(composition):
        yield from each.find_unreadable()
        expression = each.parse()
        if expression is None:
            continue
        if not expression.paths:
            message = "the expression reads no field, so it is the same for every sample"
            yield Finding(each.at, message, _SELECTION_HINTS[each.key])
        elif each.key != "where" and expression.source != "v0":
            key = "of" if each.key == "subset" else each.key
            message = f"`{key}` is one field, or one value in it, not an expression"
            yield Finding(each.at, message, _SELECTION_HINTS[each.key])


_SELECTION_HINTS = {
    "where": "write for example `json.score >= 0.5`",
    "subset": "write for example `of: json.user`",
    "keys_of": "write for example `keys_of: json.uid`",
}


@rule("E316", keys="where subset keys_of")
def selecting_fields(composition: Composition) -> Findings:
    """Fields in `where` and `subset`, which are read before `map`."""
    for each in _list_selections(composition):
        expression = each.parse("decode", *OF_FIELDS)
        if expression is None:
            continue
        source = each.source
        fields = visible_fields(source.model_copy(update={"map": ()}))
        if fields is not None:
            asides = source.asides(each.named)
            needed = [path for path in expression.needed if path[0] not in asides]
            yield from find_absent(
                each.at, needed, {each.draft.name: fields}, {each.draft.name: source.rename}
            )
        yield from find_unmeasurable(each.at, expression, [(each.draft, source)])


@rule(
    "W392",
    "a field of where that looks like another one",
    "`where` and `subset` may read a file that `extensions` does not ask for; it is read for them alone. If its name "
    "is nearly that of a field, it is probably misspelled; if it is compared with a value, it is probably a text "
    "without its quotes. The run would end with its first sample.",
    keys="where subset keys_of",
    bad="dataset:\n  - {shards: a.tar, extensions: jpg json, where: josn.score > 1}\n",
    good="dataset:\n  - {shards: a.tar, extensions: jpg, where: json.score > 1}\n",
)
def misspelt_asides(composition: Composition) -> Findings:
    """Files that only `where` or `subset` reads, and whose names are close to those of fields."""
    for each in _list_selections(composition):
        expression = each.parse("extensions", "rename", "lookup", "tags", "make")
        fields = field_names(each.source)
        if expression is None or fields is None:
            continue
        asides, made = each.source.asides(each.named), each.source.make and each.source.made_names
        for path in expression.paths:
            name = str(path[0])
            is_known = name in BY_NAME or any(name in row.extensions for row in BY_NAME.values())
            if name not in asides or is_known:
                continue
            if hint := suggest_path(path, (*made, *fields), each.source.rename):
                message = f"`{name[:60]}` is not among the fields of `{each.draft.name}`"
                yield Finding(each.at, message, hint)


@rule("E316", keys="expect")
def expected_fields(composition: Composition) -> Findings:
    """Fields in `expect`, which is checked after `map` and `tags` of the source."""
    for leaf, source in right_sources(composition, "expect", *OF_FIELDS):
        if source.expect is not None:
            at, own = locate(leaf.node.value_or_self("expect"), ("fields",)), [(leaf, source)]
            yield from find_unknown(at, source.expect.fields, known_fields(own), own)


@rule("E316", keys="collate")
def batched_fields(composition: Composition) -> Findings:
    """Fields in `collate`."""
    spec = composition.spec
    if spec.batch is None or composition.bad & {"map", "fields", "to_tuple", "batch"}:
        return
    known: Known = {}
    sources: Sequence[tuple[Draft, Source]] = ()
    if kept := spec.to_tuple or spec.fields:
        if not any(MAGIC.intersection(name) for name in kept):
            known = {"": [entry.split(";")[0] for entry in kept]}
    elif not any(call.field is None for call in spec.map):
        known = known_fields(right_sources(composition, *OF_FIELDS))
        sources = right_sources(composition, "extensions", "rename", "map", "tags")
    at = locate(composition.top.entries["batch"].value, ("collate",))
    collated = {} if spec.batch.collate is None else spec.batch.collate.fields
    for name, way in collated.items():
        padded = [
            each
            for each, other in collated.items()
            if other.padding and not other.padding.added and each != name
        ]
        ids = next((each for each in padded if each.endswith("ids")), next(iter(padded), "input_ids"))
        for found in find_unknown(at, [name], known, sources):
            is_mask = way.padding is not None and "mask" in name
            hint = f"write `{ids}: {{pad: {{mask: {name}}}}}`, which adds it to the batch, and remove it here"
            yield found._replace(hint=hint) if is_mask else found


@rule(
    "E315",
    "a key of decode that matches no field",
    "The keys of `decode` are names of fields, or file suffixes, from any dot on. With `extensions`, all fields are "
    "known. A key that matches none of them has no effect; it is probably misspelled.",
    keys="decode",
    bad="dataset:\n  - {shards: a.tar, extensions: jpg txt, decode: {jgp: rgb8}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: jpg txt, decode: {jpg: rgb8}}\n",
)
def unmatched_decode_keys(composition: Composition) -> Findings:
    """Keys without effect: in the source that has them, or in `defaults` if no source uses them."""
    inherited: dict[str, tuple[Draft, Sequence[str]] | None] = {}
    for draft, source in all_right_sources(composition, "extensions", "rename", "decode"):
        names = field_names(source)
        own = draft.own.get("decode")
        for key in source.decode.fields if source.decode is not None else ():
            if MAGIC.intersection(key):
                names = names or ()
            unused = None if names is None or _matches(key, names, source) else (draft, names)
            if isinstance(own, MapNode) and own.get(key) is not None:
                if unused is not None:
                    yield _find_unmatched(key, *unused)
            elif unused is None:
                inherited[key] = None
            else:
                inherited.setdefault(key, unused)
    yield from (_find_unmatched(key, *unused) for key, unused in inherited.items() if unused is not None)


def field_names(source: Source) -> tuple[str, ...] | None:
    """The names that fields of a source may have after renaming; None if they depend on the data."""
    if source.extensions is None or any(MAGIC.intersection(entry) for entry in source.extensions):
        return None
    files = (entry.split(";")[0] for entry in source.extensions)
    return tuple(dict.fromkeys((*source.rename, *files, *_columns(source))))


def likely_fields(source: Source, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The names that fields of a source may have after renaming, as far as the spec shows.

    Without `extensions`, they are those that keys name, and some image for all that decoders of whole samples decode.

    Args:
        others: names of fields of other sources, which this one may have as well if its names depend on the data.
    """
    names = field_names(source)
    if names is not None:
        return names
    renamed = (old for olds in source.rename.values() for old in olds)
    some = () if any(map(is_image, renamed)) else ("jpg",)
    decoded = () if source.decode is None else source.decode.fields
    return tuple(dict.fromkeys((*source.rename, *decoded, *some, *others)))


def _matches(key: str, names: Sequence[str], source: Source) -> bool:
    suffixes = (part for entry in source.extensions or () for part in entry.split(";"))
    return key in names or any(key_for((key,), "", suffix) is not None for suffix in suffixes)


def _find_unmatched(key: str, draft: Draft, names: Sequence[str]) -> Finding:
    at = locate(draft.node.entries["decode"].value, (key,))
    if MAGIC.intersection(key):
        hint = "write `decode: rgb8` or a list of decoders, without a map, for all fields"
        return Finding(at, f"keys of `decode` cannot be patterns: no field is called `{key[:60]}`", hint)
    hint = did_you_mean(key, names) or "use a field or a suffix that `extensions` keeps"
    return Finding(at, f"no field is called `{key[:60]}`: `{draft.name}` has {list_names(names, 8)}", hint)


@rule(
    "E305",
    "a batch of samples with different fields",
    "A batch stacks samples field by field, so they all need the same fields. Without `batch` they may differ.",
    keys="batch",
    bad="batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg, decode: rgb8}\n"
    "  - {shards: b.tar, extensions: nrm.jpg, decode: rgb8}\n",
    good="batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg, decode: rgb8}\n"
    "  - {shards: b.tar, extensions: nrm.jpg, decode: rgb8, rename: {jpg: nrm.jpg}}\n",
)
def unlike_batches(composition: Composition) -> Findings:
    """The first source with other fields than the first one, unless `map`, `fields` or `to_tuple` may change them."""
    spec = composition.spec
    batched = spec.batch is not None and spec.mix.unit != "batch"
    if not batched or spec.fields or spec.to_tuple or composition.top.get("map") is not None:
        return
    found = ((leaf, visible_fields(source)) for leaf, source in right_sources(composition, *OF_FIELDS))
    known = [(leaf, fields) for leaf, fields in found if fields is not None]
    unlike = next((each for each in known if set(each[1]) != set(known[0][1])), None)
    if unlike is not None:
        yield _describe_unlike(*known[0], *unlike)


def _describe_unlike(first: Draft, others: Sequence[str], draft: Draft, fields: Sequence[str]) -> Finding:
    message = f"`{draft.name}` has {list_names(fields, 8)}, but `{first.name}` has {list_names(others, 8)}"
    images = [next(filter(is_image, names), None) for names in (others, fields)]
    if images[0] and images[1] and images[0] != images[1]:
        hint = f"write `rename: {{image: {images[0]}}}` in `{first.name}` and `rename: {{image: {images[1]}}}` here"
    else:
        hint = "give them the same fields with `extensions`, `rename` or the top level's `fields`"
    stated = [draft.own.key(key) for key in ("extensions", "rename") if key in draft.own.entries]
    at: Node = stated[0] if stated else draft.node
    return Finding(at, f"samples of a batch need the same fields: {message}", hint)


@rule(
    "E309",
    "scale without decoding",
    "Images that are not decoded cannot be rescaled.",
    keys="scale scaleprob",
    bad="dataset:\n  - {shards: a.tar, scale: 0.5, decode: raw}\n",
    good="dataset:\n  - {shards: a.tar, scale: 0.5, decode: rgb8}\n",
)
def scaled_bytes(composition: Composition) -> Findings:
    """Sources that rescale images but do not decode them."""
    for leaf, source in composition.models:
        decode = source.decode
        if source.scale is None or decode is None:
            continue
        names = (*source.rename, *decode.fields)
        files = ((name, *file) for name in names for file in files_of(source, name))
        field = next((name for name, suffix, how in files if how == RAW and is_image(suffix)), None)
        if first_taking(decode.names, "jpg") == RAW or field is not None:
            what = f"`{field}: raw`" if field in decode.fields else "`raw`"
            hint = f"decode images, for example with `{DEFAULT_IMAGE_DECODER}`, or write `scale: 1`"
            message = f"{what} leaves images as bytes, but this source rescales them"
            yield Finding(leaf.node.entries["decode"].value, message, hint)


@rule(
    "W372",
    "scaleprob alone",
    "`scaleprob` is the probability that a sample is rescaled, not a share of the mix. Without `scale`, factors are "
    "drawn from [0.5, 2.0].",
    keys="scaleprob",
    bad="dataset:\n  - {shards: a.tar, scaleprob: 0.3}\n",
    good="dataset:\n  - {shards: a.tar, scaleprob: 0.3, scale: [0.5, 2.0]}\n",
)
def scaleprob_alone(composition: Composition) -> Findings:
    """A `scaleprob` above 0 in a source without `scale`."""
    for leaf, source in composition.models:
        if leaf.node.get("scaleprob") is not None and leaf.node.get("scale") is None and source.scaleprob > 0:
            hint = "write `scale: [0.5, 2.0]`; a share of the mix is `probability` or `weight`"
            yield Finding(leaf.node.key("scaleprob"), "samples are rescaled by factors from 0.5 to 2", hint)


@rule(
    "W377",
    "a scale that looks like a size",
    "`scale` is the factor by which width and height are multiplied: with 224, an image of 100 by 100 pixels becomes "
    "one of 22,400 by 22,400. To resize images, use an option of the decoder.",
    keys="scale",
    bad="dataset:\n  - {shards: a.tar, scale: 224}\n",
    good="dataset:\n  - {shards: a.tar, scale: 0.5}\n",
)
def sizes_as_scales(composition: Composition) -> Findings:
    """Factors above sixteen."""
    for leaf, source in all_right_sources(composition, "scale"):
        if source.scale is not None and source.scale[1] > LARGEST_SCALE:
            message = f"`scale` is a factor: images become {source.scale[1]:g} times as wide and as high"
            hint = "write a factor such as `0.5`; to resize images write `decode: rgb8+resize=224`"
            yield Finding(leaf.node.value_or_self("scale"), message, hint)


@rule(
    "W375",
    "a field that is named twice",
    "The second name has no effect; perhaps another field was meant. Letter case is ignored in the suffixes of files: "
    "`jpg` also takes `JPG`, but not `jpeg`.",
    keys="fields extensions rename",
    bad="fields: jpg jpg\ndataset:\n  - shards: a.tar\n",
    good="fields: jpg cls\ndataset:\n  - shards: a.tar\n",
)
def repeated_fields(composition: Composition) -> Findings:
    """Repeated names in `fields`, `extensions` and `rename`. In a tuple they may be intended."""
    holders = [(composition.top, "fields", composition.spec.fields)]
    holders += [(leaf.node, "extensions", source.extensions) for leaf, source in composition.models]
    for node, key, entries in holders:
        named = [*(entries or ()), *(f"{entry};" for entry in entries or () if _repeats(entry.split(";")))]
        twice = [entry for entry, count in Counter(named).items() if count > 1 or entry.endswith(";")]
        if twice and key in node.entries:
            yield _describe_repeated(node, key, twice[0].rstrip(";").split(";"))
    for leaf, source in composition.models:
        for new, olds in source.rename.items():
            if _repeats(olds) and "rename" in leaf.node.entries:
                at = locate(leaf.node.entries["rename"].value, (new,))
                yield Finding(at, f"`{';'.join(olds)}` names a field twice", "name each alternative once")


def _describe_repeated(node: MapNode, key: str, names: Sequence[str]) -> Finding:
    again = next((name for n, name in enumerate(names) if _repeats(names[: n + 1])), names[0])
    kept = ";".join(name for n, name in enumerate(names) if not n or not _repeats(names[: n + 1]))
    reason = ", as letter case is ignored" * (names.count(again) == 1)
    hint = "name it once" if len(names) == 1 else f"write `{kept}`{reason}"
    return Finding(node.entries[key].value, f"`{key}` names `{again}` twice", hint)


def _repeats(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


@rule(
    "W380",
    "a tag that replaces a field",
    "Tags are added to each sample after the `map` of the source. A tag with the name of a field replaces its value.",
    keys="tags",
    bad="dataset:\n  - {shards: a.tar, extensions: jpg txt, tags: {txt: web}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: jpg txt, tags: {origin: web}}\n",
)
def replacing_tags(composition: Composition) -> Findings:
    """Tags with the names of fields that `extensions` or `rename` names."""
    for leaf, source in right_sources(composition, "extensions", "rename", "tags"):
        renamed = {old for olds in source.rename.values() for old in olds}
        names = {entry.split(";")[0] for entry in source.extensions or ()} - renamed | source.rename.keys()
        for name in source.tags:
            if name in names:
                at = leaf.node.value_or_self("tags")
                where = at.key_or_self(name) if isinstance(at, MapNode) else at
                hint = "choose another name for the tag, or remove the field from `extensions`"
                yield Finding(where, f"the tag `{name}` replaces the field `{name}` of `{leaf.name}`", hint)


@rule(
    "W376",
    "a field that is read but not used",
    "`extensions` asks for files that `fields` or `to_tuple` leaves out. They are read and decoded for nothing.",
    keys="fields to_tuple",
    bad="to_tuple: jpg cls\ndataset:\n  - {shards: a.tar, extensions: jpg cls json}\n",
    good="to_tuple: jpg cls\ndataset:\n  - {shards: a.tar, extensions: jpg cls}\n",
)
def unused_fields(composition: Composition) -> Findings:
    """Fields of a source that are left out later, unless user functions may use them."""
    kept = composition.spec.to_tuple or composition.spec.fields
    if (
        not kept
        or composition.spec.map
        or composition.spec.map_batches
        or any(MAGIC.intersection(entry) for entry in kept)
    ):
        return
    taken = {name for entry in kept for name in entry.split(";")}
    for leaf, source in right_sources(composition, *OF_FIELDS):
        fields = visible_fields(source)
        if fields is None or "dropped" in source.drops:
            continue
        used = taken.union(*(names_in(source.make[name]) for name in behind(source.make, taken)))
        dropped = [name for name in fields if name not in (*used, *source.tags, *source.made_names)]
        if dropped:
            message = (
                f"{list_names(dropped)} of `{leaf.name}` is read, but `fields` or `to_tuple` leaves it out"
            )
            yield Finding(leaf.node.value_or_self("extensions"), message, "remove it from `extensions`")


_LIKE_LABELS = re.compile(r"label|mask|segm|panoptic|semantic|trimap|class_?map|id_?map")
"""In the name of a lossless image: its values are probably classes."""
_NEAREST = frozenset({"seg", "mask"})
"""Parts of names of which the images are resized by nearest neighbour."""
_RESIZING = frozenset({"resize", "random_resized_crop", "bucket"})
_LOSSY = frozenset({"jpg", "jpeg", "jpe", "jfif", "webp", "jp2", "avif"})


def describe_interpolated(source: Source) -> Iterator[tuple[str, str, str]]:
    """Yield the key of `decode`, what is seen and what to do for images of labels that are resized by interpolation."""
    for field in field_names(source) or ():
        for suffix, decoder in files_of(source, field):
            options = split_decoder(decoder or "")[1]
            if image_of(decoder) is None or not options & _RESIZING or "interpolation" in options:
                continue
            names = f"{field}.{suffix}".lower()
            is_nearest = bool(_NEAREST & {*field.lower().split("."), *suffix.lower().split(".")})
            if is_nearest or not _LIKE_LABELS.search(names) or suffix.rpartition(".")[2].lower() in _LOSSY:
                continue
            seen = (
                f"`{field}` of `{source.name}` is resized by bilinear interpolation, which mixes neighbouring values: "
                "if they are classes, the results are other classes"
            )
            hint = (
                f"write `{field}: {decoder}+interpolation=nearest` in `decode`, or `interpolation=bilinear` if they "
                "are no classes"
            )
            yield field, seen, hint


@rule("W520", keys="decode")
def interpolated_labels(composition: Composition) -> Findings:
    """Images that have the name of labels, and are resized by interpolation."""
    for leaf, source in all_right_sources(composition, "extensions", "rename", "decode"):
        for field, message, hint in describe_interpolated(source):
            yield Finding(locate(leaf.node.value_or_self("decode"), (field,)), message, hint)


@rule(
    "W340",
    "a decoder for none of the fields",
    "A decoder without the name of a field decodes the fields whose name ends with a suffix that it takes, such as "
    "`jpg` or `image`. If a source has none, its fields stay bytes.",
    keys="decode",
    bad="dataset:\n  - {shards: a.parquet, extensions: photo label, decode: rgb8}\n",
    good="dataset:\n  - {shards: a.parquet, extensions: photo label, decode: {photo: rgb8}}\n",
    warns_at_load=True,
)
def decoders_of_no_field(composition: Composition) -> Findings:
    """Decoders of images, sound and videos in a source that have no field to decode."""
    for leaf, source in all_right_sources(composition, "extensions", "rename", "decode"):
        fields = field_names(source)
        if fields is None or source.decode is None or "decode" not in leaf.own.entries:
            continue
        suffixes = [suffix for field in fields for suffix, _ in files_of(source, field)]
        for name in source.decode.names:
            base = split_decoder(name)[0]
            row = BY_NAME.get(base)
            if row is None or not makes_media(name) or any(_takes(row, base, each) for each in suffixes):
                continue
            free = [field for field in fields if choose_decoder((), {}, field, field) is None] or [*fields]
            message = f"`decode: {name}` decodes no field of `{leaf.name}`, which has {list_names(fields, 8)}"
            hint = f"name the field, such as `decode: {{{free[0]}: {name}}}`"
            yield Finding(leaf.node.value_or_self("decode"), message, hint)


def _takes(row: DecoderRow, name: str, suffix: str) -> bool:
    return row.takes(name, split_packing(suffix.lower())[0].rpartition(".")[2])
