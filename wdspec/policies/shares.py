"""The shares of sources, as far as they follow from a spec and local lists."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from wdspec.base.errors import UsageError
from wdspec.policies.places import count_shards
from wdspec.spec.build import Composition
from wdspec.spec.rules.batches import least_global_batch
from wdspec.spec.spec import Source


class _UnknownShareError(Exception):
    """A share depends on the number of shards of a source, which is unknown without reading data."""


class Shares(NamedTuple):
    """The shares of a mix at some step."""

    by_source: dict[str, Fraction]
    when: str = ""
    """Which step, in words; empty if it is every one."""


def list_shares(composition: Composition) -> list[Shares] | str:
    """The share of every source at each step that changes shares; or why they are unknown.

    Steps are those of `mix.schedule`, and those at which `max_passes` drops a source, so that others get its share.
    """
    spec = composition.spec
    leaves = {leaf.name: leaf for leaf in composition.leaves}

    def count(source: Source) -> int:
        found = count_shards(spec, leaves[source.name], source) if source.name in leaves else None
        if found is None and spec.mix.draw == "round_robin":
            return 1  # sources take turns, however many shards they have
        if found is None:
            raise _UnknownShareError(source.name)
        return found

    if spec.is_pass:
        sizes = {source.name: source.samples for source in spec.sources}
        unknown = next((name for name, size in sizes.items() if size is None), None)
        if len(sizes) == 1:
            return [Shares(dict.fromkeys(sizes, Fraction(1)))]
        if unknown is not None:
            return f"the number of samples of `{unknown}` is unknown; add `samples: n`, or `stats`"
        read = {source.name: Fraction(source.copies) * (source.samples or 0) for source in spec.sources}
        whole = sum(read.values())
        return [Shares({name: size / whole for name, size in read.items()})] if whole else []
    from wdspec.planning.shares import effective_shares, limit_passes, scheduled_shares  # they need numpy

    steps = [None] if spec.mix.schedule is None else [step.shares for step in spec.mix.schedule]
    when = " in a step of `mix.schedule`" if len(steps) > 1 else ""
    try:
        found = [Shares(effective_shares(spec.dataset, spec.mix, count, given), when) for given in steps]
        if any(source.max_passes is not None and source.on_exhausted == "drop" for source in spec.sources):
            size = least_global_batch(composition) or 1
            starts = dict(scheduled_shares(spec, count, size))
            limits, exhausted = limit_passes(spec, starts, size)
            for at, shares in limits.items():
                gone = [each for each in exhausted if each.start <= at]
                if gone:
                    step = when if at in starts and at > gone[-1].start else ""
                    found.append(
                        Shares(shares, f"{step} after `{gone[-1].source[:60]}` has reached `max_passes`")
                    )
        return found
    except _UnknownShareError as error:
        return (
            f"they depend on the number of shards of `{error}`, which is unknown without reading data; add "
            "`samples: n` to each source, or a `weight`"
        )
    except UsageError as error:
        return error.message
