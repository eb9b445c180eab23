"""The options that several commands share: which spec, which topology, how to report, and which engine works."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from wdspec.base.errors import UsageError

if TYPE_CHECKING:
    from wdspec.jobs.engine import Engine
    from wdspec.spec.files import ReadFile
    from wdspec.spec.spec import Source, Spec

SPEC_SUFFIXES = (".yaml", ".yml", ".json")
Command = Callable[..., Any]

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


def topology_options(command: Command) -> Command:
    """Give a command the options `--ranks` and `--workers`."""
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

    def load_splits(self, output: str | None, what: str) -> Iterator[tuple[str | None, Spec]]:
        """The chosen split, or every split of the spec, for commands that write a file for each; None without splits.

        Args:
            output: the file named on the command line, which only one split can have.
            what: the kind of file.
        """
        from wdspec.shards.lock import list_splits

        splits = list_splits(self.file, self.split)
        if output is not None and len(splits) > 1:
            raise click.UsageError(
                f"each of {len(splits)} splits has a {what} of its own; choose one with --split"
            )
        for name in splits:
            yield name, replace(self, split=name).load()


def choosing_options(
    split_help: str = "Split of the spec; SPEC#NAME chooses it too.",
) -> Callable[[Command], Command]:
    """Give a command the options that choose a variant of a spec; passes ``choose``, from file to `SpecChoice`."""

    def decorate(command: Command) -> Command:
        @click.option("--split", metavar="NAME", help=split_help)
        @env_option
        @var_option
        @set_option
        @functools.wraps(command)
        def with_options(
            split: str | None,
            env: str | None,
            variables: tuple[str, ...],
            overrides: tuple[str, ...],
            **others: Any,
        ) -> Any:
            return command(choose=lambda file: SpecChoice(file, split, env, variables, overrides), **others)

        return with_options

    return decorate


def choosing_spec(command: Command) -> Command:
    """Give a command the argument SPEC and the options around it; passes ``choice``."""

    @click.argument("file", metavar="SPEC")
    @choosing_options()
    @functools.wraps(command)
    def with_choice(file: str, choose: Callable[[str], SpecChoice], **others: Any) -> Any:
        return command(choice=choose(file), **others)

    return with_choice


def choosing(command: Command) -> Command:
    """The same, and `--format`."""
    return form_option(choosing_spec(command))


def choosing_engine(command: Command) -> Command:
    """Give a command `--engine`, `--jobs` and `--scheduler`; passes ``start_engine``.

    That function raises UsageError where Dask is not installed, or its scheduler does not answer.
    """

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
    def with_engine(kind: str, jobs: int | None, scheduler: str | None, **others: Any) -> Any:
        if (kind == "dask") != (scheduler is not None):
            raise click.UsageError("--engine dask and --scheduler ADDRESS go together")
        if kind == "dask" and jobs is not None:
            raise click.UsageError("--jobs is for the local engine; the cluster has the workers that it has")

        def start_engine() -> Engine:
            from wdspec.base.process import cores
            from wdspec.jobs.engine import DaskEngine, LocalEngine

            if scheduler is not None:
                return DaskEngine(scheduler)
            return LocalEngine(cores() if jobs is None else jobs)

        return command(start_engine=start_engine, **others)

    return with_engine


def read_bytes(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Callback of an option that takes an amount of bytes, as specs write it: `500MB`, `1GiB`, `4096`."""
    from wdspec.spec.language.values import read_size

    return None if text is None else int(read_as_specs_do(read_size, text))


def read_as_specs_do(reader: Callable[[str], Any], text: str) -> Any:
    """The value that a reader of values in specs makes of an option's text. Raises click.BadParameter if refused."""
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
