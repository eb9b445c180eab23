"""E316: the fields that `map` and `batch` name are there, as far as the spec alone shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wdspec.base.errors import did_you_mean
from wdspec.spec.draft import Composed
from wdspec.spec.language.values import MASK
from wdspec.spec.problems import listed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import MAGIC, right_sources, visible_fields
from wdspec.spec.tree import MapNode, Node, locate

Known = dict[str, Sequence[str]]
"""Of each source whose fields are known, its name and theirs."""


@rule(
    "E316",
    "a field of map or batch that is never there",
    "`map`, `batch: {collate: …}` and `batch: {ragged: …}` name a field that no sample has where they look for it: "
    "the run would end with its first sample or batch.",
    bad="batch: {size: 4, collate: {tokns: pad}}\ndataset:\n  - {shards: a.tar, extensions: tokens.npy,"
    " rename: {tokens: tokens.npy}}\n",
    good="batch: {size: 4, collate: {tokens: pad}}\ndataset:\n  - {shards: a.tar, extensions: tokens.npy,"
    " rename: {tokens: tokens.npy}}\n",
)
def misnamed_fields(composed: Composed) -> Findings:
    """Nothing is known of the fields behind a function of a whole sample."""
    known: Known = {}
    for leaf, source in right_sources(composed, "extensions", "rename", "map"):
        fields = visible_fields(source)
        if fields is not None:
            known[leaf.name] = fields
            if "map" in leaf.node.entries:
                named = (call.field for call in source.map if call.field is not None)
                yield from _absent(leaf.node.entries["map"].value, named, {leaf.name: fields})
    if composed.bad & {"map", "fields", "to_tuple", "batch"}:
        return
    spec = composed.spec
    calls = list(spec.map or ())
    if "map" in composed.top.entries:
        yield from _absent(
            composed.top.entries["map"].value, _named_first(call.field for call in calls), known
        )
    if spec.batch is None:
        return
    if any(call.field is None for call in calls):
        known = {}
    kept = spec.to_tuple or spec.fields
    if kept:
        known = (
            {} if any(MAGIC.intersection(name) for name in kept) else {"": [e.split(";")[0] for e in kept]}
        )
    batch = composed.top.entries["batch"].value
    if spec.batch.collate is not None:
        yield from _absent(locate(batch, ("collate",)), spec.batch.collate.fields, known)
    if isinstance(spec.batch.ragged, tuple):
        yield from _absent(locate(batch, ("ragged",)), spec.batch.ragged, known)


def _named_first(fields: Iterable[str | None]) -> Iterator[str]:
    """The fields that are named before a function of a whole sample comes."""
    for field in fields:
        if field is None:
            return
        yield field


def _absent(at: Node, names: Iterable[str], known: Known) -> Findings:
    for name in dict.fromkeys(names):
        if name.startswith("__") and name != MASK:
            continue
        for source, fields in known.items():
            if name not in fields:
                has = f"samples of `{source}` have" if source else "`to_tuple` or `fields` keeps"
                where = at.key_or_self(name) if isinstance(at, MapNode) else at
                hint = did_you_mean(name, fields) or "name a field that is there"
                yield Finding(where, f"there is no field `{name[:60]}` here: {has} {listed(fields, 8)}", hint)
                break
