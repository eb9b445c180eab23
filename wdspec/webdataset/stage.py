"""Stages: functions from iterator to iterator, with their arguments.

This is the file to read first. `stage` and `keyed_stage` turn functions into stages, as webdataset's `pipelinefilter`
and `PipelineStage` do; `each` calls a function on every sample; `start_pass` iterates over the source of a pipeline.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from wdspec.base.errors import UsageError, tell_place
from wdspec.planning.keys import key64
from wdspec.webdataset.handlers import ErrorHandler

P = ParamSpec("P")


class PassContext(NamedTuple):
    """When and where a stage runs: its random numbers depend on this and on its seed.

    It contains neither rank nor worker: a shuffle before the split among processes must be the same in all of them,
    and after the split they read different samples anyway.
    """

    number: int = 0
    """The number of the pass over the data, from 0."""
    place: int = 0
    """The stage's index in its pipeline."""

    def key(self, kind: str, seed: int | str) -> int:
        """Return a 64-bit key for a stage of this kind and seed."""
        return key64(seed, kind, self.place, self.number)


class Stage:
    """A function from iterator to iterator, with its arguments. Immutable; it pickles if the arguments do."""

    __slots__ = ("args", "kwargs", "maker")

    def __init__(self, maker: StageMaker[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.maker, self.args, self.kwargs = maker, args, kwargs

    def __call__(self, source: Iterable[Any]) -> Iterator[Any]:
        """Run the stage on items, outside any pipeline."""
        return self.run(iter(source), PassContext())

    def run(self, source: Iterator[Any], context: PassContext) -> Iterator[Any]:
        """Run the stage on the items of one pass."""
        maker = self.maker
        if maker.keyed:
            return maker.function(source, context, *self.args, **self.kwargs)
        return maker.function(source, *self.args, **self.kwargs)

    def __repr__(self) -> str:
        shown = [
            *map(_show, self.args),
            *(f"{name}={_show(value)}" for name, value in self.kwargs.items()),
        ]
        return f"{self.maker.__name__}({', '.join(shown)})"


def _show(argument: Any) -> str:
    return getattr(argument, "__name__", None) or repr(argument)


class StageMaker(Generic[P]):
    """Makes stages of one kind: ``shuffle(100)`` is the stage that shuffles with a buffer of 100.

    Args:
        function: takes an iterator, a `PassContext` if keyed, and the stage's arguments; returns an iterator.
        keyed: whether it draws random numbers, and so needs the `PassContext` that keys them.
        collects_nothing: whether it yields or drops what it gets at once, unlike a batch or a buffer.
    """

    def __init__(
        self, function: Callable[..., Iterator[Any]], keyed: bool, collects_nothing: bool = False
    ) -> None:
        self.function, self.keyed, self.collects_nothing = function, keyed, collects_nothing
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[2 if keyed else 1 :]
        self.__signature__ = signature.replace(parameters=parameters, return_annotation="Stage")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Stage:
        try:
            self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.__name__}{self.__signature__}: {error}") from None
        return Stage(self, args, dict(kwargs))

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<{self.__name__}: makes stages>"


def stage(function: Callable[Concatenate[Iterator[Any], P], Iterator[Any]]) -> StageMaker[P]:
    """Decorate a function from an iterator (and further arguments) to an iterator, so that it makes stages."""
    return StageMaker(function, keyed=False)


def item_stage(function: Callable[Concatenate[Iterator[Any], P], Iterator[Any]]) -> StageMaker[P]:
    """Like `stage`, for a function that yields or drops each item before it takes another."""
    return StageMaker(function, keyed=False, collects_nothing=True)


def keyed_stage(
    function: Callable[Concatenate[Iterator[Any], PassContext, P], Iterator[Any]],
) -> StageMaker[P]:
    """Like `stage`, for a function that draws random numbers: its second argument is a `PassContext` to key them."""
    return StageMaker(function, keyed=True)


F = TypeVar("F", bound=Callable[..., Stage])


def makes_stages(function: F) -> F:
    """Mark a function that returns a stage, so that a pipeline calls it if you leave out the parentheses."""
    function.makes_stage = True  # type: ignore[attr-defined]  # functions have room for attributes
    return function


DROPPED: Any = object()
"""What a function returns to leave a sample out."""


def each(
    source: Iterator[Any],
    function: Callable[[Any], Any],
    handler: ErrorHandler,
    errors: type[Exception] = Exception,
) -> Iterator[Any]:
    """Yield the result of a function for each sample, except those it drops.

    Args:
        function: sample → result, or `DROPPED`.
        handler: what to do about an error: leave the sample out, end the stream, or raise.
        errors: which errors the handler gets; others are raised.
    """
    for sample in source:
        try:
            result = function(sample)
        except errors as error:
            if isinstance(sample, dict):
                tell_place(error, url=sample.get("__url__"), key=sample.get("__key__"))
            if handler(error):
                continue
            return
        if result is not DROPPED:
            yield result


class PipelineStage:
    """A stage as a class, whose method `run` takes and returns an iterator. A function works as well."""

    def run(self, source: Iterator[Any]) -> Iterable[Any]:
        """Return the items of the stage. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} needs a method `run(self, source)`")

    def __call__(self, source: Iterable[Any]) -> Iterator[Any]:
        return iter(self.run(iter(source)))


class _Unnamed(StageMaker[Any]):
    """A maker for a user function. Its stages pickle if the function does."""

    def __reduce__(self) -> Any:
        return type(self), (self.function, False)


def pipelinefilter(function: Callable[..., Any]) -> Callable[..., Stage]:
    """Turn a function of an iterator and further arguments into a maker of stages: ``pipelinefilter(f)(3)``."""
    return _Unnamed(function, keyed=False)


def start_pass(source: Any, number: int) -> Iterator[Any]:
    """Start a pass over the source of a pipeline and return its items.

    Args:
        source: an object with `iterate(number)`, an iterable, or a function that returns an iterator.
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
            f"{source} is the first stage of the pipeline, but a pipeline starts with a source, such as a list of "
            "shards"
        )
    if callable(source):
        return iter(source())
    raise UsageError(f"{describe_type(source)} cannot be read: it is not a list, a dataset or a function")


def describe_type(entry: Any) -> str:
    kind = type(entry).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
