"""The shares of sources, as far as they follow from a spec and local lists."""

from __future__ import annotations

from fractions import Fraction

from wdspec.base.errors import UsageError
from wdspec.policies.places import count_shards
from wdspec.spec.build import Composition
from wdspec.spec.spec import Source


class _UnknownShareError(Exception):
    """A share depends on the number of shards of a source, which is unknown without reading data."""


def largest_shares(composition: Composition) -> list[dict[str, Fraction]] | str:
    """The share of every source, by name, for each step of a schedule; or why they are unknown."""
    spec = composition.spec
    leaves = {leaf.name: leaf for leaf in composition.leaves}

    def count(source: Source) -> int:
        found = count_shards(spec, leaves[source.name], source) if source.name in leaves else None
        if found is None:
            raise _UnknownShareError(source.name)
        return found

    if spec.is_pass:
        sizes = {source.name: source.samples for source in spec.sources}
        unknown = next((name for name, size in sizes.items() if size is None), None)
        if len(sizes) == 1:
            return [dict.fromkeys(sizes, Fraction(1))]
        if unknown is not None:
            return f"the number of samples of `{unknown}` is unknown; add `samples: n`, or `stats`"
        read = {source.name: Fraction(source.copies) * (source.samples or 0) for source in spec.sources}
        return (
            [{name: size / sum(read.values()) for name, size in read.items()}] if any(read.values()) else []
        )
    from wdspec.planning.shares import effective_shares  # it needs numpy

    steps = [None] if spec.mix.schedule is None else [step.shares for step in spec.mix.schedule]
    try:
        return [effective_shares(spec.dataset, spec.mix, count, given) for given in steps]
    except _UnknownShareError as error:
        return (
            f"they depend on the number of shards of `{error}`, which is unknown without reading data; add "
            "`samples: n` to each source, or a `weight`"
        )
    except UsageError as error:
        return error.message
