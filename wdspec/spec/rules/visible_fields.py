"""Which fields a source's samples will have, as far as the spec alone shows, and where that contradicts itself."""

from __future__ import annotations

from collections.abc import Sequence

from wdspec.spec.compose.source_list import Draft
from wdspec.spec.language.models import Source
from wdspec.spec.problems.problems import Problems
from wdspec.spec.rules.scaling import is_image
from wdspec.spec.tree.nodes import MapNode, Node, locate

_ALWAYS = frozenset({"__key__", "__url__", "__source__", "__mask__"})
_MAGIC = frozenset("*?[")


def check_fields(
    leaves: Sequence[Draft],
    wanted: dict[str, tuple[str, ...] | None],
    top: MapNode,
    *,
    batched: bool,
    mapped: bool,
    problems: Problems,
) -> None:
    """Checks `rename` against `extensions`, `fields` and `to_tuple` against both, and batches for unlike fields.

    Args:
        wanted: the top level's `fields` and `to_tuple`.
        mapped: whether a function of the user's own stands between the sources and what is wanted.
    """
    sets: list[tuple[Draft, tuple[str, ...]]] = []
    for draft in leaves:
        if draft.model is None or {"extensions", "rename"} & draft.bad:
            continue
        _check_rename(draft, draft.model, problems)
        fields = visible_fields(draft.model)
        if fields is not None:
            sets.append((draft, fields))
    if mapped:
        return
    for key, entries in wanted.items():
        for index, entry in enumerate(entries or ()):
            for draft, fields in sets:
                if not _could_have(entry, fields) and draft.model and draft.model.missing != "none":
                    at = locate(top.entries[key].value, (index,))
                    hint = f"it has {_listed(fields)}; rename one, or write `missing: none`"
                    message = f"samples of `{draft.name}` never have the field `{entry}`"
                    problems.add("E308", at, message, hint)
                    break
    _check_tuple(wanted, top, problems)
    if batched and not any(wanted.values()):
        _check_likeness(sets, problems)


def visible_fields(source: Source) -> tuple[str, ...] | None:
    """The names of the fields of every sample; None where data or user code decide."""
    if source.extensions is None or source.map or any(_MAGIC.intersection(e) for e in source.extensions):
        return None
    fields = dict.fromkeys(entry.split(";")[0] for entry in source.extensions)
    if len(fields) != len(source.extensions):
        return None
    for new, olds in source.rename.items():
        for old in olds:
            fields.pop(old, None)
        fields.setdefault(new)
    return tuple(dict.fromkeys((*fields, *source.tags)))


def _check_rename(draft: Draft, source: Source, problems: Problems) -> None:
    if source.extensions is None or source.missing == "none":
        return
    patterns = [p for entry in source.extensions for p in entry.split(";")]
    if any(_MAGIC.intersection(p) for p in patterns):
        return
    known = {p.lower() for p in patterns}
    for new, olds in source.rename.items():
        if not known.intersection(old.lower() for old in olds):
            at = locate(draft.node.entries["rename"].value, (new,))
            kept = f"`extensions` keeps only {_listed(patterns)}"
            hint = f"add `{olds[0]}` to `extensions`, or rename one of those"
            problems.add("E308", at, f"`{new}` can never be made from `{';'.join(olds)}`: {kept}", hint)


def _could_have(entry: str, fields: tuple[str, ...]) -> bool:
    return any(name in fields or name in _ALWAYS or _MAGIC.intersection(name) for name in entry.split(";"))


def _check_tuple(wanted: dict[str, tuple[str, ...] | None], top: MapNode, problems: Problems) -> None:
    kept, order = wanted.get("fields"), wanted.get("to_tuple")
    if not kept or not order or any(_MAGIC.intersection(entry) for entry in kept):
        return
    names = tuple(entry.split(";")[0] for entry in kept)
    for index, entry in enumerate(order):
        if not _could_have(entry, names):
            at = locate(top.entries["to_tuple"].value, (index,))
            hint = f"add it to `fields`, which keeps only {_listed(names)}"
            problems.add("E308", at, f"`fields` drops `{entry}` before `to_tuple` can take it", hint)


def _check_likeness(sets: Sequence[tuple[Draft, tuple[str, ...]]], problems: Problems) -> None:
    """Samples of one batch need the same fields."""
    for draft, fields in sets[1:]:
        first, others = sets[0]
        if set(fields) == set(others):
            continue
        message = f"`{draft.name}` gives {_listed(fields)}, but `{first.name}` gives {_listed(others)}"
        images = [next(iter(filter(is_image, names)), None) for names in (others, fields)]
        if images[0] and images[1] and images[0] != images[1]:
            hint = f"write `rename: {{image: {images[0]}}}` in `{first.name}` and `rename: {{image: {images[1]}}}` here"
        else:
            hint = "give them the same fields with `extensions`, `rename` or the top level's `fields`"
        at: Node = draft.node
        for key in ("extensions", "rename"):
            if key in draft.own.entries:
                at = draft.own.key(key)
                break
        problems.add("E305", at, f"a batch cannot hold samples with unlike fields: {message}", hint)
        return


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in list(names)[:8])
    return shown + (", …" if len(names) > 8 else "") if names else "nothing"
