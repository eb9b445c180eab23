"""`wdspec check`: check the data before training on it. It continues after each problem."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import click

from wdspec.base.files import open_regular
from wdspec.base.redaction import redacted_urls
from wdspec.cli.output import Block, Table, pluralize, show_report, table_of
from wdspec.cli.problems import CheckedSpec, github_report, junit_report, parse_ignored, summary
from wdspec.cli.samples import only_source
from wdspec.cli.spec_options import SpecChoice, choosing_engine, choosing_spec, format_option
from wdspec.jobs.check.facts import DataProblem
from wdspec.jobs.check.job import CheckReport, check_data
from wdspec.jobs.check.judge_samples import CODES
from wdspec.jobs.check.report_file import LockedShards, ReportFile
from wdspec.jobs.dedup import KeyDifferences, compare_keys
from wdspec.jobs.engine import Engine
from wdspec.read.left import list_causes
from wdspec.shards.lock import Lock
from wdspec.spec.problems import Problem, is_error
from wdspec.spec.spec import Spec
from wdspec.stores.outputs import save


@click.command()
@choosing_spec
@click.option("--all", "everything", is_flag=True, help="Read every shard in full.")
@click.option(
    "--sample",
    "most",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Without --all: number of shards of each source to read in full. The others are only checked for existence.",
)
@click.option("--source", metavar="NAME", help="Check only this source, and its companions.")
@click.option(
    "--against", metavar="SPEC", help="Report samples that also occur in this spec, such as train.yaml#val."
)
@click.option(
    "--same-keys",
    is_flag=True,
    help="With --against: read the keys of all samples, list those of this spec that the other one lacks, and the "
    "reverse, and exit with 1 if there are any. Nothing else is checked.",
)
@click.option(
    "--differences",
    metavar="FILE",
    help="With --same-keys: write all of these keys to FILE, after `<` for this spec, `>` for the other one.",
)
@click.option(
    "--report",
    metavar="FILE",
    help="Save the result of each shard in FILE. The next check skips shards that have not changed since then.",
)
@click.option(
    "--changed",
    metavar="FILE",
    help="Check only shards that have changed since FILE, a report or a lock (`wdspec lock`). --sample and --all apply "
    "to these shards.",
)
@click.option(
    "--duplicates",
    metavar="FILE",
    help="Write the keys of samples that are also elsewhere (D302, D304, D308) to FILE, for `exclude: '@FILE'`. With "
    "several sources, each has its own FILE.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option("--ignore", metavar="CODE", multiple=True, help="Do not report this code. Repeatable.")
@choosing_engine()
@format_option("text", "json", "github", "junit")
def check(
    choice: SpecChoice,
    everything: bool,
    most: int,
    source: str | None,
    against: str | None,
    same_keys: bool,
    differences: str | None,
    report: str | None,
    changed: str | None,
    duplicates: str | None,
    strict: bool,
    ignore: tuple[str, ...],
    start_engine: Callable[[], Engine],
    form: str,
) -> int:
    """Check the data of a spec: whether every shard exists, and the contents of some shards (with --all, all shards).

    Shards are read and decoded as in training, with the user functions of the spec (WDS_SECURE=1 forbids them). The
    check continues after each problem. It then compares the samples, and reports repeated keys and samples,
    inconsistent fields and shapes, unusual classes, and sorted shards.

    Exit code: 0 if there are no errors (with --strict, also no warnings), 1 if there are, 2 for wrong usage.
    `wdspec rule D107` explains a code.
    """
    spec = only_source(choice.load(), source)
    other = None
    if against is not None:
        other = SpecChoice(against, env=choice.env, variables=choice.variables).load()
    if differences is not None and not same_keys:
        raise click.UsageError("--differences needs --same-keys")
    if same_keys:
        if other is None or form not in ("text", "json"):
            raise click.UsageError("--same-keys needs --against SPEC, and has the formats text and json")
        compared = compare_keys(spec, other, start_engine(), differences)
        show_report(KeysReport(compared, against or "", differences), form)
        return int(bool(compared.here or compared.there or compared.failed))
    ignored = parse_ignored(ignore, lambda code: code.startswith(("D", "W512", "W531")), "a data problem")
    with ExitStack() as stack:
        earlier: ReportFile | LockedShards | None = None
        if changed is not None:
            earlier = _read_lock(changed) or stack.enter_context(ReportFile(changed, must_exist=True))
        kept = None if report is None else stack.enter_context(ReportFile(report))
        limit = None if everything else most
        found = check_data(
            spec,
            start_engine(),
            most=limit,
            other=other,
            kept=kept,
            earlier=earlier,
            lists_all=form == "json" or duplicates is not None,
        )
    if duplicates is not None:
        _write_duplicates(duplicates, found)
    found = found.without(ignored)
    result = DataReport(found if form == "json" else found.shortened())
    if form in ("text", "json"):
        show_report(result, form)
    else:
        for lines in result.annotations() if form == "github" else result.test_cases():
            click.echo(lines)
    return 1 if any(problem.is_error or strict for problem in result.found.problems) else 0


def _write_duplicates(path: str, found: CheckReport) -> None:
    """Write the keys of repeated samples, one file for each source, and say how to leave them out."""
    stem, ending = os.path.splitext(path)
    for source in found.collection.own:
        keys = found.duplicates.get(source.name, [])
        is_only = [source] == found.collection.mixed
        file = path if is_only else f"{stem}.{source.name}{ending}"
        if keys:
            save(file, "".join(f"{key}\n" for key in keys).encode("utf-8", "surrogateescape"))
            click.echo(
                f"{file}: {pluralize(len(keys), 'key')} for `exclude: '@{file}'` in `{source.name}`", err=True
            )
    if not found.duplicates:
        click.echo(f"{path}: not written, as no sample is also elsewhere", err=True)


def _read_lock(path: str) -> LockedShards | None:
    """The shards of a lock; None if the file is missing or not a lock. Raises UsageError for a damaged lock."""
    try:
        with open_regular(path) as file:
            is_json = file.read(64).lstrip().startswith(b"{")
    except OSError:  # reported when it is opened as a report
        return None
    return LockedShards(Lock.read(path)) if is_json else None


@dataclass(frozen=True)
class KeysReport:
    """The keys that only one of two specs has."""

    compared: KeyDifferences
    other: str
    path: str | None

    def blocks(self) -> Iterator[Block]:
        compared = self.compared
        sides = (
            (compared.here, compared.first_here, f"of this spec that {self.other} lacks"),
            (compared.there, compared.first_there, f"of {self.other} that this spec lacks"),
        )
        for count, first, what in sides:
            yield f"{pluralize(count, 'key')} {what}"
            if first:
                title = "the first of them" if count > len(first) else ""
                yield Table(("source", "shard", "key"), first, title=title)
        if compared.failed:
            yield Table(("shard", "cause"), compared.failed, title=f"failed: {len(compared.failed):,}")
        elif self.path is not None:
            yield f"all of them are in {self.path}"

    def as_json(self) -> dict[str, Any]:
        def listed(first: list[tuple[str, str, str]]) -> list[dict[str, str]]:
            return [{"source": source, "shard": shard, "key": key} for source, shard, key in first]

        compared = self.compared
        return {
            "only_here": {"keys": compared.here, "first": listed(compared.first_here)},
            "only_there": {"keys": compared.there, "first": listed(compared.first_there)},
            "failed": [{"shard": shard, "cause": cause} for shard, cause in compared.failed],
        }


_OF_OTHERS = ("D202", "D203")
"""Codes whose messages have the words of decoders and user functions, which may say what is wrong after a semicolon."""


@dataclass(frozen=True)
class DataReport:
    """The result of a check."""

    found: CheckReport

    def blocks(self) -> Iterator[Block]:
        found = self.found
        remedies: set[tuple[str, str]] = set()
        for checked in self._by_shard():
            for problem in checked.problems:
                text = problem.message
                said = text.rpartition(" [")[0] if text.endswith("]") else text  # without the place
                seen, _, remedy = said.rpartition("; ")
                known = problem.code, remedy
                if known in remedies and seen and problem.code not in _OF_OTHERS:  # listed above
                    problem = replace(problem, message=f"{seen}{text.removeprefix(said)}")
                remedies.add(known)
                yield problem
        severities: Counter[str] = Counter()
        for (_, code), count in found.totals.items():
            severities["error" if is_error(code) else "warning"] += count
        if severities.total() > len(found.totals):
            columns: dict[str, Callable[[tuple[tuple[str, str], int]], str]] = {
                "source": lambda row: row[0][0],
                "code": lambda row: row[0][1],
                "problems>": lambda row: f"{row[1]:,}",
            }
            if found.hidden:
                columns["not listed above>"] = lambda row: f"{found.hidden.get(row[0], 0):,}"
            yield table_of(sorted(found.totals.items()), columns)
        if any(code in CODES for _, code in found.hidden):
            yield "`--format json` lists all repeated samples"
        for source, rate in found.max_rates.items():
            skip = "skip: [shard, decode, map], " * ((source, "D203") in found.totals)
            logs = any(each.name == source and each.source.errors.log for each in found.collection.own)
            errors = f"`errors: {{{skip}max_rate: {rate:g}}}`{', next to its `log`' * logs}"
            yield f"to train without these samples of `{source}`: {errors}"
        for each in found.collection.own:
            if each.facts.causes and {(each.name, "D215"), (each.name, "D330")}.isdisjoint(found.totals):
                said = ", ".join(list_causes(each.facts.samples, each.facts.causes))
                yield f"left out of `{each.name}`: {said}"
        shards = [looked for source in found.collection.own for looked in source.shards]
        unchanged = sum(looked.facts.is_unchanged for looked in shards)
        if unchanged:
            yield f"{pluralize(unchanged, 'shard')} as locked, not checked"
        lacking = sum(looked.facts.lacks_checksums for looked in shards)
        if lacking:
            yield (
                f"{pluralize(lacking, 'Parquet file')} without page checksums: of values that have changed, only those "
                "outside of the statistics of their column are found; to find all, use `wdspec lock --hash`"
            )
        yield summary(len(shards) - unchanged, severities, "shard")

    def as_json(self) -> dict[str, Any]:
        return self.found.as_json()

    def annotations(self) -> Iterator[str]:
        """Annotations of the spec, at its sources: shards are not in the repository."""
        spec = self.found.collection.spec
        problems = [_at_source(problem, spec) for problem in self.found.problems]
        return github_report([CheckedSpec(spec.file or "the spec", problems)])

    def test_cases(self) -> Iterator[str]:
        """JUnit XML, with a test case for each shard."""
        return junit_report(self._by_shard(), "wdspec check")

    def _by_shard(self) -> list[CheckedSpec]:
        """The problems of each shard; problems of a whole source are under its name."""
        data = self.found.collection
        files: dict[str, list[Problem]] = {
            looked.shard.text: [] for source in data.own for looked in source.shards
        }
        for problem in self.found.problems:
            file = problem.shard or problem.source or data.spec.file or "the spec"
            files.setdefault(file, []).append(_as_problem(problem, redacted_urls(file)))
        return [CheckedSpec(redacted_urls(file), problems) for file, problems in files.items()]


def _as_problem(problem: DataProblem, file: str, line: int = 0, column: int = 0, shard: str = "") -> Problem:
    names = ("member", "key", "field", "offset")
    known = {name: value for name in names if (value := getattr(problem, name)) is not None}
    if "member" in known:
        known.pop("field", None)
    where = ", ".join(f"{'byte' if name == 'offset' else name} {value}" for name, value in known.items())
    message = redacted_urls(problem.message) + (f" [{where}]" if where else "")
    if shard:
        message = f"{redacted_urls(shard)}: {message}"
    return Problem(problem.code, message, "", file, line, column)


def _at_source(problem: DataProblem, spec: Spec) -> Problem:
    where = next((source.position for source in spec.collections if source.name == problem.source), None)
    if where is None or not where.line:
        return _as_problem(problem, spec.file or "the spec", shard=problem.shard)
    return _as_problem(problem, where.file, where.line, where.column, problem.shard)
