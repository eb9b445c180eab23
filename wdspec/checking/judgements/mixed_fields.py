"""D303: samples of a source that have other fields than most."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.checking.judgements.checked_data import MOST_EXAMPLES, CheckedData
from wdspec.checking.shards.data_problem import DataProblem


def mixed_fields(collection: CheckedData) -> Iterator[DataProblem]:
    """One for each rarer set of fields."""
    for source in collection.own:
        layouts = sorted(source.facts.layouts.items(), key=lambda item: -item[1].times)
        if len({frozenset(names.split()) for names, _ in layouts}) < 2:
            continue
        most = layouts[0][0].split()
        for names, seen in layouts[1 : 1 + MOST_EXAMPLES]:
            own = names.split()
            if set(own) == set(most):
                continue
            lacking = [name for name in most if name not in own]
            more = [name for name in own if name not in most]
            differs = " and ".join(
                f"{verb} {', '.join(map(_quoted, which))}"
                for verb, which in (("lack", lacking), ("also have", more))
                if which
            )
            place = seen.first
            yield DataProblem(
                "D303",
                f"{seen.times:,} of {source.facts.delivered:,} samples {differs}; choose the fields that all have "
                "with `extensions`, or say with `missing` what happens to these",
                source.name,
                place.shard,
                key=place.key,
                offset=place.offset,
            )


def _quoted(name: str) -> str:
    return f"`{name}`"
