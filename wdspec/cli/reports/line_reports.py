"""Reports of a line or a few for each problem, printed as files are checked: for people, and for GitHub Actions."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import click

from wdspec.cli.reports.checked_spec import CheckedSpec
from wdspec.cli.support.tables import counted
from wdspec.spec.problems import Problem

_COLOURS = {"error": "red", "warning": "yellow"}


def text_report(checked: Iterable[CheckedSpec], noun: str = "file") -> Iterator[str]:
    """Each problem with the line it stands in, in colour on a terminal; then how many there were."""
    return _with_summary(checked, _styled, noun)


def github_report(checked: Iterable[CheckedSpec]) -> Iterator[str]:
    """Workflow commands, which GitHub Actions shows beside the lines of a pull request; then how many there were."""
    return _with_summary(checked, _annotation, "file")


def summary(files: int, severities: Mapping[str, int], noun: str = "file") -> str:
    """`3 files checked: 2 errors, 1 warning`."""
    found = ", ".join(
        counted(severities[kind], kind) for kind in ("error", "warning") if severities.get(kind)
    )
    return f"{counted(files, noun)} checked: {found or 'no problems'}"


def _with_summary(checked: Iterable[CheckedSpec], show: Callable[[Problem], str], noun: str) -> Iterator[str]:
    files = 0
    severities: Counter[str] = Counter()
    for spec in checked:
        yield from map(show, spec.problems)
        files += 1
        severities.update(problem.severity for problem in spec.problems)
    yield summary(files, severities, noun)


def _styled(problem: Problem) -> str:
    """The problem as text; in colour on a terminal, unless NO_COLOR is set."""
    text = str(problem)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    colour = _COLOURS[problem.severity]
    first, *rest = text.split("\n")
    place, _, said = first.partition(f": {problem.code} ")
    lines = [f"{click.style(place, bold=True)}: {click.style(problem.code, fg=colour, bold=True)} {said}"]
    for line in rest:
        margin, bar, content = line.partition(" | ")
        if bar:
            carets = content.strip() != "" and set(content.strip()) == {"^"} and not margin.strip()
            content = click.style(content, fg=colour) if carets else content
            lines.append(click.style(margin + bar, fg="blue") + content)
        else:
            before, equals, hint = line.partition(" = ")
            lines.append(click.style(before + equals, fg="blue") + hint)
    return "\n".join(lines)


def _annotation(problem: Problem) -> str:
    message = _escape(problem.advice)
    location = f"file={_escape_property(problem.file)}"
    if problem.line:
        location += f",line={problem.line},col={problem.column},endColumn={problem.column + problem.length}"
    return f"::{problem.severity} {location},title={problem.code}::{message}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
