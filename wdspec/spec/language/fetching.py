"""`fetch`: fields whose values are objects elsewhere, which the samples name (docs/references.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)

from wdspec.base.amounts import pluralize
from wdspec.base.errors import UrlError
from wdspec.spec.language import values
from wdspec.spec.language.decoders import reads_header
from wdspec.spec.language.effects import FOR_DIGEST
from wdspec.spec.language.expressions import (
    Expression,
    ExpressionError,
    Path,
    parse_expression,
    parse_together,
)
from wdspec.spec.language.making import Origin, path_of, read_origin
from wdspec.spec.problems import describe, quote
from wdspec.urls.references import parse_place, split_web
from wdspec.urls.urls import is_command, scheme_of

EXAMPLE = "fetch: {image: {url: json.path, root: s3://bucket/images/}}"
"""What to write, for hints."""
_PATTERN = re.compile(r"[{}*?\[\]#]|::|(^|/)\.\.(/|$)")
_OF_PLACES = frozenset({"root", "hosts"})
_ROOT_HINT = "write the URL or the path of one directory: `root: s3://bucket/images/`"
_HOSTS_HINT = (
    "write the host of the URLs, such as `hosts: [cdn.example.org]`; docs/references.md has all forms"
)


def read_root(value: Any) -> Any:
    """Read the directory where references start. It ends with `/` afterwards."""
    text = values.read_text(value)
    if is_command(text) or text.startswith(("@", "-", "data:")):
        values.refuse("E203", f"{quote(text)} is not a directory", _ROOT_HINT)
    scheme = scheme_of(text)
    pattern = _PATTERN.search(text)
    if pattern is not None and not (pattern[0] in "[]" and scheme in ("http", "https")):
        values.refuse(
            "E203", f"{quote(text)} has `{pattern[0].strip('/')}`, but a root is one directory", _ROOT_HINT
        )
    if any(ord(each) < 32 for each in text):
        values.refuse("E203", f"{quote(text)} has a control character", "remove it")
    if scheme and not text.partition("://")[2].strip("/"):
        values.refuse("E203", f"{quote(text)} names no bucket or host", _ROOT_HINT)
    if scheme in ("http", "https"):
        netloc = text.partition("://")[2].partition("/")[0].rpartition("@")[2]
        try:
            split_web(f"{scheme}://{netloc}")
        except UrlError as error:
            values.refuse("E203", f"{quote(text)} {error.message}", _ROOT_HINT)
    return text if text.endswith("/") else f"{text}/"


def read_host(value: Any) -> Any:
    """Read an entry of `hosts`."""
    text = values.read_text(value)
    try:
        parse_place(text)
    except UrlError as error:
        values.refuse("E203", f"{quote(text)} {error.message}", _HOSTS_HINT)
    return text


def _read_hosts(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _read_range(value: Any) -> Any:
    _check_pair(value, "fields", "range", "write two fields: `bytes: [start, stop]`")
    return tuple(map(read_origin, value))


def _check_pair(value: Any, items: str, noun: str, hint: str) -> None:
    if not isinstance(value, (list, tuple)):
        values.refuse("E202", f"expected a list of two {items}, but this is {describe(value)}", hint)
    if len(value) != 2:
        message = f"a {noun} has two ends, but this list has {pluralize(len(value), 'item')}"
        values.refuse("E210", message, hint)


def _read_times(value: Any) -> Any:
    hint = "write two times: `seconds: [json.start, json.end]`, or `[start, start + duration]`"
    _check_pair(value, "times", "time span", hint)
    texts = []
    for each in value:
        is_number = isinstance(each, (int, float)) and not isinstance(each, bool)
        text = str(each) if is_number else values.read_text(each)
        try:
            parse_expression(text)
        except ExpressionError as error:
            values.refuse("E203", f"{quote(text)} {error.message}", error.hint or hint)
        texts.append(text)
    start, stop = value
    if all(isinstance(each, (int, float)) for each in value) and not 0 <= start < stop:
        values.refuse("E203", f"no time span goes from {start} to {stop} s", "write the start, then the end")
    return tuple(texts)


@lru_cache(maxsize=256)
def _parse_times(texts: tuple[str, ...]) -> Expression:
    return parse_together(texts)


_BRACES = re.compile(r"\{((?:\[:\]|[^{}:])*)(:[^{}]*)?\}")
_WIDTH = re.compile(r":0?\d{1,2}d?")


def read_url(value: Any) -> Any:
    """Read a field, or text with fields in braces."""
    text = value if isinstance(value, str) else ""
    if "{" not in text and "}" not in text:
        return read_origin(value)
    hint = (
        "write fields in braces, numbers perhaps with their digits: `videos/{camera}/file-{number:03d}.mp4`"
    )
    if set(_BRACES.sub("", text)) & {"{", "}"}:
        values.refuse("E203", f"{quote(text)} has a brace that belongs to no field", hint)
    for field, width in _BRACES.findall(text):
        read_origin(field)
        if width and not _WIDTH.fullmatch(width):
            values.refuse("E203", f"{quote(width)} is no number of digits", hint)
    return text


class Url(NamedTuple):
    """How a reference is made of the values of a sample."""

    paths: tuple[Path, ...]
    form: str | None
    """What the values are put into, as for `str.format`; None for the only value as it is."""


@lru_cache(maxsize=256)
def parse_url(text: str) -> Url:
    """Return how the reference of an entry's `url` is made."""
    found = _BRACES.findall(text)
    if not found:
        return Url((path_of(text),), None)
    places = iter(range(len(found)))
    return Url(
        tuple(path_of(field) for field, _ in found),
        _BRACES.sub(lambda match: f"{{{next(places)}{match[2] or ''}}}", text),
    )


class FetchedObject(values.Model):
    """An object that each sample names."""

    url: Annotated[str, BeforeValidator(read_url), WithJsonSchema(values.TEXT_FORM)] = Field(
        description="The reference: a field, or a value in one, such as `path` or `json.url`. Or text with fields in "
        "braces, such as `videos/{camera}/file-{number:03d}.mp4`. If a value is a list, so is the field, item by item."
    )
    root: Annotated[str, BeforeValidator(read_root), WithJsonSchema(values.TEXT_FORM)] | None = Field(
        None,
        description="The directory where references start: a URL such as `s3://bucket/images/`, or a path relative to "
        "the spec.",
    )
    hosts: Annotated[
        tuple[Annotated[str, AfterValidator(read_host)], ...],
        BeforeValidator(_read_hosts),
        values.one_or_more(values.TEXT_FORM),
    ] = Field(
        (),
        description="The places that references without `root`, and redirects, may name: hosts such as "
        "`cdn.example.org`, which means `https`; `http://host`; `*.example.org`; `s3://bucket`; and addresses of "
        "private networks.",
    )
    missing: Literal["error", "skip", "none"] | None = Field(
        None,
        description="What to do with a sample whose reference is null or empty, or whose object does not exist; by "
        "default `missing` of the source.",
    )
    span: (
        Annotated[
            tuple[Origin, Origin],
            BeforeValidator(_read_range),
            WithJsonSchema({"type": "array", "items": values.TEXT_FORM, "minItems": 2, "maxItems": 2}),
        ]
        | None
    ) = Field(
        None,
        alias="bytes",
        description="A range of the object, as two values of the sample: the first byte, and the one after the last.",
    )
    seconds: (
        Annotated[
            tuple[str, str],
            BeforeValidator(_read_times),
            WithJsonSchema(
                {
                    "type": "array",
                    "items": {"anyOf": [values.TEXT_FORM, {"type": "number", "minimum": 0}]},
                    "minItems": 2,
                    "maxItems": 2,
                }
            ),
        ]
        | None
    ) = Field(
        None,
        description="A time span of a video or recording, of which only what it needs is read: expressions of the "
        "sample for its start and its end, such as `[offset, offset + duration]`.",
    )
    sha256: Origin | None = Field(
        None,
        description="A value of the sample with the SHA-256 digest of what is fetched, in hexadecimal. Other bytes are "
        "an error.",
    )

    @property
    def origins(self) -> tuple[Path, ...]:
        """What it reads of a sample: the reference, then the range, the digest, and what `times` reads."""
        texts = (*(self.span or ()), *([] if self.sha256 is None else [self.sha256]))
        times = () if self.times is None else self.times.paths
        return (*parse_url(self.url).paths, *map(path_of, texts), *times)

    @property
    def times(self) -> Expression | None:
        """The expression for both ends of the time span."""
        return None if self.seconds is None else _parse_times(self.seconds)

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        # Digests do not count where the bytes are.
        unset = _OF_PLACES if info.context == FOR_DIGEST else frozenset[str]()
        return {key: value for key, value in dump(self).items() if value and key not in unset}


def read_fetching(value: Any) -> Any:
    """Read `{image: json.url}` or `{image: {url: json.url, root: …}}`."""
    if not isinstance(value, dict):
        values.refuse(
            "E202", f"expected a map of new fields, but this is {describe(value)}", f"write `{EXAMPLE}`"
        )
    for name, entry in value.items():
        if name in FetchedObject.model_fields and isinstance(entry, str):
            values.refuse(
                "E202", f"`{name}` stands where the name of a new field is expected", f"write `{EXAMPLE}`"
            )
        values.read_field_pattern(name)
        if ";" in name or name.startswith("__"):
            values.refuse("E215", f"{quote(name)} cannot be the name of a new field", "choose another name")
    return value


def _read_entry(value: Any) -> Any:
    if isinstance(value, str):
        return {"url": value}
    if not isinstance(value, (dict, FetchedObject)):
        hint = f"write the field with the reference, or a map: `{EXAMPLE}`"
        values.refuse("E202", f"expected a field or a map with `url`, but this is {describe(value)}", hint)
    return value


def measured_objects(
    fetch: Mapping[str, FetchedObject], rename: Mapping[str, Sequence[str]], paths: Iterable[Path]
) -> dict[Path, str]:
    """Return the paths whose values the start of an object says, and the entries of `fetch` that have it.

    Args:
        fetch: of a source.
        rename: of the source.
        paths: what expressions read.
    """
    found: dict[Path, str] = {}
    for path in paths:
        named = [name for name in rename.get(str(path[0]), (str(path[0]),)) if name in fetch]
        if (
            len(named) == 1
            and len(path) == 2
            and reads_header(named[0], str(path[1]))
            and path[1] != "seconds"
        ):
            entry = fetch[named[0]]
            if entry.span is None and entry.seconds is None:
                found[path] = named[0]
    return found


class _Skipping:
    """The values of `fetch` with which samples may be dropped."""

    def __contains__(self, fetching: object) -> bool:
        return isinstance(fetching, dict) and any(each.missing == "skip" for each in fetching.values())


SKIPPING = _Skipping()
Fetching = Annotated[
    dict[str, Annotated[FetchedObject, BeforeValidator(_read_entry)]],
    BeforeValidator(read_fetching),
    values.FilePath(in_entries="root"),
]
