"""E308: what `rename`, `fields` and `to_tuple` ask for can be there."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.draft import Composed, Draft
from wdspec.spec.language.values import MASK
from wdspec.spec.problems import listed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import MAGIC, right_sources, visible_fields
from wdspec.spec.spec import Source
from wdspec.spec.tree import Node, locate

_ALWAYS = frozenset({"__key__", "__url__", "__source__", MASK})


@rule(
    "E308",
    "a field that is never there",
    "`extensions` leaves out what `rename`, `fields` or `to_tuple` asks for, so every sample would be an "
    "error.",
    bad="dataset:\n  - {shards: a.tar, extensions: png, rename: {image: jpg}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: png, rename: {image: png}}\n",
)
def absent_fields(composed: Composed) -> Findings:
    """Fields that no sample of a source has, that an earlier key drops, or that only a pass gives.

    Nothing is known of the fields behind a function of the user's own.
    """
    sources = list(right_sources(composed, "extensions", "rename"))
    for leaf, source in sources:
        yield from _renamed(leaf, source)
    if not composed.is_pass and "epoch" not in composed.bad:
        yield from _masks(composed)
    if composed.top.get("map") is not None:
        return
    known = [
        (leaf.name, fields)
        for leaf, source in sources
        if source.missing != "none" and (fields := visible_fields(source)) is not None
    ]
    for at, entry in _wanted(composed, "fields", "to_tuple"):
        for name, fields in known:
            if not _could_have(entry, fields):
                hint = f"it has {listed(fields, 8)}; rename one, or write `missing: none`"
                yield Finding(at, f"samples of `{name}` never have the field `{entry}`", hint)
                break
    yield from _dropped(composed)


def _wanted(composed: Composed, *keys: str) -> Iterator[tuple[Node, str]]:
    for key in keys:
        for index, entry in enumerate(getattr(composed.spec, key) or ()):
            yield locate(composed.top.entries[key].value, (index,)), entry


def _renamed(leaf: Draft, source: Source) -> Findings:
    if source.extensions is None or source.missing == "none":
        return
    patterns = [pattern for entry in source.extensions for pattern in entry.split(";")]
    if any(MAGIC.intersection(pattern) for pattern in patterns):
        return
    known = {pattern.lower() for pattern in patterns}
    for new, olds in source.rename.items():
        if not known.intersection(old.lower() for old in olds):
            at = locate(leaf.node.entries["rename"].value, (new,))
            kept = f"`extensions` keeps only {listed(patterns, 8)}"
            message = f"`{new}` can never be made from `{';'.join(olds)}`: {kept}"
            turned = new.lower() in known
            hint = f"add `{olds[0]}` to `extensions`, or rename one of those"
            yield Finding(
                at, message, f"the new name comes first: `{{{olds[0]}: {new}}}`" if turned else hint
            )


def _masks(composed: Composed) -> Findings:
    for at, entry in _wanted(composed, "fields", "to_tuple"):
        if entry == MASK:
            hint = "remove it; all samples are real here"
            yield Finding(at, "only samples of `epoch: pass` have the field `__mask__`", hint)


def _dropped(composed: Composed) -> Findings:
    kept = composed.spec.fields
    if not kept or any(MAGIC.intersection(entry) for entry in kept):
        return
    names = tuple(entry.split(";")[0] for entry in kept)
    for at, entry in _wanted(composed, "to_tuple"):
        if not _could_have(entry, names):
            hint = f"add it to `fields`, which keeps only {listed(names, 8)}"
            yield Finding(at, f"`fields` drops `{entry}` before `to_tuple` can take it", hint)


def _could_have(entry: str, fields: tuple[str, ...]) -> bool:
    return any(name in fields or name in _ALWAYS or MAGIC.intersection(name) for name in entry.split(";"))
