"""Rules of `rewrite:` and `output:`: what replaces a match may refer only to groups that the regex has."""

from __future__ import annotations

import re

from wdspec.spec.language.value_kinds import quoted
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import ListNode, MapNode, Scalar


def check_rewrites(holder: MapNode, problems: Problems) -> None:
    """Notes every `to` of a `rewrite:` or `output:` that is no template for its `from`."""
    rewrite = holder.get("rewrite")
    for rule in (*(rewrite.items if isinstance(rewrite, ListNode) else ()), holder.get("output")):
        if isinstance(rule, MapNode):
            _check_rule(rule, problems)


def _check_rule(rule: MapNode, problems: Problems) -> None:
    regex, template = rule.get("from"), rule.get("to")
    if not (isinstance(regex, Scalar) and isinstance(template, Scalar)):
        return
    if not (isinstance(regex.value, str) and isinstance(template.value, str)) or len(regex.value) > 1000:
        return
    try:
        compiled = re.compile(regex.value)
    except (re.error, OverflowError, RecursionError):
        return  # told where the value was checked
    try:
        compiled.sub(template.value, "")  # reads the template even where nothing matches
    except (re.error, IndexError) as error:
        hint = f"the regex has {compiled.groups} groups; a literal `\\` is written `\\\\`"
        message = f"{quoted(template.value)} cannot replace the match: {error}"
        problems.add("E212", template, message, hint)
