"""Rules: checks that need more than one value of a spec. Each rule is a function, each module a topic.

A rule takes a `Composition` and yields findings. `rule.py` defines the form of a rule; read `shares.py` first for
examples. To add a rule, write a function below `@rule` in one of the modules.

A rule reports one code, so that a code can be looked up, counted or ignored as one thing. Most codes belong to one
rule. A few general ones (E105, E206, E207, E212, E214, E303, E316, W102, W530) have several rules and one page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wdspec.spec.build import Composition
from wdspec.spec.problems import Problems
from wdspec.spec.rules import (
    batches,
    companions,
    costs,
    fetching,
    fields,
    joins,
    keys,
    left_in,
    making,
    numbering,
    presence,
    rewrites,
    safety,
    shards,
    shares,
    sources,
    stacking,
    tokenizer_files,
    units,
    unmoved,
)
from wdspec.spec.rules.rule import RULES, Code, general_codes
from wdspec.spec.tree import Position

TOPICS = (
    batches,
    companions,
    costs,
    fetching,
    fields,
    joins,
    keys,
    making,
    left_in,
    numbering,
    presence,
    rewrites,
    safety,
    shards,
    shares,
    sources,
    stacking,
    tokenizer_files,
    units,
    unmoved,
)
"""All modules with rules. Importing a module adds its rules to `RULES`."""


def apply_rules(composition: Composition, problems: Problems, *, warnings: bool) -> None:
    """Add what the rules find in a spec: errors, and warnings on request or if loading a spec reports them."""
    for each in RULES:
        is_wanted = (warnings or each.is_error or each.warns_at_load) and not each.needs
        if is_wanted and (not each.keys or not each.keys.isdisjoint(composition.keys)):
            for finding in each.check(composition):
                problems.add(each.about.code, *finding)


def compare_splits(splits: Sequence[Composition], problems: Problems) -> None:
    """Add what the rules find when they compare the splits of a file."""
    for each in RULES:
        if each.needs == ("splits",):
            for finding in each.check(splits):
                problems.add(each.about.code, *finding)


def refuted_by(split: Composition) -> Iterator[tuple[str, Position]]:
    """Yield the codes and places of findings of other splits that this one shows to be wrong."""
    yield from (("W331", position) for position in rewrites.matched_rewrites(split))


def all_codes() -> Mapping[str, Code]:
    """The pages of all codes of problems, in order of codes."""
    pages = [*general_codes(), *(each.about for each in RULES if each.about.title)]
    return {page.code: page for page in sorted(pages)}
