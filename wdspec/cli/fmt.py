"""`wdspec fmt`: sort the keys of specs into the documented order; comments and everything else stay the same."""

from __future__ import annotations

import os
import sys
from difflib import unified_diff

import click

from wdspec.base.files import open_regular
from wdspec.base.redaction import mask, printable
from wdspec.cli.lint_files import exclude_option, find_files, paths_argument
from wdspec.cli.output import pluralize
from wdspec.spec.files import STANDARD_INPUT, STANDARD_INPUT_NAME
from wdspec.spec.format import format_spec
from wdspec.stores.outputs import save


@click.command()
@paths_argument
@click.option("--check", is_flag=True, help="Do not write files; exit with 1 if a file would change.")
@click.option("--diff", "show_diff", is_flag=True, help="Do not write files; show the changes.")
@exclude_option
def fmt(paths: tuple[str, ...], check: bool, show_diff: bool, exclude: tuple[str, ...]) -> int:
    """Sort the keys of specs into the order of the reference, and remove trailing spaces.

    Comments stay with their keys, and nothing else changes. Before wdspec writes a file, it checks that the meaning
    has not changed. Files are found in the same way as by `wdspec validate`; `-` formats standard input.

    Exit code: 1 if a file is not YAML, or (with --check) if a file would change; otherwise 0.
    """
    changed = failed = 0
    found = find_files(paths, exclude, "format")[1]
    for file in dict.fromkeys((*found.specs, *found.bases)):
        name = STANDARD_INPUT_NAME if file == STANDARD_INPUT else file
        text = _text(file)
        done = format_spec(text, name)
        for problem in done.problems:
            for line in str(problem).split("\n"):
                click.echo(printable(line), err=True)
        if done.left:
            click.echo(printable(f"{name}: not formatted: {done.left}"), err=True)
        failed += bool(done.problems)
        differs = done.text != text
        changed += differs
        if show_diff:
            before, after = (mask(each).splitlines() for each in (text, done.text))
            lines = unified_diff(before, after, name, name, lineterm="")
            for line in lines:
                click.echo(printable(line))
        elif file == STANDARD_INPUT and not check:
            click.echo(done.text, nl=False)
        elif differs:
            if not check:
                _replace(file, done.text)
            click.echo(f"{'would change' if check else 'changed'} {printable(name)}")
    if not changed and not failed and paths != (STANDARD_INPUT,):
        click.echo("nothing to change", err=True)
    elif changed > 1:
        click.echo(
            f"{pluralize(changed, 'file')} {'would change' if check or show_diff else 'changed'}", err=True
        )
    return 1 if failed or (check and changed) else 0


def _text(file: str) -> str:
    if file == STANDARD_INPUT:
        data = sys.stdin.buffer.read()
    else:
        try:
            with open_regular(_path(file), descriptors=True) as opened:
                data = opened.read()
        except OSError as error:
            raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not UTF-8: {error.reason}") from None


def _path(file: str) -> str:
    """The file of a spec, without its split."""
    return file if os.path.exists(file) else file.rpartition("#")[0]


def _replace(file: str, text: str) -> None:
    """Replace a file atomically; a symbolic link is kept."""
    save(os.path.realpath(_path(file)), text.encode("utf-8"))
