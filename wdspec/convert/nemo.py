"""The `input_cfg` of NeMo and lhotse: nested groups, weights and temperatures for each level, inherited tags, and
batches by duration."""

from __future__ import annotations

import os
import re
from typing import Any

from wdspec.convert import dialect

_OTHER_BRACES = re.compile(r"[(\[<](\d+\.\.\d+)[)\]>]")
_TARRED = ("tarred_audio_filepaths", "tarred_audio_filepath")
_PLACES = (*_TARRED, "shar_path", "paths", "manifest_filepath", "cuts_path", "path")
_KNOWN = (*_PLACES, "type", "weight", "tags", "name")
_BUCKETS = "num_buckets bucket_duration_bins bucket_buffer_size"
_DURATIONS = {"min_duration": ">=", "max_duration": "<="}
_FILTERS = "min_tokens max_tokens min_tps max_tps"
_NOT_SAID = {
    **dict.fromkeys(
        _BUCKETS.split(), "without buckets, wdspec sorts each `batch.window` of samples by their cost"
    ),
    **dict.fromkeys(_FILTERS.split(), "filter samples with `where: tokens.length <= …`, or `select`"),
    "multi_config": "for batches of several kinds use `mix: {unit: batch}`, or several loaders",
}
AUDIO = "wav;flac;mp3;ogg;opus"
_LONGEST = 1000
"""The longest expression that a spec can have, in characters."""


def _holder(given: dialect.Given) -> dict[Any, Any] | None:
    """The map that has `input_cfg`: the top level, or one such as `train_ds` or `model.train_ds`."""
    items = dialect.maps_in(given.value)
    if items and all("type" in each and ("input_cfg" in each or _places(each)) for each in items):
        return {"input_cfg": items}
    return dialect.map_with(
        given.value, lambda each: each.get("input_cfg") is not None, without=("val", "test")
    )


def _convert(given: dialect.Given, new: dialect.NewSpec) -> None:
    holder = _holder(given) or {}
    new.set_seed(holder.get("seed"))
    size = new.whole(holder, "batch_size", 1) or new.whole(holder, "max_cuts", 1)
    if by_cost := batches_by_cost(holder, new):
        new.spec["batch"] = by_cost | ({"max_size": size} if size else {})
    elif size:
        new.spec["batch"] = size
    limits = [(sign, dialect.number(holder.get(key))) for key, sign in _DURATIONS.items()]
    where = " and ".join(f"audio.seconds {sign} {limit}" for sign, limit in limits if limit is not None)
    if by_cost or where:
        new.spec["defaults"] = {"rename": {"audio": AUDIO}, **({"where": where} if where else {})}
    if workers := dialect.number(holder.get("num_workers")):
        new.spec["loader"] = {"workers": int(workers)}
    groups = _Groups(given.folder, new, holder.get("reweight_temperature"))
    new.spec["dataset"] = groups.sources(holder["input_cfg"], {}, 0)
    used = ("bucket_duration_bins",) if holder.get("bucket_batch_size") and by_cost else ()
    new.note_keys({key: each for key, each in holder.items() if key not in used}, _NOT_SAID)


def batches_by_cost(holder: dict[Any, Any], new: dialect.NewSpec) -> dict[str, Any]:
    """Batches of a total duration or number of tokens, or of a size that depends on the bucket; empty for others."""
    length, most, penalty = "audio.seconds", holder.get("batch_duration"), holder.get("quadratic_duration")
    step = dialect.number(holder.get("token_equivalent_duration"))
    if step and holder.get("use_multimodal_sampling"):
        length, most = f"ceil(audio.seconds / {step})", holder.get("batch_tokens")
        penalty = holder.get("quadratic_factor")
        new.note("only the tokens of audio count; add those of texts to `batch.cost`")
    if holder.get("bucket_batch_size") is not None:
        return _batches_by_bucket(holder, length, new)
    most, penalty = dialect.number(most), dialect.number(penalty)
    if most is None or most <= 0:
        return {}
    if not holder.get("use_bucketing"):
        new.note("batches had samples of all lengths; now the samples of a batch have similar lengths")
    squared = f" + {length} * {length} / {penalty}" if penalty is not None and penalty > 0 else ""
    return {"cost": length + squared, "max_cost": most, "overlong": "alone"}


def _batches_by_bucket(holder: dict[Any, Any], length: str, new: dialect.NewSpec) -> dict[str, Any]:
    """Batches of the size that the bucket of their longest sample has: each sample costs its part of a batch."""
    bins, sizes = (
        [dialect.number(each) or 0 for each in found] if isinstance(found := holder.get(key), list) else []
        for key in ("bucket_duration_bins", "bucket_batch_size")
    )
    if len(bins) == len(sizes) > 0 and bins == sorted(set(bins)) and min(sizes) >= 1:
        most = int(max(sizes)) * (int(max(sizes)) + 1)  # so that sizes are exact, although costs are rounded
        costs = [most // int(size) for size in sizes]
        costs.append(costs[-1] + most)  # dropped, as it is longer than all buckets
        steps = [(end, costs[at + 1] - costs[at]) for at, end in enumerate(bins)]
        terms = [str(costs[0]), *(f"({length} > {end}) * {step}" for end, step in steps if step)]
        if len(cost := " + ".join(terms)) <= _LONGEST:
            return {"cost": cost, "max_cost": most, "overlong": "drop"}
    new.note(
        "`bucket_batch_size` is not converted: it needs as many ascending numbers in `bucket_duration_bins`, and not "
        "too many; write `batch: {cost: …, max_cost: …}`"
    )
    return {}


class _Groups:
    """Makes sources from groups.

    Args:
        heat: the temperature of all levels, or a list with one for each level.
    """

    def __init__(self, folder: str, new: dialect.NewSpec, heat: Any) -> None:
        self._folder, self._new, self._heat = folder, new, heat

    def sources(self, listed: Any, tags: dict[str, Any], level: int) -> list[dict[str, Any]]:
        """The sources of a list, with the shares of its level."""
        entries = dialect.maps_in(self._read(listed, level))
        made = [
            self._source(each, {**tags, **dialect.with_text_keys(each.get("tags"))}, level)
            for each in entries
        ]
        heats = self._heat if isinstance(self._heat, list) else [self._heat] * (level + 1)
        heat = dialect.number(heats[level]) if level < len(heats) else None
        if any(dialect.number(each.get("weight")) is not None for each in entries):
            for source, entry in zip(made, entries, strict=True):
                weight = dialect.number(entry.get("weight"))
                if weight is None:
                    weight = 1
                    self._new.note(
                        f"{source['name']}: it had no weight, but others have one; now it has 1, which you must correct"
                    )
                source["weight"] = weight if heat is None else _temper(weight, heat)
        elif len(made) > 1:
            for source in made:
                source["weight"] = 1
        return made

    def _read(self, listed: Any, level: int) -> Any:
        """Read a list, which may be in another file."""
        if not isinstance(listed, str):
            return listed
        found = self._new.read(os.path.join(self._folder, listed), level)
        if isinstance(found, str):
            self._new.note(
                f"`input_cfg: {listed}` {found}, so its sources are missing: convert it where the file is"
            )
            return []
        return (_holder(found) or {"input_cfg": found.value})["input_cfg"]

    def _source(self, entry: dict[Any, Any], tags: dict[str, Any], level: int) -> dict[str, Any]:
        kind, new = str(entry.get("type", "")), self._new
        if entry.get("input_cfg") is not None:
            inner = self.sources(entry["input_cfg"], tags, level + 1)
            return {"name": new.name(str(entry.get("name") or kind or "group")), "dataset": inner}
        places = _places(entry)
        if len(places) > 1 and any(weight is not None for _, weight in places):
            parts = [
                self._leaf(kind, [text], tags) | {"weight": 1 if weight is None else weight}
                for text, weight in places
            ]
            return {"name": new.name(kind), "dataset": parts}
        source = self._leaf(kind, [text for text, _ in places], tags)
        if not places:
            new.note(f"{source['name']}: the file does not say where its shards are; correct `shards`")
        new.note_unknown(entry, _KNOWN, source["name"])
        return source

    def _leaf(self, kind: str, places: list[str], tags: dict[str, Any]) -> dict[str, Any]:
        new = self._new
        source = new.source("", [new.path(each) for each in places] or ["unknown.tar"], tags=tags)
        if kind.startswith("nemo_tarred"):
            new.note(
                "texts of tarred NeMo data are in separate manifests, which are not read: put them into the shards, or "
                "look them up in a function of `map`"
            )
        elif kind == "lhotse_shar":
            note_shar(new)
        else:
            new.note(f"{source['name']}: `type: {kind}` may be neither tar nor JSON lines; correct `shards`")
        return source


def note_shar(new: dialect.NewSpec) -> None:
    """Add a note about shar directories."""
    new.note(
        "only the recordings of lhotse's shar directories are read; cuts and other fields are in separate files"
    )


def _temper(weight: float | int, heat: float | int) -> float | int:
    """`weight ** heat`; the weight itself if that is not a number."""
    try:
        tempered = round(float(weight) ** float(heat), 6) if weight > 0 else weight
    except OverflowError:
        return weight
    return int(tempered) if tempered == int(tempered) else tempered


def _places(entry: dict[Any, Any]) -> list[tuple[str, float | int | None]]:
    """Where an entry's shards are, each with a weight if it has one: `[[path, weight], path]`."""
    key = next((key for key in _PLACES if entry.get(key)), "")
    found = entry.get(key) or []
    if isinstance(found, dict):  # fields of shar
        found = next((found[each] for each in ("recording", "audio", *found) if each in found), "")
    places = []
    for each in found if isinstance(found, list) else [found]:
        weight = dialect.number(each[1]) if isinstance(each, list) and len(each) == 2 else None
        for text in dialect.texts_in(each if weight is None else each[0]):
            if key == "shar_path" and ".tar" not in text:
                text = f"{text.rstrip('/')}/recording.*.tar"
            braces = text.replace("_OP_", "{").replace("_CL_", "}")
            places.append((_OTHER_BRACES.sub(r"{\1}", braces), weight))
    return places


DIALECT = dialect.Dialect(
    "nemo", "NeMo's or lhotse's `input_cfg`", lambda given: _holder(given) is not None, _convert
)
