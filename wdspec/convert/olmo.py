"""Mixes of OLMo: `sources` with `target_ratio`, or lines of `label,path`."""

from __future__ import annotations

import re
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, map_with, maps_in, number, texts_in

_LINE = re.compile(r"[\w./+-]+,\s*[^\s,]+\.(?:npy|csv\.gz|jsonl\S*|tar\S*)")
_LONGEST = 10_000
"""The longest line, in characters."""
_REPETITIONS = ("max_repetition_ratio", "max_repetitions", "max_repetition_factor")
"""How often a source may be read; its name changed."""


def _find_named_sources(given: Given) -> list[dict[Any, Any]]:
    """The `sources` with names, at the top level or further down."""
    holder = map_with(given.value, lambda each: bool(_find_named(each)))
    return _find_named(holder or {})


def _find_named(holder: dict[Any, Any]) -> list[dict[Any, Any]]:
    sources = maps_in(holder.get("sources"))
    return sources if all("source_name" in each for each in sources) else []


def _lines(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _recognises(given: Given) -> bool:
    lines = _lines(given.text)
    return bool(_find_named_sources(given)) or (
        bool(lines) and all(len(line) < _LONGEST and _LINE.fullmatch(line) for line in lines)
    )


def _convert(given: Given, new: NewSpec) -> None:
    sources = _find_named_sources(given)
    dataset = new.spec["dataset"] = _of_ratios(sources, new) if sources else _of_lines(given.text, new)
    if any(text.endswith(".npy") for each in dataset for text in texts_in(each["shards"])):
        length = _length(given)
        new.spec["defaults"] = {"tokens": {"length": length or 4096, "dtype": "uint16"}}
        new.note(
            "files of tokens do not say the type of their numbers: correct `tokens: {dtype: uint16}`"
            + ("" if length else ", and `length`, the tokens of a sample")
        )


def _length(given: Given) -> int | None:
    """The `sequence_length` of a configuration; None if it has none."""
    holder = map_with(given.value, lambda each: "sequence_length" in each)
    found = None if holder is None else number(holder["sequence_length"])
    return int(found) if found and found > 0 else None


def _of_ratios(sources: list[dict[Any, Any]], new: NewSpec) -> list[dict[str, Any]]:
    ratios = [number(each.get("target_ratio")) or 0 for each in sources]
    key = "probability" if abs(sum(ratios) - 1) < 1e-6 else "weight"
    made = []
    for each, ratio in zip(sources, ratios, strict=True):
        paths = [_path(text, new) for text in texts_in(each.get("paths"))]
        source = new.source(str(each["source_name"]), paths or ["unknown.tar"], **{key: ratio})
        if not paths:
            new.note(f"{source['name']}: the file does not say where its shards are; correct `shards`")
        _limit(each, source, new)
        made.append(source)
    new.note(
        "ratios were shares of tokens; here they are shares of samples, which is the same if all samples have one "
        "length"
    )
    return made


def _limit(entry: dict[Any, Any], source: dict[str, Any], new: NewSpec) -> None:
    """Convert how much of a source may be read, and how often."""
    fraction = number(entry.get("max_source_fraction"))
    if fraction is not None and 0 < fraction < 1:
        new.note_part(source, fraction, f"`max_source_fraction: {fraction:g}`")
    for key in _REPETITIONS:
        if (most := number(entry.get(key))) is not None:
            new.note(
                f"{source['name']}: `{key}: {most:g}`: add `max_passes: {most:g}`, which needs the number of its "
                "`samples`, of those that are left, or a file of `wdspec stats`"
            )


def _of_lines(text: str, new: NewSpec) -> list[dict[str, Any]]:
    labels: dict[str, list[str]] = {}
    for line in _lines(text):
        label, _, path = line.partition(",")
        labels.setdefault(label.strip(), []).append(_path(path.strip(), new))
    return [new.source(label, paths) for label, paths in labels.items()]


def _path(text: str, new: NewSpec) -> str:
    if "{TOKENIZER}" in text:
        new.spec.setdefault("vars", {}).setdefault("TOKENIZER", "unset-TOKENIZER")
        new.note("`{TOKENIZER}` in paths is now the variable `TOKENIZER`; write its value under `vars:`")
        text = text.replace("{TOKENIZER}", "${TOKENIZER}")
    return text if text.startswith("$") or "${TOKENIZER}" in text else new.path(text)


DIALECT = Dialect("olmo", "an OLMo mix", _recognises, _convert)
