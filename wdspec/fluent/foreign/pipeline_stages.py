"""Bases and decorators for stages in webdataset's way: `PipelineStage`, `FluidInterface`, `pipelinefilter`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from wdspec.fluent.stage import Stage, StageMaker


class PipelineStage:
    """A stage that is a class: its method `run` takes an iterator and gives one. Any function does as well."""

    def run(self, source: Iterator[Any]) -> Iterable[Any]:
        """What the stage makes of what it reads; the user's classes define it."""
        raise NotImplementedError(f"{type(self).__name__} needs a method `run(self, source)`")

    def __call__(self, source: Iterable[Any]) -> Iterator[Any]:
        return iter(self.run(iter(source)))


class FluidInterface:
    """Nothing: pipelines have the methods already, and classes that name this as a base need no change."""


class _Unnamed(StageMaker[Any]):
    """A maker whose function is the user's; its stages pickle if that does."""

    def __reduce__(self) -> Any:
        return type(self), (self.function, False)


def pipelinefilter(function: Callable[..., Any]) -> Callable[..., Stage]:
    """Makes stages of a function of an iterator and further arguments: ``pipelinefilter(f)(3)`` is a stage."""
    return _Unnamed(function, keyed=False)
