"""Rules for `companions`: names that do not exist, keys that have no meaning, and what cannot read companions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from wdspec.base.errors import did_you_mean
from wdspec.spec.build import Composition
from wdspec.spec.companions import NOT_FOR_COMPANIONS
from wdspec.spec.language.batch import Batch
from wdspec.spec.language.expressions import PathBeforeMap, describe_path, paths_read_by, suggest_path
from wdspec.spec.language.making import in_order, names_in, names_made
from wdspec.spec.language.samples import Call
from wdspec.spec.problems import list_names
from wdspec.spec.rules.fields import visible_fields
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source
from wdspec.spec.tree import MapNode, locate, plain


def _accompanied(composition: Composition) -> Iterator[tuple[Draft, Source, MapNode]]:
    """The sources of the mix with right companions, and the map."""
    for leaf, source in composition.mixed:
        node = leaf.node.map_at("companions")
        if node is not None and source.companions:
            yield leaf, source, node


@rule(
    "E372",
    "companions of a source that does not exist",
    "`source` names an entry of `companions` at the top level. Companions are not in the mix: a source of `dataset` "
    "cannot be one, nor can a source be its own companion. For samples of the same shards, give these to an entry of "
    "`companions`: it is read by itself, in another order.",
    keys="companions",
    bad="companions: {musan: {shards: musan.tar}}\n"
    "dataset:\n  - {shards: a.tar, companions: {noise: muzan}, make: {near: {take: noise.txt}}}\n",
    good="companions: {musan: {shards: musan.tar}}\n"
    "dataset:\n  - {shards: a.tar, companions: {noise: musan}, make: {near: {take: noise.txt}}}\n",
)
def unknown_companions(composition: Composition) -> Findings:
    """Names that no entry of `companions` has."""
    known = {draft.name: draft for draft in composition.companions}
    mixed = {leaf.name: leaf for leaf in composition.leaves}
    split, named = composition.variant.split, composition.top.get("companions")
    if named is not None and not isinstance(named, MapNode):
        return  # E202 reports it
    written = () if named is None else named.entries  # perhaps without shards, which is reported
    for leaf, source, node in _accompanied(composition):
        for field, companion in source.companions.items():
            if companion.source in known or companion.source in written:
                continue
            at, name = locate(node, (field, "source")), companion.source[:60]
            if companion.source in mixed:
                what = f"`{name}` would be its own companion"
                if companion.source != leaf.name:
                    what = f"`{name}` is a source of `dataset`, and companions are not in the mix"
                shards = plain(mixed[companion.source].node.value_or_self("shards"))
                texts = [f'"{each}"' for each in (shards if isinstance(shards, list) else [shards])]
                listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
                hint = f"give its shards to an entry of `companions`: `companions: {{pool: {{shards: {listed:.200}}}}}`"
                yield Finding(at, what, hint)
                continue
            where = "" if split is None else f" in the split `{split}`"
            hint = did_you_mean(companion.source, known) or "write them at the top level: `companions: "
            if not hint.endswith("?"):
                hint += f"{{{name}: {{shards: {name}-*.tar}}}}`"
            yield Finding(at, f"there are no companions `{name}`{where}", hint)


@rule(
    "E373",
    "a key that companions cannot have",
    "Companions are read as often as samples need them, so keys about shares and passes have no meaning: `weight`, "
    "`max_passes`, `repeat` and others. Companions are one source, without a nested mix or another spec, and have no "
    "companions of their own.",
    keys="companions",
    bad="companions: {musan: {shards: musan.tar, max_passes: 2, samples: 10}}\n"
    "dataset:\n  - {shards: a.tar, companions: {noise: musan}, make: {near: {take: noise.txt}}}\n",
    good="companions: {musan: {shards: musan.tar}}\n"
    "dataset:\n  - {shards: a.tar, companions: {noise: musan}, make: {near: {take: noise.txt}}}\n",
)
def meaningless_keys(composition: Composition) -> Findings:
    """Keys of sources that those of companions cannot have."""
    for draft in composition.companions:
        for key in draft.own.entries:
            if key in NOT_FOR_COMPANIONS and draft.own.get(key) is not None:
                hint = "remove it: companions are read as often as samples need them"
                hint = "the key above is its name; remove it" if key == "name" else hint
                if key in ("dataset", "spec", "mix", "defaults", "companions"):
                    hint = "remove it: companions are one source with `shards`"
                yield Finding(draft.own.key(key), f"`{key}` has no meaning for companions", hint)


@rule(
    "E374",
    "companions under the name of another field",
    "Companions are a field of the sample until `map` is done, so the field must have a name of its own.",
    keys="companions",
    bad="dataset:\n  - {shards: a.tar, extensions: txt wav, companions: {wav: {shards: musan.tar}}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: txt wav, companions: {noise: {shards: musan.tar}}, "
    "make: {near: {take: noise.wav}}}\n",
)
def taken_names(composition: Composition) -> Findings:
    """Fields of companions that samples have, or get in another way."""
    for leaf, source, node in _accompanied(composition):
        known = visible_fields(source.model_copy(update={"make": {}, "tags": {}, "map": ()})) or ()
        columns = [name for lookup in source.lookup for name in lookup.names]
        for field in source.companions:
            if field in (*known, *source.rename, *columns, *source.tags, *source.made_names):
                hint = "choose another name for the companions"
                yield Finding(
                    node.key_or_self(field), f"samples of `{leaf.name}` have another field `{field}`", hint
                )


def _of_companions(source: Source) -> Mapping[str, str]:
    """The fields of a source that depend on companions → the field of these."""
    found = {field: field for field in source.companions}
    for name in in_order(source.make):
        recipe = source.make[name]
        origin = next((each for each in sorted(names_in(recipe)) if each in found), None)
        if origin is not None:
            found |= dict.fromkeys((name, *recipe.results), found[origin])
    return found


@rule(
    "E375",
    "an expression that cannot read companions",
    "Only samples that are kept get companions, so `where`, `subset` and `keys_of` cannot read them, nor a field that "
    "`make` makes of them. In a pass, batches by cost are planned before companions are drawn, so `cost` and the "
    "expressions next to it cannot read them either, nor a field that a function of whole samples sets, which may read "
    "them.",
    keys="companions",
    bad="dataset:\n  - {shards: a.tar, companions: {noise: {shards: musan.tar}}, where: noise.txt.length > 3}\n",
    good="dataset:\n  - {shards: a.tar, companions: {noise: {shards: musan.tar, where: txt.length > 3}}, "
    "make: {near: {take: noise.txt}}}\n",
)
def early_companions(composition: Composition) -> Findings:
    """Expressions that are evaluated before companions are drawn."""
    spec, costs = composition.spec, {} if "costs" in composition.bad else composition.spec.costs
    batch = spec.batch if spec.is_pass and "batch" not in composition.bad else None
    for leaf, source, _ in _accompanied(composition):
        fields = _of_companions(source)
        for key in ("where", "subset", "keys_of"):
            by_value = source.subset.of if source.subset else None
            text = by_value if key == "subset" else getattr(source, key)
            read = [] if key in leaf.bad else [str(path[0]) for path in paths_read_by(text, costs)]
            if origin := next((fields[each] for each in read if each in fields), None):
                hint = (
                    f"write `{key}` in the companions" if key != "keys_of" else "read a field of the samples"
                )
                what = f"`{key}` reads the companions `{origin}`, which only samples that are kept get"
                yield Finding(leaf.node.value_or_self(key), what, hint)
        if batch is None or not batch.has_windows:
            continue
        if found := _reads_early(batch, source, spec.map, fields, costs):
            origin, why, hint = found
            what = (
                f"batches of a pass are planned before the companions `{origin}` of `{leaf.name}` are drawn"
            )
            yield Finding(composition.top.value_or_self("batch"), what + why, hint)


def _reads_early(
    batch: Batch, source: Source, later: Sequence[Call], fields: Mapping[str, str], costs: Mapping[str, str]
) -> tuple[str, str, str] | None:
    """Return the companions that batches by cost depend on, or may depend on; why, if that is not plain; and a hint.

    Args:
        later: the functions of the spec, which are called after those of the source.
        fields: the fields that depend on companions, and on which.
    """
    without, first = "use an epoch without `pass`", min(source.companions)
    maps = (*source.map, *later)
    whole = [call for call in maps if call.field is None]
    if batch.is_by_function and (whole or len(fields) > len(source.companions)):
        why = f", and `{batch.cost}` may read what is made of them"
        return first, why, f"write `cost` as an expression of other fields, or {without}"
    packed = () if batch.pack is None else batch.pack.fields
    paths = [path for text in batch.expressions for path in paths_read_by(text, costs)]
    named = (*packed, *(str(path[0]) for path in paths))
    if origin := next((fields[each] for each in named if each in fields), None):
        made = next(each for each in named if each in fields)
        plain = _find_plain(source, made, fields)
        if plain is not None:
            without = f"let `batch` read `{plain}`, which `{made}` is made from, or {without}"
        return origin, "", without
    read = {*packed, *(path[0] for path in paths if not isinstance(path, PathBeforeMap))}
    set_after = [field for call in maps for field in call.set_fields if field in read]
    for call in whole:
        may_set = set_after if call.sets is None else [each for each in set_after if each in call.sets]
        if may_set:
            field, name = may_set[0], call.call[:60]
            hint = f"let `make` set `{field}`, or a function of one field (`map: {{{field}: {name}}}`), or {without}"
            if call.sets is None:
                hint = f"name the fields that it sets (`{{call: {name}, sets: […]}}`), or {without}"
            return first, f", and `{name}`, which may set `{field}`, may read them", hint
    return None


def _find_plain(source: Source, name: str, fields: Mapping[str, str]) -> str | None:
    """Return what a made field is made from in the end, if that does not depend on companions."""
    while name in fields and name in source.make:
        name = str(source.make[name].origins[0][0])
    return None if name in fields else name


@rule(
    "E376",
    "companions in a batch",
    "Companions leave the sample after `map`, so that they need not be collated. What is to stay is made: "
    "`make: {negative: {take: wrong.text}}`.",
    keys="companions",
    bad="dataset:\n  - {shards: a.tar, companions: {wrong: {shards: pool.tar}}}\nfields: [txt, wrong]\n",
    good="dataset:\n  - {shards: a.tar, companions: {wrong: {shards: pool.tar}}, make: {negative: {take: wrong.txt}}}\n"
    "fields: [txt, negative]\n",
)
def delivered_companions(composition: Composition) -> Findings:
    """Companions in `fields` or `to_tuple`."""
    names = {field for _, source, _ in _accompanied(composition) for field in source.companions}
    for key in ("fields", "to_tuple"):
        entries = () if key in composition.bad else getattr(composition.spec, key) or ()
        for field in sorted(names.intersection(name for entry in entries for name in entry.split(";"))):
            hint = f"take a value of them: `make: {{other: {{take: {field}.txt}}}}`, and write `other` here"
            at = composition.top.value_or_self(key)
            yield Finding(at, f"the companions `{field}` never go into a batch", hint)


@rule("E370", keys="companions")
def unmakeable_of_companions(composition: Composition) -> Findings:
    """Fields that are made of a value which companions surely do not have."""
    for leaf, source, _ in _accompanied(composition):
        making = leaf.node.map_at("make")
        for name, recipe in source.make.items() if making is not None and "make" not in leaf.bad else ():
            for path in recipe.origins:
                companion = source.companions.get(str(path[0]))
                other = None if companion is None else composition.spec.companions.get(companion.source)
                if other is None or making is None:
                    continue
                at = making.value_or_self(name)
                if len(path) == 1:
                    hint = f"write the field: `{path[0]}.txt`"
                    yield Finding(
                        at, f"`{path[0]}` is a whole companion, and `{recipe.step}` needs one value", hint
                    )
                    continue
                rest = path[2:] if isinstance(path[1], int) else path[1:]
                known = visible_fields(other)
                if (
                    known is None
                    or not rest
                    or rest[0] in (*known, *other.rename, *other.tags, *other.made_names)
                ):
                    continue
                hint = suggest_path(rest, known, other.rename) or "use the name of a field that they have"
                what = f"`{describe_path(path)}` is not there: companions `{path[0]}` have {list_names(list(known), 8)}"
                yield Finding(at, what, hint)


@rule(
    "W430",
    "companions that nothing reads",
    "Companions leave the sample after `map`. If no step of `make`, no function and no expression reads them, they are "
    "read from their shards for nothing.",
    keys="companions",
    bad="dataset:\n  - {shards: a.tar, companions: {noise: {shards: musan.tar}}}\n",
    good="dataset:\n  - {shards: a.tar, companions: {noise: {shards: musan.tar}}, make: {near: {take: noise.txt}}}\n",
)
def unread_companions(composition: Composition) -> Findings:
    """Fields of companions that no step, function or expression reads."""
    spec = composition.spec
    for leaf, source, node in _accompanied(composition):
        calls = [call for call in (*source.map, *spec.map) if call.field is None]
        if calls or source.select or "make" in leaf.bad:  # what a wrong step reads is not known
            continue
        batch = None if "batch" in composition.bad else spec.batch
        texts = batch.expressions if batch is not None and batch.has_windows else ()
        measured = {str(path[0]) for text in texts for path in paths_read_by(text, spec.costs)}
        mapped = {call.field for call in (*source.map, *spec.map)}
        read = {name for recipe in source.make.values() for name in names_in(recipe)} | measured | mapped
        for field in source.companions:
            if field not in read:
                hint = f"read them in `make`, such as `{{take: {field}.txt}}`, or remove them"
                yield Finding(node.key_or_self(field), f"nothing reads the companions `{field}`", hint)


_OF_RECORDS = re.compile(r"\.(?:parquet|arrow|feather|jsonl|ndjson|cbors?|msgpack|mps?)\b")
"""Matches shards whose fields are not the suffixes of files."""
_WITH_VALUES = frozenset({"json", "jsn", "cbor", "msgpack", "mp", "yaml", "pyd", "pickle", "pkl"})
"""Files whose values are read by a path."""


@rule(
    "W431",
    "a step that reads companions that there are not",
    "Steps that mix a sample with another one leave it as it is where there is no other one. If the name before the "
    "dot is neither a field of `companions` of the source nor one that `make` makes, there is never one.",
    keys="make",
    bad="dataset:\n  - {shards: a.tar, decode: {wav: audio}, make: {a: {add_noise: wav, noise: nose.wav, snr: 5}}}\n",
    good="companions: {musan: {shards: musan.tar, decode: {wav: audio}}}\n"
    "dataset:\n  - {shards: a.tar, decode: {wav: audio}, companions: {noise: musan}, "
    "make: {near: {add_noise: wav, noise: noise.wav, snr: 5}}}\n",
)
def missing_companions(composition: Composition) -> Findings:
    """Optional origins of steps whose first name nothing gives."""
    for leaf, source in composition.mixed:
        if any(_OF_RECORDS.search(text) for text in source.shards or ()):
            continue
        files = {name for entry in source.extensions or () for name in entry.split(";")}
        known = {*source.companions, *dict(names_made(source.make)), *source.tags, *source.rename, *files}
        for field, recipe in source.make.items():
            missing = {str(path[0]): path for path in sorted(recipe.optional, key=str) if len(path) > 1}
            for name, path in missing.items() if recipe.mixes else ():
                if name not in known and name.lower() not in _WITH_VALUES:
                    at = locate(leaf.node, ("make", field))
                    message = f"`{describe_path(path)}`: this source has no companions `{name}`, so nothing is mixed"
                    hint = (
                        did_you_mean(name, [*source.companions])
                        or f"write `companions: {{{name}: …}}` in the source"
                    )
                    yield Finding(at, message, hint)
