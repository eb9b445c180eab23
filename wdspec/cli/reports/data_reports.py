"""What a check of data found, in the formats that problems of specs are reported in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from wdspec.base.redaction import redacted_urls
from wdspec.checking.judgements.checked_data import CheckedSource
from wdspec.checking.run_check import CheckReport
from wdspec.checking.shards.data_problem import DataProblem
from wdspec.cli.reports.checked_spec import CheckedSpec
from wdspec.cli.reports.document_reports import junit_report
from wdspec.cli.reports.line_reports import github_report, summary, text_report
from wdspec.cli.support.json_output import without_secrets
from wdspec.cli.support.tables import counted
from wdspec.spec.codes import is_error
from wdspec.spec.problems import Problem
from wdspec.spec.spec import Spec

DataReport = Callable[[CheckReport], Iterator[str]]


def text(report: CheckReport) -> Iterator[str]:
    """Problems shard by shard, with all that is known of the place; then how many there were."""
    found = list(_by_shard(report))
    *lines, _ = text_report(found, "shard")  # the last counts what is about a source as another shard
    yield from lines
    for code, count in sorted(report.hidden.items()):
        yield f"{count:,} more of {code} are not listed, as they stand in shards with many of them"
    severities = Counter(problem.severity for checked in found for problem in checked.problems)
    for code, count in report.hidden.items():
        severities["error" if is_error(code) else "warning"] += count
    shards = [looked for source in report.collection.own for looked in source.shards]
    unchanged = sum(looked.facts.is_unchanged for looked in shards)
    if unchanged:
        yield f"{counted(unchanged, 'shard')} as locked, and not looked at"
    yield summary(len(shards) - unchanged, severities, "shard")


def junit(report: CheckReport) -> Iterator[str]:
    """A test case for each shard."""
    return junit_report(_by_shard(report), "wdspec check")


def github(report: CheckReport) -> Iterator[str]:
    """Annotations of the spec, at its sources: shards are in no repository."""
    spec = report.collection.spec
    checked = [
        CheckedSpec(spec.file or "the spec", [_at_source(problem, spec) for problem in report.problems])
    ]
    return github_report(checked)


def as_json(report: CheckReport) -> Iterator[str]:
    """One document: the problems, and what the samples of each source are."""
    yield json.dumps(
        {
            "problems": [without_secrets(problem.as_json()) for problem in report.problems],
            "hidden": dict(report.hidden),
            "sources": {source.name: _about(source) for source in report.collection.own},
        },
        indent=2,
    )


DATA_REPORTS: dict[str, DataReport] = {"text": text, "json": as_json, "github": github, "junit": junit}


def _by_shard(report: CheckReport) -> Iterator[CheckedSpec]:
    """What is about a shard with the shard, and what is about a whole source with that."""
    found: dict[str, list[Problem]] = {
        looked.shard.text: [] for source in report.collection.own for looked in source.shards
    }
    for problem in report.problems:
        file = problem.shard or problem.source or report.collection.spec.file or "the spec"
        found.setdefault(file, []).append(_problem(problem, redacted_urls(file)))
    yield from (CheckedSpec(redacted_urls(file), problems) for file, problems in found.items())


def _problem(problem: DataProblem, file: str, line: int = 0, column: int = 0) -> Problem:
    names = ("member", "key", "field", "offset")
    known = {name: value for name in names if (value := getattr(problem, name)) is not None}
    if "member" in known:
        known.pop("field", None)
    where = ", ".join(f"{'byte' if name == 'offset' else name} {value}" for name, value in known.items())
    message = redacted_urls(problem.message) + (f" [{where}]" if where else "")
    return Problem(problem.code, message, "", file, line, column)


def _at_source(problem: DataProblem, spec: Spec) -> Problem:
    wheres = {source.name: source.where for source in spec.sources}
    where = wheres.get(problem.source)
    shown = _problem(problem, spec.file or "the spec")
    if problem.shard:
        shown = Problem(shown.code, f"{redacted_urls(problem.shard)}: {shown.message}", "", shown.file)
    if where is None or not where.line:
        return shown
    return Problem(shown.code, shown.message, "", where.file, where.line, where.column)


def _about(source: CheckedSource) -> Mapping[str, object]:
    facts = source.facts
    return {
        "shards": len(source.shards),
        "read": len(source.read),
        "as_locked": sum(looked.facts.is_unchanged for looked in source.shards),
        "samples": facts.samples,
        "delivered": facts.delivered,
        "dropped": facts.dropped,
        "bytes": facts.bytes,
        "fields": {
            name: {
                "types": {kind: seen.times for kind, seen in each.kinds.items()},
                "modes": {mode: seen.times for mode, seen in each.modes.items()},
                "classes": None
                if each.classes is None
                else {text: seen.times for text, seen in each.classes.items()},
                "lengths": None
                if not each.lengths[0]
                else dict(zip(("count", "sum", "least", "greatest"), each.lengths, strict=True)),
            }
            for name, each in facts.fields.items()
        },
    }
