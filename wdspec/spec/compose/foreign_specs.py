"""Specs of other tools, recognised by what stands in them."""

from __future__ import annotations

from typing import Any

from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, plain

_OURS = ("dataset", "splits", "extends", "defaults", "wdspec")
_TELLING = ("__module__", "__class__", "datasets", "streams", "input_cfg", "sources", "schedule")
"""Keys to point at, the first that is there."""


def _may_be_ours(value: Any) -> bool:
    """Whether it is as likely a spec whose `dataset` is misspelt."""
    listed = value.get("datasets")
    return set(value) == {"datasets"} and all(
        isinstance(each, dict) and set(each) <= {"name", "shards"} for each in listed
    )


def foreign(top: MapNode, problems: Problems) -> bool:
    """Whether the file is a spec of another tool; if so that is noted, and nothing else need be checked."""
    if not any(key in top.entries for key in _TELLING[:2]) and any(key in top.entries for key in _OURS):
        return False
    from wdspec.convert.dialect_table import recognised
    from wdspec.convert.given import Given

    value = plain(top)
    found = recognised(Given("", value, ""))
    if found is None or _may_be_ours(value):
        return False
    key = next(key for key in (*_TELLING, *top.entries) if key in top.entries)
    message = f"this looks like {found.title}, which wdspec does not read"
    problems.add("E402", top.key(key), message, "`wdspec convert FILE -o NEW.yaml` makes a spec of it")
    return True
