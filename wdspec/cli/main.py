"""The ``wdspec`` program: imports the module of a command, and turns errors into one line and an exit code."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

from wdspec.base.errors import WdspecError, did_you_mean, find_lack
from wdspec.base.redaction import printable

GROUPS = {
    "About specs": {
        "batch": "Show the samples of any step: keys, shards, offsets.",
        "bench": "Measure speed: rates, what takes time, how many workers help.",
        "check": "Check the data: find missing, damaged and repeated samples.",
        "demo": "Create a small spec with shards, and read one epoch.",
        "doctor": "Show versions, limits, variables, and whether stores respond.",
        "explain": "Explain a spec: shares, passes, which worker reads what.",
        "head": "Show the first samples: keys, types, shapes, sizes.",
        "preview": "Create an HTML page with the mixture and real samples.",
        "process": "Process shards with a spec's decoders and maps into new shards.",
        "report": "Add up the records of a run: what was read of each source.",
        "resolve": "Show step by step how URLs are opened.",
        "simulate": "Simulate a run: shares, passes, coverage, legal topologies.",
        "state": "Show a saved state: epoch, batch, samples of each source.",
        "stats": "Measure shards: samples, bytes, sizes of fields.",
        "validate": "Check specs: every problem, with file, line and column.",
    },
    "Specs in a team": {
        "config": "Print a spec with everything merged that it is made of.",
        "convert": "Convert another tool's mixture to a spec.",
        "croissant": "Describe a mixture in MLCommons' Croissant format.",
        "diff": "Show how a change to a spec affects the mixture and the order.",
        "find": "Find the specs that read a bucket, path, license, file or function.",
        "fmt": "Sort the keys of specs into the documented order.",
        "lock": "Record the shards of a spec, with their sizes and ETags.",
        "price": "Show what reading costs, by the prices of stores.",
        "rule": "Explain the code of a problem, such as E302.",
        "schema": "Print the JSON Schema of the spec language.",
    },
    "About shards": {
        "cache": "List, verify, prune and fill caches of remote shards.",
        "cat": "Concatenate shards into one.",
        "create": "Create shards from a folder, a recipe or a manifest.",
        "dedup": "Find repeated samples, and write lists to leave them out.",
        "ls": "List the samples or members of shards, with sizes.",
        "sort": "Sort the samples of shards by key.",
        "split": "Split shards into shards of another size.",
    },
}
"""Headings of `wdspec --help`, with a row for each command: `NAME.py` in this folder defines the command `NAME`."""


class _PipeClosedError(Exception):
    """The program that reads our output has closed it. (click would turn the OSError into exit code 1.)"""


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
            hint = did_you_mean(args[0], known) or f"the commands are {', '.join(known)}"
            raise click.UsageError(f"unknown command `{args[0]}`; {hint}", ctx)
        if any(not text and not before.startswith("-") for before, text in pairwise(args)):
            # An empty path would mean the working directory. An empty value of an option is allowed.
            raise click.UsageError("an argument is empty; is a variable not set?", ctx)
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
        except Exception:
            if _interrupts:
                raise KeyboardInterrupt from None
            raise
        return result


@click.group(
    cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="wdspec", prog_name="wdspec")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Describe WebDataset training data in one YAML file, and train from it anywhere.

    Start with `wdspec demo`. `wdspec COMMAND --help` describes a command.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and exit.

    Exit codes: 0 success, 1 problems of the spec or the data, 2 wrong usage, 130 Ctrl-C, 141 closed output.

    Args:
        arguments: the arguments. By default, those of the command line; then this function ends the process.
    """
    if sys.stdout is None:  # closed by `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # the terminal's encoding may lack characters of file names
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    is_program = arguments is None
    if is_program:
        gc.set_threshold(100_000)  # a tenth of the time of short commands; `benchmarks/validate_time.py`
        sys.unraisablehook = _interrupt_again
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
    if any(name.startswith(("WDS", "AIS_", "USE_AIS")) for name in os.environ):
        from wdspec.storage.environment import warn_of_variables

        warn_of_variables(os.environ)
    try:
        code = cli.main(arguments, prog_name="wdspec", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except WdspecError as error:
        _print_error("\n".join([str(error), *getattr(error, "__notes__", ())]))
        code = 1
    except (_PipeClosedError, BrokenPipeError):
        _drop_output()
        code = 141
    except OSError as error:
        _print_error(_describe(error))
        _drop_output()
        code = 1
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C now would print a traceback of an exit hook
    sys.exit(code if isinstance(code, int) else 0)


def _describe(error: OSError) -> str:
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the working directory was deleted; change to another one"
    said = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
    lack = None if error.errno == errno.ENOSPC else find_lack(error)  # which disk, its name says
    if lack is None and not error.filename and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        lack = "`wdspec doctor` shows what this machine lacks"
    return said if lack is None else f"{said}; {lack}"


def _drop_output() -> None:
    """Discard buffered output: writing it would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_interrupts: list[int] = []
"""An entry for each Ctrl-C."""


def _interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt, and record it: a library may turn it into another exception."""
    _interrupts.append(number)
    raise KeyboardInterrupt


def _interrupt_again(unraisable: Any) -> None:
    """Repeat a Ctrl-C that occurred in a finalizer, where Python prints exceptions and ignores them."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        main_thread = threading.main_thread().ident
        threading.Timer(0.05, signal.pthread_kill, (main_thread, signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the location in our code, which does not help users."""
    _print_error(f"warning: {' '.join(str(message).split())}")


def _print_error(text: str) -> None:
    """Print to standard error. Control characters are escaped, since messages quote names of files."""
    for line in text.split("\n"):
        click.echo(printable(line), err=True)
