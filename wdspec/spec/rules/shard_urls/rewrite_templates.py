"""E212: what replaces a match refers only to groups that its regex has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wdspec.spec.compose.draft import Composed
from wdspec.spec.language.value_codes import VALUE_CODES
from wdspec.spec.problems.wording import quoted
from wdspec.spec.rules.rule import Finding, LintRule
from wdspec.spec.tree.nodes import ListNode, MapNode, Scalar


def check(composed: Composed) -> Iterator[Finding]:
    """Every `to` of a `rewrite:` or `output:` that is no template for its `from`."""
    for holder in (composed.top, *(leaf.node for leaf in composed.leaves)):
        rewrite = holder.get("rewrite")
        for rule in (*(rewrite.items if isinstance(rewrite, ListNode) else ()), holder.get("output")):
            if isinstance(rule, MapNode):
                yield from _mistakes(rule)


def _mistakes(rule: MapNode) -> Iterator[Finding]:
    regex, template = rule.get("from"), rule.get("to")
    if not (isinstance(regex, Scalar) and isinstance(template, Scalar)):
        return
    if not (isinstance(regex.value, str) and isinstance(template.value, str)) or len(regex.value) > 1000:
        return
    try:
        compiled = re.compile(regex.value)
    except (re.error, OverflowError, RecursionError):
        return  # reported where the value was checked
    try:
        compiled.sub(template.value, "")  # reads the template even where nothing matches
    except (re.error, IndexError) as error:
        hint = f"the regex has {compiled.groups} groups; a literal `\\` is written `\\\\`"
        yield Finding(template, f"{quoted(template.value)} cannot replace the match: {error}", hint)


RULE = LintRule(VALUE_CODES["E212"], check)
