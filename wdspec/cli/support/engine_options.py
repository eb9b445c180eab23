"""The options by which commands choose who works: processes of this machine, or a Dask cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from wdspec.base.process import cores

if TYPE_CHECKING:
    from wdspec.offline.engines import Engine


@dataclass(frozen=True)
class EngineChoice:
    """Who works."""

    jobs: int | None
    """Processes of this machine; 0: this one; None: as many as there are cores."""
    scheduler: str | None
    """Address of a Dask cluster."""

    def make(self) -> Engine:
        """The engine.

        Raises:
            UsageError: Dask is not installed, or its scheduler does not answer.
        """
        from wdspec.offline.engines import DaskEngine, LocalEngine

        if self.scheduler is not None:
            return DaskEngine(self.scheduler)
        return LocalEngine(cores() if self.jobs is None else self.jobs)


def choosing_engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command `--engine`, `--jobs` and `--scheduler`, and passes them as ``workers``."""

    @click.option(
        "--engine",
        "kind",
        type=click.Choice(["local", "dask"]),
        default="local",
        show_default=True,
        help="Who works.",
    )
    @click.option(
        "--jobs",
        type=click.IntRange(min=0),
        help="Processes of the local engine (default: one a core); 0: this one.",
    )
    @click.option("--scheduler", metavar="ADDRESS", help="Of the Dask cluster: tcp://host:8786.")
    @functools.wraps(command)
    def with_engine(kind: str, jobs: int | None, scheduler: str | None, **given: Any) -> Any:
        if (kind == "dask") != (scheduler is not None):
            raise click.UsageError("--engine dask and --scheduler ADDRESS go together")
        if kind == "dask" and jobs is not None:
            raise click.UsageError("--jobs is for the local engine; the cluster has the workers that it has")
        return command(workers=EngineChoice(jobs, scheduler), **given)

    return with_engine
