"""The ``wdspec`` command: finds the subcommand's module, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import sys

import click

from wdspec.spec.errors import WdspecError

COMMANDS = {
    "validate": "Check specs: every problem, with file, line and column.",
    "explain": "Show what a spec means: shares, shards, passes, batches, who reads what.",
    "head": "Show the first samples: keys, types, shapes, sizes.",
    "resolve": "Show step by step how a URL, or every URL of a spec, is opened.",
    "rule": "Explain the code of a problem, such as E302.",
    "schema": "Print the JSON Schema of the spec language.",
    "demo": "Write a small spec with shards, and train-read an epoch from it.",
}
"""Subcommand -> its line of help, so that ``wdspec --help`` imports none of them."""


class _Commands(click.Group):
    """Loads ``wdspec.cli.<name>:<name>`` only when it is called: `validate` must start in a third of a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"wdspec.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="wdspec", prog_name="wdspec")
def cli() -> None:
    """Describe WebDataset training data in one YAML file, and train from it anywhere."""


def main() -> None:
    """Runs the command line. Exit codes: 0 fine, 1 the spec or data has problems, 2 wrong usage, 130 Ctrl-C."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except WdspecError as error:
        click.echo(str(error), err=True)
        code = 1
    except BrokenPipeError:
        sys.stderr.close()
        code = 141
    sys.exit(code if isinstance(code, int) else 0)
