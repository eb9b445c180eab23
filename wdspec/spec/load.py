"""Load and check specs: a file, a dict or a `Spec` becomes a checked `Spec`, or every problem with its position."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any, NamedTuple

from wdspec.base.errors import UsageError, warn_user
from wdspec.base.user_code import secure_mode
from wdspec.spec import files, variants
from wdspec.spec.build import Composition, Variant, compose
from wdspec.spec.language.values import RESERVED_VARIABLES
from wdspec.spec.problems import IgnoreComment, Problem, Problems, error_for, without_effect
from wdspec.spec.python_values import from_python
from wdspec.spec.rules import apply_rules, compare_splits, refuted_by
from wdspec.spec.rules.rule import RULES
from wdspec.spec.sources import KINDS, Expander
from wdspec.spec.spec import Spec
from wdspec.spec.tree import MapNode, Node, Origin, Position, Scalar, plain
from wdspec.spec.variables import Scope, list_used_names
from wdspec.spec.yaml import parse_scalar

SpecSource = str | os.PathLike[str] | Mapping[str, Any] | Spec
"""A path (`x.yaml`, `x.yaml#val`), a dict, or a `Spec`."""
Overrides = Mapping[str, Any] | Sequence[str]
"""`{"batch.size": 32}`, or texts like those on the command line: `["batch.size=32"]`."""

ApplyRules = Callable[..., None]
"""As `apply_rules`."""
Checker = Callable[..., tuple[Spec | None, list[Problem]]]
"""As `check`."""

_MOST_VARIANTS = 64
"""If there are more combinations of splits and environments, each split and each environment is checked once."""
_MOST_COMBINATIONS = 256
_MOST_VALUES = 100_000
"""Values checked in all splits and environments of a file; a hundred sources have about one thousand."""


_ALSO_WARNED_OF = ("W109", "W402", "W404", "W451", "W460")
"""Codes without a rule that are warnings of loading, too."""


def load(
    source: SpecSource,
    *,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
    read: files.ReadFile | None = None,
) -> Spec:
    """Load and check a spec. Nothing that it names is imported, opened or run, except other spec files.

    Args:
        source: a path, which may end in `#split`, or `-` for standard input; a dict of the same form as a file;
            or a `Spec`, which is returned as it is.
        split: the split to load, of a spec with `splits`.
        env: the environment whose overlay is applied; by default the one that WDSPEC_ENV names.
        vars: values of variables, `${name}`, which win over environment variables and the spec's `vars`.
        overrides: values laid over everything else: `{"batch.size": 32}` or `["batch.size=32"]`.
        read: reads spec files that are not on the disk (`wdspec diff` reads them from git).

    Raises:
        SpecError: the spec is wrong. The message has every problem; `.problems` has them as objects.
        UsageError: the arguments contradict each other.

    Example:
        >>> load({"dataset": [{"shards": "data-{000..099}.tar", "weight": 1}]}).sources[0].name
        'data'
    """
    if isinstance(source, Spec):
        if split is not None or env is not None or vars or overrides:
            raise UsageError(
                "a Spec is already loaded; pass split, env, vars and overrides where you load it"
            )
        return source
    reading = _read(source, split, env, vars, overrides, read)
    composition = reading.compose(reading.split, reading.env)
    if composition is not None:
        apply_rules(composition, reading.problems, warnings=False)
    problems = reading.problems.sorted()
    errors = [problem for problem in problems if problem.is_error or problem.code == "W450"]
    if errors or composition is None:
        raise error_for(errors)
    if problems:
        _warn_at_load(problems, reading.library.ignore_comments)
    return composition.spec


def _warn_at_load(problems: Sequence[Problem], comments: Sequence[IgnoreComment]) -> None:
    """Show the warnings that matter to a run, unless a comment hides them."""
    codes = {*_ALSO_WARNED_OF, *(each.about.code for each in RULES if each.warns_at_load)}
    for problem in problems:
        if problem.code in codes and not any(comment.hides(problem) for comment in comments):
            warn_user(str(problem))


def check(
    source: SpecSource,
    *,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
    apply: ApplyRules = apply_rules,
) -> tuple[Spec | None, list[Problem]]:
    """Find all errors and warnings of a spec, each once and in file order.

    If no split or environment is chosen, all of them are checked. A split that is chosen is compared with the others,
    whose own problems are left out. The arguments are those of `load`.

    Args:
        apply: applies rules to the spec of each split and environment.

    Returns:
        The spec, or None if it has errors (the first one, if several were checked); and the problems.
    """
    if isinstance(source, Spec):
        return load(source, split=split, env=env, vars=vars, overrides=overrides), []
    reading = _read(source, split, env, vars, overrides)
    first: Spec | None = None
    splits, refuted = list[Composition](), set[tuple[str, Position]]()
    for number, (one_split, one_env) in enumerate(reading.variants()):
        known, composition = len(reading.problems), reading.compose(one_split, one_env)
        if composition is None:
            continue
        apply(composition, reading.problems, warnings=True)
        if one_env != reading.env:
            reading.problems.name_environment(known, one_env)
        first = composition.spec if number == 0 else first
        if one_split is not None:
            splits += [composition] if one_env == reading.env else []
            refuted.update(refuted_by(composition))
    if reading.split is not None and splits:
        reading.compare_with_others(splits[0], refuted)
    elif len(splits) > 1:
        compare_splits(splits, reading.problems)
    reading.note_unused_variables()
    comments = reading.library.ignore_comments
    if reading.split is None and reading.env is None:
        own = (comment for comment in comments if comment.file in (reading.file, files.STANDARD_INPUT_NAME))
        for problem in without_effect(own, list(reading.problems)):
            reading.problems.note(problem)
    found = [
        problem
        for problem in reading.problems.sorted()
        if (problem.code, problem.position) not in refuted
        and not any(each.hides(problem) for each in comments)
    ]
    return (None if any(problem.is_error for problem in found) else first), found


def validate(
    source: SpecSource,
    *,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
) -> list[Problem]:
    """Find all errors and warnings of a spec, as `wdspec validate` does. Opens and runs nothing that the spec names.

    Use it in the tests of a project that has specs. Settings in pyproject.toml do not apply.

    Args:
        source, split, env, vars, overrides: as for `wdspec.load`. If no split or environment is chosen, all of them are
            checked.

    Returns:
        The problems in file order, each with `code`, `message`, `hint`, `file`, `line`, `column` and `is_error`; as a
        text, a problem is what the command shows. A comment `# wdspec: ignore=W301` hides a warning.

    Example:
        >>> import wdspec
        >>> wdspec.validate("examples/specs/digits.yaml")
        []
        >>> [problem.code for problem in wdspec.validate({"dataset": [{"shards": "/tmp/a.tar"}], "bach": 32})]
        ['E201']
    """
    return check(source, split=split, env=env, vars=vars, overrides=overrides)[1]


class Compositions(NamedTuple):
    """A spec in its splits and environments, as trees that know where everything was written."""

    found: list[Composition]
    """Those that could be composed."""
    errors: list[Problem]
    """All errors, in file order; W450 is one of them, as for `load`."""
    hidden: dict[Position, set[str]]
    """Where a comment hides warnings, and their codes."""
    bases: frozenset[str]
    """Absolute paths of the files that it extends, directly or through others."""
    left_out: int
    """How many pairs of splits and environments were not composed, as there are too many."""


def compose_all(
    source: SpecSource,
    *,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
    every_environment: bool = False,
    rules: bool = True,
) -> Compositions:
    """Compose a spec in the chosen split and environment; without a split, in each split.

    Args:
        source, split, env, vars, overrides: as for `load`.
        every_environment: without an environment, also compose it in each of them.
        rules: whether to apply the rules. Without them, only what is wrong with single values is found.
    """
    assert not isinstance(source, Spec)
    reading = _read(source, split, env, vars, overrides)
    bases = reading.library.files.difference(reading.chain)
    if every_environment:
        pairs = reading.variants(_MOST_COMBINATIONS)
    else:
        names: list[str | None] = [reading.split]
        if reading.split is None and reading.top is not None:
            names = list(variants.names_under(reading.top, "splits")) or [None]
        pairs = [(name, reading.env) for name in names]
    left_out = max(0, reading.combinations - len(pairs)) if every_environment else 0
    found = []
    for one_split, one_env in pairs:
        composition = reading.compose(one_split, one_env)
        if composition is not None:
            found.append(composition)
            if rules:
                apply_rules(composition, reading.problems, warnings=True)
    problems = reading.problems.sorted()
    errors = [problem for problem in problems if problem.is_error or problem.code == "W450"]
    hidden: dict[Position, set[str]] = {}
    for problem in problems:
        if any(comment.hides(problem) for comment in reading.library.ignore_comments):
            hidden.setdefault(problem.position, set()).add(problem.code)
    return Compositions(found, errors, hidden, bases, left_out)


def split_names(source: SpecSource) -> list[str]:
    """List the names of the splits of a spec, in file order. Nothing else is checked."""
    top = None if isinstance(source, Spec) else _read(source).top
    return [] if top is None else variants.names_under(top, "splits")


def environment_names(source: SpecSource) -> list[str]:
    """List the names of the environments of a spec, in file order. Nothing else is checked."""
    top = None if isinstance(source, Spec) else _read(source).top
    return [] if top is None else variants.names_under(top, "environments")


def environment_overrides(source: SpecSource, name: str) -> list[str]:
    """List what an environment sets as overrides, such as `batch.size=2`; empty if these are more than a few, or no
    plain values. Nothing else is checked."""
    top = None if isinstance(source, Spec) else _read(source).top
    environments = None if top is None else top.map_at("environments")
    overlay = None if environments is None else environments.map_at(name)
    return [] if overlay is None else variants.override_texts(overlay)


class Outline(NamedTuple):
    """What a file is, without a check of its contents."""

    own: MapNode | None
    """The file alone; None if it cannot be read."""
    bases: frozenset[str]
    """Absolute paths of the files that it extends, directly or through others."""
    has_sources: bool
    """Whether it has a list of sources, in a split, in an environment or outside, with what it extends."""
    has_version: bool
    """Whether it, or a file that it extends, has the key `wdspec`."""


def outline(
    source: str, vars: Mapping[str, Any] | None = None, read: files.ReadFile | None = None
) -> Outline:
    """Find out whether a file is a spec, and what it extends. Problems are left to a check."""
    reading = _read(source, vars=vars, read=read)
    bases = reading.library.files.difference(reading.chain)
    if reading.top is None:
        return Outline(reading.own, bases, False, False)
    top = plain(reading.top)
    parts = (top.get(key) for key in ("splits", "environments"))
    holders = [top, *chain.from_iterable(each.values() for each in parts if isinstance(each, dict))]
    lists = [each["dataset"] for each in holders if isinstance(each, dict) and "dataset" in each]
    sources = chain.from_iterable(each for each in lists if isinstance(each, list))
    has_sources = any(isinstance(each, str) and each.startswith("@") for each in lists)
    has_sources |= any(isinstance(each, dict) and not each.keys().isdisjoint(KINDS) for each in sources)
    return Outline(reading.own, bases, has_sources, "wdspec" in top)


def list_variants(
    source: str,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    read: files.ReadFile | None = None,
) -> tuple[list[tuple[str | None, str | None]], int]:
    """List the splits and environments of a file: the chosen ones, or all, and none if it has none.

    The arguments are those of `load`.

    Returns:
        The combinations; and how many others there are, which the list leaves out as it would be too long.
    """
    reading = _read(source, split, env, vars, read=read)
    found = reading.variants(_MOST_COMBINATIONS)
    return found, reading.combinations - len(found)


@dataclass
class _Reading:
    """A spec whose files have been read, with the choices of the user and the problems found so far."""

    problems: Problems
    library: files.Library
    expand: Expander
    arguments: dict[str, Node]
    """Values of variables."""
    split: str | None
    env: str | None
    env_is_inherited: bool
    """Whether WDSPEC_ENV chose the environment."""
    overrides: list[MapNode] = field(default_factory=list)
    file: str | None = None
    """The name that the user gave; None for a dict or standard input."""
    chain: tuple[str, ...] = ()
    """Its absolute path."""
    own: MapNode | None = None
    """The file alone; None, and a problem, if it cannot be read."""
    top: MapNode | None = None
    """The file with everything that it extends."""
    combinations: int = 1
    """Of splits and environments, also those that `variants` has left out."""

    @property
    def dataset(self) -> Node | None:
        """The list of sources of the chosen split, as it is written."""
        splits = None if self.top is None else self.top.map_at("splits")
        split = None if splits is None or self.split is None else splits.map_at(self.split)
        holder = self.top if split is None else split
        return None if holder is None else holder.get("dataset")

    def variants(self, most_pairs: int = _MOST_VARIANTS) -> list[tuple[str | None, str | None]]:
        """The splits and environments to check: the chosen ones; or all, each once if there are too many pairs."""
        if self.top is None:
            return [(self.split, self.env)]
        splits: list[str | None] = [self.split]
        if self.split is None:
            splits = list(variants.names_under(self.top, "splits")) or [None]
        others = variants.names_under(self.top, "environments") if self.env is None else ()
        environments = [self.env, *others]
        pairs = list(product(splits, environments))
        self.combinations = len(pairs)
        if len(pairs) > most_pairs:
            pairs = [(name, None) for name in splits] + [(splits[0], name) for name in environments[1:]]
        most = max(1, min(_MOST_COMBINATIONS, _MOST_VALUES // self.top.size))
        if len(pairs) > most:
            message = f"only {most} of {self.combinations} pairs of splits and environments were checked"
            self.problems.add("W103", self.top, message, "choose with --split and --env")
        return pairs[:most]

    def compose(self, split: str | None, env: str | None) -> Composition | None:
        """Compose the spec of one split and environment; None, and problems, if that is impossible."""
        tree = self.top
        if tree is None or (files.may_be_foreign(tree) and files.is_foreign(tree, self.problems)):
            return None
        overlaid: set[Position] = set()
        if split is not None or "splits" in tree.entries:
            tree = variants.choose_split(tree, split, self.problems)
        if tree is not None and (env is not None or "environments" in tree.entries):
            by = ", which WDSPEC_ENV names" if self.env_is_inherited else ""
            tree = variants.choose_environment(tree, env, overlaid, self.problems, by)
        if tree is None:
            return None
        for override in self.overrides:
            tree = variants.lay_over(tree, override, overlaid)
        if self.arguments or "vars" in tree.entries:
            self._check_variables(tree.get("vars"))
        variant = Variant(
            split,
            env,
            self.file,
            overlaid,
            secure_mode(os.environ),
            bool(os.environ.get("AIS_ENDPOINT", "").strip()),
            bool(os.environ.get("USE_AIS_FOR", "").strip()),
            self.library.layers,
            tree.entries.get("defaults"),
        )
        return compose(tree, variant, self.library, self.expand, self.chain, self.problems)

    def compare_with_others(self, chosen: Composition, refuted: set[tuple[str, Position]]) -> None:
        """Add what comparing the splits finds because of the chosen one, and to `refuted` what the others refute."""
        known = len(self.problems)
        pairs = [*replace(self, split=None).variants(), (self.split, self.env)]
        found = {name: chosen if name == self.split else self.compose(name, self.env) for name, _ in pairs}
        splits = [each for each in found.values() if each is not None]
        self.problems.forget_after(known)
        refuted.update(chain.from_iterable(map(refuted_by, splits)))
        others = [each for each in splits if each is not chosen]
        # A finding names one other split, which is not always the chosen one. So it is also compared with each alone.
        pairs_with = [[each for each in splits if each in (chosen, other)] for other in others]
        seen = set[tuple[str, Position]]()
        for group in (splits, *pairs_with):
            among_all, among_others = Problems(), Problems()
            compare_splits(group, among_all)
            compare_splits([each for each in group if each is not chosen], among_others)
            known_without = set(among_others)
            new = [each for each in among_all if each not in known_without]
            for problem in (each for each in new if (each.code, each.position) not in seen):
                self.problems.note(problem)
            seen.update((each.code, each.position) for each in new)

    def _check_variables(self, vars: Node | None) -> None:
        if vars is not None and not isinstance(vars, MapNode):
            self.problems.add("E202", vars, "`vars` takes a map of names", "write `vars: {name: value}`")
        keys = [Scalar(node.origin, 0, 0, name) for name, node in self.arguments.items()]
        keys += [entry.key for entry in vars.entries.values()] if isinstance(vars, MapNode) else []
        for key in keys:
            if key.value in RESERVED_VARIABLES:
                message = f"no variable can be called `{key.value}`: `WDS_{key.value}` is a setting of wdspec"
                self.problems.add("E109", key, message, "choose another name")

    def note_unused_variables(self) -> None:
        """Warn about variables that the file sets, and that neither it nor a file that it extends uses."""
        vars = self.own.get("vars") if self.own is not None else None
        if not isinstance(vars, MapNode) or self.top is None:
            return
        used = set[str]().union(*map(list_used_names, (self.top, *self.library.tables)))
        for name, entry in vars.entries.items():
            if name not in used:
                message = f"the variable `{name[:60]}` is not used"
                hint = f"write `${{{name[:60]}}}` where it belongs, or remove it"
                self.problems.add("W101", entry.key, message, hint)


def _read(
    source: str | os.PathLike[str] | Mapping[str, Any],
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
    read: files.ReadFile | None = None,
) -> _Reading:
    """Read the files of a spec and the arguments, which are those of `load`."""
    problems, directory = Problems(), os.getcwd()
    arguments = _variables(vars, directory, problems) if vars else {}

    def expand(tree: MapNode) -> MapNode:
        own, rest = tree.get("vars"), tree.without("vars")
        return Scope(arguments, os.environ, own, directory, problems).expand_map(rest)

    library = files.Library(problems, expand, read)
    inherited = os.environ.get("WDSPEC_ENV") if env is None else None
    reading = _Reading(problems, library, expand, arguments, split, inherited or env, bool(inherited))
    if isinstance(source, Mapping):
        tree = from_python(source, Origin("spec", directory, None), problems)
        reading.own = None if tree is None else files.top_map(tree, problems)
    elif not isinstance(source, (str, os.PathLike)):
        raise UsageError(f"a spec is a path, a dict or a Spec, not a {type(source).__name__}")
    else:
        _open(reading, os.fspath(source))
    if reading.own is not None:
        reading.top = library.extended(reading.own, reading.chain)
    if overrides:
        reading.overrides = _overrides(overrides, directory, problems, reading.dataset)
    return reading


def _open(reading: _Reading, name: str) -> None:
    """Read a file, whose name may end in `#split`, or standard input for `-`."""
    if "\0" in name:
        raise UsageError(f"a file name cannot have a NUL character: {name!r}")
    if "#" in name and not os.path.exists(os.path.expanduser(name)):
        name, _, split = name.rpartition("#")
        if reading.split is not None and reading.split != split:
            raise UsageError(f"the path names the split {split!r}, but the argument is {reading.split!r}")
        reading.split = split
    if name == files.STANDARD_INPUT:
        reading.own = reading.library.standard_input()
    else:
        path = os.path.abspath(os.path.expanduser(name))
        reading.file, reading.chain = name, (os.path.realpath(path),)
        reading.own = reading.library.parsed(path, name)


def _variables(vars: Mapping[str, Any], directory: str, problems: Problems) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for name, value in vars.items():
        origin = Origin(f"the variable {name}", directory, None)
        if isinstance(value, str) and value and "\0" not in value:
            nodes[name] = Scalar(origin, 0, 0, parse_scalar(value), text=value)
        elif (node := from_python(value, origin, problems)) is not None:
            nodes[name] = node
    return nodes


def _overrides(
    overrides: Overrides, directory: str, problems: Problems, dataset: Node | None
) -> list[MapNode]:
    if isinstance(overrides, Mapping):
        made = [
            variants.override_tree(
                str(key), value, Origin(f"override {key}", directory, None), problems, dataset
            )
            for key, value in overrides.items()
        ]
    else:
        made = [variants.override_text(text, directory, problems, dataset) for text in overrides]
    return [tree for tree in made if tree is not None]
