"""`wdspec validate`: shows every problem of every file, with its place. It does not open or run what specs refer to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from wdspec.base.errors import UsageError
from wdspec.cli.lint_files import exclude_option, find_files, paths_argument
from wdspec.cli.problems import REPORTS, CheckedSpec, parse_ignored
from wdspec.cli.report import pluralize
from wdspec.cli.spec_options import parse_assignments, set_option, var_option
from wdspec.spec.load import check, load
from wdspec.spec.problems import Problem, is_error

ALL_ENVIRONMENTS = "all"


@click.command()
@paths_argument
@click.option("--format", "form", type=click.Choice([*REPORTS]), default="text", help="Output format.")
@click.option(
    "--env",
    metavar="NAME",
    help="Check only this environment. By default, or with `all`: every environment, and the spec without one.",
)
@click.option("--split", metavar="NAME", help="Check only this split (default: all splits).")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option("--locked", is_flag=True, help="Require a valid lock for each spec (see `wdspec lock`).")
@click.option("--ignore", metavar="CODE", multiple=True, help="Do not report this warning. Repeatable.")
@exclude_option
@var_option
@set_option
def validate(
    paths: tuple[str, ...],
    form: str,
    env: str | None,
    split: str | None,
    strict: bool,
    locked: bool,
    ignore: tuple[str, ...],
    exclude: tuple[str, ...],
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
) -> int:
    """Check specs and show every problem with file, line and column.

    In a DIR, files named *.wdspec.yaml and other YAML files with the key `wdspec:` are checked. `-` is standard input.
    The comment `# wdspec: ignore=W301` suppresses a warning on its line. The table [tool.wdspec] of pyproject.toml can
    set defaults for paths, exclude, ignore, strict and env.

    Exit code: 0 if there are no errors (with --strict, also no warnings), 1 if there are, 2 for wrong usage.
    """
    # Searching for plugins takes as long as a file of 100 sources.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    settings, found = find_files(paths, exclude, "check")
    ignored = parse_ignored((*settings.ignore, *ignore), lambda code: not is_error(code), "a warning")
    env = env or settings.env
    chosen = None if env == ALL_ENVIRONMENTS else env
    values = parse_assignments(variables, "--var")
    parse_assignments(overrides, "--set")
    failed = False

    def check_files() -> Iterator[CheckedSpec]:
        nonlocal failed
        for file in found.specs:
            problems = check(file, split=split, env=chosen, vars=values, overrides=overrides)[1]
            if locked and not any(problem.is_error for problem in problems):
                problems += _check_locks(file, split, chosen, values, overrides)
            problems = [problem for problem in problems if problem.code not in ignored]
            failed |= any(strict or settings.strict or problem.is_error for problem in problems)
            yield CheckedSpec(file, problems)

    for lines in REPORTS[form](check_files()):
        click.echo(lines)
    if found.others and form == "text":
        click.echo(f"{pluralize(found.others, 'other YAML file')} without the key `wdspec:` skipped")
    return int(failed)


def _check_locks(
    file: str, split: str | None, env: str | None, vars: Mapping[str, Any], overrides: Sequence[str]
) -> list[Problem]:
    """The problems of the locks of a file without errors. Opens nothing but the locks."""
    from wdspec.shards.lock import Lock, list_splits, lock_name

    found = []
    for name in list_splits(file, split):
        path = lock_name(file, name)
        of_split = f" of the split `{name}`" if name else ""
        spec = load(file, split=name, env=env, vars=vars, overrides=overrides)
        try:
            misfits = list(Lock.read(path).misfits(spec))
        except UsageError as error:
            misfits = [error.message]
        except OSError:
            misfits = [f"`{path}` does not exist"]
        hint = "`wdspec lock SPEC` writes it"
        found += [
            Problem("E403", f"the lock{of_split} does not fit: {each}", hint, file, 1, 1) for each in misfits
        ]
    return found
