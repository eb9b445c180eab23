"""E313: the steps of a schedule ascend from 0."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import MapNode, Scalar


@rule(
    "E313",
    "a schedule out of order",
    "The steps of `mix.schedule` follow each other, and the first begins at sample 0, with nothing to ramp from.",
    bad="mix: {schedule: [{at: 500, shares: {a: 1}}]}\ndataset:\n  - {name: a, shards: a.tar}\n",
    good="mix: {schedule: [{at: 0, shares: {a: 1}}]}\ndataset:\n  - {name: a, shards: a.tar}\n",
)
def step_order(composed: Composed) -> Findings:
    """Steps at or before the one above them, and a first one after 0."""
    before: int | None = None
    for item in composed.schedule.items if composed.schedule else ():
        if not isinstance(item, MapNode):
            return
        node = item.get("at")
        if not isinstance(node, Scalar) or not isinstance(node.value, int):
            return  # which is a problem already
        ramp = item.get("ramp")
        if before is None and isinstance(ramp, Scalar) and ramp.value == "linear":
            hint = "leave `ramp` out, or give it to the step whose shares are to be reached"
            yield Finding(ramp, "before the first step there are no shares to ramp from", hint)
        if before is None and node.value != 0:
            hint = "write `at: 0`: the first shares hold from the beginning"
            yield Finding(node, f"a schedule begins at 0, but this one begins at {node.value:,}", hint)
        elif before is not None and node.value <= before:
            message = f"the steps of a schedule ascend, but {node.value:,} comes after {before:,}"
            yield Finding(node, message, "put the steps in order")
        before = node.value
