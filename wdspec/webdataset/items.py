"""The kinds of items that stages take: samples (dicts of fields), tuples of values, batches and lists.

A stage that got another kind would take the names of fields for their values, or raise an error about Python. So each
checks its first item, and names the stage that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.fields.extensions import listed_fields

_TEXT = (str, bytes, bytearray, memoryview)


def samples(source: Iterator[Any], stage: str, or_batches: bool = False) -> Iterator[Any]:
    """Yield the items of a stage that takes samples. The first one must be a dict of fields.

    Args:
        or_batches: whether it may be the dict of a batch, too.

    Raises:
        UsageError: it is something else, such as a tuple or a list of samples.
    """

    def problem(item: Any) -> str:
        if isinstance(item, Mapping):
            wrong = _is_batch(item) and not or_batches
            return f"put `{stage}` before `batched`, or add `.unbatched()` before it" if wrong else ""
        is_list = isinstance(item, list) and item and isinstance(item[0], Mapping)
        return f"put `{stage}` before {'`listed`' if is_list else '`to_tuple` (or `batched`)'}"

    return _checked(source, f"`{stage}` takes samples (dicts of fields)", problem)


def tuples(source: Iterator[Any], stage: str) -> Iterator[Any]:
    """Yield the items of a stage that takes tuples of values. The first one must be a tuple or a list of values.

    Raises:
        UsageError: it is something else, such as a dict, or a list of samples.
    """

    def problem(item: Any) -> str:
        if isinstance(item, Mapping):
            names = (
                ", ".join(f'"{name}"' for name in item if not str(name).startswith("__")) or '"jpg", "cls"'
            )
            return f"add `.to_tuple({names})` before it, or use `map_dict`"
        if isinstance(item, (tuple, list)) and item and isinstance(item[0], Mapping):
            return f"put `.to_tuple(…)` and `{stage}` before `listed`"
        return "" if isinstance(item, (tuple, list)) else "use `map`, or return tuples in the stage before"

    return _checked(source, f"`{stage}` takes tuples of values", problem)


def batches(source: Iterator[Any], stage: str) -> Iterator[Any]:
    """Yield the items of a stage that takes batches. The first one must be a tuple, list or dict of columns.

    Raises:
        UsageError: it is something else, such as a list of samples, or a sample.
    """

    def problem(item: Any) -> str:
        if not isinstance(item, (tuple, list, Mapping)):
            return "batch the items before, with `.batched(n)`"
        columns = list(item.values() if isinstance(item, Mapping) else item)
        if any(isinstance(column, Mapping) for column in columns) and not isinstance(item, Mapping):
            return "use `.unlisted()`"
        is_sample = any(isinstance(column, _TEXT) for column in columns)
        return "batch the items before, with `.batched(n)`" if is_sample else ""

    return _checked(source, f"`{stage}` takes batches (columns of values)", problem)


def lists(source: Iterator[Any], stage: str) -> Iterator[Any]:
    """Yield the items of a stage that takes lists. The first one must not be a dict or a text.

    Raises:
        UsageError: it is a dict, which is a sample or a batch, or a text.
    """

    def problem(item: Any) -> str:
        if isinstance(item, Mapping) and _is_batch(item):
            return "use `.unbatched()`"
        wrong = isinstance(item, (Mapping, *_TEXT)) or not hasattr(item, "__iter__")
        return "list the items before, with `.listed(n)`" if wrong else ""

    return _checked(source, f"`{stage}` takes lists", problem)


def _is_batch(item: Mapping[Any, Any]) -> bool:
    return isinstance(item.get("__key__"), (list, tuple))


def _checked(source: Iterator[Any], takes: str, problem: Callable[[Any], str]) -> Iterator[Any]:
    for first in source:
        remedy = problem(first)
        if remedy:
            raise UsageError(f"{takes}, but gets {_describe(first)}; {remedy}")
        yield first
        yield from source


def _describe(item: Any) -> str:
    """Describe an item without its values, which may be long."""
    if isinstance(item, Mapping):
        return f"{'a batch' if _is_batch(item) else 'a sample'} with the fields {listed_fields(item)}"
    if isinstance(item, (tuple, list)):
        kinds = {"samples" if isinstance(value, Mapping) else "values" for value in item} or {"values"}
        return f"a {type(item).__name__} of {len(item)} {' and '.join(sorted(kinds))}"
    return f"an item of type {type(item).__name__}"
