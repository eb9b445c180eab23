"""The ``wdspec`` command: finds the subcommand's module, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from wdspec.base.errors import WdspecError, did_you_mean
from wdspec.base.redaction import printable

GROUPS = {
    "spec_commands": "About specs",
    "team_commands": "Specs in a team",
    "shard_commands": "About shards",
}
"""Folders with a file for each command -> the heading of these commands in `wdspec --help`."""

_SUMMARY = re.compile(r'^SUMMARY = "(.*)"$', re.MULTILINE)


def commands_in(group: str) -> dict[str, Path]:
    """The commands in a folder: name -> the file. A file `NAME.py` defines the command `NAME` and its `SUMMARY`."""
    folders = importlib.import_module(f"wdspec.cli.{group}").__path__
    return {file.stem: file for folder in folders for file in sorted(Path(folder).glob("[!_]*.py"))}


def _summary(file: Path) -> str:
    """The line of a command in `wdspec --help`, from its text: the help imports no command."""
    match = _SUMMARY.search(file.read_text(encoding="utf-8"))
    return match[1] if match else ""


class _PipeClosedError(Exception):
    """Whoever read our output has gone. (click would turn the OSError itself into exit code 1.)"""


class _Commands(click.Group):
    """Imports the file of a command only when it is called: `validate` must start in a third of a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for group in GROUPS for name in commands_in(group)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        for group in GROUPS:
            if name in commands_in(group):
                command: click.Command = getattr(importlib.import_module(f"wdspec.cli.{group}.{name}"), name)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            hint = did_you_mean(args[0], known) or f"there are {', '.join(known)}"
            raise click.UsageError(f"no command `{args[0]}`, {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, heading in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, _summary(file)) for name, file in commands_in(group).items()])

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
