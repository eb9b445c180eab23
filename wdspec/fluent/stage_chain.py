"""What may stand in a pipeline, and how a pass runs through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from wdspec.base.errors import UsageError
from wdspec.fluent.stage import PassContext, Stage, StageMaker


def flattened(stages: Iterable[Any]) -> tuple[Any, ...]:
    """Stages in a row: None left out, lists of stages opened, makers without their parentheses called."""
    row: list[Any] = []
    for entry in stages:
        if entry is None:
            continue
        if isinstance(entry, (list, tuple)) and _holds_stages(entry):
            row += flattened(entry)
        else:
            row.append(entry() if _makes_stages(entry) else entry)
    for entry in row[1:]:
        if not callable(entry):
            raise UsageError(
                f"{_named(entry)} stands behind the first stage, where a function from iterator to iterator belongs; "
                "only the first one is what is read"
            )
    if row and isinstance(row[0], Iterator):
        raise UsageError(
            f"{_named(row[0])} can be read only once, and a pipeline is read again each epoch; give the function that "
            "makes it, or a list"
        )
    return tuple(row)


def _holds_stages(entries: Sequence[Any]) -> bool:
    """Whether a list is one of stages, and not one of items to read: some of it can only be a stage, or a dataset.

    A list of nothing but one list is taken for that list, as webdataset has it.
    """
    if len(entries) == 1 and isinstance(entries[0], list):
        return True
    return any(
        _holds_stages(entry)
        if isinstance(entry, (list, tuple))
        else callable(entry) or isinstance(entry, (IterableDataset, DataLoader))
        for entry in entries
    )


def begin(source: Any, number: int) -> Iterator[Any]:
    """The items of one pass over what a pipeline begins with.

    Args:
        source: has `iterate(number)`, or can be iterated again and again, or is a function that returns an iterator.
        number: of the pass, from 0.

    Raises:
        UsageError: it is none of these.
    """
    iterate = getattr(source, "iterate", None)
    if iterate is not None:
        items: Iterator[Any] = iterate(number)
        return items
    if isinstance(source, Iterable):
        return iter(source)
    if isinstance(source, Stage):
        raise UsageError(
            f"{source} stands first in the pipeline, where what is read belongs: a list of shards, say"
        )
    if callable(source):
        return iter(source())
    raise UsageError(f"{_named(source)} cannot be read: it is no list, no dataset and no function")


def run(stages: tuple[Any, ...], number: int) -> Iterator[Any]:
    """One pass through all stages."""
    if not stages:
        raise UsageError(
            "this pipeline has no stages; begin with what is read, such as SimpleShardList(urls)"
        )
    items = begin(stages[0], number)
    for place, stage in enumerate(stages[1:], 1):
        items = (
            stage.run(items, PassContext(number, place)) if isinstance(stage, Stage) else iter(stage(items))
        )
    return items


def _makes_stages(function: Any) -> bool:
    return isinstance(function, StageMaker) or getattr(function, "makes_stage", False)


class Applied:
    """A function of an iterator and further arguments, with these; pickles if they do."""

    def __init__(self, function: Callable[..., Iterable[Any]], *args: Any, **kwargs: Any) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    def __call__(self, source: Iterator[Any]) -> Iterator[Any]:
        return iter(self.function(source, *self.args, **self.kwargs))

    def __repr__(self) -> str:
        return f"{getattr(self.function, '__name__', self.function)}{self.args or '()'}"


def made(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The stage of a function (or class, or maker) and its arguments, which come behind the iterator it takes."""
    if isinstance(function, type) or _makes_stages(function):
        return function(*args, **kwargs)
    return Applied(function, *args, **kwargs) if args or kwargs else function


def _named(entry: Any) -> str:
    kind = type(entry).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
