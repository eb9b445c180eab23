"""`wdspec fmt`: the keys of specs in the documented order, comments and all else as they were written."""

from __future__ import annotations

import os
import sys
from difflib import unified_diff

import click

from wdspec.base.redaction import masked, printable
from wdspec.cli.lint_files import find_files
from wdspec.cli.report import counted
from wdspec.spec.files import STANDARD_INPUT, STANDARD_INPUT_NAME
from wdspec.spec.format import formatted
from wdspec.stores.outputs import save


@click.command()
@click.argument("paths", metavar="[FILE|DIR|GLOB|-]...", nargs=-1)
@click.option("--check", is_flag=True, help="Write nothing; end with 1 if a file would change.")
@click.option("--diff", "show_diff", is_flag=True, help="Write nothing; show what would change.")
@click.option(
    "--exclude", metavar="PATTERN", multiple=True, help="Leave out files, as .gitignore does. Repeatable."
)
def fmt(paths: tuple[str, ...], check: bool, show_diff: bool, exclude: tuple[str, ...]) -> int:
    """Put the keys of specs in the order of the reference, and take away blanks at the ends of lines.

    Comments stay with the key that they stand above or beside; nothing else is written anew. What a file says stays
    the same, which is checked before it is written. `-` formats standard input. Files are found as `wdspec validate`
    finds them. Exit code: 0, or with --check 1 if a file would change; 1 for files that are no YAML.
    """
    changed = failed = 0
    for file in find_files(paths, exclude, "format")[1].specs:
        name = STANDARD_INPUT_NAME if file == STANDARD_INPUT else file
        text = _text(file)
        done = formatted(text, name)
        for problem in done.problems:
            click.echo(printable(str(problem)), err=True)
        if done.left:
            click.echo(printable(f"{name}: left as it is: {done.left}"), err=True)
        failed += bool(done.problems)
        differs = done.text != text
        changed += differs
        if show_diff:
            before, after = (masked(each).splitlines() for each in (text, done.text))
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
            f"{counted(changed, 'file')} {'would change' if check or show_diff else 'changed'}", err=True
        )
    return 1 if failed or (check and changed) else 0


def _text(file: str) -> str:
    if file == STANDARD_INPUT:
        data = sys.stdin.buffer.read()
    else:
        with open(_path(file), "rb") as opened:
            data = opened.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not UTF-8: {error.reason}") from None


def _path(file: str) -> str:
    """The file of a spec that was named with its split."""
    return file if os.path.exists(file) else file.rpartition("#")[0]


def _replace(file: str, text: str) -> None:
    """Puts the new text in the place of the old, whole or not at all; a link stays one."""
    save(os.path.realpath(_path(file)), text.encode("utf-8"))
