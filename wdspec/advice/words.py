"""The fields and steps of a spec in words: `image = jpg|png (rgb8)`, `select m:f, map m:g`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from wdspec.base.redaction import redacted_urls, without_secrets
from wdspec.fields.codecs.image_decoder import ImageDecoder
from wdspec.fields.decode import DecodeRules, FieldDecoder, Unpacked
from wdspec.fields.samples import SampleFields
from wdspec.planning.plan import Plan
from wdspec.spec.language.expressions import describe_path
from wdspec.spec.language.making import behind, in_order, names_made
from wdspec.spec.language.samples import Call
from wdspec.spec.language.selection import describe_fraction
from wdspec.spec.rules.shards import formats_of
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import scheme_of


@dataclass(frozen=True)
class ExplainedField:
    """One field of a source's samples, as far as the spec shows it."""

    name: str
    files: tuple[str, ...]
    """Suffixes or globs; the first one that a sample has is used."""
    decoder: str
    """`bytes` if nothing decodes it, `as stored` for columns of records; `a/b` if it depends on the file."""

    def __str__(self) -> str:
        files = "" if self.files == (self.name,) else f" = {'|'.join(self.files)}"
        return f"{self.name}{files}" + ("" if self.decoder in self.files else f" ({self.decoder})")


def explain_fields(source: Source, fields: SampleFields) -> list[ExplainedField]:
    """The fields of a source, from `extensions`, `rename` and `decode`.

    Without `extensions` only the renamed fields are known; the others depend on the files of a sample.
    """
    entries = fields.naming.extensions.entries or ()
    files = {
        entry.name or str(entry): tuple(spelling.text for spelling in entry.spellings) for entry in entries
    }
    lowered = {name.lower(): name for name in files}
    renamed: dict[str, tuple[str, ...]] = {}
    used: set[str] = set()
    for new, olds in source.rename.items():
        suffixes: list[str] = []
        for old in olds:
            name = lowered.get(old.lower())
            suffixes += (old,) if name is None else files[name]
            used.add(name or old)
        renamed[new] = tuple(suffixes)
    others = {name: suffixes for name, suffixes in files.items() if name not in used}
    read = [
        ExplainedField(name, tuple(dict.fromkeys(suffixes)), _decoders(name, suffixes, fields.rules, source))
        for name, suffixes in {**renamed, **others}.items()
    ]
    return read + [
        ExplainedField(field, tuple(map(describe_path, source.make[name].origins)), source.make[name].step)
        for field, name in names_made(source.make)
    ]


def fields_in_words(source: Source, fields: SampleFields) -> str:
    """Show the fields of a source: `image = jpg|png (rgb8), label = cls`."""
    known = [str(each) for each in explain_fields(source, fields) if each.name not in source.made_names]
    if source.extensions is None:
        known.append("all other fields" if known else "every field")
        image = _label(fields.rules.decoder_of("jpg", "jpg"), source)
        known[-1] += f", {image}" if image == _AS_STORED else f", images as {image}"
        named = {} if source.decode is None else source.decode.fields
        known += [f"{name} ({decoder})" for name, decoder in named.items() if name not in source.rename]
    return ", ".join(known)


def _made_in_words(names: Collection[str], source: Source) -> list[str]:
    """Show entries of `make`, each after those that it is made from: `make ids = tokenize(text)`."""
    shown = [
        f"{name} = {source.make[name].step}({', '.join(map(describe_path, source.make[name].origins))})"
        for name in in_order(source.make)
        if name in names
    ]
    return [f"make {' and '.join(shown)}"] if shown else []


def steps_in_words(source: Source, spec: Spec) -> str:
    """Show the steps of a source, in their order: `where ids.length < 9, select m:f, map m:g, tags {"a": 1}`.

    Fields of `make` are where something first asks for them: a selection, a cost, or the rest.
    """
    first = behind(source.make, source.selecting_fields(spec.costs))
    then = behind(source.make, spec.measured_fields) - first
    steps = _made_in_words(first, source)
    if source.where is not None:
        steps.append(f"where {source.where}")
    if source.subset is not None:
        part = " to ".join(map(describe_fraction, source.subset.part))
        steps.append(f"subset {part}{f' of {source.subset.of}' if source.subset.of else ''}")
    for key, entries in (("keys", source.only_keys), ("exclude", source.exclude)):
        if entries is not None:
            shown = " ".join(entries[:3])
            steps.append(f"{key} {shown}{f' and {len(entries) - 3:,} more' if len(entries) > 3 else ''}")
    if source.scale is not None:
        low, high = source.scale
        factor = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        part = "" if source.scaleprob == 1 else f" ({source.scaleprob:.4g} of samples)"
        steps.append(f"scale {factor}{part}")
    steps += [f"{made} in windows" for made in _made_in_words(then, source)]
    for name, entry in source.fetch.items():
        place = redacted_urls(" or ".join(entry.hosts) if entry.root is None else entry.root)
        is_local = not entry.hosts and entry.root is not None and not scheme_of(entry.root)
        written = f"fetch {name} from {place} by {entry.url}{' (one request per object)' * (not is_local)}"
        leaves_out = (entry.missing or source.missing) == "skip"
        steps.append(written + " or leave the sample out" * leaves_out)
    steps += _made_in_words(source.make.keys() - first - then, source)
    steps += [f"select {name}" for name in source.selects]
    if source.map:
        steps.append(f"map {calls_in_words(source.map)}")
    if source.tags:
        steps.append(f"tags {json.dumps(without_secrets(source.tags), ensure_ascii=False, default=str)}")
    if source.missing != "error":
        steps.append(f"missing: {source.missing}")
    return ", ".join(steps)


def common_steps(spec: Spec) -> str:
    """Show the steps for the samples of all sources: `map m:f, stage m:g`."""
    steps = [f"map {calls_in_words(spec.map)}"] if spec.map else []
    if spec.stage is not None:
        steps.append(f"stage {spec.stage.name}")
    return ", ".join(steps)


def calls_in_words(calls: Iterable[Call]) -> str:
    """Show calls of user functions: `m:f, m:Class(side=16), text: m:Tokenizer(name='a').encode(limit=8)`."""
    return ", ".join(
        (f"{call.field}: " if call.field else "")
        + f"{call.call}{_arguments(call.args)}"
        + (f".{call.method}{_arguments(call.given)}" if call.method else "")
        for call in calls
    )


def _arguments(named: dict[str, Any]) -> str:
    return f"({', '.join(f'{k}={without_secrets(v)!r}' for k, v in named.items())})" if named else ""


_AS_STORED = "as stored"


def _decoders(name: str, suffixes: Iterable[str], rules: DecodeRules, source: Source) -> str:
    labels = {_label(rules.decoder_of(name, suffix), source): None for suffix in suffixes}
    return "/".join(labels)


def _label(decoder: FieldDecoder | None, source: Source) -> str:
    if decoder is None:  # columns of records have types
        return "bytes" if {"tar", ""} & {*formats_of(source.format, source.shards or ())} else _AS_STORED
    decode = decoder.decode.inner if isinstance(decoder.decode, Unpacked) else decoder.decode
    return decode.spec if isinstance(decode, ImageDecoder) else decoder.label


def draw_in_words(plan: Plan) -> str:
    """Show how samples are drawn: `even, one source a batch`."""
    return plan.draw + (", one source a batch" if plan.unit == "batch" else "")
