"""Shares: the fraction of the samples that each source contributes, multiplied through nested mixes and exact.

Where shares change (`mix.schedule`, or `set_shares` at run time), the stream is split into segments. Each segment has
constant shares and even draws of its own:

    at: 0          at: 1000                 at: 5000          global samples
    |──────────────|────────────────────────|─────────        a segment starts at the first global batch at or
    J: 0 1 2 … 15  16 17 …              78  79 …              after its `at` (here with batches of 64)

With `ramp: linear`, the stretch before a step is cut into `RAMP_PARTS` segments, each with the shares at its midpoint:

    at: 0 {a: 1}                            at: 4000 {a: 0, ramp: linear}
    |─ 31/32 ─|─ 29/32 ─|─ … ─|─ 1/32 ──────|─ 0 ────         share of a, here with 16 parts

The draws of a segment are counted from its first batch, so shares are as exact within a segment as in any run of
draws. The segment of a batch depends on J alone. A segment may be as short as one batch. Each segment therefore starts
at a different place in its even sequences, derived from a key of its start. This way, the deviations of many short
segments do not add up, and a share of less than one sample per segment is correct on average.

When a training loop sets shares at run time, a new segment starts at that batch:

    set at J = 40: {a: 1, b: 3}       set at J = 90: {a: 2, b: 1}
    ──── spec's ────|──────────────────|────────────────────        a state at J ≥ 90 only needs the last one

At later batches, the earlier segments no longer matter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from wdspec.base.errors import UsageError, did_you_mean, warn_user
from wdspec.planning.keys import key64
from wdspec.spec.language.options import MixOptions
from wdspec.spec.spec import Source, Spec

Sizer = Callable[[Source], int]
"""Returns the number of shards of a leaf source, after listing."""


def effective_shares(
    dataset: Sequence[Source], mix: MixOptions, shard_count: Sizer, given: Mapping[str, float] | None = None
) -> dict[str, Fraction]:
    """The share of every leaf source in the whole mix, in file order; they sum to exactly 1.

    Within one list, each source has a `probability`, or a `weight`, or neither. Without either, its share is
    proportional to ``min(size, cap) ** (1/temperature) * upsample``, and the size of a nested mix is the sum of the
    sizes of its leaves. Without `mix.by`, sizes are numbers of samples if all are known, otherwise of shards. All
    shares are normalised, also probabilities, whose sum may differ from 1 by 1e-6. With `draw: round_robin`, leaves
    that have a share get equal ones.

    Args:
        given: shares by name that replace those in the spec for this list; they are normalised. A source that is not
            named gets no share.

    Raises:
        UsageError: all shares are 0, or `mix.by` is `samples` or `bytes` and the size of a source is unknown, or
            `temperature` makes a share too large for a float.
    """
    shares: dict[str, Fraction] = {}
    for source, share in zip(dataset, _within(dataset, mix, shard_count, given), strict=True):
        if source.dataset is None:
            shares[source.name] = share
        else:
            unread = dict.fromkeys((leaf.name for leaf in source.leaves), Fraction(0))
            inner = effective_shares(source.dataset, source.mix, shard_count) if share else unread
            shares |= {name: share * part for name, part in inner.items()}
    if mix.draw == "round_robin":
        count = sum(map(bool, shares.values()))
        return {name: Fraction(bool(share), count) for name, share in shares.items()}
    return shares


def _within(
    dataset: Sequence[Source], mix: MixOptions, shard_count: Sizer, given: Mapping[str, float] | None
) -> list[Fraction]:
    """The shares of the entries of one list; they sum to 1."""
    by = mix.by or ("samples" if all(map(_is_counted, dataset)) else "shards")
    amounts = [_amount(source, mix, by, shard_count, given) for source in dataset]
    if mix.shares_in != "samples":
        amounts = _per_sample(dataset, amounts, shard_count)
    total = sum(amounts)
    if not total:
        raise UsageError(
            f"every share is 0 in the mix of {', '.join(s.name for s in dataset)}; give one a share above 0"
        )
    return [amount / total for amount in amounts]


def _amount(
    source: Source, mix: MixOptions, by: str, shard_count: Sizer, given: Mapping[str, float] | None
) -> Fraction:
    written = source.weight if source.probability is None else source.probability
    stated = written if given is None else given.get(source.name, 0)
    if stated is not None:
        return Fraction(stated)
    upsample = Fraction(1 if source.upsample is None else source.upsample)
    if by == "equal" or not upsample:
        return upsample
    size = _size(source, by, shard_count)
    if mix.cap is not None:
        size = min(size, mix.cap)
    return (_tempered(size, mix.temperature, source) if mix.temperature else Fraction(size)) * upsample


def _tempered(size: int, temperature: float, source: Source) -> Fraction:
    """``size ** (1/temperature)``."""
    if temperature == 1:
        return Fraction(size)
    try:
        return Fraction(math.pow(size, 1 / temperature))
    except OverflowError:
        raise UsageError(
            f"{size:,} ^ (1 / {temperature:g}) is too large for a float; choose a `temperature` nearer to 1, or set "
            "`cap`",
            source=source.name,
        ) from None


def _is_counted(source: Source) -> bool:
    """Whether the number of its samples is known."""
    return source.samples is not None if source.dataset is None else all(map(_is_counted, source.dataset))


def _size(source: Source, by: str, shard_count: Sizer) -> int:
    if source.dataset is not None:
        return sum(_size(child, by, shard_count) for child in source.dataset)
    if by == "shards":
        return shard_count(source)
    size = source.samples if by == "samples" else source.bytes
    if size is None:
        raise UsageError(
            f"`mix: {{by: {by}}}` needs the size of every source; run `wdspec stats SPEC`, which writes sizes to the "
            f"file that `stats:` names (`wdspec validate` reports missing ones), add `{by}:`, or mix by shards. If "
            "`stats` could not measure the source, write its shards again, or leave it out: `sources: {NAME: null}`",
            source=source.name,
        )
    return size


def _per_sample(dataset: Sequence[Source], amounts: Sequence[Fraction], shard_count: Sizer) -> list[Fraction]:
    """Convert shares of cost to shares of samples."""
    return [
        amount / mean_cost(source, shard_count) if amount else amount
        for source, amount in zip(dataset, amounts, strict=True)
    ]


def mean_cost(source: Source, shard_count: Sizer) -> Fraction:
    """The mean cost of the samples of a source; for a nested mix, the mean over its sources, weighted by their shares.

    Raises:
        UsageError: the mean cost of a source is unknown.
    """
    if source.dataset is not None:
        shares = effective_shares(source.dataset, source.mix, shard_count)
        leaves = {leaf.name: leaf for leaf in source.leaves}
        return sum(
            (share * mean_cost(leaves[name], shard_count) for name, share in shares.items() if share),
            Fraction(0),
        )
    if source.mean_cost is None:
        raise UsageError(
            "shares of the cost (`mix.shares_in`) need the mean cost of every source; run `wdspec stats SPEC`, which "
            "writes it to the file that `stats:` names, or add `mean_cost: …`",
            source=source.name,
        )
    return Fraction(source.mean_cost)


RAMP_PARTS = 64
"""Maximum number of segments of a ramp: with all of them, each changes shares by a sixty-fourth of the whole change."""

_Steps = list[tuple[int, dict[str, Fraction]]]
"""(at in global samples, share by leaf), ascending."""


class LiveShares(NamedTuple):
    """Shares that the caller set, from a global batch on."""

    start: int
    """J of the first batch that is drawn with these shares."""
    shares: Mapping[str, float]
    """Shares by name, as passed by the caller; a source of the top-level list that is not named gets no share."""


@dataclass(frozen=True)
class ScheduleSegment:
    """A part of the stream with constant shares; it ends where the next one starts."""

    start: int
    """J of its first global batch."""
    shares: tuple[Fraction, ...]
    """Effective shares, one for each source of the plan; they sum to 1, and some may be 0."""
    offset: int = 0
    """Position in their sequence at which its even draws start."""
    live: LiveShares | None = None
    """The shares as they were set at run time; None for those of the spec."""


def segment_offset(seed: int, kind: str, start: int) -> int:
    """The position at which the even sequences of a segment start, so that short segments do not all round alike.

    Args:
        kind: where the shares come from, e.g. `schedule`.
        start: J of the segment's first global batch.
    """
    return key64(seed, kind, start) >> 32


def scheduled_shares(
    spec: Spec, shard_count: Sizer, global_size: int = 1
) -> list[tuple[int, dict[str, Fraction]]]:
    """(at, effective share of every leaf) for each step of the schedule and each part of its ramps.

    Without a schedule, there is one step at 0.

    Args:
        global_size: G, samples of a global batch, for steps that count batches.

    Raises:
        UsageError: see `effective_shares` and `shares_of_steps`.
    """
    if spec.mix.schedule is None:
        return [(0, effective_shares(spec.dataset, spec.mix, shard_count))]
    steps = shares_of_steps(spec, shard_count, global_size)
    parts = [steps[0]]
    for step, to in zip(spec.mix.schedule[1:], steps[1:], strict=True):
        parts += [*(_ramp(parts.pop(), to) if step.ramp == "linear" else ()), to]
    return parts


def shares_of_steps(spec: Spec, shard_count: Sizer, global_size: int = 1) -> _Steps:
    """(at, effective share of every leaf) for each step of the schedule, without the parts of ramps.

    Tokens are converted to samples by the mean tokens of a sample under the shares in force, which a ramp changes
    linearly from the shares before it.

    Args:
        global_size: see `scheduled_shares`.

    Raises:
        UsageError: see `effective_shares`; the mean number of tokens of a source is unknown, or a step is not after the
            one before it.
    """
    steps: _Steps = []
    counts_tokens = any(step.at.unit == "tokens" for step in spec.mix.schedule or ())
    tokens = rate = Fraction(0)  # tokens before the last step, and tokens per sample after it
    for step in spec.mix.schedule or ():
        shares = effective_shares(spec.dataset, spec.mix, shard_count, step.shares)
        before, old = steps[-1][0] if steps else 0, rate
        rate = mean_tokens(spec, shares) if counts_tokens else rate
        between = (old + rate) / 2 if step.ramp == "linear" else old
        unit, number = step.at
        if unit == "tokens":
            at = before + math.ceil((number - tokens) / between) if number else 0
        else:
            at = number * global_size if unit == "batches" else number
        if steps and at <= before:
            raise UsageError(
                f"step {len(steps) + 1} of `mix.schedule` is at sample {at:,}, and the one before it at sample "
                f"{before:,}; put the steps in order"
            )
        tokens += (at - before) * between
        steps.append((at, shares))
    return steps


def mean_tokens(spec: Spec, shares: Mapping[str, Fraction]) -> Fraction:
    """The mean number of tokens of a sample. Raises UsageError if that of a source is unknown."""
    total = Fraction(0)
    for source in spec.sources:
        mean = source.mean_cost or (source.tokens and source.tokens.length)
        if mean is None and shares[source.name]:
            word = "epoch" if spec.epoch is not None and spec.epoch.tokens is not None else "at"
            hint = "add `mean_cost: …`"
            if spec.batch is not None and (spec.batch.cost is not None or spec.batch.pack is not None):
                hint = "run `wdspec stats SPEC`, which writes it to the file that `stats:` names, or add `mean_cost: …`"
            raise UsageError(
                f"`{word}: {{tokens: …}}` needs the mean number of tokens of a sample; {hint}",
                source=source.name,
            )
        total += shares[source.name] * Fraction(mean or 0)
    return total


def _ramp(begin: tuple[int, dict[str, Fraction]], end: tuple[int, dict[str, Fraction]]) -> _Steps:
    """The segments of a linear ramp, each with the mean shares of its part of the line."""
    (start, old), (stop, new) = begin, end
    parts = min(RAMP_PARTS, stop - start)
    return [
        (
            start + (stop - start) * part // parts,
            {name: old[name] + (new[name] - old[name]) * Fraction(2 * part + 1, 2 * parts) for name in old},
        )
        for part in range(parts)
    ]


def largest_shares(spec: Spec, shard_count: Sizer) -> dict[str, Fraction]:
    """The largest effective share of each leaf in a step of the schedule; 0 for a source that is never read."""
    given = [None] if spec.mix.schedule is None else [step.shares for step in spec.mix.schedule]
    steps = [effective_shares(spec.dataset, spec.mix, shard_count, each) for each in given]
    return {name: max(shares[name] for shares in steps) for name in steps[0]}


def starting_batches(
    steps: Sequence[tuple[int, dict[str, Fraction]]], global_size: int
) -> dict[int, dict[str, Fraction]]:
    """Map J, the first global batch at or after each step, to the shares of the step; the last step with a J wins.

    Args:
        steps: (at in global samples, share by leaf) from `scheduled_shares`, ascending.
        global_size: G, samples of a global batch.
    """
    return {-(-at // global_size): shares for at, shares in steps}


class Exhaustion(NamedTuple):
    """The point at which a source was read `max_passes` times."""

    start: int
    """J of the first batch without it."""
    source: str
    then: Literal["error", "drop", "stop"]


def limit_passes(
    spec: Spec, starts: dict[int, dict[str, Fraction]], global_size: int
) -> tuple[dict[int, dict[str, Fraction]], tuple[Exhaustion, ...]]:
    """Change shares where sources have been read `max_passes` times.

    By batch J, a source has given share · J · G samples, with the shares of the batches before. `draw: even` is within
    one sample of that.

    Args:
        starts: J → the shares from there on.
        global_size: G, samples of a global batch.

    Returns:
        The shares from each J on, and the points at which sources are exhausted. After one that does not drop its
        source, there are no more.

    Raises:
        UsageError: every source is exhausted, and none says what to do then; or the first batch would exceed
            `max_passes` of a source that is not dropped.
    """
    limited = {each.name: each for each in spec.sources if each.max_passes is not None}
    for source in limited.values():
        if source.samples is None:
            raise UsageError(
                "`max_passes` needs the number of samples, which the file in `stats` does not have; run `wdspec stats "
                "SPEC`, or declare it in `samples`",
                source=source.name,
            )
    left = {name: Fraction(str(each.max_passes)) * (each.samples or 0) for name, each in limited.items()}
    limits: dict[int, dict[str, Fraction]] = {}
    exhausted: list[Exhaustion] = []
    out: set[str] = set()
    bounds = sorted(starts)
    for start, stop in zip(bounds, [*bounds[1:], None], strict=True):
        at = start
        while stop is None or at < stop:
            total = sum(share for name, share in starts[start].items() if name not in out)
            if not total:
                of_windows = spec.batch is not None and spec.batch.has_windows
                where, then = ("window", "error") if of_windows else ("batch", "stop")
                raise UsageError(
                    f"all sources have been read `max_passes` times at {where} {at:,}; set `on_exhausted: {then}` in "
                    "one of them, or raise `max_passes`"
                )
            shares = {
                name: Fraction(0) if name in out else share / total for name, share in starts[start].items()
            }
            ends = {
                name: at + left[name] // (shares[name] * global_size)
                for name in left
                if shares[name] and name not in out
            }
            end = min(ends.values(), default=None)
            if end is None or (stop is not None and end >= stop):
                end = stop
            if end is None or end > at:
                limits[at] = shares
            if end is None:
                return limits, tuple(exhausted)
            left = {name: most - shares[name] * global_size * (end - at) for name, most in left.items()}
            at = end
            for name in sorted(name for name, last in ends.items() if last == end and end != stop):
                exhausted.append(Exhaustion(end, name, limited[name].on_exhausted))
                if not end:
                    _report_unread(spec, limited[name], shares[name] * global_size)
                if exhausted[-1].then != "drop":
                    return limits, tuple(exhausted)
                out.add(name)
    return limits, tuple(exhausted)


def count_unlimited(
    spec: Spec,
    shard_count: Sizer,
    global_size: int,
    exhausted: Sequence[Exhaustion],
    name: str,
    stop: Fraction,
) -> Fraction:
    """How many samples of a source a spec draws before batch `stop`, as if its own `max_passes` were not there.

    Args:
        global_size: G, samples of a global batch.
        exhausted: where the sources of the spec are exhausted.
    """
    starts = starting_batches(scheduled_shares(spec, shard_count, global_size), global_size)
    ends = {each.source: each.start for each in exhausted if each.source != name}
    bounds = [Fraction(each) for each in sorted({*starts, *ends.values()}) if each < stop]
    drawn = Fraction(0)
    for start, end in pairwise([*bounds, stop]):
        shares = starts[max(each for each in starts if each <= start)]
        left = [share for other, share in shares.items() if other not in ends or ends[other] > start]
        if total := sum(left, Fraction(0)):
            drawn += shares[name] / total * global_size * (end - start)
    return drawn


def _report_unread(spec: Spec, source: Source, needed: Fraction) -> None:
    """Report a source of which the first global batch, or the first windows, would already take too many samples."""
    if spec.batch is not None and spec.batch.has_windows:
        would_take, smaller = "the first windows of all ranks would take", "a smaller window"
    else:
        would_take, smaller = "the first global batch would take", "smaller batches"
    message = (
        f"`max_passes: {source.max_passes:g}` of {source.samples:,} samples is less than {would_take}, "
        f"{'' if needed.denominator == 1 else 'about '}{round(needed):,} samples"
    )
    hint = f"raise `max_passes`, or use {smaller} or a smaller share"
    if source.on_exhausted != "drop":
        raise UsageError(f"{message}; {hint}", source=source.name)
    warn_user(f"{message}, so `{source.name}` is never read; {hint}")


def checked_shares(spec: Spec, shares: Any) -> dict[str, float]:
    """Check shares that a caller passed, and return them as floats by name.

    Raises:
        UsageError: the spec does not draw by shares, or these are not valid shares of its top-level list.
    """
    if spec.is_pass:
        raise UsageError("shares have no effect with `epoch: pass`, which reads every sample once")
    if spec.mix.draw == "round_robin":
        raise UsageError(
            "shares have no effect with `draw: round_robin`, where sources take turns; write `draw: even` in the spec"
        )
    if any(source.max_passes is not None for source in spec.sources):
        raise UsageError(
            "shares cannot be set in a spec with `max_passes`, which counts samples by the shares of the spec; change "
            "them with `mix.schedule`"
        )
    if not isinstance(shares, Mapping) or not shares:
        raise UsageError(
            f"shares must be a dict by name, such as {{{_example_shares(spec)}}}, not {str(shares)[:60]!r}"
        )
    names = [source.name for source in spec.dataset]
    given = {}
    for name, share in shares.items():
        if name not in names:
            raise UsageError(
                f"the top-level list has no source {name!r}: {_suggest_source(spec, name, names)}"
            )
        given[name] = _check_share(name, share)
    if not any(given.values()):
        raise UsageError(f"the shares of {', '.join(given)} are all 0; give one of them a share above 0")
    return given


def live_segments(
    spec: Spec, names: Sequence[str], live: Sequence[LiveShares], shard_count: Sizer
) -> tuple[ScheduleSegment, ...]:
    """The segments of shares that were set at run time.

    Args:
        names: the sources of the plan, in its order.

    Raises:
        UsageError: a source with a share is not in the plan, because the spec never gives it one.
    """
    segments = []
    for start, shares in live:
        found = effective_shares(spec.dataset, spec.mix, shard_count, shares)
        for name, share in found.items():
            if share and name not in names:
                raise UsageError(
                    "the spec never gives this source a share, so it is not in the plan; give it a share in the spec, "
                    "or in a step of `mix.schedule`",
                    source=name,
                )
        offset = segment_offset(spec.seed, "shares set", start)
        effective = tuple(found[name] for name in names)
        segments.append(ScheduleSegment(start, effective, offset, LiveShares(start, shares)))
    return tuple(segments)


def current_shares(live: Sequence[LiveShares], batch: int) -> tuple[LiveShares, ...]:
    """The shares that matter from batch J on: those in effect at J, and all later ones. `live` is ascending."""
    over = sum(each.start <= batch for each in live)
    return tuple(live[max(0, over - 1) :])


def shares_as_text(live: Sequence[LiveShares]) -> str:
    """Shares that were set, as JSON text; equal shares give equal texts."""
    return json.dumps([[start, dict(sorted(shares.items()))] for start, shares in live])


def shares_from_text(text: str) -> tuple[LiveShares, ...]:
    """The inverse of `shares_as_text`.

    Raises:
        ValueError: the text does not describe shares.
    """
    live = tuple(LiveShares(start, {**shares}) for start, shares in json.loads(text))
    starts = [each.start for each in live]
    if not all(type(start) is int and start >= 0 for start in starts) or starts != sorted(set(starts)):
        raise ValueError(f"they start at {str(starts)[:60]}")
    for each in live:
        for name, share in each.shares.items():
            _check_share(name, share)
    return live


def _check_share(name: str, share: Any) -> float:
    try:
        number = math.nan if isinstance(share, (str, bytes, bool)) else float(share)
    except (TypeError, ValueError, RuntimeError):  # the last from a tensor of several numbers
        number = math.nan
    except OverflowError:
        raise UsageError(f"the share of {name!r} is too large; a share must be at most 1e308") from None
    if not 0 <= number < math.inf:
        raise UsageError(
            f"the share of {name!r} is {str(share)[:60]}; a share must be a number of at least 0"
        )
    return number


def _suggest_source(spec: Spec, name: Any, names: Sequence[str]) -> str:
    for source in spec.dataset:
        if source.dataset is not None and name in _names_within(source):
            return f"it is inside {source.name!r}, and has a fixed part of that mix's share"
    return did_you_mean(str(name), names) or f"its sources are {', '.join(names)}"


def _names_within(source: Source) -> set[str]:
    return {each.name for part in source.dataset or () for each in (part, *part.mixes, *part.leaves)}


def _example_shares(spec: Spec) -> str:
    return ", ".join(f"{source.name!r}: {number}" for number, source in enumerate(spec.dataset[:2], 1))
