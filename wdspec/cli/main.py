"""The ``wdspec`` command: finds the subcommand's module, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TextIO

import click

from wdspec.errors import WdspecError
from wdspec.suggestions import did_you_mean

COMMANDS = {
    "validate": "Check specs: every problem, with file, line and column.",
    "explain": "Show what a spec means: shares, passes, who reads what.",
    "simulate": "Show what a run draws: shares, passes, coverage, legal runs.",
    "head": "Show the first samples: keys, types, shapes, sizes.",
    "create": "Write shards of a folder, a recipe or a manifest.",
    "ls": "List the samples or members of shards, with sizes.",
    "cat": "Write the samples of shards into one.",
    "split": "Write the samples of shards into shards of another size.",
    "sort": "Write the samples of shards in the order of their keys.",
    "cache": "List, check, trim and fill directories with copies of remote shards.",
    "process": "Make new shards of old ones, through the spec's own steps.",
    "resolve": "Show step by step how URLs are opened.",
    "rule": "Explain the code of a problem, such as E302.",
    "schema": "Print the JSON Schema of the spec language.",
    "demo": "Write a small spec with shards, and read an epoch of it.",
}
"""Subcommand -> its line of help, so that ``wdspec --help`` imports none of them."""


GROUPS = ("spec_commands", "shard_commands")
"""Folders of the commands, one file each."""


def _module_of(name: str) -> str:
    """The module of a command."""
    return next(
        module
        for group in GROUPS
        if importlib.util.find_spec(module := f"wdspec.cli.{group}.{name}") is not None
    )


class _PipeClosedError(Exception):
    """Whoever read our output has gone. (click would turn the OSError itself into exit code 1.)"""


class _Commands(click.Group):
    """Loads the module of a command only when it is called: `validate` must start in a third of a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_module_of(name)), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS) or f"there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command `{args[0]}`, {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise _PipeClosedError from None
        return result


@click.group(
    cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="wdspec", prog_name="wdspec")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Describe WebDataset training data in one YAML file, and train from it anywhere."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line, and exits.

    Exit codes: 0 fine, 1 the spec or data has problems, 2 wrong usage, 130 Ctrl-C, 141 the output's reader left.

    Args:
        arguments: those of the command line, by default.
    """
    if sys.stdout is None:  # closed by `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names of files may hold what the terminal's encoding has not
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    try:
        code = cli.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except WdspecError as error:
        _complain(str(error))
        code = 1
    except (_PipeClosedError, BrokenPipeError):
        _drop_output()
        code = 141
    except OSError as error:
        _complain(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}")
        _drop_output()
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def _drop_output() -> None:
    """Forgets what is still buffered: it would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line without the place in our code, which tells users nothing."""
    _complain(f"warning: {' '.join(str(message).split())}")


def _complain(text: str) -> None:
    """Prints to standard error, with what could steer a terminal made visible: messages quote names of files."""
    from wdspec.cli.spec_commands.resolve import printable

    for line in text.split("\n"):
        click.echo(printable(line), err=True)
