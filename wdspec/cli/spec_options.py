"""The argument and options by which commands choose one spec: file, split, environment, variables, overrides.

The options by which commands choose who works: processes of this machine, or a Dask cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from wdspec.base.errors import UsageError
from wdspec.base.process import cores

if TYPE_CHECKING:
    from wdspec.jobs.engine import Engine
    from wdspec.spec.files import ReadFile
    from wdspec.spec.spec import Source, Spec


SPEC_SUFFIXES = (".yaml", ".yml", ".json")

form_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)

env_option = click.option("--env", metavar="NAME", help="Environment of the spec (default: $WDSPEC_ENV).")
var_option = click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="Value of a ${variable}; repeatable."
)
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, `a.b=value`; repeatable."
)


def topology_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options `--ranks` and `--workers`."""
    ranks = click.option(
        "--ranks",
        type=click.IntRange(min=1),
        help="Data-parallel ranks (default: those of the running job, or 1).",
    )
    workers = click.option(
        "--workers",
        type=click.IntRange(min=0),
        help="DataLoader workers a rank (default: the spec's `loader`).",
    )
    return ranks(workers(command))


@dataclass(frozen=True)
class SpecChoice:
    """Which spec a command is about."""

    file: str
    split: str | None = None
    env: str | None = None
    variables: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()

    def load(self, read: ReadFile | None = None) -> Spec:
        """The spec, checked; read from the disk, or by a function (see `wdspec.load`).

        Raises:
            SpecError: the spec has problems.
            click.UsageError: a `--var` or `--set` without `=`.
        """
        from wdspec.spec.load import load

        values = assigned(self.variables, "--var")
        assigned(self.overrides, "--set")
        return load(
            self.file,
            split=self.split,
            env=self.env,
            vars=values or None,
            overrides=self.overrides or None,
            read=read,
        )


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the argument SPEC and the options around it, and passes them as ``choice``; and `--format`."""
    return form_option(choosing_spec(command))


def choosing_spec(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same without `--format`."""

    @click.argument("file", metavar="SPEC")
    @click.option("--split", metavar="NAME", help="Split of the spec; SPEC#NAME chooses it too.")
    @env_option
    @var_option
    @set_option
    @functools.wraps(command)
    def with_choice(**given: Any) -> Any:
        choice = SpecChoice(**{field.name: given.pop(field.name) for field in fields(SpecChoice)})
        return command(choice=choice, **given)

    return with_choice


def read_bytes(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Callback of an option that takes an amount of bytes, as specs write it: `500MB`, `1GiB`, `4096`."""
    from wdspec.spec.language.values import read_size

    return None if text is None else int(read_as_specs_do(read_size, text))


def read_as_specs_do(reader: Callable[[str], Any], text: str) -> Any:
    """What a reader of values in specs makes of an option's text. Raises click.BadParameter as it refuses it."""
    from pydantic_core import PydanticCustomError

    try:
        return reader(text)
    except PydanticCustomError as error:
        refusal = error.context or {}
        raise click.BadParameter(f"{refusal.get('message')}; {refusal.get('hint')}") from None


def is_a_spec(what: str) -> bool:
    """Whether an argument that may be something else too names a spec, perhaps with its split."""
    return what.split("#", 1)[0].endswith(SPEC_SUFFIXES)


def source_named(name: str, spec: Spec) -> Source:
    """The source of that name. Raises UsageError where there is none."""
    for source in spec.sources:
        if source.name == name:
            return source
    names = ", ".join(source.name for source in spec.sources)
    raise UsageError(f"the spec has no source `{name}`; its sources are {names}")


def assigned(texts: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` texts of an option, by name. Raises click.UsageError for one without `=`."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} takes NAME=VALUE, but saw `{text}`")
        values[name] = value
    return values


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
        from wdspec.jobs.engine import DaskEngine, LocalEngine

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
