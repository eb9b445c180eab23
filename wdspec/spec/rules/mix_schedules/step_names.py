"""E105: the steps of a schedule name sources of the top list."""

from __future__ import annotations

from wdspec.base.errors import did_you_mean
from wdspec.spec.draft import Composed
from wdspec.spec.problems import listed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.schedule_steps import steps_with_shares


@rule("E105")
def step_names(composed: Composed) -> Findings:
    """Names of no source, and of sources inside a nested mix."""
    if composed.schedule is None:
        return
    names = [draft.name for draft in composed.drafts]
    inner = {
        leaf.name: draft.name
        for draft in composed.drafts
        if draft.children is not None
        for leaf in draft.leaves
    }
    for shares in steps_with_shares(composed):
        for name, (key, _) in shares.entries.items():
            if name in inner and name not in names:
                message = f"`{name[:60]}` is inside the mix `{inner[name][:60]}`"
                hint = f"a schedule sets the shares of the top list: give `{inner[name][:60]}` one"
                yield Finding(key, message, hint)
            elif name not in names:
                hint = did_you_mean(name, names) or f"there are {listed(names)}"
                yield Finding(key, f"there is no source `{name[:60]}`", hint)
