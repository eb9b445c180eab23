"""What is left of the samples of a source, in words: nothing, or so little that its spec may not mean it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from wdspec.base.amounts import percent, pluralize
from wdspec.spec.spec import Source

LITTLE = 0.1
"""A smaller part of the samples is little."""
PARTS = frozenset({"subset", "keys"})
"""Causes that say which samples to read, and so how many are left: only what others drop can be too much."""
LACKS = "lack "
"""Start of a cause of `missing: skip`, with the field that the samples lack."""
OF_OBJECTS = (f"{LACKS}the object ", f"{LACKS}the reference ")
"""Starts of causes of `missing: skip` in `fetch`."""
_REMEDIES = {
    "where": "correct `where: {source.where:.80}`",
    "select": "correct the function `{source.select}`",
    "keys": "compare `keys` with the keys of the samples (`wdspec ls`)",
    "subset": "choose a larger `subset`",
    "exclude": "remove from `exclude` what is to be read",
}


class Left(NamedTuple):
    """What is left of a source."""

    is_nothing: bool
    message: str
    hint: str


def lost_part(samples: int, causes: Mapping[str, int]) -> float:
    """The part of the samples, without those that `subset` and `keys` leave out, that is dropped."""
    asked = samples - sum(count for cause, count in causes.items() if cause in PARTS)
    return sum(count for cause, count in causes.items() if cause not in PARTS) / max(1, asked)


def cause_in_words(cause: str) -> str:
    """A cause for "dropped by …": `` `where` ``, or `` `missing` `` for samples that lack a field or an object."""
    if cause.startswith(OF_OBJECTS):
        return f"`missing` of `fetch: {cause.rpartition(' for `')[2]}"
    return "`missing`" if cause.startswith(LACKS) else f"`{cause}`"


def list_causes(samples: int, causes: Mapping[str, int]) -> list[str]:
    """How many of the samples are left out by what, in words, the most first."""
    said = []
    for number, (cause, count) in enumerate(_in_order(causes)):
        amount = f"{count:,}" if number else f"{count:,} of {samples:,}"
        said.append(f"{amount} {cause if cause.startswith(LACKS) else f'left out by `{cause}`'}")
    return said


def _in_order(causes: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(causes.items(), key=lambda each: (-each[1], each[0]))


def describe_left(
    source: Source, samples: int, left: int, causes: Mapping[str, int], basis: str = ""
) -> Left | None:
    """Describe what is left of a source if that is nothing, or little where `expect: {dropped: …}` does not say so.

    Args:
        source: the source.
        samples: how many samples were looked at.
        left: how many of these are left.
        causes: how many are dropped, by `where`, `select`, `subset`, …, or a text that starts with `LACKS`.
        basis: what was looked at, if that is not all: `1 of 2 shards read`.
    """
    part = lost_part(samples, causes)
    if left and (part <= 1 - LITTLE or (source.expect is not None and source.expect.dropped is not None)):
        return None
    ordered = _in_order(causes)
    said = list_causes(samples, causes)
    if (rest := samples - left - sum(causes.values())) > 0:
        said.append(f"{rest:,} cannot be used")
    why = ", ".join(said) or "its shards have no samples"
    why += f" ({basis})" if basis else ""
    first = ordered[0][0] if ordered else ""
    remedy = _REMEDIES.get(first, "").format(source=source)
    if "`join`" in first:
        remedy = "compare the keys of both sides of the `join` or `lookup`, or set `missing: none` there"
    elif first.startswith(OF_OBJECTS):
        remedy = (
            "compare the references and `root` with the names of the objects (`wdspec resolve` shows where they "
            "start), or set `missing: none` to get None"
        )
    elif first.startswith(LACKS) or first == "missing":
        remedy = (
            "compare the names with those of its files (`wdspec ls`), name an alternative with `;`, or set "
            "`missing: none` to get None"
        )
    if not left:
        return Left(True, f"no sample of `{source.name}` is left: {why}", remedy)
    few = math.ceil(100 * part) / 100
    return Left(
        False,
        f"{percent(part)} of {pluralize(samples, 'sample')} of `{source.name}` are dropped: {why}",
        f"{f'{remedy}, or ' if remedy else ''}write `expect: {{dropped: {few:g}}}` if this is meant",
    )
