"""Rules in Python: functions of installed packages, which run only on request (`validate --policy-rules`)."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from wdspec.base.errors import UsageError
from wdspec.base.user_code import secure_mode
from wdspec.spec.spec import Spec

GROUP = "wdspec.policy_rules"
"""The group of their entry points."""


class PythonRule(NamedTuple):
    """A function of a package."""

    name: str
    """Of the entry point."""
    function: Callable[[Spec], Any]


class FailedRuleError(Exception):
    """A rule raised, or returned something else than findings; the message says where."""


def load_rules() -> list[PythonRule]:
    """Import the rules of all installed packages, sorted by name.

    Raises:
        UsageError: WDS_SECURE is set, there are none, or one cannot be imported.
    """
    from importlib.metadata import entry_points

    if secure_mode(os.environ):
        raise UsageError(
            "--policy-rules runs code of installed packages, which WDS_SECURE forbids; unset it if you trust them"
        )
    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            function = entry.load()
        except Exception as cause:  # whatever the module raises
            raise UsageError(
                f"cannot import the policy rule `{entry.name}` ({entry.value}): {type(cause).__name__}: {cause}"
            ) from cause
        if not callable(function):
            raise UsageError(f"the policy rule `{entry.name}` ({entry.value}) is not a function")
        found.append(PythonRule(entry.name, function))
    if not found:
        raise UsageError(f"no installed package has policy rules: entry points of the group `{GROUP}`")
    return found


def run_rule(rule: PythonRule, spec: Spec) -> Iterator[tuple[str | None, str]]:
    """Yield what a rule finds in a spec: the name of a source, or None, and a message.

    Raises:
        FailedRuleError: it raised, or returned something else.
    """
    try:
        found = rule.function(spec)
        items = [found] if isinstance(found, str) else [*(found or ())]
    except Exception as cause:  # whatever the rule raises
        frames = traceback.extract_tb(cause.__traceback__)
        where = f" in line {frames[-1].lineno} of {frames[-1].filename}" if len(frames) > 1 else ""
        raise FailedRuleError(f"`{rule.name}` raised {type(cause).__name__}: {cause}{where}") from cause
    names = {source.name for source in spec.collections}
    for item in items:
        pair = (None, item) if isinstance(item, str) else item
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], str):
            raise FailedRuleError(
                f"`{rule.name}` returned {item!r:.80}; a finding is a text, or the name of a source and a text"
            )
        if pair[0] is not None and pair[0] not in names:
            raise FailedRuleError(f"`{rule.name}` found something in {pair[0]!r:.80}, which is not a source")
        yield pair
