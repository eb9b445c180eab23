"""Judgements on shards and fields.

Shards: their number and size (D311, D214, W512), what is left of their samples (D215, D330), and whether they are
sorted (D307). Fields: samples with different fields (D303), tables with different columns (D228), images of different
modes and sizes (D305, D306), outlying classes (D310) and classes with several names (D313), and values that cannot be
batched (D210; D231 and D232 for audio).
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from fractions import Fraction
from statistics import median
from typing import Any

from wdspec.advice.on_plan import split_shards
from wdspec.base.amounts import join_names, percent, pluralize
from wdspec.base.errors import FieldError, ShardError, WdspecError
from wdspec.fields.measures import FINISHED, Measures
from wdspec.formats.tables import compare_kinds
from wdspec.jobs.check.class_names import find_lost_names
from wdspec.jobs.check.facts import (
    CLASS_NAMES,
    IGNORED,
    CheckedData,
    CheckedSource,
    DataProblem,
    FieldFacts,
    SamplePlace,
    Seen,
)
from wdspec.planning.order import lanes_of, shuffle_size
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.left import PARTS, cause_in_words, describe_left, lost_part
from wdspec.read.transform import UserFunctions
from wdspec.spec.language.expressions import PathBeforeMap, parse_expression
from wdspec.spec.language.options import Errors
from wdspec.spec.spec import Spec
from wdspec.write.recipes import CLASS_FIELDS

FEWEST_SHARDS = 4
"""Sizes of shards are compared only if a source has at least this many."""
SMALL_SHARD = 0.1
"""A shard is small if it has less than this fraction of the usual number of samples."""
FEWEST_PAIRS = 50
"""Order is judged only with at least this many neighbours."""
MUCH_MORE = 0.25
"""Shards are sorted if the fraction of neighbours with equal classes exceeds chance by this much."""
FEW_CLASSES = 0.5
"""Batches are unbalanced if a slot holds less than this fraction of the classes."""


def small_shards(collection: CheckedData) -> Iterator[DataProblem]:
    """Shards with less than a tenth of the usual samples, except the last one of a source, which may be a remainder."""
    for source in collection.own:
        counts = [(each, each.facts.samples.samples) for each in source.read if each.facts.samples]
        if len(counts) < FEWEST_SHARDS:
            continue
        usual = median(count for _, count in counts)
        last = max(each.number for each in source.shards)
        for each, count in counts:
            broken = any(problem.code.startswith("D1") for problem in each.facts.problems)
            if 0 < count < SMALL_SHARD * usual and each.number != last and not broken:
                message = (
                    f"the shard has {pluralize(count, 'sample')}, but a shard of its source usually has {usual:,.0f}; "
                    "check whether it was written completely"
                )
                yield DataProblem("D311", message, source.name, each.shard.text)


def expected_counts(collection: CheckedData) -> Iterator[DataProblem]:
    """Sources with another number of samples, or more dropped samples, than in `expect`."""
    for source in collection.own:
        expect, facts = source.source.expect, source.facts
        if expect is None or not source.read:
            continue
        is_whole = len(source.read) == len(source.shards)
        if expect.samples is not None and is_whole and not expect.samples.hold(facts.samples):
            message = f"the source has {pluralize(facts.samples, 'sample')}, but {expect.samples} is expected"
            yield DataProblem("D214", message, source.name)
        part = lost_part(facts.samples, facts.causes)
        if expect.dropped is not None and part > expect.dropped and facts.delivered:
            asked = facts.samples - sum(facts.causes.get(cause, 0) for cause in PARTS)
            message = (
                f"{percent(part)} of {pluralize(asked, 'sample')} are dropped by "
                f"{join_names(dict.fromkeys(cause_in_words(cause) for cause in facts.causes if cause not in PARTS))}, "
                "but at most "
                f"{100 * expect.dropped:g}% is expected"
            )
            first = facts.first_lost
            if first is None:
                yield DataProblem("D215", message, source.name)
            else:
                yield DataProblem.at("D215", f"{message}; the first of them is here", source.name, first)


def few_left(collection: CheckedData) -> Iterator[DataProblem]:
    """Sources of which nothing, or little, is left."""
    for source in collection.own:
        facts = source.facts
        is_off = collection.plan is not None and collection.planned(source.name) is None
        problems = [problem for looked in source.read for problem in looked.facts.problems]
        is_damaged = not facts.causes and any(problem.is_error for problem in problems)
        is_damaged |= any(problem.code == "D211" for problem in problems)
        if is_off or is_damaged or not source.read:
            continue
        read, all_shards = len(source.read), len(source.shards)
        basis = "" if read == all_shards else f"{read:,} of {pluralize(all_shards, 'shard')} read"
        has_errors = any(problem.is_error for problem in problems)  # which are to be corrected first
        unusable = facts.samples - facts.delivered - sum(facts.causes.values()) if has_errors else 0
        left = describe_left(source.source, facts.samples, facts.delivered + unusable, facts.causes, basis)
        if left is not None:
            code = "D215" if left.is_nothing and not basis else "D330"
            lost, hint = find_lost_names(source, collection.spec.costs), left.hint
            hint = f"correct `make: {lost}`, for which most names are no class" if lost else hint
            yield DataProblem(code, f"{left.message}; {hint}".removesuffix("; "), source.name)


def few_shards(collection: CheckedData) -> Iterator[DataProblem]:
    """Fewer shards than slots: one problem for all sources."""
    plan = collection.plan
    for advice in () if plan is None else split_shards(collection.spec, plan):
        names = [source.name for source in collection.own]
        yield DataProblem("W512", f"{advice.message}; {advice.hint}", names[0] if len(names) == 1 else "")


def sorted_shards(collection: CheckedData) -> Iterator[DataProblem]:
    """Shards with so many equal neighbours that a slot holds few classes: at most one problem of each source."""
    for source in collection.own:
        found = [
            (facts.alike / facts.pairs, name, facts.classes)
            for name, facts in source.facts.fields.items()
            if facts.classes and len(facts.classes) > 1 and facts.pairs >= FEWEST_PAIRS
        ]
        for equal, name, classes in sorted(found, key=lambda each: (-each[0], each[1]))[:1]:
            yield from _judge_order(collection, source, name, equal, classes)


def _judge_order(
    collection: CheckedData, source: CheckedSource, name: str, equal: float, classes: dict[str, Seen]
) -> Iterator[DataProblem]:
    count = sum(seen.times for seen in classes.values())
    chance = sum((seen.times / count) ** 2 for seen in classes.values())
    if equal < chance + MUCH_MORE:
        return
    planned = collection.planned(source.name)
    share = planned.share if planned is not None else Fraction(1)
    held = planned.delays.size if planned is not None else shuffle_size(source.source.shuffle, share)
    lanes = planned.interleave if planned is not None else lanes_of(source.source.interleave, share)
    shards = len(source.shards)
    lanes = min(lanes, shards)
    # A run of one class ends with its shard.
    run = min(1 / max(1 - equal, 1e-9), source.facts.samples / max(1, len(source.read)))
    kinds = 1 / chance
    spanned = max(lanes, held / run)
    if spanned >= FEW_CLASSES * kinds:
        return
    wanted = min(shards, math.ceil(kinds))
    setting = math.ceil(wanted / share)
    remedy = f"set `interleave: {setting}`"
    if wanted < kinds:
        remedy += (
            ", the number of its shards; as these are few, also shuffle the samples before writing shards"
        )
    elif setting > source.source.interleave:
        remedy += f" (it is {source.source.interleave})"
    message = (
        f"{100 * equal:.0f}% of neighbours have the same `{name}`, where random order has {100 * chance:.0f}%: the "
        f"shards are sorted. The {held:,} samples held for shuffling, from {lanes} shards, span about {spanned:.0f} "
        f"of {kinds:.0f} classes; {remedy}"
    )
    shard = next(iter(classes.values())).first.shard
    yield DataProblem("D307", message, source.name, shard, field=name)


SMALL_SIDE = 2
"""An image with a side of at most this many pixels is suspicious."""
LARGE = 64
"""An image with this many times the usual area is suspicious, if it has at least `FEWEST_PIXELS`."""
FEWEST_PIXELS = 20_000_000
RARE = 0.001
"""A class is rare with at most this fraction of the samples, or at most `FEW` samples."""
FEW = 3
MOST_TRIED = 8
"""Maximum number of samples of different kinds in a trial batch."""


def mixed_fields(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for each rarer set of fields."""
    for source in collection.own:
        layouts = sorted(source.facts.layouts.items(), key=lambda item: -item[1].times)
        if len({frozenset(names.split()) for names, _ in layouts}) < 2:
            continue
        most = layouts[0][0].split()
        others = [each for each in layouts[1:] if {*each[0].split()} != {*most}]
        for names, seen in collection.first(source, "D303", others):
            these = names.split()
            lacking = [name for name in most if name not in these]
            more = [name for name in these if name not in most]
            differs = " and ".join(
                f"{verb} {', '.join(f'`{name}`' for name in which)}"
                for verb, which in (("lack", lacking), ("also have", more))
                if which
            )
            message = (
                f"{seen.times:,} of {source.facts.delivered:,} samples {differs}; choose common fields with "
                "`extensions`, or set `missing` for these samples"
            )
            yield DataProblem.at("D303", message, source.name, seen.first)


def odd_columns(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for each set of columns that reading refuses after the one of the first shard."""
    for source in collection.own:
        takes_all = source.parts.open.fields.naming.takes_all
        found = list(source.facts.columns.items())
        for columns, seen in found[1:]:
            usual, first = found[0]
            try:
                compare_kinds(json.loads(columns), first.first.shard, json.loads(usual), takes_all)
            except ShardError as error:
                shards = (
                    "the shard has" if seen.times == 1 else f"{seen.times:,} shards from this one on have"
                )
                message = f"{shards} other columns: {error.message}"
                yield DataProblem("D228", message, source.name, seen.first.shard)


def odd_images(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for each rarer mode of a field, and for its smallest and largest image, if they are unusual."""
    for source, name, facts in collection.fields():
        if facts.modes:
            (most, _), *others = sorted(facts.modes.items(), key=lambda item: -item[1].times)
            count = sum(seen.times for seen in facts.modes.values())
            for mode, seen in collection.first(source, "D305", others):
                remedy = (
                    "let a decoder convert them, or drop them with `select`"
                    if "bytes" in facts.kinds
                    else "the decoder converts them; drop them with `select` if they do not belong here"
                )
                message = f"{seen.times:,} of {count:,} images are {mode}, but most are {most}; {remedy}"
                yield DataProblem.at("D305", message, source.name, seen.first, name)
        if facts.sizes and facts.smallest and facts.largest:
            usual = _median_area(facts)
            side, place = facts.smallest
            if side <= SMALL_SIDE and usual > (4 * SMALL_SIDE) ** 2:
                message = (
                    f"an image is {side} pixel wide or high, but most have {usual:,} pixels: a placeholder?"
                )
                yield DataProblem.at("D306", message, source.name, place, name)
            area, place = facts.largest
            if area > max(FEWEST_PIXELS, LARGE * usual):
                message = (
                    f"an image has {area:,} pixels, but most have {usual:,}: such an image fills the memory"
                )
                yield DataProblem.at("D306", message, source.name, place, name)


def _median_area(facts: FieldFacts) -> int:
    """The median area of the images of a field, in pixels."""
    counted = []
    for text, seen in facts.sizes.items():
        width, _, height = text.partition("x")
        counted.append((int(width) * int(height), seen.times))
    half = sum(count for _, count in counted) / 2
    for area, count in sorted(counted):
        half -= count
        if half <= 0:
            return area
    return 0


def lone_classes(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for each rare class with a number far above all others."""
    for source, name, facts in collection.fields():
        if name.rpartition(".")[2].lower() not in CLASS_NAMES or not facts.classes:
            continue
        numbers = {int(text): seen for text, seen in facts.classes.items() if text.lstrip("-").isdigit()}
        if len(numbers) < len(facts.classes):
            continue
        numbers.pop(IGNORED, None)
        count = sum(seen.times for seen in numbers.values())
        for number, seen, others in collection.first(source, "D310", _find_lone(numbers, count)):
            message = (
                f"the class {number} is an outlier: {seen.times:,} of {count:,} samples have it, and all other classes "
                f"are at most {others}; fix the label, or drop the samples with `select`"
            )
            yield DataProblem.at("D310", message, source.name, seen.first, name)


def _find_lone(numbers: dict[int, Seen], count: int) -> list[tuple[int, Seen, int]]:
    common = [number for number, seen in numbers.items() if seen.times > max(FEW, RARE * count)]
    if not common:
        return []
    highest = max(common)
    return [(number, numbers[number], highest) for number in sorted(numbers) if number > 2 * highest + 10]


def renamed_classes(collection: CheckedData) -> Iterator[DataProblem]:
    """Class numbers with several names, and names with several numbers: of all sources, and of the other spec."""
    known: dict[tuple[int, str], tuple[str, CheckedSource]] = {}
    pairs = [(source, *pair) for source in collection.sources for pair in source.facts.classes.items()]
    found: Counter[str] = Counter()
    for source, pair, seen in sorted(pairs, key=lambda each: (not each[0].is_other, -each[2].times)):
        firsts = [known.setdefault(each, (pair, source)) for each in enumerate(pair.split(" ", 1))]
        other, owner = next((first for first in firsts if first[0] != pair), (pair, source))
        if other == pair or source.is_other:
            continue
        found[source.name] += 1
        if found[source.name] > collection.most:
            collection.hidden[source.name, "D313"] += 1
        else:
            message = (
                f"the class is `{pair}` in {seen.times:,} of {source.facts.samples:,} samples, but `{other}` in "
                f"`{owner.name}`{' of the other spec' * owner.is_other}; give the classes of both the same numbers "
                "(`wdspec create --class-names FILE`)"
            )
            yield DataProblem.at("D313", message, source.name, seen.first, CLASS_FIELDS[0])


def unstackable_values(collection: CheckedData) -> Iterator[DataProblem]:
    """Try to batch samples whose values differ in shape or type, as the spec does; needs torch.

    Companions never go into a batch.

    With `mix: {unit: batch}` each source is tried separately, and with `batch.group_by` each group. Samples that are
    packed need no shape in common.
    """
    spec = collection.spec
    if spec.batch is None or spec.batch.pack is not None or importlib.util.find_spec("torch") is None:
        return
    sources = collection.mixed
    groups = [[source] for source in sources] if spec.mix.unit == "batch" else [sources]
    for group in groups:
        yield from _try_batch(collection, group)


def _try_batch(collection: CheckedData, sources: list[CheckedSource]) -> Iterator[DataProblem]:
    from wdspec.read.batch import BatchMaker

    spec = collection.spec
    assert spec.batch is not None, "the caller checks it"
    places = dict(_find_different(sources))
    if len(places) < 2:
        return
    groups: dict[Hashable, list[dict[str, Any]]] = defaultdict(list)
    for place, source in places.items():
        if (found := _read_again(collection, source, place)) is not None:
            raw, sample = found
            groups[_group_of(spec, source, raw, sample)].append(sample)
    try:
        for samples in groups.values():
            BatchMaker(spec.batch, spec.to_tuple, spec.folder)(samples)
    except FieldError as error:
        names = ", ".join(dict.fromkeys(source.name for source in places.values()))
        problem = DataProblem.of(error, "batch", source=names)
        code = error.code if error.code in ("D231", "D232") else "D210"
        message = "; ".join(map(str.strip, problem.message.splitlines())).replace(":;", ":")
        yield DataProblem.at(code, message, problem.source, next(iter(places)), problem.field)
    except Exception as error:
        message = f"a function of `batch: {{collate: …}}` failed: {type(error).__name__}: {error}"
        yield DataProblem("D203", message, sources[0].name)


def _find_different(sources: list[CheckedSource]) -> Iterator[tuple[SamplePlace, CheckedSource]]:
    """The first sample of each set of fields, and of each shape or type of a field; rarest kinds first."""
    kinds: dict[str, dict[str, tuple[int, SamplePlace, CheckedSource]]] = {}
    for source in sources:
        facts = source.facts
        seen = [("", " ".join(sorted(names.split())), each) for names, each in facts.layouts.items()]
        seen += [(name, kind, each) for name, of in facts.fields.items() for kind, each in of.kinds.items()]
        for name, kind, (times, first) in seen:
            known = kinds.setdefault(name, {}).get(kind)
            kinds[name][kind] = (times + known[0], *known[1:]) if known else (times, first, source)
    for found in kinds.values():
        if len(found) > 1:
            for _, place, source in sorted(found.values(), key=lambda each: each[0])[:MOST_TRIED]:
                yield place, source


def _read_again(
    collection: CheckedData, source: CheckedSource, place: SamplePlace
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read a sample again, and apply the steps of its source; return it before and after them."""
    looked = next(each for each in source.read if each.shard.text == place.shard)
    found = source.raw(looked, place.number)
    if found is None:
        return None
    budget = ErrorBudget(Errors(), source.name)
    try:
        process = source.parts.transform.build(
            budget, collection.spec.seed, looked.number, UserFunctions(False)
        )
        sample = process(found[0], place.number)
    except (WdspecError, ValueError, TypeError):
        return None
    return None if sample is None else (found[0], sample)


def _group_of(spec: Spec, source: CheckedSource, raw: dict[str, Any], sample: dict[str, Any]) -> Hashable:
    """The value of `batch.group_by`: only samples with the same one are in a batch; null without it."""
    assert spec.batch is not None, "the caller checks it"
    if spec.batch.group_by is None:
        return None
    expression = parse_expression(spec.batch.group_by, spec.costs)
    transform = source.parts.transform
    read = frozenset(str(path[0]) for path in expression.paths if not isinstance(path, PathBeforeMap))
    measure = Measures(
        transform.fields,
        expression.paths,
        expression.optional,
        transform.tags,
        after_map=read & transform.set_fields,
    )
    try:
        values = measure({**raw, FINISHED: sample})
        return None if values is None else str(expression.evaluate(*values))
    except FieldError:
        return id(sample)  # which is an error of this sample; it is not in a batch
