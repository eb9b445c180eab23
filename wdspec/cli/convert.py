"""`wdspec convert`: a file of another tool as a spec, with a note for each thing that cannot be said.

A spec that a program made, as the text of a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import yaml

from wdspec.base.errors import UsageError, did_you_mean
from wdspec.base.redaction import printable, redacted
from wdspec.cli.report import Table, show
from wdspec.convert import DIALECTS, recognised
from wdspec.convert.dialect import Dialect, Given, NewSpec
from wdspec.spec.format import formatted
from wdspec.spec.load import check
from wdspec.spec.yaml import parse_scalar
from wdspec.stores.outputs import save


@click.command()
@click.argument("source", metavar="[FILE|DIR|TEXT|-]", required=False)
@click.option("--from", "dialect", metavar="NAME", help="What it is; by default seen by what stands in it.")
@click.option("--output", "-o", metavar="FILE", help="Where to write the spec; by default standard output.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--list", "listed", is_flag=True, help="List what can be converted.")
def convert(source: str | None, dialect: str | None, output: str | None, force: bool, listed: bool) -> None:
    """Write the mixture that a file of another tool describes as a spec, with notes of what is lost.

    Shares are kept, or a note says in what they differ. Each note is a comment at the top of the spec and a line on
    standard error; the last of them say what `wdspec validate` finds in the spec. `-` is standard input, a DIR a folder
    that Energon has prepared, and TEXT shards as OpenCLIP has them: `a-{0..9}.tar::b.tar`. Nothing is run: of Python
    files only what is written out is read.
    """
    if listed:
        show(Table(("name", "what it is"), [(each.name, each.title) for each in DIALECTS]))
        return
    if source is None:
        raise click.UsageError("name the file to convert; `wdspec convert --list` says which there are")
    given = _given(source)
    chosen = _chosen(given, dialect, source)
    folder = os.path.dirname(os.path.abspath(output)) if output else os.getcwd()
    new = NewSpec(folder)
    chosen.convert(given, new)
    notes = [redacted(note) for note in (*new.notes, *_found(new, folder))]
    about = f"Converted from {chosen.title} by `wdspec convert`" + (f": {given.file}" if given.file else "")
    text = spec_text(new.spec, [about, *(f"note: {note}" for note in notes)])
    for note in notes:
        click.echo(printable(f"note: {note}"), err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    save(output, text.encode(), overwrite=force)


class _Dumper(yaml.SafeDumper):
    """Writes what YAML 1.2 reads as the same: its numbers are not quite those of yaml's own YAML 1.1."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None if parse_scalar(value) == value else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def spec_text(spec: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """The text of a spec, its keys in the documented order, below comments."""
    body = yaml.dump({"wdspec": 1, **spec}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    lines = [line for comment in comments for line in comment.splitlines()]
    above = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return above + formatted(body, "spec").text


def _given(source: str) -> Given:
    if source == "-":
        return Given.of_text(sys.stdin.buffer.read().decode("utf-8", "replace"), os.getcwd())
    if not os.path.exists(os.path.expanduser(source)) and (".tar" in source or "--train-data" in source):
        return Given.of_text(source, os.getcwd())
    return Given.read(source)


def _chosen(given: Given, name: str | None, source: str) -> Dialect:
    if name is None:
        found = recognised(given)
        if found is not None:
            return found
        what = (
            "of no tool that is known"
            if given.value is not None
            else "neither YAML, JSON nor a command that is known"
        )
        if given.value is None and given.fault:
            raise UsageError(f"this cannot be read: {given.fault}", file=source)
        what = "a spec of wdspec already" if "dataset" in given.top or "wdspec" in given.top else what
        raise UsageError(
            f"this is {what}; `wdspec convert --list` says what can be converted, --from chooses", file=source
        )
    names = {each.name: each for each in DIALECTS}
    if name not in names:
        hint = did_you_mean(name, names) or "`wdspec convert --list` lists them"
        raise click.UsageError(f"no dialect `{name}`; {hint}")
    if not names[name].recognises(given):
        raise UsageError(
            f"this does not look like {names[name].title}; leave out --from to have it seen", file=source
        )
    return names[name]


def _found(new: NewSpec, folder: str) -> list[str]:
    """What the validator says of the spec."""
    before = os.getcwd()
    os.chdir(folder)  # a dict's paths start at the working directory
    try:
        found = (f"`wdspec validate` says {each.code}: {each.message}" for each in check(new.spec)[1])
        return list(dict.fromkeys(found))
    finally:
        os.chdir(before)
