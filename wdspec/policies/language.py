"""The keys of a policy file: rules, retirements and waivers, as models."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from wdspec.base.errors import did_you_mean
from wdspec.spec.language.requirements import Requirement, parse_requirement
from wdspec.spec.language.values import Boolean, Model, Text, Texts, read_number, read_text, refuse
from wdspec.spec.problems import describe, list_names, quote
from wdspec.spec.spec import Source, Spec
from wdspec.spec.validation import keys_of, maps_of
from wdspec.urls.urls import WELL_KNOWN, slip_in

RETIRED, DEPRECATED = "retired", "deprecated"
OF_URLS = ("shards", "scheme", "bucket")
"""Subjects that are about the URLs of a source."""
SUBJECTS = ("license", *OF_URLS, "functions", "requires")
"""What rules can be about, besides keys of specs."""
OF_SCOPES = ("spec", "split", "env", "source")
"""What `for` can be about in addition."""
OF_SHARES = ("source", "shards", "bucket", "license")
"""What `max_share` can be about, besides keys of specs."""
FORMS = ("forbid", "require", "max_share")
_KEYS = frozenset({*keys_of(Source), *keys_of(Spec)} - {"dataset", "shards"})
_SCHEMES = frozenset({*WELL_KNOWN, "file", "pipe"})
_PERCENT = re.compile(r"\s*(\d{1,3}(?:\.\d{1,9})?)\s*%\s*")


_PATTERN_FORM: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}
_PATTERNS_FORM = {
    "anyOf": [*_PATTERN_FORM["anyOf"], {"type": "array", "items": _PATTERN_FORM, "minItems": 1}]
}
_SHARE_FORMS = [
    {"type": "string", "pattern": r"^\s*\d{1,3}(\.\d{1,9})?\s*%\s*$"},
    {"type": "number", "minimum": 0, "maximum": 1},
]


def _names_form(subjects: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of a subject: one of those, or a key of specs."""
    keys = sorted(_KEYS)
    names = dict.fromkeys((*subjects, *keys))
    return {"anyOf": [{"enum": [*names]}, {"type": "string", "pattern": f"^({'|'.join(keys)})\\."}]}


def _map_form(subjects: Sequence[str], value: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a map of subjects."""
    names = _names_form(subjects)
    return {"type": "object", "propertyNames": names, "additionalProperties": value, "minProperties": 1}


def _conditions_form() -> dict[str, Any]:
    """The JSON Schema of what `read_conditions` reads."""
    name = _names_form([each for each in SUBJECTS if each not in OF_URLS])
    keys = {"type": "array", "items": name, "minItems": 1}
    return {"anyOf": [*name["anyOf"], keys, _map_form(SUBJECTS, _PATTERNS_FORM)]}


class Condition(NamedTuple):
    """A subject, and the patterns that its values are compared with."""

    subject: str
    patterns: tuple[str, ...] = ()
    """Empty if the question is whether there is a value."""


def read_conditions(value: Any) -> tuple[Condition, ...]:
    """Read `{license: [MIT, CC0-1.0]}`, or keys: `homepage`, `[homepage, meta.owner]`."""
    if isinstance(value, Mapping):
        if not value:
            refuse("E214", "this map is empty", "write `license: MIT`, for example")
        return tuple(_condition(str(subject), patterns, SUBJECTS) for subject, patterns in value.items())
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names:
        hint = "write `{license: [MIT, CC0-1.0]}`, or the name of a key"
        refuse("E202", f"expected a map of subjects, or keys, but this is {describe(value)}", hint)
    for name in map(read_text, names):
        _check_subject(name, SUBJECTS)
        if name in OF_URLS:
            hint = f'write `{{{name}: …}}` with patterns, such as `{{shards: "s3://bucket/*"}}`'
            refuse("E203", f"every source has `{name}`", hint)
    return tuple(map(Condition, names))


def read_scope(value: Any) -> tuple[Condition, ...]:
    """Read `{env: "prod*", shards: "hf://*"}`."""
    if not isinstance(value, Mapping) or not value:
        hint = 'write `for: {env: "prod*"}`, for example'
        refuse("E202", f"`for` takes a map of subjects, but this is {describe(value)}", hint)
    known = (*OF_SCOPES, *(each for each in SUBJECTS if each != "requires"))
    return tuple(_condition(str(subject), patterns, known) for subject, patterns in value.items())


def read_shares(value: Any) -> dict[str, Fraction]:
    """Read `40%`, which is about each source and all that read one shard, or `{tags.language: 60%}`."""
    if not isinstance(value, Mapping):
        return {"shards": _share(value, "")}
    if not value:
        refuse("E214", "this map is empty", "write `max_share: 40%`")
    for subject in map(str, value):
        if subject in ("functions", "requires", "scheme"):
            hint = "write `source`, `shards`, `bucket`, `license`, or a key such as `tags.language`"
            refuse("E203", f"shares of `{subject}` are not supported", hint, subject)
        _check_subject(subject, OF_SHARES)
    return {str(subject): _share(share, str(subject)) for subject, share in value.items()}


def _share(value: Any, key: str) -> Fraction:
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, str) and match is None:
        hint = "write a part of the mix, such as `40%`"
        refuse("E202", f"expected a share, but this is {describe(value)}", hint, key)
    share = Fraction(match[1]) / 100 if match else Fraction(str(read_number(value)))
    if not 0 <= share <= 1:
        hint = (
            f"write `{value}%`"
            if 1 < share <= 100 and not match
            else "write a part of the mix, such as `40%`"
        )
        refuse("E204", f"a share is at most 100%, but this is {describe(value)}", hint, key)
    return share


def _condition(subject: str, value: Any, known: Sequence[str]) -> Condition:
    _check_subject(subject, known)
    items = value if isinstance(value, (list, tuple)) else [value]
    if not items:
        refuse("E214", f"`{subject}` has no pattern", "write at least one", subject)
    patterns = []
    for item in items:
        text = (
            str(item).lower()
            if isinstance(item, bool)
            else str(item)
            if isinstance(item, int | float)
            else item
        )
        if not isinstance(text, str) or not text.strip():
            hint = (
                'a path has no bucket; allow it by `shards: "/data/*"`'
                if subject == "bucket"
                else "write text"
            )
            refuse("E202", f"expected a pattern, but this is {describe(item)}", hint, subject)
        _check_pattern(subject, text)
        patterns.append(text)
    return Condition(subject, tuple(patterns))


def _check_subject(subject: str, known: Sequence[str]) -> None:
    """Refuse a subject that is not known, and no key of a spec."""
    first, *inner = subject.split(".")
    if (subject in known and not inner) or (first in _KEYS and all(inner) and _has(first, inner)):
        return
    if subject in OF_SCOPES and subject != "source":
        refuse("E203", f"`{subject}` is not a subject of rules", f"write `for: {{{subject}: …}}`", subject)
    hint = did_you_mean(subject, [*known, *_KEYS]) or (
        f"the subjects are {list_names([*known])}, and the keys of a spec, such as `meta.owner`"
    )
    refuse("E203", f"{quote(subject)} is not a key of a spec", hint, subject)


def _has(key: str, inner: Sequence[str]) -> bool:
    """Whether a key may have a key in it."""
    if not inner:
        return True
    models = [maps[key] for maps in (maps_of(Source), maps_of(Spec)) if key in maps]
    if key in ("meta", "tags", "costs", "rename", "make", "fetch", "companions"):
        return True
    return any(inner[0] in keys_of(model) for model in models)


def _check_pattern(subject: str, pattern: str) -> None:
    """Refuse a pattern that can match nothing."""
    if subject == "requires" and parse_requirement(pattern) is None:
        hint = "write `{requires: wdspec >= 0.2}`"
        refuse("E203", f"{quote(pattern)} is not a version of wdspec", hint, subject)
    if subject == "scheme" and "*" not in pattern and pattern.lower() not in _SCHEMES:
        hint = did_you_mean(pattern.lower(), sorted(_SCHEMES), 0.8) or (
            "write it without `://`" if "://" in pattern else ""
        )
        if hint:
            refuse("E393", f"no URL has the scheme {quote(pattern)}", hint, subject)
    if subject == "shards":
        check_urls(pattern, subject)
    if subject == "bucket" and "://" in pattern:
        hint = f'write `{pattern.partition("://")[2].strip("/")}`, or `shards: "{pattern.rstrip("/*")}/*"`'
        refuse("E393", f"no bucket is called {quote(pattern)}", hint, subject)


def check_urls(pattern: str, key: str) -> str:
    """Refuse a pattern that no URL or absolute path matches."""
    if slip := slip_in(pattern.split("*")[0] or "*"):
        refuse("E393", f"{quote(pattern)} matches no shards: {slip.message}", slip.hint, key)
    if not pattern.startswith(("/", "~", "*")) and not re.match(r"[A-Za-z0-9+.*-]+:", pattern):
        hint = f'paths are absolute here: write `"*/{pattern}"`, or a URL'
        refuse("E393", f"{quote(pattern)} matches no shards", hint, key)
    return pattern


Conditions = Annotated[
    tuple[Condition, ...], PlainValidator(read_conditions), WithJsonSchema(_conditions_form())
]
Scope = Annotated[
    tuple[Condition, ...],
    PlainValidator(read_scope),
    WithJsonSchema(
        _map_form((*OF_SCOPES, *(each for each in SUBJECTS if each != "requires")), _PATTERNS_FORM)
    ),
]
Shares = Annotated[
    dict[str, Fraction],
    PlainValidator(read_shares),
    WithJsonSchema({"anyOf": [*_SHARE_FORMS, _map_form(OF_SHARES, {"anyOf": _SHARE_FORMS})]}),
]


class Rule(Model):
    """A rule: what specs must say, and must not say."""

    scope: Scope = Field(
        (), alias="for", description="Where the rule applies; by default to every source of every spec."
    )
    forbid: Conditions = Field(
        (), description="Keys that must not be set, or patterns that no value may match."
    )
    require: Conditions = Field(
        (), description="Keys that must be set, or patterns of which each value must match one."
    )
    max_share: Shares = Field(
        {},
        description="Largest share of a source, and of all that read the same shard; or of all sources with the same "
        "value of a key.",
    )
    severity: Literal["error", "warning"] = Field("error", description="`error` or `warning`.")
    may_ignore: Boolean = Field(
        False, description="Whether comments and `ignore` may suppress it; only for warnings."
    )
    message: Text | None = Field(None, description="What to do, shown with each finding.")
    page: Text | None = Field(None, description="URL of a page about the rule.")

    @property
    def form(self) -> str:
        """The one of `FORMS` that it has."""
        return next(form for form in FORMS if getattr(self, form))


def _read_day(value: Any) -> Any:
    return None if value is None else read_day(value)


def read_day(value: Any) -> datetime.date:
    """Read a date, such as `2026-03-01`."""
    try:
        return datetime.date.fromisoformat(value)
    except (TypeError, ValueError):
        refuse("E202", f"expected a date, but this is {describe(value)}", "write `2026-03-01`, for example")


Day = Annotated[
    datetime.date | None,
    PlainValidator(_read_day),
    WithJsonSchema({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}),
]


def _read_patterns(value: Any) -> Any:
    for each in value if isinstance(value, (list, tuple)) else [value]:
        check_urls(read_text(each), "")
    return value


class Retirement(Model):
    """Data that is not to be used anymore."""

    shards: Annotated[Texts, BeforeValidator(_read_patterns)] = Field(
        description="Patterns of the URLs of the shards."
    )
    since: Day = Field(None, description="A date that is shown.")
    until: Day = Field(None, description="Of deprecated data: when it will be retired. Only shown.")
    replaced_by: Text | None = Field(None, description="What to use.")
    reason: Text | None = Field(None, description="Why.")
    page: Text | None = Field(None, description="URL of a page about it.")


class Waiver(Model):
    """An exception from a rule of the same file."""

    rule: Text = Field(description="The name of the rule, or `retired` or `deprecated`.")
    source: Text | None = Field(None, description="Pattern of the names of sources.")
    shards: Annotated[Texts, BeforeValidator(_read_patterns)] | None = Field(
        None, description="Patterns of URLs: the source reads nothing else."
    )
    spec: Text | None = Field(None, description="Pattern of the paths of specs.")
    reason: Text = Field(description="Why it is right.")
    until: Day = Field(None, description="A date that is shown.")


class PolicyFile(Model):
    """A policy: the keys of its file, before its entries are read."""

    requires: Requirement | None = Field(
        None, description="Earliest version of wdspec that can read the policy."
    )
    description: Text | None = Field(None, description="What the policy is for.")
    rules: dict[str, Any] = Field({}, description="Rules by name.")
    retired: list[Any] = Field([], description="Data that must not be used.")
    deprecated: list[Any] = Field([], description="Data that will be retired.")
    waivers: list[Any] = Field([], description="Exceptions from rules.")
