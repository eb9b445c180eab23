"""Formats for problems of specs and data: text, GitHub Actions, JSON, SARIF and JUnit XML.

Text and annotations are printed while files are checked; the other formats are one document.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

import wdspec
from wdspec.base.errors import did_you_mean
from wdspec.base.redaction import escape_controls
from wdspec.cli.output import pluralize, show_problem
from wdspec.spec.problems import Problem

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


class CheckedSpec(NamedTuple):
    """A file and its problems, which may be in files that it extends."""

    file: str
    """As the user named it."""
    problems: list[Problem]
    """In file order."""
    is_checked: bool = True
    """False for a file that is only doubtful: no spec, as far as can be seen."""

    @property
    def errors(self) -> list[Problem]:
        """The problems that make the spec unusable."""
        return [problem for problem in self.problems if problem.is_error]


def parse_ignored(codes: Iterable[str], may_ignore: Callable[[str], bool], kind: str) -> frozenset[str]:
    """Parse the codes that `--ignore` names. Raises click.UsageError for an unknown code.

    Args:
        codes: as they are written.
        may_ignore: whether a code can be ignored.
        kind: the kind of codes that can be ignored, for the message.
    """
    if not codes:
        return frozenset()
    from wdspec.spec.rules import all_codes

    known = list(filter(may_ignore, all_codes()))
    for code in codes:
        if code.upper() not in known:
            hint = did_you_mean(code.upper(), known) or "`wdspec rule` lists all codes"
            raise click.UsageError(f"cannot ignore {code}, which is not the code of {kind}; {hint}")
    return frozenset(map(str.upper, codes))


def text_report(checked: Iterable[CheckedSpec]) -> Iterator[str]:
    """Each problem with its line of the file, in colour on a terminal; then a summary."""
    return _with_summary(checked, show_problem)


def github_report(checked: Iterable[CheckedSpec]) -> Iterator[str]:
    """Workflow commands, which GitHub Actions shows next to the lines of a pull request; then a summary."""
    return _with_summary(checked, _annotation)


def summary(files: int, severities: Mapping[str, int], noun: str = "file") -> str:
    """`3 files checked: 2 errors, 1 warning`."""
    found = ", ".join(
        pluralize(severities[kind], kind) for kind in ("error", "warning") if severities.get(kind)
    )
    return f"{pluralize(files, noun)} checked: {found or 'no problems'}"


def _with_summary(checked: Iterable[CheckedSpec], show: Callable[[Problem], str]) -> Iterator[str]:
    files = 0
    shown: dict[Problem, Problem] = {}
    for spec in checked:
        files += spec.is_checked
        # W108 comes last, as an error may have caused it.
        for problem in sorted(spec.problems, key=lambda each: each.code == "W108"):
            if shown.setdefault(_identity(problem), problem) is problem:
                yield show(problem)
    yield summary(files, Counter(problem.severity for problem in shown))


def _annotation(problem: Problem) -> str:
    message = _escape(problem.advice)
    location = f"file={_escape_property(os.path.normpath(problem.file))}"
    if problem.line:
        location += f",line={problem.line},col={problem.column},endColumn={problem.column + problem.length}"
    return f"::{problem.severity} {location},title={problem.code}::{message}"


def _escape(text: str) -> str:
    return escape_controls(text, "\r\n\t").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
REPOSITORY_ROOT = "%SRCROOT%"
"""The placeholder of code-scanning services for the root of the repository."""


def json_report(checked: Iterable[CheckedSpec]) -> Iterator[str]:
    """A JSON array with an object for each problem."""
    listed = []
    for problem in _problems(checked):
        fields = asdict(problem)
        del fields["source"]
        listed.append({"severity": problem.severity, **fields})
    yield json.dumps(listed, indent=2, ensure_ascii=True)


def sarif_report(checked: Iterable[CheckedSpec]) -> Iterator[str]:
    """SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0): one run, with a rule for each code."""
    problems = _problems(checked)
    codes = sorted({problem.code for problem in problems})
    driver = {"name": "wdspec", "version": wdspec.__version__, "rules": list(map(_sarif_rule, codes))}
    results = [_sarif_result(problem, codes.index(problem.code)) for problem in problems]
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    document = {"version": "2.1.0", "$schema": SARIF_SCHEMA, "runs": [run]}
    yield json.dumps(document, indent=2, ensure_ascii=True)


def junit_report(checked: Iterable[CheckedSpec], title: str = "wdspec validate") -> Iterator[str]:
    """JUnit XML: a test case for each file, which fails if it has errors; warnings are its output."""
    from xml.etree import ElementTree

    cases = [_junit_case(spec) for spec in checked]
    failed = sum(case.find("failure") is not None for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "skipped": "0"}
    document = ElementTree.Element("testsuites", {"name": "wdspec", **counts})
    ElementTree.SubElement(document, "testsuite", {"name": title, **counts}).extend(cases)
    yield ElementTree.tostring(document, encoding="unicode")


def _problems(checked: Iterable[CheckedSpec]) -> list[Problem]:
    """The problems of all specs; one of a shared base is listed once."""
    found: dict[Problem, Problem] = {}
    for spec in checked:
        for problem in spec.problems:
            found.setdefault(_identity(problem), problem)
    return list(found.values())


def _identity(problem: Problem) -> Problem:
    """The same for a problem of `./base.yaml` and of `base.yaml`, as a folder and `extends` name one file."""
    return replace(problem, file=os.path.normpath(problem.file))


def _sarif_rule(code: str) -> dict[str, Any]:
    from wdspec.spec.rules import all_codes

    about = all_codes()[code]
    return {
        "id": code,
        "shortDescription": {"text": about.title},
        "fullDescription": {"text": about.explanation},
        "defaultConfiguration": {"level": "error" if about.is_error else "warning"},
        "help": {"text": f"{about.explanation}\n\nwdspec rule {code}"},
    }


def _sarif_result(problem: Problem, index: int) -> dict[str, Any]:
    path = PurePath(problem.file)
    uri = path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))
    column = max(1, problem.column)
    region = {"startLine": max(1, problem.line), "startColumn": column, "endColumn": column + problem.length}
    file = {"uri": uri} if path.is_absolute() else {"uri": uri, "uriBaseId": REPOSITORY_ROOT}
    return {
        "ruleId": problem.code,
        "ruleIndex": index,
        "level": problem.severity,
        "message": {"text": problem.advice},
        "locations": [{"physicalLocation": {"artifactLocation": file, "region": region}}],
    }


def _junit_case(spec: CheckedSpec) -> Element:
    from xml.etree import ElementTree

    case = ElementTree.Element("testcase", name=_xml_text(spec.file), classname="wdspec")
    for problem in spec.errors:
        message = _xml_text(f"{problem.position}: {problem.message}")
        failure = ElementTree.SubElement(case, "failure", message=message, type=problem.code)
        failure.text = _xml_text(str(problem))
    warnings = [str(problem) for problem in spec.problems if not problem.is_error]
    if warnings:
        ElementTree.SubElement(case, "system-out").text = _xml_text("\n".join(warnings))
    return case


def _xml_text(text: str) -> str:
    """Replace the characters that XML 1.0 cannot hold."""
    return "".join(c if c in "\t\n" or (c.isprintable() and ord(c) < 0xFFFE) else "\ufffd" for c in text)


REPORTS: dict[str, Callable[[Iterable[CheckedSpec]], Iterator[str]]] = {
    "text": text_report,
    "json": json_report,
    "github": github_report,
    "sarif": sarif_report,
    "junit": junit_report,
}
"""The formats: each yields the lines of a report while files are checked."""
