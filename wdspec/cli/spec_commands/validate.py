"""`wdspec validate`: every problem of every file, with its place; nothing the specs name is opened or run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import click

from wdspec.cli.support.spec_options import assigned, set_option, var_option
from wdspec.cli.support.tables import counted
from wdspec.spec.loading import check
from wdspec.spec.problems.problems import Problem, as_github, as_json

SUMMARY = "Check specs: every problem, with file, line and column."
_COLOURS = {"E": "red", "W": "yellow"}


@click.command()
@click.argument("paths", metavar="FILE|DIR...", nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "github"]), default="text", help="How to report."
)
@click.option("--env", metavar="NAME", help="Check only this environment; by default all, and none.")
@click.option("--split", metavar="NAME", help="Check only this split; by default all.")
@var_option
@set_option
def validate(
    paths: tuple[str, ...],
    form: str,
    env: str | None,
    split: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
) -> int:
    """Check specs: every problem, with file, line and column.

    A DIR stands for all *.yaml and *.yml files below it. Exit code: 0 if there are no errors, 1 if there are,
    2 if the command was used wrongly. Warnings alone leave it at 0.
    """
    # Looking for plugins costs as much as a file of 100 sources.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    files = list(_files(paths))
    values = assigned(variables, "--var")
    assigned(overrides, "--set")
    found: list[Problem] = []
    for file in files:
        problems = check(file, split=split, env=env, vars=values, overrides=overrides)[1]
        if form != "json":
            for problem in problems:
                click.echo(as_github(problem) if form == "github" else _styled(problem))
        found += problems
    if form == "json":
        click.echo(as_json(found))
    else:
        click.echo(summary(len(files), found))
    return 1 if any(problem.is_error for problem in found) else 0


def summary(files: int, problems: Iterable[Problem]) -> str:
    """`3 files checked: 2 errors, 1 warning`."""
    listed = list(problems)
    errors = sum(problem.is_error for problem in listed)
    counts = {"error": errors, "warning": len(listed) - errors}
    found = ", ".join(counted(count, noun) for noun, count in counts.items() if count)
    return f"{counted(files, 'file')} checked: {found or 'no problems'}"


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            found = sorted(
                os.path.join(folder, name)
                for folder, _, names in os.walk(path)
                for name in names
                if name.endswith((".yaml", ".yml"))
            )
            if not found:
                raise click.UsageError(f"there is no *.yaml or *.yml file below {path}")
            yield from found
        elif os.path.exists(path) or ("#" in path and os.path.exists(path.rpartition("#")[0])):
            yield path
        else:
            raise click.UsageError(f"there is no file or directory {path}")


def _styled(problem: Problem) -> str:
    """The problem as text; in colour on a terminal, unless NO_COLOR is set."""
    text = str(problem)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    colour = _COLOURS[problem.code[0]]
    first, *rest = text.split("\n")
    place, _, said = first.partition(f": {problem.code} ")
    lines = [f"{click.style(place, bold=True)}: {click.style(problem.code, fg=colour, bold=True)} {said}"]
    for line in rest:
        margin, bar, content = line.partition(" | ")
        if bar:
            carets = content.strip() != "" and set(content.strip()) == {"^"} and not margin.strip()
            content = click.style(content, fg=colour) if carets else content
            lines.append(click.style(margin + bar, fg="blue") + content)
        else:
            before, equals, hint = line.partition(" = ")
            lines.append(click.style(before + equals, fg="blue") + hint)
    return "\n".join(lines)
