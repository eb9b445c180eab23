"""`wdspec convert`: convert a file of another tool to a spec, with a note for everything that is lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import yaml

from wdspec.base.errors import UsageError, did_you_mean
from wdspec.base.redaction import printable, redact
from wdspec.cli.output import Table, show
from wdspec.convert import DIALECTS, find_dialect
from wdspec.convert.dialect import Dialect, Given, NewSpec
from wdspec.spec.format import format_spec
from wdspec.spec.load import check
from wdspec.spec.yaml import parse_scalar
from wdspec.stores.outputs import save


@click.command()
@click.argument("source", metavar="[FILE|DIR|TEXT|-]", required=False)
@click.option("--from", "dialect", metavar="NAME", help="Format of the input (default: detected).")
@click.option("--output", "-o", metavar="FILE", help="File to write (default: standard output).")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--list", "listed", is_flag=True, help="List the formats that can be converted.")
def convert(source: str | None, dialect: str | None, output: str | None, force: bool, listed: bool) -> None:
    """Convert the mixture in a file of another tool to a spec.

    Shares are kept, or a note says how they differ. Each note is a comment at the top of the spec and a line on
    standard error. The last notes list the problems that `wdspec validate` finds.

    `-` is standard input. DIR is a folder prepared by Energon. TEXT is a list of shards as in OpenCLIP, such as
    `a-{0..9}.tar::b.tar`. No code runs: from Python files, only literal values are read.
    """
    if listed:
        show(Table(("name", "what it is"), [(each.name, each.title) for each in DIALECTS]))
        return
    if source is None:
        raise click.UsageError("name the file to convert; `wdspec convert --list` lists the formats")
    given = _read_input(source)
    chosen = _choose_dialect(given, dialect, source)
    folder = os.path.dirname(os.path.abspath(output)) if output else os.getcwd()
    new = NewSpec(folder)
    chosen.convert(given, new)
    notes = [redact(note) for note in (*new.notes, *_validate(new, folder))]
    about = f"Converted from {chosen.title} by `wdspec convert`" + (f": {given.file}" if given.file else "")
    text = spec_text(new.spec, [about, *(f"note: {note}" for note in notes)])
    for note in notes:
        click.echo(printable(f"note: {note}"), err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    save(output, text.encode(), overwrite=force)


class _Dumper(yaml.SafeDumper):
    """Writes YAML that reads the same as YAML 1.2: its numbers differ from those of YAML 1.1, which yaml writes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None if parse_scalar(value) == value else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_text)


def spec_text(spec: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """The text of a spec with its keys in the documented order, after comments."""
    body = yaml.dump({"wdspec": 1, **spec}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    lines = [line for comment in comments for line in comment.splitlines()]
    above = "".join(f"# {printable(line)}".rstrip() + "\n" for line in lines)
    return above + format_spec(body, "spec").text


def _read_input(source: str) -> Given:
    if source == "-":
        return Given.of_text(sys.stdin.buffer.read().decode("utf-8", "replace"), os.getcwd())
    if not os.path.exists(os.path.expanduser(source)) and (".tar" in source or "--train-data" in source):
        return Given.of_text(source, os.getcwd())
    return Given.read(source)


def _choose_dialect(given: Given, name: str | None, source: str) -> Dialect:
    if name is None:
        found = find_dialect(given)
        if found is not None:
            return found
        if given.value is None and given.fault:
            raise UsageError(f"this cannot be read: {given.fault}", file=source)
        what = (
            "not a format of a known tool" if given.value is not None else "not YAML, JSON or a known command"
        )
        if "dataset" in given.top or "wdspec" in given.top:
            what = "already a spec of wdspec"
        raise UsageError(
            f"this is {what}; `wdspec convert --list` lists the formats, choose with --from", file=source
        )
    names = {each.name: each for each in DIALECTS}
    if name not in names:
        hint = did_you_mean(name, names) or "`wdspec convert --list` lists them"
        raise click.UsageError(f"unknown format `{name}`; {hint}")
    if not names[name].recognises(given):
        raise UsageError(
            f"this does not look like {names[name].title}; omit --from to detect the format", file=source
        )
    return names[name]


def _validate(new: NewSpec, folder: str) -> list[str]:
    """The findings of `wdspec validate` about the spec."""
    before = os.getcwd()
    os.chdir(folder)  # a dict's paths start at the working directory
    try:
        notes = (f"`wdspec validate` reports {each.code}: {each.message}" for each in check(new.spec)[1])
        return list(dict.fromkeys(notes))
    finally:
        os.chdir(before)
