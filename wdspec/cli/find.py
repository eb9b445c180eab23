"""`wdspec find`: which specs read from a bucket or a path, have a license or an owner, or use a file or a function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from wdspec.base.errors import UrlError
from wdspec.base.redaction import printable
from wdspec.cli.lint_files import exclude_option, find_files
from wdspec.cli.output import Block, pluralize, show_report, table_of
from wdspec.cli.spec_options import form_option, parse_assignments, var_option
from wdspec.formats.mds_index import read_index
from wdspec.shards.listing import is_index
from wdspec.spec.build import Composition
from wdspec.spec.files import read_from_disk
from wdspec.spec.language.values import FilePath, Model
from wdspec.spec.load import compose_all
from wdspec.spec.paths import map_paths, starts_here
from wdspec.spec.problems import Problem
from wdspec.spec.sources import every_draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import MapNode, Position, Scalar, scalars
from wdspec.spec.yaml import MAX_BYTES
from wdspec.urls.overlap import Wanted
from wdspec.urls.rewrite import Rule, rewrite
from wdspec.urls.urls import parse_shards, scheme_of

_LEFT_TO_OTHERS = frozenset({"E107"})
"""What a base may leave to the files that extend it: to set its variables."""
_FUNCTIONS = ("map", "select", "map_batches", "stage", "batch", "decode")
"""Keys with functions."""


@click.command()
@click.argument("pattern")
@click.argument("paths", metavar="[FILE|DIR|GLOB|-]...", nargs=-1)
@exclude_option
@var_option
@form_option
def find(
    pattern: str, paths: tuple[str, ...], exclude: tuple[str, ...], variables: tuple[str, ...], form: str
) -> int:
    """List the specs, splits, environments and sources that read from a bucket or a path, have a license, use a
    function, are made from a base file, or have a value in `meta`, such as their owner.

    PATTERN is a whole name between marks such as `/` and `:`, so `s3://lab` is in `s3://lab/a.tar` and not in
    `s3://lab2/a.tar`. With `*` or `?`, it is a pattern for all of a value. Shards are compared one by one, as the spec
    writes them and as its rewrite rules change them. A glob counts if it may match. Local files in `@file` are read.

    Specs are found as by `wdspec validate`, and nothing that they refer to is opened.

    Exit code: 0, also if nothing is found; 1 if a spec has errors, so that it may be missing; 2 for wrong usage.

    \b
    Examples:
      wdspec find s3://laion configs
      wdspec find 's3://bucket/laion-*' configs --format json
      wdspec find CC-BY-NC-4.0 configs
      wdspec find team/base.yaml configs
      wdspec find vision@example.org configs
    """
    if not pattern.strip():
        raise click.UsageError(
            "the pattern is empty; name a bucket, a path, a license, a file, a function or an owner"
        )
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    values = parse_assignments(variables, "--var")
    found = find_files(paths, exclude, "search", values)[1]
    search = _Search(pattern)
    for file in found.specs:
        search.look_at(file, values, is_base=file in found.bases)
    for problem in search.problems:
        for line in str(problem).split("\n"):
            click.echo(printable(line), err=True)
    show_report(Uses(pattern, search.uses, len(found.specs)), form)
    return int(bool(search.problems))


class Variant(NamedTuple):
    """A split and an environment of a spec."""

    split: str | None
    environment: str | None


@dataclass
class Use:
    """A value of a spec that is what was looked for."""

    spec: str
    source: str
    """Name of the source; empty at the top level."""
    key: str
    value: str
    position: Position
    location: str = ""
    """What a rewrite rule makes of it, if only that is what was looked for."""
    variants: dict[Variant, None] = field(default_factory=dict)
    """Where it applies."""
    is_everywhere: bool = False
    """Whether it applies in all splits and environments."""

    @property
    def shown_variants(self) -> str:
        """The splits and environments in a cell."""
        if self.is_everywhere:
            return "all"
        shown = [
            f"{split or ''}{'' if environment is None else f' ({environment})'}".strip() or "no environment"
            for split, environment in self.variants
        ]
        return ", ".join(shown)

    @property
    def place(self) -> str:
        """The file and the line where it is written; empty if it is a file itself."""
        return f"{self.position.file}:{self.position.line}" if self.position.line else ""

    def as_json(self) -> dict[str, Any]:
        file, line, column = self.position
        return {
            "spec": self.spec,
            "source": self.source or None,
            "key": self.key,
            "value": self.value,
            "location": self.location or None,
            "variants": [each._asdict() for each in self.variants],
            "everywhere": self.is_everywhere,
            "file": file,
            "line": line,
            "column": column,
        }


@dataclass(frozen=True)
class Uses:
    """What was found."""

    pattern: str
    uses: list[Use]
    specs: int
    """Number of specs that were searched."""

    def blocks(self) -> Iterator[Block]:
        files = len({use.spec for use in self.uses})
        if self.uses:
            columns: dict[str, Callable[[Use], str]] = {
                "spec": lambda use: use.spec,
                "split (environment)": lambda use: use.shown_variants,
                "source": lambda use: use.source,
                "key": lambda use: use.key,
                "value": lambda use: f"{use.value} -> {use.location}" if use.location else use.value,
                "written in": lambda use: use.place,
            }
            yield table_of(self.uses, columns)
        yield f"{files} of {pluralize(self.specs, 'spec')}"

    def as_json(self) -> dict[str, Any]:
        return {"pattern": self.pattern, "specs": self.specs, "uses": self.uses}


class _Search:
    """Looks for a pattern in specs."""

    def __init__(self, pattern: str) -> None:
        self._wanted = Wanted(pattern)
        self._license = Wanted(pattern, folds_case=True)
        path = os.path.expanduser(pattern)
        first = path.removeprefix("./").partition("/")[0]
        if starts_here(path) and os.path.lexists(first):  # a spec may write it relative to another folder
            path = os.path.abspath(path)
        self._path = Wanted(path) if path.startswith("/") else None
        self.uses: list[Use] = []
        self.problems: list[Problem] = []

    def look_at(self, file: str, values: Mapping[str, str], *, is_base: bool) -> None:
        """Look for the pattern in all splits and environments of a file."""
        composed = compose_all(file, vars=values, every_environment=True, rules=False)
        found: dict[tuple[object, ...], Use] = {}
        variants: dict[Variant, None] = {}
        for composition in composed.found:
            variant = Variant(composition.variant.split, composition.variant.environment)
            variants[variant] = None
            for use in self._uses_in(file, composition, composed.bases):
                found.setdefault((use.source, use.key, use.value, use.position), use).variants[variant] = None
        for use in found.values():
            use.is_everywhere = len(use.variants) == len(variants)
        self.uses += found.values()
        self.problems += [
            problem for problem in composed.errors if not is_base or problem.code not in _LEFT_TO_OTHERS
        ]
        if composed.left_out:
            message = f"{composed.left_out:,} pairs of splits and environments were not searched"
            self.problems.append(Problem("W103", message, "", file, 1, 1))

    def _uses_in(self, file: str, composition: Composition, bases: frozenset[str]) -> Iterator[Use]:
        yield from self._files(file, composition, bases)
        top = composition.top.without("dataset", "companions", "defaults")
        yield from self._values(file, "", top, Spec, [], composition)
        for leaf in (*composition.leaves, *composition.companions):
            written = [] if leaf.model is None else [*leaf.model.rewrite, *composition.spec.rewrite]
            written.sort(key=lambda rule: not rule.overlay)
            rules = [Rule(rule.pattern, rule.replacement, rule.origin) for rule in written]
            yield from self._values(file, leaf.name, leaf.node.without("rewrite"), Source, rules, composition)

    def _files(self, file: str, composition: Composition, bases: frozenset[str]) -> Iterator[Use]:
        """The files that the spec is made of, besides itself."""
        others = dict.fromkeys(bases, "extends")
        for draft in every_draft(composition.drafts):
            nodes = [draft.own] if draft.children is None else [draft.own, draft.own.entries["dataset"].value]
            for node in nodes:
                origin = node.origin
                if origin.directory and node.line:
                    path = os.path.join(origin.directory, os.path.basename(origin.name))
                    others.setdefault(os.path.realpath(path), "spec")
        own = os.path.realpath(composition.variant.file or "")
        for path, key in others.items():
            shown = os.path.relpath(path)
            if path != own and (
                self._wanted.is_in(shown) or (self._path is not None and self._path.is_in(path))
            ):
                yield Use(file, "", key, shown, Position(shown, 0, 0))

    def _values(
        self,
        file: str,
        source: str,
        node: MapNode,
        model: type[Model],
        rules: list[Rule],
        composition: Composition,
    ) -> Iterator[Use]:
        """The paths and hosts, the license, the functions and the values of `meta` of a source, or of the top level."""
        found: list[Use] = []

        def look(value: Scalar, kind: FilePath, key: str) -> Scalar:
            for text, base in _texts(value, key):
                location = self._where(text, base, key, rules)
                if location is not None:
                    found.append(Use(file, source, key, text, value.position, location))
            return value

        map_paths(node, model, look)
        yield from found
        fetch = node.map_at("fetch")
        for name, entry in fetch.entries.items() if fetch is not None else ():
            hosts = entry.value.get("hosts") if isinstance(entry.value, MapNode) else None
            for each in scalars(hosts) if hosts is not None else ():
                if self._wanted.is_in(str(each.value)) or self._wanted.is_in(f"https://{each.value}"):
                    yield Use(file, source, f"fetch.{name}.hosts", str(each.value), each.position)
        license = node.get("license")
        if isinstance(license, Scalar) and self._license.is_in(str(license.value)):
            yield Use(file, source, "license", str(license.value), license.position)
        meta = node.map_at("meta")
        for name, entry in meta.entries.items() if meta is not None else ():
            for each in scalars(entry.value):
                if self._wanted.is_in(str(each.value)):
                    yield Use(file, source, f"meta.{name}", str(each.value), each.position)
        functions = {name for names in composition.spec.functions.values() for name in names}
        for key in _FUNCTIONS if functions else ():
            held = node.get(key)
            for each in scalars(held) if held is not None else ():
                if each.value in functions and self._wanted.is_in(each.value):
                    yield Use(file, source, key, each.value, each.position)

    def _where(self, text: str, base: str, key: str, rules: list[Rule]) -> str | None:
        """Whether a path is what is looked for: "" if it is as it is written, the location if that is; else None."""
        matches = Wanted.may_be if key == "shards" else Wanted.is_in
        if matches(self._wanted, text):
            return ""
        location = rewrite(text, rules)[0] if rules else text
        if location != text and matches(self._wanted, location):
            return location
        if self._path is not None:
            path = os.path.expanduser(location)
            path = (
                os.path.normpath(os.path.join(base, path)) + "/" * path.endswith("/")
                if not scheme_of(path)
                else path
            )
            if matches(self._path, path):
                return location if location != text else ""
        return None


def _texts(value: Scalar, key: str) -> Iterator[tuple[str, str]]:
    """The texts of a path, and the folders where they start: of shards each one, and those in a local `@file`."""
    if key != "shards":
        yield value.value.removeprefix("@"), value.base
        return
    try:
        parts = parse_shards((value.value,), value.base)
    except UrlError:  # one of the errors of the spec
        return
    for part in parts:
        yield part.text.removeprefix("@"), part.base
        if part.text.startswith("@"):
            yield from _lines_of(part.text[1:], part.base)


def _lines_of(name: str, base: str) -> Iterator[tuple[str, str]]:
    """The shards in a local list; none if it is not local, or cannot be read."""
    path = os.path.join(base, os.path.expanduser(name))
    if scheme_of(name):
        return
    try:
        data = read_from_disk(path, True, MAX_BYTES)
        if is_index(f"@{name}"):
            lines = [shard for names in read_index(data) for shard in names if shard]
        else:
            lines = data.decode("utf-8", "surrogateescape").splitlines()
    except (OSError, ValueError):
        return
    for line in map(str.strip, lines):
        if line and not line.startswith("#") and "\0" not in line:
            yield line, os.path.dirname(path)
