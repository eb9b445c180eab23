"""What a spec means on a topology, and advice about it: facts that commands show, and rules that need them.

In: a spec. Out: an `Explanation`, and a `Problem` for each piece of advice. Read `on_plan` first for examples of rules:
functions below `@rule`, like those of `wdspec.spec.rules`, which name the `facts` that they need. `advise` runs those
whose facts a command knows.

What the spec alone shows is found by `validate`: an epoch that is rounded (W351) or a small part of the data (W352,
W507), fewer shards than slots (W361), a shuffle that fills the memory (W356). With the plan of a run, or facts about
the data, the same is W511, W507, W512 and W513.
"""

from __future__ import annotations

from wdspec.advice import on_data, on_plan, on_values
from wdspec.advice.facts import Facts
from wdspec.spec.problems import Problem
from wdspec.spec.rules.rule import RULES
from wdspec.spec.tree import Position

TOPICS = (on_data, on_plan, on_values)
"""All modules with such rules. Importing a module adds its rules to `RULES`."""

_NOWHERE = Position("", 0, 0)


def advise(facts: Facts) -> list[Problem]:
    """Return what the rules find whose facts are all known, in order of codes."""
    found = []
    for each in RULES:
        known = [getattr(facts, name, None) for name in each.needs]
        if known and all(fact is not None for fact in known):
            for message, hint, source in each.check(*known):
                place = (source.position if source is not None else None) or _NOWHERE
                found.append(Problem(each.about.code, message, hint, *place))
    # Both are about `epoch`; one message about one number.
    left_out = "W511" if any(each.code == "W507" for each in found) else ""
    return [each for each in found if each.code != left_out]
