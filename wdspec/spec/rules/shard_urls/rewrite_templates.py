"""E212: what replaces a match refers only to groups that its regex has."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import ListNode, MapNode, Scalar


@rule("E212")
def rewrite_templates(composed: Composed) -> Findings:
    """Every `to` of a `rewrite:` or `output:` that is no template for its `from`."""
    for holder in (composed.top, *(leaf.node for leaf in composed.leaves)):
        rewrite = holder.get("rewrite")
        for item in (*(rewrite.items if isinstance(rewrite, ListNode) else ()), holder.get("output")):
            if isinstance(item, MapNode):
                yield from _mistakes(item)


def _mistakes(item: MapNode) -> Findings:
    regex, template = item.get("from"), item.get("to")
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
