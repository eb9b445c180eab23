"""`wdspec rule`: what a problem's code means."""

from __future__ import annotations

import click

from wdspec.spec.problems.codes import CODES
from wdspec.suggestions import did_you_mean


@click.command()
@click.argument("codes", metavar="[CODE...]", nargs=-1)
def rule(codes: tuple[str, ...]) -> None:
    """Explain codes of problems, such as E302; without one, list all."""
    if not codes:
        for code, about in CODES.items():
            click.echo(f"{code}  {about.title}")
    for number, code in enumerate(codes):
        if code.upper() not in CODES:
            hint = did_you_mean(code.upper(), CODES) or "`wdspec rule` lists all codes"
            raise click.UsageError(f"there is no code {code}; {hint}")
        click.echo(("\n" if number else "") + page(code.upper()))


def page(code: str) -> str:
    """The page of one code."""
    about = CODES[code]
    lines = [f"{code}: {about.title}", "", *_wrapped(about.explanation)]
    if 0 < len(about.example) < 400:
        lines += [
            "",
            "For example:",
            "",
            *(f"    {line}" for line in about.example.replace("\x07", "?").splitlines()),
        ]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 88)
