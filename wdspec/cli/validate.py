"""`wdspec validate`: shows every problem of every file, with its place. It does not open or run what specs refer to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import click

from wdspec.base.errors import UsageError
from wdspec.cli.lint_files import Discovery, LintSettings, exclude_option, find_files, paths_argument
from wdspec.cli.output import pluralize
from wdspec.cli.problems import REPORTS, CheckedSpec, parse_ignored
from wdspec.cli.spec_options import parse_assignments, refuse_names, set_option, var_option
from wdspec.spec.load import Checker, check, environment_names, load
from wdspec.spec.problems import Problem, list_names

ALL_ENVIRONMENTS = "all"
_LEFT_TO_OTHERS = frozenset({"E107", "W101"})
"""What a base may leave to the files that extend it: to set its variables, or to use them."""
_MOST_SKIPPED = 50


@click.command()
@paths_argument
@click.option("--format", "form", type=click.Choice([*REPORTS]), default="text", help="Output format.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME",
    help="Check only this environment. By default, or with `all`: every environment, and the spec without one.",
)
@click.option(
    "--split",
    multiple=True,
    metavar="NAME",
    help="Check only this split (default: all splits).",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option("--locked", is_flag=True, help="Require a valid lock for each spec (see `wdspec lock`).")
@click.option("--ignore", metavar="CODE", multiple=True, help="Do not report this warning. Repeatable.")
@click.option(
    "--policy",
    multiple=True,
    metavar="FILE|URL",
    help="Also check the rules of this policy; a URL ends with `#sha256=…`. Repeatable.",
)
@click.option("--policy-rules", is_flag=True, help="Also run the policy rules of installed packages.")
@click.option(
    "--retired-on", metavar="DATE", help="Check as if what policies deprecate until DATE were retired."
)
@exclude_option
@var_option
@set_option
def validate(
    paths: tuple[str, ...],
    form: str,
    env: tuple[str, ...],
    split: tuple[str, ...],
    strict: bool,
    locked: bool,
    ignore: tuple[str, ...],
    policy: tuple[str, ...],
    policy_rules: bool,
    retired_on: str | None,
    exclude: tuple[str, ...],
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
) -> int:
    """Check specs and show every problem with file, line and column.

    In a DIR, specs are files named *.wdspec.yaml, YAML files with the key `wdspec:` or with sources in `dataset:`, and
    files that extend a spec. A base without sources is checked as a part of the files that extend it. `-` is standard
    input.

    The comment `# wdspec: ignore=W301` suppresses a warning on its line. The table [tool.wdspec] of pyproject.toml can
    set defaults for paths, exclude, ignore, strict, env and policy.

    Exit code: 0 if there are no errors (with --strict, also no warnings), 1 if there are, 2 for wrong usage.
    """
    # Searching for plugins takes as long as a file of 100 sources.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    values = parse_assignments(variables, "--var")
    settings, found = find_files(paths, exclude, "check", values)
    check_file: Checker = check
    if policy or policy_rules or retired_on or settings.policy:
        settings, found, check_file = _apply_policies(values, settings, found)
    ignored = parse_ignored((*settings.ignore, *ignore), lambda code: code[0] == "W", "a warning")
    for option, given in (("--env", env), ("--split", split)):
        if len(given) > 1:
            refuse_names(option, given)
    one_split = split[0] if split else None
    chosen = (env[0] if env else None) or settings.env
    chosen = None if chosen == ALL_ENVIRONMENTS else chosen
    parse_assignments(overrides, "--set")
    failed = False

    def check_files() -> Iterator[CheckedSpec]:
        nonlocal failed
        for problem in (each for each in found.doubtful if each.code not in ignored):
            failed |= strict or settings.strict or problem.is_error
            yield CheckedSpec(problem.file, [problem], is_checked=False)
        for file in found.specs:
            problems = check_file(file, split=one_split, env=chosen, vars=values, overrides=overrides)[1]
            if locked and not any(problem.is_error for problem in problems):
                problems += _check_locks(file, one_split, chosen, values, overrides)
            left_out = ignored | _LEFT_TO_OTHERS if file in found.bases else ignored
            problems = [problem for problem in problems if problem.code not in left_out]
            failed |= any(strict or settings.strict or problem.is_error for problem in problems)
            yield CheckedSpec(file, problems)

    for lines in REPORTS[form](check_files()):
        click.echo(lines)
    if found.skipped:
        # Standard output has only the report, which may be one document.
        names = list_names(found.skipped, _MOST_SKIPPED)
        click.echo(f"{pluralize(len(found.skipped), 'other YAML file')} skipped: {names}", err=form != "text")
    return int(failed)


def _apply_policies(
    vars: Mapping[str, Any], settings: LintSettings, found: Discovery
) -> tuple[LintSettings, Discovery, Checker]:
    """What applies with the policies of the command line and of the settings."""
    from wdspec.cli.validate_policies import PolicyOptions, apply_policies  # most specs do without

    given = click.get_current_context().params
    options = PolicyOptions(given["policy"], given["policy_rules"], given["retired_on"])
    return apply_policies(options, given["paths"], given["exclude"], vars, settings, found)


def _check_locks(
    file: str, split: str | None, env: str | None, vars: Mapping[str, Any], overrides: Sequence[str]
) -> list[Problem]:
    """The problems of the locks of a file without errors. Opens nothing but the locks."""
    from wdspec.shards.lock import Lock, beside_spec, list_splits, lock_name

    found: dict[str, Problem] = {}
    environments = [env] if env is not None else [None, *environment_names(file)]
    for name, chosen in product(list_splits(file, split), environments):
        path = lock_name(file, name, chosen)
        of_split = f" of the split `{name}`" if name else ""
        spec = load(file, split=name, env=chosen, vars=vars, overrides=overrides)
        try:
            misfits = list(Lock.read(path).misfits(spec))
        except UsageError as error:
            misfits = [error.message]
        except OSError:
            misfits = [f"`{path}` does not exist"]
        for each in misfits:
            hint, of_environment = "`wdspec lock SPEC` writes it", ""
            if chosen is not None:
                own = beside_spec(file, name, f".{chosen}.lock.json")
                choice = f" --split {name}" * bool(name)
                hint = f"`wdspec lock SPEC{choice} --env {chosen} -o {own}` writes one for this environment"
                of_environment = f" in the environment `{chosen}`"
            message = f"the lock{of_split} does not fit{of_environment}: {each}"
            # What is wrong without an environment is wrong in all of them.
            found.setdefault(f"{path} {each}", Problem("E403", message, hint, file, 1, 1))
    return list(found.values())
