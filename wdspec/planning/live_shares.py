"""Shares that a training loop sets while it runs: segments like those of `mix.schedule`, begun where it says.

    set at J = 40: {a: 1, b: 3}       set at J = 90: {a: 2, b: 1}
    ──── spec's ────|──────────────────|────────────────────        what a state at J ≥ 90 has to say is the last one

Draws of a segment are counted from its first batch, so the segments before that where a run stands have no say any
more. Unlike those of a schedule, segments may be one batch long; so each begins elsewhere in its even sequence, drawn
from a key of its start: a share that one batch has less than a sample of is then right on average.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wdspec.base.errors import UsageError, did_you_mean
from wdspec.planning.keys import key64
from wdspec.planning.plan import Plan
from wdspec.planning.shares import ScheduleSegment, Sizer, effective_shares
from wdspec.spec.spec import Source, Spec


class LiveShares(NamedTuple):
    """Shares from a global batch on."""

    start: int
    """J of the first batch that is drawn by them."""
    shares: Mapping[str, float]
    """By name of the top list, as they were given; one that is not named has none."""


def checked_shares(spec: Spec, shares: Any) -> dict[str, float]:
    """The shares that a caller gave, as plain numbers.

    Raises:
        UsageError: the spec draws nothing by shares, or these are no shares of its top list; says what to give.
    """
    if spec.epoch is not None and spec.epoch.remainder is not None:
        raise UsageError("shares have no say in `epoch: pass`, which gives every sample once")
    if spec.mix.draw == "round_robin":
        raise UsageError(
            "`draw: round_robin` takes turns whatever the shares; write `draw: even` in the spec"
        )
    if spec.stage is not None:
        raise UsageError(
            "shares cannot be set behind a `stage`, which takes samples when it likes; change them by `mix.schedule`"
        )
    if not isinstance(shares, Mapping) or not shares:
        raise UsageError(
            f"shares are given by name, such as {{{_example(spec)}}}, not as {str(shares)[:60]!r}"
        )
    names = [source.name for source in spec.dataset]
    given = {}
    for name, share in shares.items():
        if name not in names:
            raise UsageError(f"there is no source {name!r} in the top list: {_remedy(spec, name, names)}")
        given[name] = _number(name, share)
    if not any(given.values()):
        raise UsageError(f"every share is 0 of {', '.join(given)}; give one a share")
    return given


def live_segments(
    spec: Spec, plan: Plan, live: Sequence[LiveShares], shard_count: Sizer
) -> tuple[ScheduleSegment, ...]:
    """The segments of shares that were set.

    Raises:
        UsageError: one has a source that is not in the plan, as the spec never gives it a share.
    """
    segments = []
    for start, shares in live:
        found = effective_shares(spec.dataset, spec.mix, shard_count, shares)
        for name in plan.off:
            if found[name]:
                raise UsageError(
                    "the spec never gives it a share, so that it was not planned; give it one there, or in a step of "
                    "`mix.schedule`",
                    source=name,
                )
        offset = key64(spec.seed, "shares set", start) >> 32
        segments.append(ScheduleSegment(start, tuple(found[each.name] for each in plan.sources), offset))
    return tuple(segments)


def still_said(live: Sequence[LiveShares], batch: int) -> tuple[LiveShares, ...]:
    """Of ascending ones those that matter from batch J on."""
    over = sum(each.start <= batch for each in live)
    return tuple(live[max(0, over - 1) :])


def shares_as_text(live: Sequence[LiveShares]) -> str:
    """Shares that were set as JSON text; the same for the same."""
    return json.dumps([[start, dict(sorted(shares.items()))] for start, shares in live])


def shares_from_text(text: str) -> tuple[LiveShares, ...]:
    """The inverse of `shares_as_text`.

    Raises:
        ValueError: this is no such text.
    """
    live = tuple(LiveShares(start, {**shares}) for start, shares in json.loads(text))
    starts = [each.start for each in live]
    if not all(type(start) is int and start >= 0 for start in starts) or starts != sorted(set(starts)):
        raise ValueError(f"they begin at {str(starts)[:60]}")
    for each in live:
        for name, share in each.shares.items():
            _number(name, share)
    return live


def _number(name: str, share: Any) -> float:
    try:
        number = math.nan if isinstance(share, (str, bytes, bool)) else float(share)
    except (TypeError, ValueError, RuntimeError):  # the last from a tensor of several numbers
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"the share of {name!r} is {str(share)[:60]}; a share is a number from 0 on")
    return number


def _remedy(spec: Spec, name: Any, names: Sequence[str]) -> str:
    for source in spec.dataset:
        if source.dataset is not None and name in _inside(source):
            return f"it is inside {source.name!r}, whose share it has a fixed part of"
    return did_you_mean(str(name), names) or f"there are {', '.join(names)}"


def _inside(source: Source) -> set[str]:
    return {each.name for part in source.dataset or () for each in (part, *part.mixes, *part.leaves)}


def _example(spec: Spec) -> str:
    return ", ".join(f"{source.name!r}: {number}" for number, source in enumerate(spec.dataset[:2], 1))
