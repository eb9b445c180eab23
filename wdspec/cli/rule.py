"""`wdspec rule`: explain the code of a problem."""

from __future__ import annotations

import textwrap

import click

from wdspec.base.errors import did_you_mean
from wdspec.cli.spec_options import format_option
from wdspec.spec.rules import all_codes
from wdspec.spec.rules.rule import Code


@click.command()
@click.argument("codes", metavar="[CODE...]", nargs=-1)
@format_option("text", "markdown", help="markdown: one page of all codes.")
def rule(codes: tuple[str, ...], form: str) -> None:
    """Explain codes of problems, such as E302. Without a code, list all codes."""
    known = all_codes()
    if form == "markdown":
        from wdspec.spec.reference import codes_text

        if codes:
            raise click.UsageError("`--format markdown` explains all codes; do not name any")
        click.echo(codes_text(), nl=False)
    elif not codes:
        for code, about in known.items():
            click.echo(f"{code}  {about.title}")
    for number, code in enumerate(codes):
        if code.upper() not in known:
            hint = did_you_mean(code.upper(), known) or "`wdspec rule` lists all codes"
            raise click.UsageError(f"unknown code {code}; {hint}")
        click.echo(("\n" if number else "") + page(known[code.upper()]))


def page(about: Code) -> str:
    """The page of one code."""
    lines = [f"{about.code}: {about.title}", "", *textwrap.wrap(about.explanation, 88)]
    for heading, example in (("For example:", about.bad), ("Without the problem:", about.good)):
        if 0 < len(example) < 400:
            lines += ["", heading, ""]
            lines += [f"    {line}" for line in example.replace("\x07", "?").splitlines()]
    return "\n".join(lines)
