"""The ``wdspec`` command: finds the subcommand's module, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from wdspec.base.errors import WdspecError, did_you_mean
from wdspec.base.redaction import printable

GROUPS = {
    "About specs": {
        "batch": "Show the samples of any step: keys, shards, offsets.",
        "bench": "Time a spec: rates, where time goes, how many workers pay.",
        "check": "Look at the data: every shard, and what is in them.",
        "demo": "Write a small spec with shards, and read an epoch of it.",
        "doctor": "Show versions, limits, variables, and whether stores answer.",
        "explain": "Show what a spec means: shares, passes, who reads what.",
        "head": "Show the first samples: keys, types, shapes, sizes.",
        "preview": "Write a page with the mixture and real samples of each source.",
        "process": "Make new shards of old ones, through the spec's own steps.",
        "resolve": "Show step by step how URLs are opened.",
        "simulate": "Show what a run draws: shares, passes, coverage, legal runs.",
        "state": "Show a saved state: epoch, batch, what each source has given.",
        "stats": "Measure the shards of a spec: samples, bytes, sizes of fields.",
        "validate": "Check specs: every problem, with file, line and column.",
    },
    "Specs in a team": {
        "convert": "Write the mixture of another tool as a spec.",
        "croissant": "Describe a mixture in MLCommons' Croissant format.",
        "diff": "Show what a change to a spec does to mixture and order.",
        "fmt": "Put the keys of specs in the documented order.",
        "lock": "Write down the shards of a spec, their sizes and ETags.",
        "rule": "Explain the code of a problem, such as E302.",
        "schema": "Print the JSON Schema of the spec language.",
    },
    "About shards": {
        "cache": "List, check, trim and fill directories with copies of remote shards.",
        "cat": "Write the samples of shards into one.",
        "create": "Write shards of a folder, a recipe or a manifest.",
        "ls": "List the samples or members of shards, with sizes.",
        "sort": "Write the samples of shards in the order of their keys.",
        "split": "Write the samples of shards into shards of another size.",
    },
}
"""Headings of `wdspec --help`, with a row for each command: `NAME.py` in this folder defines the command `NAME`."""


class _PipeClosedError(Exception):
    """Whoever read our output has gone. (click would turn the OSError itself into exit code 1.)"""


class _Commands(click.Group):
    """Imports the file of a command only when it is called, so that `wdspec validate` starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in GROUPS.values() for name in commands]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(importlib.import_module(f"wdspec.cli.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            hint = did_you_mean(args[0], known) or f"there are {', '.join(known)}"
            raise click.UsageError(f"no command `{args[0]}`, {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))

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
        code = cli.main(arguments, prog_name="wdspec", standalone_mode=False)
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


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line without the place in our code, which tells users nothing."""
    _complain(f"warning: {' '.join(str(message).split())}")


def _complain(text: str) -> None:
    """Prints to standard error, with what could steer a terminal made visible: messages quote names of files."""
    for line in text.split("\n"):
        click.echo(printable(line), err=True)
