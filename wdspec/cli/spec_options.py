"""Options that several commands share: which spec, which topology, which output format, which engine."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from wdspec.base.amounts import join_names
from wdspec.base.errors import UsageError, install_command

if TYPE_CHECKING:
    from wdspec.jobs.engine import Engine
    from wdspec.spec.files import ReadFile
    from wdspec.spec.spec import Source, Spec

Command = Callable[..., Any]


def format_option(*forms: str, help: str = "Output format.") -> Callable[[Command], Command]:
    """Give a command the option `--format`; pass ``form``. The first format is the default."""
    kind = click.Choice(forms)
    return click.option("--format", "form", type=kind, default=forms[0], show_default=True, help=help)


form_option = format_option("text", "json")


def refuse_names(option: str, names: tuple[str, ...], file: str | None = None) -> NoReturn:
    """Raise click.UsageError: an option that takes one name was given several times, and the last one would win.

    Args:
        file: the spec, to show what an environment changes.
    """
    first, last = names[0], names[-1]
    hint = f"write {option} {first}"
    if option == "--env":
        from wdspec.spec.load import environment_overrides

        changes = [] if file is None else environment_overrides(file, last)
        sets = " ".join(f"--set {shlex.quote(text)}" for text in changes) or "--set KEY=VALUE"
        hint = f"{hint} {sets}, with what `{last}` changes"
    given = join_names(f"`{name}`" for name in names)
    raise click.UsageError(f"{option} takes one name, but was given {given}; {hint}")


def _read_once(option: str, names: tuple[str, ...], file: str) -> str | None:
    """Return the only value of an option; None without one."""
    return refuse_names(option, names, file) if len(names) > 1 else names[0] if names else None


env_option = click.option(
    "--env",
    multiple=True,
    metavar="NAME",
    help="Environment of the spec (default: $WDSPEC_ENV).",
)
var_option = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a ${variable} of the spec. Repeatable.",
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key, as `a.b=value`. Repeatable.",
)


def topology_options(command: Command) -> Command:
    """Give a command the options `--ranks` and `--workers`."""
    ranks = click.option(
        "--ranks",
        type=click.IntRange(min=1),
        help="Number of data-parallel ranks (default: those of the running job, or 1).",
    )
    workers = click.option(
        "--workers",
        type=click.IntRange(min=0),
        help="DataLoader workers per rank (default: the spec's `loader`).",
    )
    return ranks(workers(command))


@dataclass(frozen=True)
class SpecChoice:
    """The spec that a command works on, and the chosen variant of it."""

    file: str
    split: str | None = None
    env: str | None = None
    variables: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()

    def load(self, read: ReadFile | None = None) -> Spec:
        """Load and check the spec, from the disk or through a function (see `wdspec.load`).

        Raises:
            SpecError: the spec has problems.
            click.UsageError: a `--var` or `--set` without `=`.
        """
        from wdspec.spec.load import load

        values = parse_assignments(self.variables, "--var") or None
        parse_assignments(self.overrides, "--set")
        overrides = self.overrides or None
        return load(self.file, split=self.split, env=self.env, vars=values, overrides=overrides, read=read)

    def load_splits(self, output: str | None, what: str) -> Iterator[tuple[str | None, Spec]]:
        """Load the chosen split, or each split (None without splits), for commands that write a file of each.

        Args:
            output: the file named on the command line; allowed for one split only.
            what: the kind of file.
        """
        from wdspec.shards.lock import list_splits

        splits = list_splits(self.file, self.split)
        if output is not None and len(splits) > 1:
            raise click.UsageError(
                f"each of {len(splits)} splits has its own {what}; choose one with --split"
            )
        for name in splits:
            yield name, replace(self, split=name).load()


def choosing_options(
    split_help: str = "Split of the spec; the same as SPEC#NAME.",
) -> Callable[[Command], Command]:
    """Give a command the options that choose a variant of a spec; pass ``choose``, from file to `SpecChoice`."""

    def decorate(command: Command) -> Command:
        @click.option("--split", multiple=True, metavar="NAME", help=split_help)
        @env_option
        @var_option
        @set_option
        @functools.wraps(command)
        def with_options(
            split: tuple[str, ...],
            env: tuple[str, ...],
            variables: tuple[str, ...],
            overrides: tuple[str, ...],
            **others: Any,
        ) -> Any:
            def choose(file: str) -> SpecChoice:
                one_split, one_env = _read_once("--split", split, file), _read_once("--env", env, file)
                return SpecChoice(file, one_split, one_env, variables, overrides)

            return command(choose=choose, **others)

        return with_options

    return decorate


def choosing_spec(command: Command) -> Command:
    """Give a command the argument SPEC and its options; pass ``choice``."""

    @click.argument("files", metavar="SPEC", nargs=-1, required=True)
    @choosing_options()
    @functools.wraps(command)
    def with_choice(files: tuple[str, ...], choose: Callable[[str], SpecChoice], **others: Any) -> Any:
        if len(files) > 1:  # such as the shards of a glob
            from wdspec.spec.files import is_spec_file

            folder, name = os.path.split(files[0])
            shards = f"dataset: [{{shards: '{os.path.join(folder, '*' + os.path.splitext(name)[1])}'}}]"
            hint = "" if is_spec_file(name) else f"; to read shards, name a YAML file with `{shards}`"
            raise click.UsageError(f"this takes one spec, not {len(files)} files{hint}")
        return command(choice=choose(files[0]), **others)

    return with_choice


def choosing(command: Command) -> Command:
    """Give a command the argument SPEC, its options, and `--format`; pass ``choice`` and ``form``."""
    return form_option(choosing_spec(command))


class _Row(NamedTuple):
    """An engine, as the command line names it."""

    address: str
    """What follows `NAME:`; in brackets if it is optional, empty if the engine has none."""
    jobs: str
    """If the engine has no `--jobs`: how it determines the number instead."""
    use: Callable[[str, int | None], AbstractContextManager[Callable[[], Engine] | None]]
    """Create a command's context from address and `--jobs`. Its value is None if other processes run the command."""


def _use_dask(address: str, jobs: int | None) -> AbstractContextManager[Callable[[], Engine]]:
    from wdspec.jobs.engine import DaskEngine

    return nullcontext(lambda: DaskEngine(address))


def _use_ray(address: str, jobs: int | None) -> AbstractContextManager[Callable[[], Engine]]:
    from wdspec.jobs.engine import RayEngine

    return nullcontext(lambda: RayEngine(address))


def _use_ranks(address: str, jobs: int | None) -> AbstractContextManager[Callable[[], Engine] | None]:
    from wdspec.jobs.torchrun import using_ranks

    if jobs == 0:
        raise click.UsageError("--jobs 0 runs in this process, but the torchrun engine needs others")
    return using_ranks(address, jobs or 1)


ENGINES = {
    "dask": _Row("ADDRESS", "a Dask cluster uses all of its workers", _use_dask),
    "ray": _Row("[ADDRESS]", "a Ray cluster uses all of its CPUs", _use_ray),
    "torchrun": _Row("FOLDER", "", _use_ranks),
}
"""The engines by name, except the local one, which depends on the command."""


def choosing_engine(threads: int = 0) -> Callable[[Command], Command]:
    """Give a command `--engine`, `--jobs` and `--scheduler`; pass ``start_engine``.

    That function raises UsageError if a library is not installed, or if a cluster does not respond.

    Args:
        threads: default number of threads of the local engine, for commands that only wait for stores; 0 to use
            processes.
    """
    local = f"threads (default: {threads})" if threads else "processes (default: one per core); 0 for none"

    def use_local(address: str, jobs: int | None) -> AbstractContextManager[Callable[[], Engine]]:
        from wdspec.base.process import cores
        from wdspec.jobs.engine import LocalEngine, ThreadEngine

        if threads:
            return nullcontext(lambda: ThreadEngine(jobs or threads))
        return nullcontext(lambda: LocalEngine(cores() if jobs is None else jobs))

    engines = {"local": _Row("", "", use_local), **ENGINES}

    def decorate(command: Command) -> Command:
        @click.option(
            "--engine",
            "text",
            metavar="NAME[:ADDRESS]",
            default="local",
            show_default=True,
            help="Where to run: on this machine (local), on a cluster (dask:ADDRESS, ray[:ADDRESS]), or on the "
            "ranks of a launcher (torchrun:FOLDER, a shared folder).",
        )
        @click.option(
            "--jobs",
            type=click.IntRange(min=0),
            help=f"Number of local {local}. With torchrun: processes per rank (default: 1).",
        )
        @click.option("--scheduler", metavar="ADDRESS", help="The same as --engine dask:ADDRESS.")
        @functools.wraps(command)
        def with_engine(text: str, jobs: int | None, scheduler: str | None, **others: Any) -> Any:
            name, _, address = text.partition(":")
            if scheduler is not None:
                if text != "dask":
                    raise click.UsageError("--scheduler ADDRESS works only with --engine dask")
                address = scheduler
            row = engines.get(name)
            if row is None:
                raise click.UsageError(f"unknown engine `{name}`; the engines are {', '.join(engines)}")
            if address and not row.address:
                raise click.UsageError(f"the engine {name} has no address; write --engine {name}")
            if not address and row.address and row.address[0] != "[":
                raise click.UsageError(f"write --engine {name}:{row.address}")
            if row.jobs and jobs is not None:
                raise click.UsageError(f"--jobs works only with the local engine and torchrun; {row.jobs}")
            with row.use(address, jobs) as start_engine:
                return None if start_engine is None else command(start_engine=start_engine, **others)

        return with_engine

    return decorate


def read_bytes(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Parse an amount of bytes, as specs write it: `500MB`, `1GiB`, `4096`. The callback of an option."""
    from wdspec.spec.language.values import read_size

    return None if text is None else int(parse_value(read_size, text))


def parse_value(reader: Callable[[str], Any], text: str) -> Any:
    """Parse the text of an option with a reader of spec values. Raises click.BadParameter if it is invalid."""
    from pydantic_core import PydanticCustomError

    try:
        return reader(text)
    except PydanticCustomError as error:
        refusal = error.context or {}
        raise click.BadParameter(f"{refusal.get('message')}; {refusal.get('hint')}") from None


def require_library(module: str, option: str, package: str) -> None:
    """Raise UsageError if a library that an option or a command needs is not installed."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise UsageError(f"{option} needs {module}: {install_command(package)}")


def find_source(name: str, spec: Spec) -> Source:
    """Return the source of that name, perhaps of companions. Raises UsageError for an unknown name."""
    for source in spec.collections:
        if source.name == name:
            return source
    names = ", ".join(source.name for source in spec.collections)
    raise UsageError(f"the spec has no source `{name}`; its sources are {names}")


def parse_assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse the `NAME=VALUE` texts of an option. Raises click.UsageError for one without `=`."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} takes NAME=VALUE, not `{text}`")
        values[name] = value
    return values
