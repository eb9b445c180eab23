"""Shares: every source of a list states its own in the same way, and they add up."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import PydanticCustomError

from wdspec.spec.compose.source_list import SHARE_KEYS, Draft, key_or_self
from wdspec.spec.language.value_kinds import read_number
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, Node, Scalar

TOLERANCE = 1e-6


def check_shares(drafts: Sequence[Draft], dataset: Node, mix: MapNode | None, problems: Problems) -> None:
    """Checks one list of sources and the mixes nested in it.

    Args:
        dataset: the list, to point at.
        mix: the `mix:` that goes with it.
    """
    if mix is not None and mix.get("schedule") is not None:
        _check_scheduled(drafts, mix, problems)
        _check_nested(drafts, problems)
        return
    kinds = [_kind(draft, problems) for draft in drafts]
    first = kinds[0] if kinds else None
    for draft, kind in zip(drafts, kinds, strict=True):
        if kind != first:
            message = f"the first source states {_said(first)}, this one {_said(kind)}"
            hint = "state every share of a list in the same way: all `probability`, all `weight`, or none"
            problems.add("E301", key_or_self(draft.node, kind or "shards"), message, hint)
            break
    else:
        if first is not None:
            _check_values(drafts, first, problems)
        elif _all_zero(drafts, "upsample"):
            problems.add(
                "E303", dataset, "every source of this list is upsampled 0 times", "give one more than 0"
            )
    stated = first is not None
    for key in ("by", "cap", "temperature"):
        if stated and mix is not None and mix.get(key) is not None:
            message = f"`mix.{key}` has no effect where sources state their `{first}`"
            problems.add("W102", mix.key(key), message, f"remove it, or remove `{first}`")
    by = mix.get("by") if mix is not None else None
    if not stated and isinstance(by, Scalar) and by.value == "samples":
        _check_counts(drafts, problems)
    _check_nested(drafts, problems)


def _check_nested(drafts: Sequence[Draft], problems: Problems) -> None:
    for draft in drafts:
        if draft.children is not None:
            held = draft.node.get("mix")
            inner = held if isinstance(held, MapNode) else None
            check_shares(draft.children, draft.node.entries["dataset"].value, inner, problems)


def _check_scheduled(drafts: Sequence[Draft], mix: MapNode, problems: Problems) -> None:
    """With a schedule no source of the list says a share of its own, and sizes do not count."""
    for key in ("by", "cap", "temperature"):
        if mix.get(key) is not None:
            problems.add(
                "W102", mix.key(key), f"`mix.{key}` has no effect beside `mix.schedule`", "remove it"
            )
    for draft in drafts:
        for key in SHARE_KEYS:
            if draft.node.get(key) is not None:
                message = f"`mix.schedule` says the share of each source, and here is a `{key}` too"
                problems.add("E207", draft.node.key(key), message, "remove one of the two")


def _kind(draft: Draft, problems: Problems) -> str | None:
    stated = [key for key in SHARE_KEYS if draft.node.get(key) is not None]
    if len(stated) > 1:
        message = f"a source states its share once, but here are `{stated[0]}` and `{stated[1]}`"
        problems.add("E207", draft.node.key(stated[1]), message, "keep one of them")
    return stated[0] if stated and stated[0] != "upsample" else None


def _said(kind: str | None) -> str:
    return f"a `{kind}`" if kind else "no share"


def _numbers(drafts: Sequence[Draft], key: str) -> list[float] | None:
    numbers = []
    for draft in drafts:
        node = draft.node.get(key)
        try:
            number = read_number(node.value if isinstance(node, Scalar) else node)
        except PydanticCustomError:
            return None
        if number < 0:
            return None
        numbers.append(float(number))
    return numbers


def _check_values(drafts: Sequence[Draft], key: str, problems: Problems) -> None:
    numbers = _numbers(drafts, key)
    if numbers is None:
        return  # each wrong number is a problem already
    at = drafts[0].node.entries[key].value
    total = sum(numbers)
    if total == 0:
        problems.add(
            "E303", at, f"every `{key}` of this list is 0", "give at least one source a share above 0"
        )
    elif key == "probability" and abs(total - 1) > TOLERANCE:
        shown = ", ".join(
            f"{draft.name}: {number / total:.9g}" for draft, number in zip(drafts[:20], numbers, strict=False)
        )
        more = ", …" if len(drafts) > 20 else ""
        hint = f"normalised they are {shown}{more}; or write `weight` instead of `probability`"
        problems.add("E302", at, f"the probabilities of this list sum to {total:.9g}, not to 1", hint)


def _all_zero(drafts: Sequence[Draft], key: str) -> bool:
    if any(draft.node.get(key) is None for draft in drafts):
        return False
    numbers = _numbers(drafts, key)
    return bool(numbers) and not any(numbers or ())


def _check_counts(drafts: Sequence[Draft], problems: Problems) -> None:
    for draft in drafts:
        for leaf in draft.leaves:
            if leaf.node.get("samples") is None:
                hint = "add `samples: n`, or write `mix: {by: shards}`"
                problems.add(
                    "E206", leaf.node, "`mix.by: samples` needs the number of samples of each source", hint
                )
