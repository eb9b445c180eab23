"""The rules: what takes more than one value of a spec to see. One function each, one module a topic.

A `Composition` goes in, findings come out; `rule.py` has the form of a rule, and `shares.py` is a good one to read
first. What several rules share is a function next to those that use it.

A rule reports one code, so that a code can be looked up, counted or ignored as one thing. Most codes belong to one
rule; a few general ones (E105, E206, E207, E212, E214, W102) have several, since one page explains them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wdspec.spec.build import Composition
from wdspec.spec.codes import Code, general_codes
from wdspec.spec.problems import Problems
from wdspec.spec.rules import (
    batches,
    costs,
    fields,
    keys,
    rewrites,
    safety,
    shard_patterns,
    shard_places,
    shares,
    sources,
)
from wdspec.spec.rules.rule import RULES

TOPICS = (batches, costs, fields, keys, rewrites, safety, shard_patterns, shard_places, shares, sources)
"""The modules that hold rules: importing one adds its rules to `RULES`."""


def apply_rules(composition: Composition, problems: Problems, *, warnings: bool) -> None:
    """Notes what the rules find in a spec: errors, and on demand warnings."""
    for each in RULES:
        is_wanted = (warnings or each.is_error) and not each.compares_splits
        if is_wanted and (not each.keys or not each.keys.isdisjoint(composition.keys)):
            for finding in each.check(composition):
                problems.add(each.about.code, *finding)


def compare_splits(splits: Sequence[Composition], problems: Problems) -> None:
    """Notes what the rules find in the splits of a file together."""
    for each in RULES:
        if each.compares_splits:
            for finding in each.check(splits):
                problems.add(each.about.code, *finding)


def all_codes() -> Mapping[str, Code]:
    """The page of every code a problem may carry, in order of codes."""
    pages = [*general_codes(), *(each.about for each in RULES if each.about.title)]
    return {page.code: page for page in sorted(pages)}
