"""The `input_cfg` of NeMo and lhotse: nested groups, weights and temperatures for each level, inherited tags, and
batches by duration."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from wdspec.convert import dialect

_OTHER_BRACES = re.compile(r"[(\[<](\d+\.\.\d+)[)\]>]")
_TARRED = ("tarred_audio_filepaths", "tarred_audio_filepath")
_PLACES = (*_TARRED, "shar_path", "paths", "manifest_filepath", "cuts_path", "path")
_RECORDS = ("manifest_filepath", "shar_path")
"""Keys with the records of the recordings in tars."""
_KNOWN = (*_PLACES, "type", "weight", "tags", "name")
_BUCKETS = "num_buckets bucket_duration_bins bucket_buffer_size"
_SHAR = "/recording.*.tar"
"""The recordings in a directory of lhotse's."""
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
    if where:
        new.spec["defaults"] = {"where": where}
    if workers := dialect.number(holder.get("num_workers")):
        new.spec["loader"] = {"workers": int(workers)}
    groups = _Groups(given.folder, new, holder)
    new.spec["dataset"] = groups.sources(holder["input_cfg"], {}, 0)
    deliver_speech(new, groups.texts, groups.tags)
    rate = ("sample_rate", "text_field") if groups.texts else ()
    used = (*rate, "bucket_duration_bins") if holder.get("bucket_batch_size") and by_cost else rate
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
        holder: the map that has `input_cfg`; its `reweight_temperature` is that of all levels, or a list of them.
    """

    def __init__(self, folder: str, new: dialect.NewSpec, holder: dict[Any, Any]) -> None:
        self._folder, self._new, self._heat = folder, new, holder.get("reweight_temperature")
        self._rate = dialect.number(holder.get("sample_rate"))
        self._text = str(holder.get("text_field") or "text")
        self.texts: set[str] = set()
        """The fields with the text of the sources, which are not the same for all kinds; "" for sources without."""
        self.tags: list[set[str]] = []
        """The tags of each source."""

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
            paired = [text for text, _ in _places(entry, _RECORDS)]
            parts = [
                self._leaf(kind, [text], paired[at : at + 1], tags)
                | {"weight": 1 if weight is None else weight}
                for at, (text, weight) in enumerate(places)
            ]
            return {"name": new.name(kind), "dataset": parts}
        records = [text for text, _ in _places(entry, _RECORDS)]
        source = self._leaf(kind, [text for text, _ in places], records, tags)
        if not places:
            new.note(f"{source['name']}: the file does not say where its shards are; correct `shards`")
        new.note_unknown(entry, _KNOWN, source["name"])
        return source

    def _leaf(self, kind: str, places: list[str], records: list[str], tags: dict[str, Any]) -> dict[str, Any]:
        """Make a source of recordings and of the records that name them."""
        new = self._new
        self.tags.append({*tags})
        if kind.startswith("nemo_tarred") and records:
            source = new.source("", [new.path(each) for each in places] or ["unknown.tar"])
            self.texts.add(self._text)
            refuse_unsharded(new, source, records)
            return by_name(source, records, new, "audio_filepath", self._rate, offset="offset") | _tagged(
                tags
            )
        if kind == "lhotse_shar" and (cuts := records or _cuts_of(places)):
            source = new.source("", [new.path(each) for each in places])
            self.texts.add("supervisions")
            return by_name(source, cuts, new, "id", self._rate) | _tagged(tags)
        self.texts.add("")
        shards = [new.path(each) for each in places] or ["unknown.tar"]
        source = new.source("", shards, rename={"audio": AUDIO}, tags=tags)
        if kind in _OF_FILES:
            new.note(
                f"{source['name']}: the recordings of `type: {kind}` are files of their own, which a spec cannot read: "
                "write them into shards with `wdspec create`, or into tars with NeMo's or lhotse's own tools, and "
                "correct `shards`"
            )
            return {**source, "shards": "unknown.tar"}
        if kind in ("lhotse_shar", "nemo_tarred"):
            new.note(f"{source['name']}: the file does not say where the records of the recordings are")
            return source
        new.note(f"{source['name']}: `type: {kind}` may be neither tar nor JSON lines; correct `shards`")
        return source


_OF_FILES = (
    "nemo",
    "lhotse",
    "lhotse_cuts",
    "lhotse_as_conversation",
    "nemo_multimodal_conversation",
    "multimodal_conversation",
)
"""Types whose records name files."""
RECORDING = "sound"
"""The name of the field with an audio file."""


def by_name(
    source: dict[str, Any],
    records: list[str],
    new: dialect.NewSpec,
    on: str,
    rate: float | int | None = None,
    offset: str = "",
) -> dict[str, Any]:
    """Return a source of records, which name their recordings.

    Args:
        source: the source of the recordings.
        records: where the records are.
        new: the new spec.
        on: the value that names a recording.
        rate: the rate that recordings are resampled to.
        offset: the value that says where a segment starts.
    """
    texts = [new.path(each) for each in records]
    step = {"segment": RECORDING, **({"offset": offset} if offset else {}), "duration": "duration"}
    if rate:
        step["decode"] = f"audio+rate={int(rate)}+mono"
    return {
        "name": source["name"],
        "shards": texts[0] if len(texts) == 1 else texts,
        "format": "jsonl",
        **({"key": "last_dot"} if on == "id" else {}),
        "join": {"shards": source["shards"], "on": on},
        "rename": {RECORDING: AUDIO},
        "make": {"audio": step},
    }


def deliver_speech(new: dialect.NewSpec, texts: set[str], tags: list[set[str]] | None = None) -> None:
    """Let batches have the audio, padded, and its text, instead of all that the records have.

    Args:
        texts: the fields with the text of the sources; "" for sources without one.
        tags: the tags of each source.
    """
    if not texts or texts == {""}:
        return
    if "supervisions" in texts:
        new.note("the text of a cut is `supervisions[0].text`, which `make: {ids: {tokenize: …}}` can read")
    shared = sorted(set.intersection(*tags)) if tags else []
    if len(texts) == 1:
        new.spec["fields"] = ["audio", *texts, *shared]
    else:
        new.note(
            "the sources have their text in different fields, so samples keep all fields, and whole recordings among "
            "them: make the texts equal, and list what batches have in `fields`"
        )
    batch = new.spec.get("batch")
    if batch is not None:
        ways = {} if isinstance(batch, int) else batch
        size = {"size": batch} if isinstance(batch, int) else {}
        new.spec["batch"] = {**size, **ways, "collate": {"audio": {"pad": {"axis": -1}}}}


def refuse_unsharded(new: dialect.NewSpec, source: dict[str, Any], records: list[str]) -> None:
    """Add a note if one manifest is for several tars."""
    tars = source["shards"] if isinstance(source["shards"], list) else [source["shards"]]
    several = len(tars) > 1 or any(sign in tars[0] for sign in "{*")
    if len(records) == 1 and several and not any(sign in records[0] for sign in "{*"):
        new.note(
            f"{source['name']}: one manifest is for all tars, but a spec needs one for each: write them with "
            "`convert_to_tarred_audio_dataset.py` without `--no_shard_manifests`, and correct `shards`"
        )


def _cuts_of(places: list[str]) -> list[str]:
    """Where the cuts of recordings in shar directories are."""
    folders = [text.removesuffix(_SHAR) for text in places if text.endswith(_SHAR)]
    return [f"{folder}/cuts.*.jsonl.gz" for folder in folders]


def _tagged(tags: dict[str, Any]) -> dict[str, Any]:
    return {"tags": tags} if tags else {}


def _temper(weight: float | int, heat: float | int) -> float | int:
    """`weight ** heat`; the weight itself if that is not a number."""
    try:
        tempered = round(float(weight) ** float(heat), 6) if weight > 0 else weight
    except OverflowError:
        return weight
    return int(tempered) if tempered == int(tempered) else tempered


def _places(entry: dict[Any, Any], keys: Sequence[str] = _PLACES) -> list[tuple[str, float | int | None]]:
    """Where an entry's shards are, each with a weight if it has one: `[[path, weight], path]`.

    Args:
        keys: the keys that may have them; `_RECORDS` for the records of the recordings.
    """
    key = next((key for key in keys if entry.get(key)), "")
    found = entry.get(key) or []
    if isinstance(found, dict):  # fields of shar
        names = ("cuts",) if keys is _RECORDS else ("recording", "audio", *found)
        found = next((found[each] for each in names if each in found), "")
    elif keys is _RECORDS and key == "shar_path":
        return []
    places = []
    for each in found if isinstance(found, list) else [found]:
        weight = dialect.number(each[1]) if isinstance(each, list) and len(each) == 2 else None
        for text in dialect.texts_in(each if weight is None else each[0]):
            if key == "shar_path" and ".tar" not in text and keys is not _RECORDS:
                text = f"{text.rstrip('/')}{_SHAR}"
            braces = text.replace("_OP_", "{").replace("_CL_", "}")
            places.append((_OTHER_BRACES.sub(r"{\1}", braces), weight))
    return places


DIALECT = dialect.Dialect(
    "nemo", "NeMo's or lhotse's `input_cfg`", lambda given: _holder(given) is not None, _convert
)
