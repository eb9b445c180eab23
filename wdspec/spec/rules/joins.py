"""Rules for `join` and `lookup`: what the parts of a sample must be, so that they make one sample."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.base.amounts import pluralize
from wdspec.spec.build import Composition
from wdspec.spec.language.expressions import describe_path, parse_expression
from wdspec.spec.language.joins import JoinOptions, LookupOptions, table_format
from wdspec.spec.language.making import Take
from wdspec.spec.problems import list_names
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source
from wdspec.spec.tree import ListNode, Node
from wdspec.urls.urls import count_shards


def _items(draft: Draft, key: str) -> list[Node]:
    """The nodes of the maps below `join` or `lookup`."""
    node = draft.node.get(key)
    return list(node.items) if isinstance(node, ListNode) else [] if node is None else [node]


def _joins(composition: Composition) -> Iterator[tuple[Draft, Source, Node, JoinOptions]]:
    for draft, source in composition.models:
        if not draft.bad & {"join"}:
            nodes = _items(draft, "join")
            if len(nodes) != len(source.join):  # a list of texts is one join
                nodes = [draft.node.entries["join"].value] * len(source.join)
            for node, join in zip(nodes, source.join, strict=True):
                yield draft, source, node, join


def _lookups(composition: Composition) -> Iterator[tuple[Draft, Source, Node, LookupOptions]]:
    for draft, source in composition.models:
        if not draft.bad & {"lookup"}:
            for node, lookup in zip(_items(draft, "lookup"), source.lookup, strict=False):
                yield draft, source, node, lookup


@rule(
    "E340",
    "`missing: none` without names of fields",
    "With `missing: none` in `join`, a sample without a partner gets None for the fields of the partner, so list "
    "these fields in `fields` or `rename`.",
    keys="join",
    bad="dataset:\n  - shards: a.tar\n    join: [{shards: b.tar, missing: none}]\n",
    good="dataset:\n  - shards: a.tar\n    join: [{shards: b.tar, missing: none, fields: txt}]\n",
)
def joins_without_names(composition: Composition) -> Findings:
    """Joins with `missing: none` whose fields are not named."""
    for _, _, node, join in _joins(composition):
        if join.missing == "none" and not join.names:
            message = "`missing: none` sets the fields of the partner to None, but nothing names them"
            hint = "add `fields`, with those that the partner has, such as `fields: txt`"
            yield Finding(node.key_or_self("missing"), message, hint)


@rule(
    "E341",
    "another number of shards in a join",
    "The n-th shard of a `join` belongs to the n-th shard of the source, so both have the same number of shards.",
    keys="join",
    bad="dataset:\n  - shards: 'a-{000..009}.tar'\n    join: [{shards: 'b-{000..010}.tar'}]\n",
    good="dataset:\n  - shards: 'a-{000..009}.tar'\n    join: [{shards: 'b-{000..009}.tar'}]\n",
)
def joins_of_other_lengths(composition: Composition) -> Findings:
    """Joins with more or fewer shards than the source; globs are compared when they are listed."""
    for _, source, node, join in _joins(composition):
        own, other = count_shards(source.shards or (), source.base), count_shards(join.shards, join.base)
        if own is not None and other is not None and own != other:
            message = f"the source has {pluralize(own, 'shard')}, but this join has {other:,}"
            hint = "list as many: the n-th shards of both belong together"
            yield Finding(node.value_or_self("shards"), message, hint)


@rule(
    "E342",
    "one field of two parts",
    "A field of a sample comes from one place: its shard, a `join`, or a `lookup`. Two fields with the same name "
    "would overwrite each other.",
    keys="join lookup",
    bad="dataset:\n  - shards: a.tar\n    lookup:\n      - {table: a.csv, fields: score}\n"
    "      - {table: b.csv, fields: score}\n",
    good="dataset:\n  - shards: a.tar\n    lookup:\n      - {table: a.csv, fields: score}\n"
    "      - {table: b.csv, fields: score, rename: {other_score: score}}\n",
)
def fields_of_two_parts(composition: Composition) -> Findings:
    """Names that two joins or tables add, or that are tags."""
    taken: dict[int, dict[str, str]] = {}
    for found, kind in ((_joins, "join"), (_lookups, "lookup")):
        for draft, source, node, options in found(composition):
            names = taken.setdefault(id(draft), {**dict.fromkeys(source.tags, "`tags`")})
            for name in options.names:
                if name in names:
                    message = f"the field `{name}` comes from this `{kind}`, and from {names[name]}"
                    yield Finding(
                        node.key_or_self("fields"), message, f"add `rename: {{other_{name}: {name}}}`"
                    )
                names[name] = f"another `{kind}`"


@rule(
    "W443",
    "a value to join or look up by a name that its file does not have",
    "`join` and `lookup` add fields to raw samples. So `on` names files and columns as the shards do, before `rename`, "
    "`tags` and `make`. Few samples, or none, have a value by another name: the others are errors, or with "
    "`missing`, dropped or None.",
    keys="join lookup",
    bad="dataset:\n  - {shards: a.tar, rename: {m: json}, lookup: {table: a.csv, on: m.id, fields: score}}\n",
    good="dataset:\n  - {shards: a.tar, rename: {m: json}, lookup: {table: a.csv, on: json.id, fields: score}}\n",
)
def later_names(composition: Composition) -> Findings:
    """Names in `on` that samples get later."""
    for found, which in ((_joins, "join"), (_lookups, "lookup")):
        for _, source, node, options in found(composition):
            if options.on in (None, "__key__"):
                continue
            name, *rest = parse_expression(options.on, {}).paths[0]
            olds, maker = source.rename.get(str(name), ()), _maker_of(str(name), source)
            if olds and name not in olds:
                hint = f"write `on: {describe_path((olds[0], *rest))}`, the name in the shards"
                yield Finding(node.value_or_self("on"), f"`rename` makes `{name}` after the {which}", hint)
            elif maker is not None:
                hint = "name a field that the shards have"
                recipe = source.make.get(str(name))
                if isinstance(recipe, Take) and not rest:
                    origin = recipe.origins[0]
                    if _maker_of(str(origin[0]), source) is None:
                        hint = f"write `on: {describe_path(origin)}`, of which it is made"
                yield Finding(node.value_or_self("on"), f"`{maker}` makes `{name}` after the {which}", hint)


def _maker_of(name: str, source: Source) -> str | None:
    """The key that adds a field to samples after they are joined; None if none does."""
    makers = {"make": source.made_names, "tags": source.tags}
    return next((key for key, names in makers.items() if name in names), None)


@rule(
    "E343",
    "a table of an unknown format",
    "The name of a table shows its format: .parquet, .jsonl, .csv, .tsv, .sqlite, .db or .npz. Otherwise set `format`.",
    keys="lookup",
    bad="dataset:\n  - shards: a.tar\n    lookup: {table: scores.txt, fields: score}\n",
    good="dataset:\n  - shards: a.tar\n    lookup: {table: scores.txt, fields: score, format: csv}\n",
)
def tables_of_unknown_formats(composition: Composition) -> Findings:
    """Tables whose name does not show their format."""
    for _, _, node, lookup in _lookups(composition):
        if lookup.format == "auto" and table_format(lookup.table) is None:
            message = f"the name `{lookup.table[:80]}` does not show the format of the table"
            hint = "add `format: parquet`, `jsonl`, `csv`, `sqlite` or `npz`"
            yield Finding(node.value_or_self("table"), message, hint)


@rule(
    "E344",
    "a new name for a field that is not taken",
    "`rename` in `join` and `lookup` gives new names to files and columns. If `fields` is set, only these files or "
    "columns are used.",
    keys="join lookup",
    bad="dataset:\n  - shards: a.tar\n    lookup: {table: a.csv, fields: score, rename: {quality: rating}}\n",
    good="dataset:\n  - shards: a.tar\n    lookup: {table: a.csv, fields: score, rename: {quality: score}}\n",
)
def unread_new_names(composition: Composition) -> Findings:
    """New names in a join or lookup for what its `fields` leaves out."""
    for found in (_joins, _lookups):
        for _, _, node, options in found(composition):
            taken = options.fields
            for new, old in options.rename.items() if taken is not None else ():
                if old.lower() not in {name.lower() for name in taken or ()}:
                    message = (
                        f"`{new}` is made of `{old}`, but `fields` takes only {list_names(taken or (), 8)}"
                    )
                    hint = f"add `{old}` to `fields`, or remove it here"
                    yield Finding(node.key_or_self("rename"), message, hint)


@rule(
    "W390",
    "a joined field that `extensions` leaves out",
    "`extensions` chooses among the files of the joined sample, as if one tar held both parts. A file of a `join` that "
    "it leaves out is dropped.",
    keys="join",
    bad="dataset:\n  - shards: a.tar\n    extensions: jpg\n    join: [{shards: b.tar, fields: txt}]\n",
    good="dataset:\n  - shards: a.tar\n    extensions: jpg txt\n    join: [{shards: b.tar, fields: txt}]\n",
)
def joined_fields_left_out(composition: Composition) -> Findings:
    """Fields of a join that are not in `extensions`."""
    for _, source, node, join in _joins(composition):
        patterns = {part.lower() for entry in source.extensions or () for part in entry.split(";")}
        if patterns and not any(set("*?[") & set(pattern) for pattern in patterns):
            for name in join.names:
                if name.lower() not in patterns:
                    message = f"the field `{name}` of this join is dropped: `extensions` leaves it out"
                    yield Finding(node.key_or_self("fields"), message, f"add `{name}` to `extensions`")


@rule(
    "W391",
    "a join of a source with itself",
    "The shards of this join are those of the source, so that every file would come from both parts.",
    keys="join",
    bad="dataset:\n  - shards: 'a-{0..3}.tar'\n    join: [{shards: 'a-{0..3}.tar'}]\n",
    good="dataset:\n  - shards: 'a-{0..3}.tar'\n    join: [{shards: 'b-{0..3}.tar'}]\n",
)
def joins_with_itself(composition: Composition) -> Findings:
    """Joins whose shards are those of the source."""
    for _, source, node, join in _joins(composition):
        if join.shards == source.shards and join.base == source.base:
            message = "these are the shards of the source itself"
            yield Finding(node.value_or_self("shards"), message, "name the shards with the other files")
