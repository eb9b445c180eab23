"""`load` and `check`: a file, a dict or a `Spec` -> a checked `Spec`, or every problem with its position."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.user_code import secure_mode
from wdspec.spec.build import compose
from wdspec.spec.draft import Composed, Variant
from wdspec.spec.files import STANDARD_INPUT, STANDARD_INPUT_NAME, Library, ReadFile, foreign, top_map
from wdspec.spec.language.values import RESERVED_VARIABLES
from wdspec.spec.problems import Problem, Problems, error_for, without_effect
from wdspec.spec.python_values import from_python
from wdspec.spec.rules.rule_table import apply_rules, apply_rules_of_splits
from wdspec.spec.spec import Spec
from wdspec.spec.tree import MapNode, Node, Origin, Position, Scalar
from wdspec.spec.variables import Scope, used_names
from wdspec.spec.variants import (
    choose_environment,
    choose_split,
    lay_over,
    names_under,
    override_text,
    override_tree,
)
from wdspec.spec.yaml import typed

SpecSource = str | os.PathLike[str] | Mapping[str, Any] | Spec
"""What a spec can be given as: a path (`x.yaml`, `x.yaml#val`), a dict, or a `Spec`."""
Overrides = Mapping[str, Any] | Sequence[str]
"""`{"batch.size": 32}`, or texts as on the command line: `["batch.size=32"]`."""

_MOST_VARIANTS = 64
_MOST_VALUES = 100_000
"""Values checked over all splits and environments of a file; a hundred sources have about one thousand."""


def load(
    source: SpecSource,
    *,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
    read: ReadFile | None = None,
) -> Spec:
    """Loads and checks a spec. Nothing is imported, opened or run that the spec names, but other spec files.

    Args:
        source: a path, which may end in `#split`, or `-` for standard input; a dict of the same form as a file;
            or a `Spec`, which is returned as it is.
        split: the split to take, of a spec that has `splits`.
        env: the environment whose overlay is applied; by default that named by WDSPEC_ENV, if any.
        vars: values for `${name}`, before those of environment variables and of the spec.
        overrides: values laid over everything: `{"batch.size": 32}` or `["batch.size=32"]`.
        read: reads spec files, where they are not to come from the disk (as `wdspec diff` reads them out of git).

    Raises:
        SpecError: the spec is wrong; the message holds every problem, `.problems` the same as objects.
        UsageError: the arguments contradict each other.

    Example:
        >>> load({"dataset": [{"shards": "data-{000..099}.tar", "weight": 1}]}).sources[0].name
        'data'
    """
    if isinstance(source, Spec):
        if split is not None or env is not None or vars or overrides:
            raise UsageError(
                "a Spec is loaded already; give split, env, vars and overrides where it is loaded"
            )
        return source
    reading = _Reading(source, split, env, vars, overrides, read)
    composed = reading.composed(reading.split, reading.env, warnings=False)
    errors = [problem for problem in reading.problems.sorted() if problem.is_error]
    if errors or composed is None:
        raise error_for(errors)
    return composed.spec


def check(
    source: SpecSource,
    *,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
) -> tuple[Spec | None, list[Problem]]:
    """Everything that is wrong or doubtful with a spec, warnings included, each once and in file order.

    Where no split or environment is chosen, all of them are checked. Arguments as for `load`.

    Returns:
        The spec (of the first variant, where several were checked), None if it has errors; and the problems.
    """
    if isinstance(source, Spec):
        return load(source, split=split, env=env, vars=vars, overrides=overrides), []
    reading = _Reading(source, split, env, vars, overrides)
    first: Spec | None = None
    splits = []
    for number, (one_split, one_env) in enumerate(reading.variants()):
        composed = reading.composed(one_split, one_env, warnings=True)
        if number == 0 and composed is not None:
            first = composed.spec
        if composed is not None and one_split is not None and one_env == reading.env:
            splits.append(composed)
    apply_rules_of_splits(splits, reading.problems)
    reading.note_unused_variables()
    comments = reading.library.ignore_comments
    if reading.split is None and reading.env is None:
        own = (comment for comment in comments if comment.file in (reading.file, STANDARD_INPUT_NAME))
        for problem in without_effect(own, list(reading.problems)):
            reading.problems.note(problem)
    found = [
        problem
        for problem in reading.problems.sorted()
        if not any(comment.hides(problem) for comment in comments)
    ]
    return (None if any(problem.is_error for problem in found) else first), found


def split_names(source: SpecSource) -> list[str]:
    """The names of the splits of a spec, in file order; none of one without. Checks nothing else."""
    top = None if isinstance(source, Spec) else _Reading(source, None, None, None, None).top
    return [] if top is None else names_under(top, "splits")


class _Reading:
    """One source on its way, with what was chosen and the problems found so far."""

    def __init__(
        self,
        source: str | os.PathLike[str] | Mapping[str, Any],
        split: str | None,
        env: str | None,
        vars: Mapping[str, Any] | None,
        overrides: Overrides | None,
        read: ReadFile | None = None,
    ) -> None:
        self.problems = Problems()
        self.directory = os.getcwd()
        self.environ = os.environ
        self.file: str | None = None
        self.chain: tuple[str, ...] = ()
        self.split = split
        self.env_by_variable = env is None and bool(self.environ.get("WDSPEC_ENV"))
        self.env = self.environ["WDSPEC_ENV"] if self.env_by_variable else env
        self.arguments = self._arguments(vars or {})
        self.library = Library(self.problems, lambda node, own: self._scope(own).expand(node), read)
        self.own: MapNode | None = None
        self.top = self._top(source)
        self.overrides = self._overrides(overrides or {})

    def variants(self) -> list[tuple[str | None, str | None]]:
        """The splits and environments to check: those chosen, else all."""
        top = self.top
        splits: list[str | None] = [self.split]
        if top is not None and self.split is None:
            splits = list(names_under(top, "splits")) or [None]
        environments: list[str | None] = [self.env]
        if top is not None and self.env is None:
            environments += names_under(top, "environments")
        pairs = list(product(splits, environments))
        if len(pairs) > _MOST_VARIANTS:
            pairs = [(name, None) for name in splits] + [(splits[0], name) for name in environments[1:]]
        most = max(1, min(4 * _MOST_VARIANTS, _MOST_VALUES // top.size if top is not None else 1))
        if len(pairs) > most and top is not None:
            message = f"only {most} of {len(pairs)} combinations of splits and environments were checked"
            self.problems.add("W103", top, message, "choose with --split and --env")
        return pairs[:most]

    def composed(self, split: str | None, env: str | None, *, warnings: bool) -> Composed | None:
        """The spec of one split and environment; None, and problems, when there is none."""
        if self.top is None or foreign(self.top, self.problems):
            return None
        overlaid: set[Position] = set()
        chosen = choose_split(self.top, split, self.problems)
        by = ", which WDSPEC_ENV names" if self.env_by_variable else ""
        chosen = chosen and choose_environment(chosen, env, overlaid, self.problems, by)
        if chosen is None:
            return None
        for override in self.overrides:
            chosen = lay_over(chosen, override, overlaid)
        vars = chosen.get("vars")
        if vars is not None and not isinstance(vars, MapNode):
            self.problems.add("E202", vars, "`vars` takes a map of names", "write `vars: {name: value}`")
        self._refuse_reserved(vars)
        variant = Variant(
            split,
            env,
            self.file,
            overlaid,
            secure_mode(self.environ),
            bool(self.environ.get("AIS_ENDPOINT", "").strip()),
            bool(self.environ.get("USE_AIS_FOR", "").strip()),
        )
        composed = compose(chosen, variant, self.library, self._expanded, self.chain, self.problems)
        if composed is not None:
            apply_rules(composed, self.problems, warnings=warnings)
        return composed

    def _refuse_reserved(self, vars: Node | None) -> None:
        given = [Scalar(node.origin, 0, 0, name) for name, node in self.arguments.items()]
        given += [entry.key for entry in vars.entries.values()] if isinstance(vars, MapNode) else []
        for key in given:
            if key.value in RESERVED_VARIABLES:
                message = f"no variable can be called `{key.value}`: `WDS_{key.value}` is a setting of wdspec itself"
                self.problems.add("E109", key, message, "choose another name")

    def note_unused_variables(self) -> None:
        """Warns of variables that the file itself sets and that nothing in it, or in what it extends, uses."""
        vars = self.own.get("vars") if self.own is not None else None
        if not isinstance(vars, MapNode) or self.top is None:
            return
        used = used_names(self.top)
        for name, entry in vars.entries.items():
            if name not in used:
                message = f"the variable `{name[:60]}` is not used"
                self.problems.add(
                    "W101", entry.key, message, f"write `${{{name[:60]}}}` where it belongs, or remove it"
                )

    def _top(self, source: str | os.PathLike[str] | Mapping[str, Any]) -> MapNode | None:
        if isinstance(source, Mapping):
            tree = from_python(source, Origin("spec", self.directory, None), self.problems)
            self.own = None if tree is None else top_map(tree, self.problems)
            return None if self.own is None else self.library.extended(self.own)
        if not isinstance(source, (str, os.PathLike)):
            raise UsageError(f"a spec is a path, a dict or a Spec, not a {type(source).__name__}")
        name = os.fspath(source)
        if "\0" in name:
            raise UsageError(f"no file has a name with a NUL character: {name!r}")
        path = os.path.expanduser(name)
        if "#" in name and not os.path.exists(path):
            name, _, split = name.rpartition("#")
            path = os.path.expanduser(name)
            if self.split is not None and self.split != split:
                raise UsageError(f"the path asks for the split {split!r}, the argument for {self.split!r}")
            self.split = split
        if name == STANDARD_INPUT:
            self.own = self.library.standard_input()
            return self.own and self.library.extended(self.own)
        self.file = name
        path = os.path.abspath(path)
        self.chain = (os.path.realpath(path),)
        self.own = self.library.parsed(path, name)
        return self.own and self.library.spec(path, name)

    def _arguments(self, vars: Mapping[str, Any]) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        for name, value in vars.items():
            origin = Origin(f"the variable {name}", self.directory, None)
            if isinstance(value, str) and value and "\0" not in value:
                nodes[name] = Scalar(origin, 0, 0, typed(value), text=value)
            else:
                node = from_python(value, origin, self.problems)
                if node is not None:
                    nodes[name] = node
        return nodes

    def _overrides(self, overrides: Overrides) -> list[MapNode]:
        if isinstance(overrides, Mapping):
            made = [
                override_tree(str(key), value, Origin(f"override {key}", self.directory, None), self.problems)
                for key, value in overrides.items()
            ]
        else:
            made = [override_text(text, self.directory, self.problems) for text in overrides]
        return [tree for tree in made if tree is not None]

    def _scope(self, tree: MapNode) -> Scope:
        return Scope(self.arguments, self.environ, tree.get("vars"), self.directory, self.problems)

    def _expanded(self, tree: MapNode) -> MapNode:
        expanded = self._scope(tree).expand(tree.without("vars"))
        assert isinstance(expanded, MapNode)
        return expanded
