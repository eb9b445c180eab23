"""`wdspec config`: one spec from all of its layers, and where each value was written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import click

from wdspec.base.amounts import percent
from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.redaction import printable, redacted_urls
from wdspec.base.user_code import file_of_module
from wdspec.cli.spec_options import SpecChoice, choosing_spec, parse_assignments
from wdspec.planning.shares import effective_shares
from wdspec.spec.build import Composition
from wdspec.spec.load import compose_all
from wdspec.spec.merged import Merged, merge_composition
from wdspec.spec.problems import error_for
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Position, Scalar
from wdspec.spec.yaml_text import to_json_value, to_yaml
from wdspec.urls.urls import count_shards

_HEAD = ("wdspec", "requires")
"""Keys that stay at the top of a spec with splits, as they are read before all others."""


@click.command()
@choosing_spec
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", help="Output format.")
@click.option(
    "--origin",
    is_flag=True,
    help="Show where each value was written: as comments in YAML. In JSON, the output is a map of `spec`, `sources` "
    "(license and share of each) and `origins` (JSON pointer to file, line and column).",
)
@click.option("--absolute", is_flag=True, help="Make all relative paths absolute.")
def config(choice: SpecChoice, form: str, origin: bool, absolute: bool) -> None:
    """Print a spec with everything merged that it is made of: base files, environment, overrides, `defaults`, nested
    specs, tables of sources, variables.

    Saved in the folder of the spec, the output reads the same samples in the same order. Without --split, it has all
    splits. A comment shows the share and the license of each source.

    A path stays as it is written if it leads to the same file from the folder of the spec; the others are changed and
    listed on standard error. A secret, such as a password in a URL, becomes a variable: set it when you read the
    output.

    \b
    Examples:
      wdspec config train.yaml
      wdspec config train.yaml#train --env cluster --origin
      wdspec config train.yaml --format json | conftest test --policy policy -
    """
    values = parse_assignments(choice.variables, "--var")
    parse_assignments(choice.overrides, "--set")
    found = compose_all(
        choice.file, split=choice.split, env=choice.env, vars=values, overrides=choice.overrides
    )
    if found.errors:
        raise error_for(found.errors)
    printed = [_Printed.of(each, absolute, values) for each in found.found]
    top = _under_splits(printed)
    if form == "json":
        document = to_json_value(top)
        if origin:
            document = {
                "spec": document,
                "sources": [entry for each in printed for entry in each.list_sources()],
                "origins": dict(_list_origins(top, "")),
            }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        comments = _Comments(printed, found.hidden, origin)
        click.echo(to_yaml(top, comments.of), nl=False)
    for note in dict.fromkeys(note for each in printed for note in each.notes()):
        click.echo(printable(note), err=True)


@dataclass
class _Printed:
    """A spec of one split, to print."""

    composition: Composition
    merged: Merged
    shares: Mapping[str, Fraction] | None
    """The share of each source in the mix; None if it changes, has no meaning, or depends on what must be listed."""

    @classmethod
    def of(cls, composition: Composition, absolute: bool, values: Mapping[str, str]) -> _Printed:
        folder = composition.spec.folder or os.getcwd()
        known = {name[4:]: value for name, value in os.environ.items() if name.startswith("WDS_")} | dict(
            values
        )
        if isinstance(composition.vars, MapNode):
            own = ((name, entry.value) for name, entry in composition.vars.entries.items())
            known = {name: str(each.value) for name, each in own if isinstance(each, Scalar)} | known
        merged = merge_composition(composition, folder, absolute=absolute, known=known)
        return cls(composition, merged, _find_shares(composition.spec))

    def list_sources(self) -> Iterator[dict[str, Any]]:
        """Name, license and share of each source with shards, as JSON values."""
        for source in self.composition.spec.sources:
            share = None if self.shares is None else self.shares[source.name]
            yield {
                **({"split": self.composition.variant.split} if self.composition.variant.split else {}),
                "name": source.name,
                "license": source.license and redacted_urls(source.license),
                "share": None if share is None else float(share),
            }

    def notes(self) -> Iterator[str]:
        """What differs from how the spec was written, and what the output needs."""
        for moved in self.merged.moved:
            before, after = map(redacted_urls, (moved.before, moved.after))
            yield f"{_place(moved.position)}: `{moved.key}: {before}` is written as {after}"
        for secret in self.merged.secrets:
            yield (
                f"{_place(secret.position)}: a secret in `{secret.key}` is written as ${{{secret.variable}}}; to read "
                f"the output, set WDS_{secret.variable}, or use --var {secret.variable}=…"
            )
        yield from self.merged.notes
        for folder, names in self._functions_in_folder().items():
            yield (
                f"functions next to the spec: save the output in {folder}, or add that folder to PYTHONPATH, for "
                f"{', '.join(f'`{name}`' for name in names)}"
            )

    def _functions_in_folder(self) -> dict[str, list[str]]:
        """The functions whose module is in the folder of the spec."""
        spec = self.composition.spec
        names = dict.fromkeys(name for each in spec.functions.values() for name in each)
        found = [name for name in names if _is_in(spec.folder, file_of_module(name, spec.folder))]
        return {os.path.relpath(spec.folder): found} if found else {}


def _is_in(folder: str, file: str | None) -> bool:
    return bool(folder) and file is not None and file.startswith(f"{folder.rstrip('/')}/")


def _find_shares(spec: Spec) -> Mapping[str, Fraction] | None:
    """The shares, as far as the spec says them without listing shards."""
    if spec.is_pass or spec.mix.schedule is not None:
        return None
    takes_turns = spec.mix.draw == "round_robin"  # however many shards the sources have
    try:
        return effective_shares(spec.dataset, spec.mix, (lambda source: 1) if takes_turns else _count_shards)
    except WdspecError:
        return None


def _count_shards(source: Source) -> int:
    count = count_shards(source.shards or (), source.base)
    if count is None:
        raise UsageError("shards must be listed to know how many there are")
    return count


def _under_splits(printed: Sequence[_Printed]) -> MapNode:
    """The tree to print: that of a spec without splits; or a map of splits, each of which is whole."""
    first = printed[0]
    top = first.merged.top
    version = MapEntry(top.scalar("wdspec"), top.scalar(1))
    if first.composition.variant.split is None:
        return top.with_entries({"wdspec": version, **top.entries})
    splits = {
        str(each.composition.variant.split): MapEntry(
            each.merged.top.scalar(str(each.composition.variant.split)), each.merged.top.without(*_HEAD)
        )
        for each in printed
    }
    head = {key: top.entries[key] for key in _HEAD if key in top.entries}
    whole = MapEntry(top.scalar("splits"), top.with_entries(splits))
    return top.with_entries({"wdspec": version, **head, "splits": whole})


def _list_origins(node: Node, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The origin of each scalar, by its JSON pointer."""
    if isinstance(node, MapNode):
        for key, entry in node.entries.items():
            escaped = key.replace("~", "~0").replace("/", "~1")
            yield from _list_origins(entry.value, f"{pointer}/{escaped}")
    elif isinstance(node, ListNode):
        for number, item in enumerate(node.items):
            yield from _list_origins(item, f"{pointer}/{number}")
    else:
        file, line, column = node.position
        yield pointer, {"file": redacted_urls(file), "line": line, "column": column}


class _Comments:
    """The comments of lines: share and license of a source, warnings that are ignored, and origins."""

    def __init__(
        self, printed: Sequence[_Printed], hidden: Mapping[Position, set[str]], origin: bool
    ) -> None:
        self._hidden, self._origin = hidden, origin
        self._of_names: dict[int, str] = {}
        for each in printed:
            for name, node in _names_of_sources(each.merged.top):
                self._of_names[id(node)] = self._describe(each, name)

    def _describe(self, printed: _Printed, name: str) -> str:
        source = next((each for each in printed.composition.spec.sources if each.name == name), None)
        if source is None:
            return ""
        share = "" if printed.shares is None else f"share {percent(float(printed.shares[name]))}, "
        return f"{share}license {redacted_urls(source.license)}" if source.license else f"{share}no license"

    def of(self, nodes: Sequence[Node]) -> str:
        """The comment of a line, from the keys and values that begin in it."""
        about = [self._of_names[id(node)] for node in nodes if self._of_names.get(id(node))]
        codes = sorted({code for node in nodes for code in self._hidden.get(node.position, ())})
        if self._origin and isinstance(nodes[-1], Scalar):
            about.append(_place(nodes[-1].position))
        if codes:
            about.append(f"wdspec: ignore={','.join(codes)}")
        return printable("  # ".join(about))


def _names_of_sources(top: MapNode) -> Iterator[tuple[str, Node]]:
    dataset = top.get("dataset")
    for item in dataset.items if isinstance(dataset, ListNode) else ():
        if isinstance(item, MapNode):
            name = item.get("name")
            if isinstance(name, Scalar):
                yield str(name.value), name
            yield from _names_of_sources(item)


def _place(position: Position) -> str:
    """A file and a line, or an option of the command line."""
    file, line, _ = position
    return f"{file}:{line}" if line and not file.startswith("--set ") else file
