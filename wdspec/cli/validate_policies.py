"""Policies in `wdspec validate`: which files and packages they come from, and how their findings become problems."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from wdspec.cli.lint_files import Discovery, LintSettings, find_left_out
from wdspec.cli.spec_options import parse_value
from wdspec.policies.check import Finding, check_spec
from wdspec.policies.files import Policy, read_policy
from wdspec.policies.language import read_day
from wdspec.policies.python import FailedRuleError, PythonRule, load_rules, run_rule
from wdspec.policies.subjects import holders_of
from wdspec.spec.build import Composition
from wdspec.spec.load import Checker, check
from wdspec.spec.problems import Problem, Problems
from wdspec.spec.rules import apply_rules
from wdspec.spec.spec import Spec
from wdspec.spec.tree import Node, Origin, Position, scalars
from wdspec.spec.yaml import parse


class PolicyOptions(NamedTuple):
    """The options of the command line that are about policies."""

    files: tuple[str, ...]
    """`--policy`."""
    runs_python: bool
    """`--policy-rules`."""
    retired_on: str | None
    """`--retired-on`."""


def apply_policies(
    options: PolicyOptions,
    paths: Sequence[str],
    exclude: Sequence[str],
    vars: Mapping[str, Any],
    settings: LintSettings,
    found: Discovery,
) -> tuple[LintSettings, Discovery, Checker]:
    """Read the policies; returns the settings and files that apply with them, and what checks a file.

    Problems of policies, and specs that settings leave out, are among the doubtful files.

    Raises:
        click.UsageError: there is no policy, or a date is wrong.
        UsageError: rules in Python cannot run.
    """
    day = None if options.retired_on is None else parse_value(read_day, options.retired_on)
    own = () if settings.policy is None else (os.path.relpath(os.path.join(settings.root, settings.policy)),)
    if settings.policy is not None and "://" in settings.policy:
        own = (settings.policy,)
    python_rules = load_rules() if options.runs_python else []
    if not (own or options.files or python_rules):
        raise click.UsageError("--retired-on needs a policy: --policy FILE, or `policy` in [tool.wdspec]")
    policies, doubtful = [], [] if options.files else [*found.doubtful]
    for name, may_fetch in (*((name, False) for name in own), *((name, True) for name in options.files)):
        policy, problems = read_policy(name, may_fetch, day)
        policies += [] if policy is None else [policy]
        doubtful += problems
    if options.files:
        settings = settings._replace(env=None)
        doubtful += find_left_out(paths, exclude, vars, settings, found)
    is_whole = not paths or any(map(os.path.isdir, paths))
    left = len(found.specs) if is_whole else 0
    checker = _PolicyCheck(policies, python_rules, settings.root, left)
    return settings, found._replace(doubtful=doubtful), checker


@dataclass
class _PolicyCheck:
    """Checks files as `check` does, and with policies."""

    policies: list[Policy]
    python_rules: list[PythonRule]
    root: str
    """The folder where paths of specs start, in patterns."""
    left: int
    """The number of files until entries of policies that nothing has used are reported; 0 for never."""
    used: set[Node] = field(default_factory=set)

    def __call__(self, file: str, **choices: Any) -> tuple[Spec | None, list[Problem]]:
        seen = _Variants(file, self.root)

        def apply(composition: Composition, problems: Problems, *, warnings: bool) -> None:
            apply_rules(composition, problems, warnings=warnings)
            seen.add(composition)
            seen.note_outsiders(composition, problems)
            result = check_spec(self.policies, composition, seen.paths)
            self.used |= result.used
            for finding in result.findings:
                seen.note(finding, composition, problems)
            if self.python_rules and not any(
                problem.is_error for problem in problems if problem.code[0] != "P"
            ):
                self._run_python(composition, problems, seen)

        spec, found = check(file, apply=apply, **choices)
        self.left -= 1
        return spec, [*found, *seen.missing(), *(self._unused() if self.left == 0 else ())]

    def _run_python(self, composition: Composition, problems: Problems, seen: _Variants) -> None:
        holders = {holder.name: holder for holder in holders_of(composition)}
        for rule in self.python_rules:
            try:
                for name, message in run_rule(rule, composition.spec):
                    at = composition.top.key_or_self("dataset") if name is None else holders[name].at
                    seen.add_problem("P101", at, f"`{rule.name}`: {message}", "", composition, problems)
            except FailedRuleError as error:
                problems.add("E396", composition.top, f"the policy rule {error}", "correct the rule")

    def _unused(self) -> Iterable[Problem]:
        """Entries of policies that no spec has used."""
        found = Problems()
        for policy in (each for each in self.policies if not each.is_remote):
            for rule in policy.rules:
                if rule.rule.scope and rule.at not in self.used:
                    message = f"`for` of `{rule.name}` matches nothing in these specs"
                    found.add("W454", rule.at, message, "correct its patterns, or remove the rule")
            for each in policy.waivers:
                if each.at not in self.used:
                    message = f"this waiver of `{each.waiver.rule}` applies to nothing in these specs"
                    hint = "correct its patterns, or remove it"
                    if each.waiver.shards is not None:
                        hint += (
                            "; `shards` must match all that a source reads, as written and after rewriting"
                        )
                    found.add("W454", each.at, message, hint)
        return found.sorted()


def _find_repository(path: str) -> str | None:
    """The folder of the git repository that a file is in, with a `/` at its end; None if it is in none."""
    folder = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, ".git")):
            return os.path.join(folder, "")
        folder = os.path.dirname(folder)
    return None


def _find_reference(file: str, origins: Iterable[Origin]) -> Node | None:
    """The value in one of some specs that names a file: the place that a review sees."""
    for origin in origins:
        tree = None if origin.text is None else parse(origin.text, origin, Problems())
        for node in () if tree is None else scalars(tree):
            name = str(node.value).partition("#")[0]
            if name and os.path.realpath(os.path.join(origin.directory, name)) == file:
                return node
    return None


class _Variants:
    """The splits and environments of a file that were checked, and what was found in them, each once."""

    def __init__(self, file: str, root: str) -> None:
        path = os.path.abspath(file)
        self.paths = (os.path.relpath(path, root), path)
        self._file = file
        self._repository = _find_repository(os.path.realpath(path))
        self._pairs: set[tuple[str | None, str | None]] = set()
        self._known: set[tuple[str, Position | None, str]] = set()

    def add(self, composition: Composition) -> None:
        """Note that a variant is checked."""
        self._pairs.add((composition.variant.split, composition.variant.environment))

    def note(self, finding: Finding, composition: Composition, problems: Problems) -> None:
        """Add a finding to the problems of a file."""
        message = f"`{finding.rule.name}`: {finding.message}"
        hint = "; ".join(filter(None, [finding.remedy, finding.rule.advice]))
        self.add_problem(finding.rule.code, finding.at, message, hint, composition, problems)

    def add_problem(
        self, code: str, at: Node, message: str, hint: str, composition: Composition, problems: Problems
    ) -> None:
        """Add a problem, unless it is in a variant that was checked before."""
        is_of_spec = at is composition.top.key_or_self("dataset")
        key = (code, None if is_of_spec else at.position, message)
        if key in self._known:
            return
        self._known.add(key)
        problems.add(code, at, message, hint)

    def note_outsiders(self, composition: Composition, problems: Problems) -> None:
        """Report values from files outside of the repository of the spec."""
        if self._repository is None:
            return
        trees = (composition.top, *(leaf.own for leaf in composition.leaves))
        origins = {node.origin: node for tree in trees for node in scalars(tree)}
        files = {
            origin: os.path.realpath(os.path.join(origin.directory, os.path.basename(origin.name)))
            for origin in origins
            if origin.text is not None
        }
        for origin, file in files.items():
            if not file.startswith(self._repository):
                message = (
                    f"this spec reads `{origin.name}`, which is outside of the repository {self._repository}"
                )
                hint = "copy it into the repository, where changes are reviewed"
                at = _find_reference(file, (each for each in files if each is not origin))
                self.add_problem("P103", at or origins[origin], message, hint, composition, problems)

    def missing(self) -> list[Problem]:
        """The problem that some pairs of splits and environments were not checked, if so."""
        splits, environments = ({pair[index] for pair in self._pairs} for index in (0, 1))
        count = len(splits) * len(environments)
        if count == len(self._pairs):
            return []
        message = (
            f"only {len(self._pairs)} of {count} pairs of splits and environments were checked with policies"
        )
        return [Problem("P101", message, "choose with --split and --env, in several calls", self._file, 1, 1)]
