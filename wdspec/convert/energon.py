"""Metadatasets of Energon, versions 1 and 2, and directories made by `energon prepare`.

A metadataset has splits with blends of prepared directories or other metadatasets; a prepared directory has shards and
`.nv-meta/`.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any

from wdspec.base.amounts import sum_known
from wdspec.convert.dialect import (
    Dialect,
    Given,
    NewSpec,
    maps_in,
    number,
    pack,
    texts_in,
    with_text_keys,
)
from wdspec.convert.python_code import Code, keyword, name_of, parse_code
from wdspec.urls.braces import Braces
from wdspec.urls.urls import count_shards

META = ".nv-meta"
_NESTED = re.compile(r"([\w.,]+)\[.*\]")
_LISTS = ("blend", "blend_epochized", "datasets")
"""Keys with the entries of a mix."""
_MOST = 10_000
"""The samples of at most this many shards of a pattern are added."""


def _is_metadataset(given: Given) -> bool:
    top = given.top
    splits = top.get("splits")
    if "splits" in top and "energon" in str(top.get("__module__", "")):
        return True
    return str(top.get("__class__", "")) in ("Metadataset", "MetadatasetV2", "Recipe") or (
        isinstance(splits, dict) and any(_is_node(each) for each in splits.values())
    )


def _is_node(value: Any) -> bool:
    """Whether a split has the form of Energon, in a file without a class."""
    if not isinstance(value, dict) or "dataset" in value:
        return False
    listed = value.get("datasets") or value.get("blend") or value.get("blend_epochized")
    return any("path" in each or "join" in each for each in maps_in(listed))


def _convert_metadataset(given: Given, new: NewSpec) -> None:
    splits = given.top.get("splits")
    made = {
        str(name): _Level(new, given.folder, str(name)).mixture(node)
        for name, node in (splits.items() if isinstance(splits, dict) else ())
    }
    new.spec["splits"] = made
    for name, split in made.items():
        if name in ("val", "valid", "validation", "test"):
            split["epoch"] = "pass"  # all samples are read once, regardless of the weights
            _remove_shares(split)
    new.note(
        "batch size, shuffle buffer, seed and epoch length were arguments of get_train_dataset: write them as `batch`, "
        "`shuffle`, `seed` and `epoch`; write a TaskEncoder as `map`, `decode` and `stage`, packing as `batch: {pack: "
        "…}`, and groups as `batch: {group_by: …}`"
    )


@dataclass(frozen=True)
class _Level:
    """One level of nested metadatasets."""

    new: NewSpec
    folder: str
    """Absolute directory of the metadataset."""
    split: str
    tags: dict[str, Any] = field(default_factory=dict)
    """Tags of the levels above, which win."""
    depth: int = 0

    def mixture(self, node: Any) -> dict[str, Any]:
        """Convert a node of a metadataset to a map with `dataset` and perhaps `mix`."""
        node = node if isinstance(node, dict) else {}
        if "path" not in node:
            self._note_subset(node, f"split `{self.split}`")
        if repeated := maps_in(node.get("blend_epochized")):
            return self._mix_epochized(repeated)
        entries = maps_in(node.get("blend")) or maps_in(node.get("datasets"))
        if not entries:
            return {"dataset": [self._source(node)]}
        made = [self._source(each) for each in entries]
        for source, entry in zip(made, entries, strict=True):
            weight = number(entry.get("weight", 1))
            source["weight"] = 1 if weight is None else weight
        return {"dataset": made}

    def _mix_epochized(self, entries: list[dict[Any, Any]]) -> dict[str, Any]:
        made = [self._source(each) for each in entries]
        for source, entry in zip(made, entries, strict=True):
            times = number(entry.get("repetitions", 1))
            source["upsample"] = (1 if times is None else times) * _fraction(entry)
        self.new.note(
            "`blend_epochized` repeats each data set an exact number of times per epoch; here `repetitions` multiply "
            "the size, so shares agree only in a long run"
        )
        if all("samples" in each for each in made):
            return {"dataset": made, "mix": {"by": "samples"}}
        if len(made) > 1:
            self.new.note(
                "sizes are numbers of shards, since not all directories are present and prepared; add `samples` to "
                "each source, and `mix: {by: samples}`"
            )
        return {"dataset": made}

    def _source(self, entry: dict[Any, Any]) -> dict[str, Any]:
        new = self.new
        if "join" in entry:
            return self._convert_join(entry)
        path, part = str(entry.get("path") or ""), str(entry.get("split_part") or self.split)
        tags = {**_tags(entry), **self.tags}
        if not path:
            name = new.name("mix")
            if any(maps_in(entry.get(key)) for key in _LISTS):
                return {"name": name, **replace(self, tags=tags).mixture(entry)}
            new.note(
                f"an entry of split `{self.split}` has no `path`, so its shards are missing: correct `{name}`"
            )
            return {"name": name, "shards": "unknown.tar"}
        if path.endswith((".yaml", ".yml")):
            self._note_subset(entry, path)
            return replace(self, split=part, tags=tags)._convert_nested(path)
        subset = _percentages(entry)
        if subset is None:
            self._note_subset(entry, path)
        else:
            new.note(
                f"{path}: `subset` becomes a part of the same size, by a hash of the keys instead of their positions"
            )
        full = os.path.join(self.folder, path.removeprefix("file://"))
        config = str(entry.get("dataset_config") or "dataset.yaml")
        found = PreparedFolder.read(full, path, str(entry.get("split_config") or "split.yaml"), config)
        if "aux" in entry:
            new.note(f"{path}: look up `aux` data sets in a function of `map`")
        multiplier = entry.get("shuffle_over_epochs_multiplier", 1)
        order = "resampled" if multiplier == -1 else "sequential" if multiplier is None else None
        if multiplier not in (None, 1, -1):
            new.note(
                f"{path}: `shuffle_over_epochs_multiplier: {multiplier}` is not converted: each pass is shuffled "
                "separately"
            )
        if found is not None:
            tags = {**found.tags, **tags}
            return found.source(part, new, self.folder, tags=tags, order=order, subset=subset)
        is_file = path.endswith(".jsonl")
        source = new.source(
            "",
            new.path(path if is_file else f"{path.rstrip('/')}/", self.folder),
            tags=tags,
            order=order,
            subset=subset,
        )
        if not is_file:
            new.note(
                f"{source['name']}: the directory is not present or not prepared, so all its shards are used; "
                f".nv-meta/split.yaml says which ones belong to `{part}`, and dataset.yaml has the names of fields"
            )
        return source

    def _convert_nested(self, path: str) -> dict[str, Any]:
        """Convert another metadataset to a nested mix."""
        new = self.new
        name = new.name(os.path.splitext(os.path.basename(path))[0])
        inner = new.read(os.path.join(self.folder, path), self.depth)
        splits = None if isinstance(inner, str) else inner.top.get("splits")
        if isinstance(inner, str) or not isinstance(splits, dict):
            why = inner if isinstance(inner, str) else "cannot be read"
            new.note(f"{path} {why}, so its sources are missing: correct `{name}`")
        elif self.split not in splits:
            others = ", ".join(map(str, splits))
            new.note(f"{path} has no split `{self.split}`, but {others}; correct `{name}`")
        else:
            below = replace(self, folder=inner.folder, depth=self.depth + 1)
            return {"name": name, **below.mixture(splits[self.split])}
        return {"name": name, "shards": "unknown.tar"}

    def _convert_join(self, entry: dict[Any, Any]) -> dict[str, Any]:
        joined = entry["join"]
        parts = maps_in(list(joined.values()) if isinstance(joined, dict) else joined)
        first, *others = parts or [{}]
        source = self._source({**first, "subflavors": {**_tags(first), **_tags(entry)}})
        for other in others:
            path, partner = other.get("path"), self._source(other)
            if "shards" not in source or "shards" not in partner:
                self.new.note(
                    f"{first.get('path')}: the join with {path} is not converted, as one of them has several sources"
                )
                continue
            options = {"shards": partner["shards"], "missing": str(other.get("nonmatch", "error"))}
            if options["missing"] == "error":
                del options["missing"]
            if partner.get("rename"):
                options["rename"] = partner["rename"]
            source.setdefault("join", []).append(options)
            self.new.note(
                f"{first.get('path')}: Energon looks up the samples of {path} by their keys in an index; here the "
                "shards of both are read together, so they must have been cut at the same keys, in the same order: "
                "`wdspec check` compares them, and `wdspec sort` sorts them"
            )
        if "joiner" in entry:
            self.new.note(
                f"{first.get('path')}: write its `joiner` as a function of `map`, which gets all fields"
            )
        return source

    def _note_subset(self, entry: dict[Any, Any], where: str) -> None:
        if "subset" in entry:
            self.new.note(
                f"{where}: `subset: {entry['subset']}` is not converted: all samples are used; list fewer shards "
                "instead"
            )


def _remove_shares(mixture: dict[str, Any]) -> None:
    mixture.pop("mix", None)
    for source in mixture.get("dataset", ()):
        source.pop("weight", None)
        source.pop("upsample", None)
        _remove_shares(source)


def _tags(entry: dict[Any, Any]) -> dict[str, Any]:
    single = {"subflavor": entry["subflavor"]} if entry.get("subflavor") is not None else {}
    return {**single, **with_text_keys(entry.get("subflavors"))}


def _percentages(entry: dict[Any, Any]) -> list[str] | None:
    """The range in `subset: {range: [0%, 50%]}`; None if there is none, or if it is in samples."""
    subset = entry.get("subset")
    bounds = subset.get("range") if isinstance(subset, dict) else None
    is_range = isinstance(bounds, list) and len(bounds) == 2 and 0 < _fraction(entry) < 1
    return [str(each).replace(" ", "") for each in bounds] if is_range and bounds else None


def _fraction(entry: dict[Any, Any]) -> float | int:
    """The fraction of a data set in `subset: {range: [0%, 50%]}`; 1 if it is in samples."""
    subset = entry.get("subset")
    bounds = subset.get("range") if isinstance(subset, dict) else None
    if (
        not isinstance(bounds, list)
        or len(bounds) != 2
        or not all(str(each).endswith("%") for each in bounds)
    ):
        return 1
    first, last = (number(str(each).removesuffix("%")) for each in bounds)
    return 1 if first is None or last is None else round((last - first) / 100, 6)


@dataclass(frozen=True)
class PreparedFolder:
    """The content of `.nv-meta` in a directory of shards."""

    place: str
    """The directory as it is written in the metadataset."""
    parts: dict[str, list[str]]
    """Shards of each split, with braces, relative to the directory."""
    excluded: list[str]
    counts: dict[str, int]
    """Number of samples of each shard."""
    about: dict[Any, Any]
    """The content of `dataset.yaml`."""

    @classmethod
    def read(
        cls, path: str, place: str, split_config: str = "split.yaml", config: str = "dataset.yaml"
    ) -> PreparedFolder | None:
        """Read `.nv-meta`; None if the directory does not exist or is not prepared."""
        meta = os.path.join(path, META)
        if not os.path.isdir(meta):
            return None
        splits, about, info = (
            _top_of(os.path.join(meta, name)) for name in (split_config, config, ".info.json")
        )
        parts = {name: texts_in(each) for name, each in with_text_keys(splits.get("split_parts")).items()}
        listed = {name: number(each) for name, each in with_text_keys(info.get("shard_counts")).items()}
        counts = {name: int(count) for name, count in listed.items() if count is not None}
        return cls(place, parts, texts_in(splits.get("exclude")), counts, about)

    @property
    def tags(self) -> dict[str, Any]:
        """Tags of all its samples."""
        return with_text_keys(self.about.get("subflavors"))

    def source(self, split: str, new: NewSpec, start: str, name: str = "", **keys: Any) -> dict[str, Any]:
        """Make a source of the shards of a split."""
        place = self.place.rstrip("/")
        wanted = name or os.path.basename(place)
        if split not in self.parts:
            others = ", ".join(self.parts) or "none"
            new.note(f"{wanted}: it has no split `{split}`, but {others}; all its shards are used")
        names = self.parts.get(split) or list(self.counts) or ["*.tar"]
        kept = [each for each in names if each not in self.excluded]
        singles = [each.partition(".tar")[2].removeprefix("/") for each in self.excluded]
        if excluded := [key for key in singles if key]:
            new.note(f"{wanted}: the samples that it excludes are left out of all its shards, by their keys")
            keys["exclude"] = excluded
        fields = self._fields(wanted, new)
        shards = [new.path(f"{place}/{each}", start) for each in kept]
        return new.source(wanted, shards, samples=self._samples(kept), rename=fields, **keys)

    def _samples(self, shards: list[str]) -> int | None:
        """The number of samples in shards, if it is known for all of them."""
        if (count_shards(shards, "/") or _MOST) >= _MOST:
            return None
        return sum_known(self.counts.get(name) for text in shards for name in Braces(text)) or None

    def _fields(self, where: str, new: NewSpec) -> dict[str, str]:
        """Convert `field_map` to `rename`."""
        renamed = {}
        for name, text in with_text_keys(self.about.get("field_map")).items():
            match = _NESTED.fullmatch(str(text))
            if match is not None:
                new.note(
                    f"{where}: `{name}: {text}` is a value inside a field: extract it in a function of `map`"
                )
            renamed[name] = str(match[1] if match else text).replace(",", ";")
        if self.about.get("sample_loader"):
            new.note(
                f"{where}: its `sample_loader` is code next to the shards: name it in `map: package.module:function`"
            )
        elif str(self.about.get("__class__", "")).startswith("Crude"):
            new.note(f"{where}: crude samples are passed on unchanged; write a cooker as a function of `map`")
        targets = list(renamed.values())
        return {name: text for name, text in renamed.items() if targets.count(text) == 1}


def _top_of(path: str) -> dict[Any, Any]:
    try:
        return Given.read(path).top
    except OSError:
        return {}


def _is_prepared(given: Given) -> bool:
    return given.is_folder and os.path.isdir(os.path.join(given.folder, META))


def _convert_folder(given: Given, new: NewSpec) -> None:
    folder = PreparedFolder.read(given.folder, os.path.relpath(given.folder, new.folder))
    assert folder is not None, "it is recognised by its folder"
    name = os.path.basename(given.folder.rstrip("/"))
    splits = {
        split: {"dataset": [folder.source(split, new, new.folder, f"{name}-{split}", tags=folder.tags)]}
        for split, shards in folder.parts.items()
        if shards
    }
    if splits:
        new.spec["splits"] = splits
    else:
        new.spec["dataset"] = [folder.source("all", new, new.folder, name, tags=folder.tags)]


_SET_BY_CODE = {
    "max_samples_per_sequence": "it limits how many samples come in a row from a shard: use `interleave` and `shuffle`",
    "virtual_epoch_length": "it counts batches over all ranks: write `epoch: {batches: …}` for each rank",
}


def _calls(given: Given) -> tuple[Code, ast.Call] | None:
    """The call of `get_train_dataset` in a Python file."""
    code = parse_code(given.text, "get_train_dataset(")
    call = next((each for each in code.calls if name_of(each) == "get_train_dataset"), None) if code else None
    return None if code is None or call is None else (code, call)


def _convert_call(given: Given, new: NewSpec) -> None:
    found = _calls(given)
    assert found is not None, "it is recognised by its call"
    code, call = found
    arguments = {each.arg: code.literal(each.value) for each in call.keywords if each.arg}
    place = code.literal(call.args[0] if call.args else keyword(call, "path"))
    if isinstance(place, str) and place.endswith((".yaml", ".yml")):
        nested = os.path.join(given.folder, place)
        if os.path.isfile(nested) and _is_metadataset(Given.read(nested)):
            _convert_metadataset(Given.read(nested), new)
        else:
            new.note(f"`{place}` cannot be read: convert it where it is, and add the keys of this spec to it")
            new.spec["dataset"] = [new.source("", "unknown.tar")]
    else:
        if not isinstance(place, str):
            new.note("where the data is is set by code, which is not run; correct `shards`")
        shards = new.path(f"{place.rstrip('/')}/") if isinstance(place, str) else "unknown.tar"
        new.spec["dataset"] = [new.source("", shards)]
    if keyword(call, "shuffle_buffer_size") is not None:
        new.spec["defaults"] = {"shuffle": new.whole(arguments, "shuffle_buffer_size") or 0}
    size = new.whole(arguments, "batch_size", 1)
    window = new.whole(arguments, "packing_buffer_size", 1)
    names = (
        "seq_len",
        "seq_length",
        "sequence_length",
        "max_seq_len",
        "max_seq_length",
        "decoder_seq_length",
    )
    length = next(
        (number(code.literal(code.assigned.get(name))) for name in names if name in code.assigned), None
    )
    if window and length:
        new.spec["batch"] = {"window": window, **pack(new, int(length), size or 1)}
    elif window:
        new.note(
            f"`packing_buffer_size={window}` is `batch: {{window: {window}, pack: {{fields: …, length: …}}}}`: the "
            "length of a row is set by code, which is not run"
        )
    if size and not (window and length):
        new.spec["batch"] = size
    new.note_keys({key: each for key, each in arguments.items() if each is not None}, _SET_BY_CODE)
    new.note("the TaskEncoder is code, which is not converted: write `map`, `decode` and `stage`")


CALL = Dialect(
    "energon-python",
    "`get_train_dataset` of Energon in a Python file",
    lambda given: _calls(given) is not None,
    _convert_call,
)
FOLDER = Dialect("energon-folder", "a directory that Energon has prepared", _is_prepared, _convert_folder)
METADATASET = Dialect("energon", "an Energon metadataset", _is_metadataset, _convert_metadataset)
