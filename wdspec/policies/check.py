"""Policies and a composed spec -> findings. Pure, except that local lists of shards are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from wdspec.policies.common_shards import Common, find_common
from wdspec.policies.files import NamedRule, NamedWaiver, Policy
from wdspec.policies.judge import Answer, example, judge, texts_of
from wdspec.policies.language import OF_URLS, Condition
from wdspec.policies.patterns import ANY_TEXT, matches, may_match, show
from wdspec.policies.places import Place
from wdspec.policies.shares import Shares, list_shares
from wdspec.policies.subjects import Holder, Value, holders_of, is_of_sources
from wdspec.spec.build import Composition
from wdspec.spec.language.requirements import parse_requirement
from wdspec.spec.problems import quote
from wdspec.spec.tree import Node

_TOLERANCE = Fraction(1, 10**9)
"""Of shares: those of a spec are floats."""
_MOST_NAMES = 12
_LISTABLE = "write the shards with braces, or list them in a local file: `@shards.txt`"


class Finding(NamedTuple):
    """A violation of a rule."""

    rule: NamedRule
    at: Node
    message: str
    """What was seen."""
    remedy: str
    """What the rule asks for."""
    sources: tuple[str, ...]
    """The sources that it is about; empty if it is about the whole spec."""


class Result(NamedTuple):
    """What policies say about a spec."""

    findings: list[Finding]
    used: frozenset[Node]
    """The places of waivers that apply to a finding, and of rules whose `for` matches."""


def check_spec(policies: Sequence[Policy], composition: Composition, files: Sequence[str]) -> Result:
    """Check the spec of one split and environment.

    Args:
        policies: the policies. The rules of all hold, and waivers are for the rules of their own.
        composition: the spec.
        files: the paths of the spec, of which patterns match one.
    """
    seen = _Seen(composition, files)
    findings: list[Finding] = []
    used: set[Node] = set()
    for rule, waived_by in ((rule, policy.waivers) for policy in policies for rule in policy.rules):
        holders = [holder for holder in seen.sources if _is_in(rule, holder, files)]
        if rule.rule.scope:
            if not holders:
                continue
            used.add(rule.at)
        for finding in _violations(rule, holders, seen):
            waivers = [each for each in waived_by if _waives(each, finding, seen)]
            used.update(each.at for each in waivers)
            if not waivers:
                findings.append(finding)
    return Result(findings, frozenset(used))


class _Seen:
    """A spec, and what is computed once for all rules."""

    def __init__(self, composition: Composition, files: Sequence[str]) -> None:
        self.composition, self.files = composition, files
        self.top = Holder(composition)
        self.sources = holders_of(composition)
        self._common: dict[tuple[Holder, ...], list[Common]] = {}

    @cached_property
    def shares(self) -> list[Shares] | str:
        return list_shares(self.composition)

    def common_shards(self, holders: Sequence[Holder]) -> list[Common]:
        """The sets of these sources that read one shard."""
        key = tuple(holders)
        if key not in self._common:
            self._common[key] = find_common(holders)
        return self._common[key]


def _waives(waiver: NamedWaiver, finding: Finding, seen: _Seen) -> bool:
    said = waiver.waiver
    if said.rule != finding.rule.name:
        return False
    if said.spec is not None and not any(matches(said.spec, file) for file in seen.files):
        return False
    if said.shards is not None and not all(
        judge(place, "shards", said.shards, False)[0] is Answer.ALL
        for holder in seen.sources
        if not finding.sources or holder.name in finding.sources
        for place in holder.places
    ):
        return False
    if said.source is None or (said.source == "*" and not finding.sources):
        return True
    return bool(finding.sources) and all(matches(said.source, name) for name in finding.sources)


def _is_in(rule: NamedRule, holder: Holder, files: Sequence[str]) -> bool:
    """Whether a source is in the `for` of a rule."""
    return all(_is_about(condition, holder, files) for condition in rule.rule.scope)


def _is_about(condition: Condition, holder: Holder, files: Sequence[str]) -> bool:
    subject, patterns = condition
    variant = holder.composition.variant
    of_spec = {
        "spec": files,
        "split": (variant.split,),
        "env": (variant.environment,),
        "source": (holder.name,),
    }
    if subject in OF_URLS:
        answers = (judge(place, subject, patterns, True)[0] for place in holder.places)
        return any(answer is not Answer.NONE for answer in answers)
    if subject == "license":
        from wdspec.policies.licenses import any_matches

        return any(any_matches(value.text, patterns) for value in holder.values(subject))
    if subject == "functions":
        found = [value.text for value in holder.functions]
    else:
        found = [text for text in of_spec.get(subject, ()) if text is not None]
        found += [] if subject in of_spec else [value.text for value in holder.values(subject)]
    return any(may_match(pattern, text) for pattern in patterns for text in found)


def _violations(rule: NamedRule, holders: Sequence[Holder], seen: _Seen) -> Iterator[Finding]:
    for subject, most in rule.rule.max_share.items():
        yield from _shares(rule, subject, most, holders, seen)
    for conditions, check in ((rule.rule.forbid, _forbid), (rule.rule.require, _require)):
        for condition in conditions:
            asked: list[Holder] = []
            if condition.subject == "functions":
                asked = [*holders, seen.top]
            elif condition.subject in ("license", *OF_URLS) or is_of_sources(condition.subject):
                asked = [*holders]
            else:
                asked = [seen.top]
            for holder in asked:
                yield from check(rule, condition, holder)


def _forbid(rule: NamedRule, condition: Condition, holder: Holder) -> Iterator[Finding]:
    subject, patterns = condition
    if subject in OF_URLS:
        yield from _urls(rule, condition, holder, is_forbidden=True)
    elif subject == "license" and patterns:
        yield from _licenses(rule, condition, holder, is_forbidden=True)
    elif subject == "functions":
        for value in holder.functions:
            if not patterns or any(matches(pattern, value.text) for pattern in patterns):
                message = f"{_of(holder)} uses the function `{value.text[:80]}`"
                yield _finding(rule, holder, value.at, message, _not_one_of(patterns) or "remove it")
    elif not patterns:
        if (values := holder.stated(subject)) is not None:
            at = values[0].at if values else holder.at
            yield _finding(rule, holder, at, f"{_of(holder)} has `{subject}`", "remove it")
    else:
        for value in holder.values(subject):
            if any(may_match(pattern, value.text) for pattern in patterns):
                yield _finding(rule, holder, value.at, _is(holder, subject, value), _not_one_of(patterns))


def _require(rule: NamedRule, condition: Condition, holder: Holder) -> Iterator[Finding]:
    subject, patterns = condition
    if subject in OF_URLS:
        yield from _urls(rule, condition, holder, is_forbidden=False)
        return
    if subject == "license" and patterns:
        yield from _licenses(rule, condition, holder, is_forbidden=False)
        return
    if subject == "functions":
        for value in holder.functions:
            if not any(matches(pattern, value.text) for pattern in patterns):
                message = f"{_of(holder)} uses the function `{value.text[:80]}`"
                yield _finding(rule, holder, value.at, message, _one_of(patterns))
        return
    values = holder.values(subject) if patterns else holder.stated(subject)
    if values is None or (patterns and not values):
        is_one = len(patterns) == 1 and "*" not in patterns[0]
        remedy = f"add `{subject}: {patterns[0] if is_one else '…'}`"
        remedy += f", as {_one_of(patterns)}" if patterns and not is_one else ""
        yield _finding(rule, holder, holder.at, f"{_of(holder)} has no `{subject}`", remedy)
    for value in values or () if patterns else ():
        if not _fits(subject, value, patterns):
            yield _finding(rule, holder, value.at, _is(holder, subject, value), _one_of(patterns))


def _fits(subject: str, value: Value, patterns: Sequence[str]) -> bool:
    if subject != "requires":
        return any(matches(pattern, value.text) for pattern in patterns)
    stated, least = parse_requirement(value.text), min(filter(None, map(parse_requirement, patterns)))
    return stated is not None and stated >= least


def _licenses(rule: NamedRule, condition: Condition, holder: Holder, is_forbidden: bool) -> Iterator[Finding]:
    from wdspec.policies.licenses import is_allowed, is_free_of, unknown_licenses

    patterns = condition.patterns
    remedy = _not_one_of(patterns) if is_forbidden else _one_of(patterns)
    values = holder.stated("license")
    if not values:
        yield _finding(
            rule, holder, holder.at, f"{_of(holder)} has no license", f"add `license: …`; {remedy}"
        )
    for value in values or ():
        is_good = (is_free_of if is_forbidden else is_allowed)(value.text, patterns)
        unknown = unknown_licenses(value.text)
        if is_good and not (is_forbidden and unknown):
            continue
        message = f"the license of {_of(holder)} is {quote(value.text)}"
        if unknown and (is_good or not is_forbidden):
            message += f", and `{unknown[0][:60]}` is not an SPDX license"
        more = "; write an SPDX license, or ask for a waiver" if is_good else ""
        yield _finding(rule, holder, value.at, message, remedy + more)


def _urls(rule: NamedRule, condition: Condition, holder: Holder, is_forbidden: bool) -> Iterator[Finding]:
    """Findings about the URLs of a source, one for each place."""
    subject, patterns = condition
    bad = (Answer.ALL, Answer.SOME) if is_forbidden else (Answer.NONE, Answer.SOME)
    found = [(place, judge(place, subject, patterns, is_forbidden)) for place in holder.places]
    reported: set[int] = set()
    for place, answer in found:
        if answer[0] not in bad or id(place.at) in reported:
            continue
        reported.add(id(place.at))
        message = f"{_of(holder)} reads `{example(answer, is_forbidden)[:200]}`{place.how}"
        remedy = _not_one_of(patterns) if is_forbidden else _one_of(patterns)
        if rule.is_retirement:
            message, remedy = f"{message}, which is {rule.name}", ""
        elif subject != "shards":
            remedy = f"{subject}: {remedy}"
        yield _finding(rule, holder, place.at, message, remedy)
    for place, answer in found:
        if answer[0] is Answer.UNKNOWN and id(place.at) not in reported:
            reported.add(id(place.at))
            yield _unknown(rule, condition, holder, place)


def _unknown(rule: NamedRule, condition: Condition, holder: Holder, place: Place) -> Finding:
    why = (
        place.unknown
        or f"what `{show(place.text)[:200]}`{place.how} stands for is unknown without reading data"
    )
    listed = ", ".join(f"`{each}`" for each in condition.patterns[:_MOST_NAMES])
    message = f"whether {_of(holder)} reads {listed} cannot be known: {why}"
    return _finding(rule, holder, place.at, message, _LISTABLE)


def _shares(
    rule: NamedRule, subject: str, most: Fraction, holders: Sequence[Holder], seen: _Seen
) -> Iterator[Finding]:
    steps = seen.shares
    mixed = {leaf.name for leaf in seen.composition.leaves}
    holders = [holder for holder in holders if holder.name in mixed]
    if isinstance(steps, str):
        if holders:
            names = tuple(holder.name for holder in holders)
            at = seen.composition.top.key_or_self("dataset")
            yield Finding(rule, at, f"the shares of this mix cannot be known: {steps}", "", names)
        return
    reported: list[frozenset[str]] = []
    for group in _groups(rule, subject, holders, seen):
        if isinstance(group, Finding):
            yield group
            continue
        members, together = group.members, frozenset(holder.name for holder in group.members)
        totals = [(sum(step.by_source[name] for name in together), step.when) for step in steps]
        total, when = max(totals, key=lambda each: each[0], default=(Fraction(0), ""))
        if total <= most + _TOLERANCE or any(fewer <= together for fewer in reported):
            continue
        if subject == "shards":
            reported.append(together)
        keys = [key for key in ("probability", "weight") if members[0].node.get(key) is not None]
        at = members[0].node.value_or_self(keys[0]) if keys and len(members) == 1 else group.at
        message = f"the share of {group.words} is {float(total) * 100:.6g}%{when}"
        remedy = f"at most {float(most) * 100:.6g}% is allowed"
        yield Finding(rule, at, message, remedy, tuple(holder.name for holder in members))


class _Group(NamedTuple):
    """Sources whose shares count together."""

    words: str
    members: Sequence[Holder]
    at: Node


def _groups(
    rule: NamedRule, subject: str, holders: Sequence[Holder], seen: _Seen
) -> Iterator[_Group | Finding]:
    """Return the groups of sources that have the same value of a subject, and findings about what is unknown."""
    if subject in ("source", "shards"):
        yield from (_Group(_of(holder), [holder], holder.at) for holder in holders)
    if subject == "source":
        return
    if subject == "shards":
        for common in sorted(seen.common_shards(holders), key=lambda each: len(each.sources)):
            members = [holders[number] for number in sorted(common.sources)]
            names = _list([holder.name for holder in members], "and")
            yield _Group(f"{names}, {common.in_words},", members, common.place.at)
        return
    normalize: Callable[[str], str] = str
    if subject == "license":
        from wdspec.policies.licenses import normalize_license as normalize
    groups: dict[str, tuple[str, list[Holder]]] = {}
    for holder in holders:
        texts = [value.text for value in holder.values(subject)] if subject != "bucket" else []
        for place in holder.shards if subject == "bucket" else ():
            found = texts_of(place, subject)
            if found is None:
                yield _unknown_bucket(rule, holder, place)
            texts += filter(None, sorted(found or ()))
        if not texts and subject == "license":
            yield _finding(rule, holder, holder.at, f"{_of(holder)} has no license", "add `license: …`")
        for text in dict.fromkeys(texts):
            groups.setdefault(normalize(text), (text, []))[1].append(holder)
    for text, members in groups.values():
        yield _Group(f"`{subject}: {text[:60]}`", members, members[0].at)


def _unknown_bucket(rule: NamedRule, holder: Holder, place: Place) -> Finding:
    why = place.unknown or f"it is not known what `{show(place.text)[:200]}`{place.how} stands for"
    message = f"which bucket {_of(holder)} reads cannot be known: {why}"
    return _finding(rule, holder, place.at, message, _LISTABLE)


def _is(holder: Holder, subject: str, value: Value) -> str:
    if value.text == ANY_TEXT:
        return f"`{subject}` of {_of(holder)} cannot be known: it is set here, outside of the spec"
    return f"`{subject}` of {_of(holder)} is {quote(value.text)}"


def _of(holder: Holder) -> str:
    return f"`{holder.name[:60]}`" if holder.name else "this spec"


def _finding(rule: NamedRule, holder: Holder, at: Node, message: str, remedy: str) -> Finding:
    return Finding(rule, at, message, remedy, (holder.name,) if holder.name else ())


def _list(patterns: Sequence[str], last: str) -> str:
    shown = [f"`{each[:80]}`" for each in patterns[:_MOST_NAMES]]
    if len(patterns) > _MOST_NAMES:
        return ", ".join(shown) + ", …"
    return f" {last} ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _one_of(patterns: Sequence[str]) -> str:
    return f"it must be {_list(patterns, 'or')}"


def _not_one_of(patterns: Sequence[str]) -> str:
    return f"it must not be {_list(patterns, 'or')}" if patterns else ""
