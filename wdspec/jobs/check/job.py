"""The job of `wdspec check`: check shards in any order, then judge the facts of all shards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wdspec.advice.tries import try_samples
from wdspec.base.amounts import join_names
from wdspec.base.errors import SpecError, WdspecError
from wdspec.base.user_code import secure_mode
from wdspec.fields.extensions import NamingWithAsides
from wdspec.jobs.check import judge_samples, judge_sources
from wdspec.jobs.check.class_names import unknown_classes
from wdspec.jobs.check.facts import (
    MOST_EXAMPLES,
    MOST_LISTED,
    CheckedData,
    CheckedSource,
    DataProblem,
    Judgement,
    LookedAt,
    ShardFacts,
)
from wdspec.jobs.check.hashes import HashSpool
from wdspec.jobs.check.look import ShardLook, look_at
from wdspec.jobs.check.report_file import LockedShards, ReportFile
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import (
    LiveCount,
    ShardFailed,
    ShardJob,
    make_plan_if_possible,
    measure_rate,
    skip_columns,
)
from wdspec.read.error_budget import MIN_SAMPLES
from wdspec.read.pass_count import has_windows
from wdspec.read.transform import SourceParts, parts_of
from wdspec.read.windows import WindowPlanner
from wdspec.shards.lock import check_harmless
from wdspec.shards.shards import Shards, check_readable, list_shards
from wdspec.spec.language.values import SkipCause
from wdspec.spec.reading import digest_content
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl, spread
from wdspec.write.recipes import CLASS_FIELDS

JUDGEMENTS: tuple[Judgement, ...] = (
    judge_sources.mixed_fields,
    judge_sources.odd_columns,
    judge_samples.unknown_keys,
    judge_samples.repeated_keys,
    judge_samples.repeated_contents,
    judge_samples.similar_images,
    judge_sources.odd_images,
    judge_sources.lone_classes,
    judge_sources.renamed_classes,
    judge_sources.sorted_shards,
    judge_sources.small_shards,
    judge_sources.few_shards,
    judge_sources.expected_counts,
    judge_sources.few_left,
    judge_sources.unstackable_values,
    unknown_classes,
)
"""Judgements on the facts of all shards."""


_SKIPPABLE = frozenset({"D201", "D202", "D203", "D204", "D205", "D206", "D213"})
"""Codes of samples, as opposed to shards (D1), that training skips or raises an error for."""
_FIRST_ERRORS = 10
"""How many errors a suggested `max_rate` allows in the first samples, if there are as many."""


@dataclass(frozen=True)
class CheckReport:
    """The findings of a check."""

    collection: CheckedData
    problems: list[DataProblem]
    """Problems of shards in the order of the spec, then those of whole sources."""
    hidden: Mapping[tuple[str, str], int]
    """By source and code: number of problems of shards that are not listed."""

    def without(self, codes: Collection[str]) -> CheckReport:
        """The report without problems of some codes."""
        problems = [problem for problem in self.problems if problem.code not in codes]
        hidden = {key: count for key, count in self.hidden.items() if key[1] not in codes}
        return CheckReport(self.collection, problems, hidden)

    def shortened(self) -> CheckReport:
        """The report with the first problems that say the same of samples of a source; others are counted as hidden.

        Repeated samples of a code all say the same.
        """
        problems, hidden, seen = [], Counter(self.hidden), Counter[tuple[str, str, str]]()
        for problem in self.problems:
            is_repeated = problem.code in judge_samples.CODES
            said = problem.source, problem.code, "" if is_repeated else problem.message
            seen[said] += problem.key is not None or is_repeated
            if seen[said] > MOST_EXAMPLES:
                hidden[problem.source, problem.code] += 1
            else:
                problems.append(problem)
        return CheckReport(self.collection, problems, hidden)

    @property
    def duplicates(self) -> dict[str, list[str]]:
        """The keys of samples that are repeated under another key, or are in another source, by source."""
        found: dict[str, dict[str, None]] = {}
        for problem in self.problems:
            if problem.code in judge_samples.CODES - {"D301"} and problem.key is not None:
                found.setdefault(problem.source, {})[problem.key] = None
        return {source: list(keys) for source, keys in found.items()}

    @property
    def totals(self) -> Counter[tuple[str, str]]:
        """All problems, listed or not, by source and code."""
        return Counter((problem.source, problem.code) for problem in self.problems) + Counter(self.hidden)

    @property
    def max_rates(self) -> dict[str, float]:
        """An `errors.max_rate` for each source that was read in full, but not without errors that its policy forbids.

        It is twice the rate found, with one digit, which suffices for any number of passes of a process that reads
        all samples: errors that begin one pass more than it has finished are at most twice as many. A limit is
        applied to at least 1,000 samples, where all errors may come first, so it also allows the first few of them
        there. A source with errors in more than a tenth of its samples gets none.
        """
        skips: Counter[str] = Counter()
        causes: dict[str, set[SkipCause]] = {source.name: set() for source in self.collection.own}
        for (source, code), count in self.totals.items():
            if source in causes and (code.startswith("D1") or code in _SKIPPABLE):
                skips[source] += count
                causes[source].add(
                    "shard" if code.startswith("D1") else "map" if code == "D203" else "decode"
                )
        rates = {}
        for checked in self.collection.own:
            found, errors = skips[checked.name], checked.source.errors
            # As training counts them, without those that are dropped.
            samples = checked.facts.delivered + found
            if not 0 < found <= samples / 10 or not checked.is_read_in_full:
                continue
            first = min(found, _FIRST_ERRORS) / MIN_SAMPLES
            is_allowed = all(map(errors.skips, causes[checked.name])) and not (
                (errors.max_count is not None and errors.max_count < found)
                or (errors.max_rate is not None and errors.max_rate < max(first, found / samples))
            )
            if not is_allowed:
                rate = max(first, 2 * found / samples)
                digit = 10 ** math.floor(math.log10(rate))
                rates[checked.name] = min(1.0, float(f"{math.ceil(rate / digit - 1e-9) * digit:.0e}"))
        return rates

    def as_json(self) -> dict[str, Any]:
        hidden: Counter[str] = Counter()
        for (_, code), count in self.hidden.items():
            hidden[code] += count
        return {
            "problems": self.problems,
            "hidden": hidden,
            "totals": [
                {"source": source, "code": code, "problems": count}
                for (source, code), count in sorted(self.totals.items())
            ],
            "max_rates": self.max_rates,
            "sources": {source.name: source for source in self.collection.own},
        }


def check_data(
    spec: Spec,
    engine: Engine,
    *,
    most: int | None,
    other: Spec | None = None,
    kept: ReportFile | None = None,
    earlier: ReportFile | LockedShards | None = None,
    lists_all: bool = False,
) -> CheckReport:
    """Check the shards of a spec.

    Args:
        spec: the spec.
        engine: runs the work; closed at the end.
        most: number of shards of each source to read in full; None for all.
        other: a spec that must not share samples with this one, such as the spec for validation.
        kept: a report to update; shards in it that have not changed are not checked again.
        earlier: another report, which is only read, or a lock.
        lists_all: whether to list all repeated samples, each of which is read again, and not only the first ones.

    Raises:
        UsageError: URLs contain a secret, which `kept` would save.
        WdspecError: shards of the other spec cannot be listed.
    """
    listed, shards, problems = _list_readable_sources(spec)
    with HashSpool() as spool:
        job = CheckJob(spec, kept, earlier, spool)
        if shards is not None:
            job.add(listed, shards, most, looks=other is not None)
        if kept is not None and shards is not None:
            for name, urls in shards.lists.items():
                check_harmless(name, urls.parts, "the report")
        if other is not None:
            job.add(other, _list_shards(other), most, looks=True, is_other=True)
        job.run_tasks(look_at, [job.remind(look) for look in job.looks], engine)
        spool.give_back()
        plan = None if shards is None or problems else make_plan_if_possible(listed, shards)
        hidden: Counter[tuple[str, str]] = Counter()
        listed_at_most = MOST_LISTED if lists_all else MOST_EXAMPLES
        collection = CheckedData(spec, plan, list(job.sources.values()), listed_at_most, hidden)
        problems += _problems_of_shards(collection.own, hidden)
        for judgement in JUDGEMENTS:
            problems += judgement(collection)
        tries = {} if shards is None else try_samples(listed, shards, everywhere=True)
        listed_names = {problem.source for problem in problems if problem.code == "D341"}
        problems += [
            DataProblem("W531", each, name)
            for name, found in tries.items()
            for each in found
            if not (name in listed_names and each.startswith("`label`"))  # D341 has the same, of more samples
        ]
        return CheckReport(collection, problems, +hidden)


def _with_class_names(parts: SourceParts) -> SourceParts:
    """Also read the names of classes if their numbers are read, so that they can be compared (D313)."""
    number, name = CLASS_FIELDS
    naming = parts.open.fields.naming
    if naming.field_of(number) is None or naming.field_of(name) is not None:
        return parts
    fields = parts.open.fields.with_naming(NamingWithAsides.of(naming, frozenset({name})))
    transform = replace(parts.transform, fields=fields)
    return replace(parts, open=replace(parts.open, fields=fields), transform=transform)


class CheckJob(ShardJob[ShardLook, ShardFacts]):
    """The shards to check, and their findings.

    Args:
        spec: the checked spec.
        kept: a report to update.
        earlier: another report, or a lock.
        spool: keeps their hashes.
    """

    def __init__(
        self, spec: Spec, kept: ReportFile | None, earlier: ReportFile | LockedShards | None, spool: HashSpool
    ) -> None:
        self._spec, self._kept, self._spool = spec, kept, spool
        self._files = [file for file in (kept, earlier) if file is not None]
        self._readings: dict[tuple[str, bool], str] = {}
        self._counts: Counter[str] = Counter()
        self.sources: dict[tuple[str, bool], CheckedSource] = {}
        """By name, and whether the source belongs to the other spec."""
        self.looks: list[ShardLook] = []

    def add(
        self, spec: Spec, shards: Shards, most: int | None, *, looks: bool, is_other: bool = False
    ) -> None:
        """Add the shards of a spec; of the other spec only those to read in full.

        Args:
            spec: the spec.
            shards: its shards.
            most: number of shards of each source to read in full, from the first to the last; None for all.
            looks: whether to compare the brightness of images.
            is_other: whether it is the other spec.
        """
        parts = parts_of(spec, shards)
        parts = {name: _with_class_names(each) for name, each in parts.items()}
        planner = WindowPlanner.of(spec) if has_windows(spec) and not is_other else None
        mixed = [source.name for source in spec.sources]
        in_full = {name: frozenset(spread(len(urls), most)) for name, urls in shards.lists.items()}
        thorough = {
            name: replace(each, transform=replace(each.transform, thorough=True))
            for name, each in parts.items()
        }

        def choose(source: Source, number: int, shard: ShardUrl) -> Mapping[str, Any] | None:
            is_read = number in in_full[source.name]
            fields: dict[str, Any] = {"in_full": is_read, "looks": looks, "is_other": is_other}
            fields["planner"] = planner if source.name in mixed else None
            return fields if is_read or not is_other else None

        sources = spec.sources if is_other else spec.collections
        for source in sources:
            checked = CheckedSource(source, parts[source.name], is_other, source.name in mixed)
            self.sources[source.name, is_other] = checked
            if self._files:
                own_files = shards.files.get(source.name, {})
                reading = digest_content(spec.by_which(source), source, own_files)
                self._readings[source.name, is_other] = reading
        for look in ShardLook.of_spec(spec, sources, shards, thorough, choose):
            self.sources[look.source, is_other].awaited.append(look.number)
            self.looks.append(look)

    def remind(self, look: ShardLook) -> ShardLook:
        """Add what an earlier check knows of the shard to a task."""
        for file in self._files:
            known = file.known(look, self._readings[look.source, look.is_other])
            if known is not None:
                return replace(look, known=known)
        return look

    def columns(self) -> Mapping[str, tuple[str, Any]]:
        def count(name: str) -> LiveCount:
            return LiveCount(lambda: self._counts[name])

        return {
            "samples": ("{:,} samples", count("samples")),
            "rate": ("{:,.1f} MB/s", measure_rate(lambda: self._counts["bytes"])),
            "problems": ("{:,} problems", count("problems")),
            **skip_columns(self._spec, count("skipped"), count("dropped")),
        }

    def take(self, task: ShardLook, outcome: ShardFacts | ShardFailed) -> None:
        if isinstance(outcome, ShardFailed):
            outcome = ShardFacts(problems=[DataProblem("D102", outcome.cause)])
        facts = self._recall(task, outcome)
        self._counts["problems"] += len(facts.problems) + sum(facts.hidden.values())
        if (samples := facts.samples) is not None:
            skipped = samples.samples - samples.delivered - samples.dropped
            self._counts.update(
                samples=samples.samples, bytes=samples.bytes, dropped=samples.dropped, skipped=skipped
            )
        self._spool.take(facts)
        self.sources[task.source, task.is_other].take(LookedAt(task.number, task.shard, facts))

    def _recall(self, look: ShardLook, found: ShardFacts) -> ShardFacts:
        """The findings of a shard: new ones, or earlier ones if it has not changed."""
        facts = found
        if not self._files:
            return facts
        reading = self._readings[look.source, look.is_other]
        if found.is_unchanged:
            facts = next(file for file in self._files if file.known(look, reading) == look.known).facts(look)
        if self._kept is not None and not facts.is_unchanged:
            self._kept.keep(look, reading, facts)
        return facts


def _list_readable_sources(spec: Spec) -> tuple[Spec, Shards | None, list[DataProblem]]:
    """The spec with the sources whose shards can be listed, their shards (None without any), and the other problems.

    What only a plan needs, such as mean costs, may be missing.

    Raises:
        SpecError: WDS_SECURE forbids the spec's functions.
    """
    try:
        return spec, _list_shards(spec), []
    except SpecError:
        raise
    except WdspecError:
        unplanned = spec.model_copy(update={"stats": None})
        readable, problems = set[str](), list[DataProblem]()
        for source in spec.collections:
            try:
                _list_shards(unplanned.of([source]).model_copy(update={"companions": {}}))
            except WdspecError as error:
                problems.append(DataProblem.of(error, source=source.name))
            else:
                readable.add(source.name)
    for at, problem in enumerate(problems):
        owners = [
            source.name
            for source in spec.sources
            if problem.source in (each.source for each in source.companions.values())
        ]
        if owners:
            names = join_names(f"`{name}`" for name in owners)
            problems[at] = replace(
                problem, message=f"{problem.message}; {names} cannot be checked without it"
            )
            readable.difference_update(owners)
    companions = {name: source for name, source in spec.companions.items() if name in readable}
    mixed = unplanned.of(source for source in spec.sources if source.name in readable)
    spec = mixed.model_copy(update={"companions": companions})
    return spec, _list_shards(spec) if spec.sources else None, problems


def _list_shards(spec: Spec) -> Shards:
    """List the shards of a spec.

    Functions that WDS_SECURE forbids are refused at once. A missing library is found when a source is read, so that
    everything else is checked too.

    Raises:
        WdspecError: shards cannot be listed.
    """
    if secure_mode():
        check_readable(spec)
    return list_shards(spec)


def _problems_of_shards(
    sources: Sequence[CheckedSource], hidden: Counter[tuple[str, str]]
) -> Iterator[DataProblem]:
    for source in sources:
        mistakes: set[str] = set()
        for looked in sorted(source.shards, key=lambda each: each.number):
            for code, count in looked.facts.hidden.items():
                hidden[source.name, code] += count
            for problem in looked.facts.problems:
                if problem.code == "D211":  # the same for all shards
                    if problem.message in mistakes:
                        continue
                    mistakes.add(problem.message)
                if not problem.shard:  # its process was killed
                    problem = replace(problem, source=source.name, shard=looked.shard.text)
                yield problem
