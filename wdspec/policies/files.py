"""Reads policy files: a path or a URL with a digest becomes a `Policy`, or every problem with its place."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from wdspec.base.errors import WdspecError, did_you_mean, install_command
from wdspec.base.redaction import redacted_urls
from wdspec.policies.language import (
    DEPRECATED,
    FORMS,
    RETIRED,
    Condition,
    PolicyFile,
    Retirement,
    Rule,
    Waiver,
)
from wdspec.policies.places import find_text
from wdspec.spec.files import may_have_keys, read_from_disk, reason_of
from wdspec.spec.language.requirements import needs_newer
from wdspec.spec.language.values import Model
from wdspec.spec.problems import Problem, Problems, list_names
from wdspec.spec.tree import ListNode, MapNode, Node, Origin, is_null
from wdspec.spec.validation import check_keys, keys_of, make_model
from wdspec.spec.yaml import MAX_BYTES, decode_text, parse
from wdspec.urls.urls import scheme_of

M = TypeVar("M", bound=Model)
_DIGEST = re.compile(r"(.*)#sha256=([0-9A-Fa-f]*)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class NamedRule:
    """A rule of a policy file, as it is checked."""

    name: str
    rule: Rule
    at: Node
    """Its name in the file."""
    code: str
    """The code of its findings."""
    advice: str
    """What its findings say after what was seen."""
    is_retirement: bool = False


@dataclass(frozen=True, eq=False)
class NamedWaiver:
    """A waiver, and where it is."""

    waiver: Waiver
    at: Node


@dataclass(frozen=True, eq=False)
class Policy:
    """What is in a policy file."""

    file: str
    rules: tuple[NamedRule, ...]
    waivers: tuple[NamedWaiver, ...]

    @property
    def is_remote(self) -> bool:
        """Whether it is from a URL, and so for other specs, too."""
        return scheme_of(self.file) not in ("", "file")


def read_policy(
    name: str, may_fetch: bool, retired_on: datetime.date | None = None
) -> tuple[Policy | None, list[Problem]]:
    """Read a policy file; returns it, or None if it has errors, and its problems.

    Args:
        name: a path or a URL, perhaps with `#sha256=…`.
        may_fetch: whether it may be a URL.
        retired_on: treat deprecated entries and waivers with an `until` up to this day as retired and gone.
    """
    problems = Problems()
    match = _DIGEST.fullmatch(name)
    place, digest = (match[1], match[2].lower()) if match and not os.path.exists(name) else (name, None)
    shown = redacted_urls(place)
    problems.saw(shown)
    data = _read(place, shown, digest, may_fetch, problems)
    top = None if data is None else _parse(data, place, shown, problems)
    policy = None if top is None else _Reader(shown, problems, retired_on).policy(top)
    found = problems.sorted()
    return (None if any(problem.is_error for problem in found) else policy), found


def _read(place: str, shown: str, digest: str | None, may_fetch: bool, problems: Problems) -> bytes | None:
    """The bytes of a file, if they have the digest; else None, and a problem."""

    def refuse(message: str, hint: str) -> None:
        problems.note(Problem("E393", message, hint, shown))

    is_remote = scheme_of(place) not in ("", "file")
    if is_remote and not may_fetch:
        refuse(
            f"`policy` of [tool.wdspec] is a path, not {shown}",
            "name a URL on the command line: `--policy URL#sha256=…`",
        )
        return None
    if digest is None and is_remote:
        hint = "add `#sha256=…` with the digest that `sha256sum` prints, so that no one else can change the rules"
        refuse(f"the policy {shown} has no digest", hint)
        return None
    if digest is not None and len(digest) != 64:
        refuse(f"a SHA-256 digest has 64 hexadecimal digits, not {len(digest)}", "`sha256sum FILE` prints it")
        return None
    try:
        data = _fetch(place) if is_remote else read_from_disk(place, False)
    except (OSError, ValueError, WdspecError) as error:
        said = error.message if isinstance(error, WdspecError) else reason_of(error)
        reason, _, remedy = redacted_urls(said).partition("; ")
        hint = remedy or f"check the {'URL' if is_remote else 'path'}"
        problems.note(Problem("E001", f"cannot read the policy {shown}: {reason}", hint, shown))
        return None
    found = hashlib.sha256(data).hexdigest()
    if digest is not None and found != digest:
        hint = f"if the change is intended, write `#sha256={found}`"
        refuse(f"the policy {shown} has another digest than {digest[:12]}…", hint)
        return None
    return data


def _fetch(url: str) -> bytes:
    """The bytes at a URL: the one thing that `validate` fetches."""
    from wdspec.storage.environment import Environment
    from wdspec.storage.storage import Storage

    with Storage.of(Environment.read()).open_location(url) as stream:
        found = bytearray()
        while len(found) <= MAX_BYTES and (block := stream.read(MAX_BYTES + 1 - len(found))):
            found += block
    return bytes(found)


def _parse(data: bytes, place: str, shown: str, problems: Problems) -> MapNode | None:
    text = decode_text(data, shown, problems, "policy")
    folder = os.path.dirname(os.path.abspath(place))
    is_other_file = not may_have_keys(data)  # its lines may be secret
    found = Problems() if is_other_file else problems
    tree = None if text is None else parse(text, Origin(shown, folder, text), found)
    if is_other_file and text is not None and not (isinstance(tree, MapNode) or (tree and is_null(tree))):
        hint = "a policy is a map of keys; put rules under `rules:`"
        problems.note(Problem("E015", "there is no `key: value` in this file", hint, shown, 1, 1))
        return None
    if tree is None:
        return None
    if is_null(tree) or (isinstance(tree, MapNode) and not tree.entries):
        problems.add("E393", tree, "this policy is empty", "write `rules:` with at least one rule")
        return None
    if not isinstance(tree, MapNode):
        problems.add("E015", tree, "a policy is a map of keys", "put rules under `rules:`")
        return None
    if tree.entries.keys().isdisjoint(keys_of(PolicyFile)):
        for entry in tree.entries.values():
            problems.hide(entry.key)
    return None if needs_newer(tree, problems) else tree


class _Reader:
    """Reads the entries of a policy file."""

    def __init__(self, file: str, problems: Problems, retired_on: datetime.date | None) -> None:
        self._file, self._problems, self._retired_on = file, problems, retired_on

    def policy(self, top: MapNode) -> Policy | None:
        known = check_keys(top, PolicyFile, "in a policy", self._problems)
        if make_model(known, PolicyFile, {}, self._problems)[0] is None:
            return None
        rules = [*self._rules(top), *self._retirements(top)]
        waivers = list(self._waivers(top, rules))
        if not rules and not any(problem.is_error for problem in self._problems):
            hint = "write `rules:`, `retired:` or `deprecated:` with at least one entry"
            self._problems.add("E393", top, "this policy has no rules", hint)
        compared = [
            rule
            for rule in rules
            if "license" in rule.rule.max_share or any(map(_compares_licenses, _conditions_of(rule.rule)))
        ]
        if compared:
            self._check_licenses(compared, top)
        return Policy(self._file, tuple(rules), tuple(waivers))

    def _model(self, node: Node, model: type[M], where: str) -> M | None:
        """The model of an entry; None, and problems, if it is wrong."""
        if not isinstance(node, MapNode):
            self._problems.add("E202", node, f"expected a map of keys {where}", "write `key: value`")
            return None
        known = check_keys(node, model, where, self._problems)
        made, bad = make_model(known, model, {}, self._problems)
        return None if bad or len(known.entries) < len(node.entries) else made

    def _rules(self, top: MapNode) -> Iterator[NamedRule]:
        held = top.map_at("rules")
        for name, (key, node) in held.entries.items() if held is not None else ():
            rule = self._model(node, Rule, f"in the rule `{name[:60]}`")
            if name in (RETIRED, DEPRECATED):
                hint = "choose another name"
                self._problems.add("E393", key, f"`{name}` is the name of a list of shards", hint)
            elif rule is not None and self._is_whole(rule, node, key):
                says = [f"see {rule.page}" if rule.page else ""]
                advice = "; ".join(filter(None, [rule.message or "", *says]))
                code = "P101" if rule.severity == "error" else "W452" if rule.may_ignore else "P201"
                yield NamedRule(name, rule, key, code, advice)

    def _is_whole(self, rule: Rule, node: Node, key: Node) -> bool:
        forms = [form for form in FORMS if getattr(rule, form)]
        if len(forms) != 1:
            what = f"this rule has {list_names(forms)}" if forms else "this rule says nothing"
            code, at = ("E207", node.key_or_self(forms[1])) if forms else ("E206", key)
            self._problems.add(code, at, what, f"write one of {list_names(FORMS)}")
        elif rule.may_ignore and rule.severity == "error":
            self._problems.add(
                "E207",
                node.key_or_self("may_ignore"),
                "an error cannot be ignored",
                "add `severity: warning`",
            )
        elif any(each.subject == "requires" and each.patterns for each in rule.forbid):
            hint = "write `require: {requires: wdspec >= 0.2}`"
            self._problems.add("E203", node.key_or_self("forbid"), "a version cannot be forbidden", hint)
        elif any(each.subject == "functions" and not each.patterns for each in rule.require):
            hint = 'write `forbid: functions`, or `require: {functions: "package.*"}`'
            self._problems.add("E203", node.key_or_self("require"), "no spec needs a user function", hint)
        else:
            return True
        return False

    def _retirements(self, top: MapNode) -> Iterator[NamedRule]:
        for name in (RETIRED, DEPRECATED):
            held = top.get(name)
            for node in held.items if isinstance(held, ListNode) else ():
                entry = self._model(node, Retirement, f"in `{name}`")
                if entry is None:
                    continue
                if name == RETIRED and entry.until is not None:
                    hint = "write `since`, or move the entry to `deprecated`"
                    self._problems.add("E216", node.key_or_self("until"), "retired data has no `until`", hint)
                yield self._retirement(name, entry, node)

    def _retirement(self, name: str, entry: Retirement, node: Node) -> NamedRule:
        is_due = self._is_due(entry.until)
        is_retired = name == RETIRED or is_due
        said = [
            f"since {entry.since}" if entry.since else "",
            f"until {entry.until}" if entry.until and not is_due else "",
            f"retired on {entry.until}" if is_due else "",
            entry.reason or "",
            f"use {entry.replaced_by}" if entry.replaced_by else "",
            f"see {entry.page}" if entry.page else "",
        ]
        rule = Rule.model_construct(
            scope=(), forbid=(Condition("shards", entry.shards),), require=(), max_share={}
        )
        code = "P102" if is_retired else "P202"
        return NamedRule(
            RETIRED if is_retired else DEPRECATED, rule, node, code, "; ".join(filter(None, said)), True
        )

    def _is_due(self, until: datetime.date | None) -> bool:
        return until is not None and self._retired_on is not None and until <= self._retired_on

    def _waivers(self, top: MapNode, rules: Sequence[NamedRule]) -> Iterator[NamedWaiver]:
        held, named = top.get("waivers"), top.map_at("rules")
        names = [*(named.entries if named is not None else ()), RETIRED, DEPRECATED]
        for node in held.items if isinstance(held, ListNode) else ():
            waiver = self._model(node, Waiver, "in a waiver")
            if waiver is None:
                continue
            if waiver.rule not in names:
                hint = did_you_mean(waiver.rule, names) or (
                    f"it has {list_names(names)}; a waiver is in the file of its rule"
                )
                message = f"this policy has no rule `{waiver.rule[:60]}`"
                self._problems.add("E393", node.value_or_self("rule"), message, hint)
            elif waiver.source is None and waiver.spec is None and waiver.shards is None:
                hint = "add `source: NAME`, `shards: s3://bucket/*`, or `spec: configs/*`"
                message = "this waiver has neither `source` nor `shards` nor `spec`"
                self._problems.add("E206", node, message, hint)
            elif all(_is_any(each) for each in (waiver.source, waiver.shards, waiver.spec)):
                hint = "name a source, shards or a spec, or remove the rule"
                self._problems.add(
                    "E393", node, f"this waiver lifts `{waiver.rule[:60]}` for all specs", hint
                )
            elif not self._is_due(waiver.until):
                yield NamedWaiver(waiver, node)

    def _check_licenses(self, rules: Sequence[NamedRule], top: MapNode) -> None:
        """Report a missing library, and patterns that match no license."""
        try:
            from wdspec.policies.licenses import is_known_pattern
        except ModuleNotFoundError:
            message = "rules about licenses need the library `license-expression`"
            self._problems.add("E394", rules[0].at, message, install_command("wdspec[policies]"))
            return
        for rule in rules:
            for each in filter(_compares_licenses, _conditions_of(rule.rule)):
                for pattern in each.patterns:
                    if not is_known_pattern(pattern):
                        hint = "write an SPDX license such as `CC-BY-4.0`, or `LicenseRef-…`; https://spdx.org/licenses/"
                        message = f"`{pattern[:60]}` matches no SPDX license"
                        held = top.value_or_self("rules")
                        node = held.value_or_self(rule.name) if isinstance(held, MapNode) else held
                        self._problems.add("E393", find_text(node, pattern), message, hint)


def _is_any(patterns: str | tuple[str, ...] | None) -> bool:
    """Whether nothing is left out by a pattern."""
    return patterns is None or any(
        not each.strip("*") for each in ([patterns] if isinstance(patterns, str) else patterns)
    )


def _conditions_of(rule: Rule) -> tuple[Condition, ...]:
    """All conditions of a rule, those of `for` included."""
    return (*rule.scope, *rule.forbid, *rule.require)


def _compares_licenses(condition: Condition) -> bool:
    return condition.subject == "license" and bool(condition.patterns)
