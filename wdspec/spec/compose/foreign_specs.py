"""Specs of other tools, recognised by what stands in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, Origin, plain
from wdspec.spec.yaml.python_values import from_python

if TYPE_CHECKING:
    from wdspec.convert.dialect import Dialect

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
    found = _recognised(top)
    if found is None:
        return False
    key = next(key for key in (*_TELLING, *top.entries) if key in top.entries)
    message = f"this looks like {found.title}, which wdspec does not read"
    problems.add("E402", top.key(key), message, "`wdspec convert FILE -o NEW.yaml` makes a spec of it")
    return True


def natively_read(top: MapNode) -> MapNode | None:
    """What a file of another tool says, where a spec can say all of it; None for any other file."""
    found = _recognised(top)
    if found is None or not top.origin.directory:
        return None
    from wdspec.convert.given import Given
    from wdspec.convert.new_spec import NewSpec

    new = NewSpec(top.origin.directory)
    found.convert(Given("", plain(top), top.origin.directory), new)
    tree = (
        None
        if new.notes
        else from_python(new.spec, Origin(top.origin.name, top.origin.directory, None), Problems())
    )
    return tree if isinstance(tree, MapNode) else None


def _recognised(top: MapNode) -> Dialect | None:
    if not any(key in top.entries for key in _TELLING[:2]) and any(key in top.entries for key in _OURS):
        return None
    from wdspec.convert.dialect_table import recognised
    from wdspec.convert.given import Given

    value = plain(top)
    found = recognised(Given("", value, ""))
    return None if found is None or _may_be_ours(value) else found
