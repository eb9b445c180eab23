"""Folders that `energon prepare` has seen: shards, with `.nv-meta/` beside them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from wdspec.convert.dialect import Dialect
from wdspec.convert.given import Given, named, texts_in
from wdspec.convert.new_spec import NewSpec, count_shards

META = ".nv-meta"
_NESTED = re.compile(r"([\w.,]+)\[.*\]")
_MOST = 10_000
"""Shards of one pattern whose samples are added up."""


@dataclass(frozen=True)
class PreparedFolder:
    """What `.nv-meta` says of a folder of shards."""

    place: str
    """As the metadataset spells it."""
    parts: dict[str, list[str]]
    """Shards of each split, with braces, relative to the folder."""
    excluded: list[str]
    counts: dict[str, int]
    """Samples by shard."""
    about: dict[Any, Any]
    """`dataset.yaml`."""

    @classmethod
    def read(
        cls, path: str, place: str, split_config: str = "split.yaml", config: str = "dataset.yaml"
    ) -> PreparedFolder | None:
        """None where the folder is not at hand, or was not prepared."""
        meta = os.path.join(path, META)
        if not os.path.isdir(meta):
            return None
        splits, about, info = (
            _read(os.path.join(meta, name)) for name in (split_config, config, ".info.json")
        )
        listed = splits.get("split_parts")
        parts = (
            {str(name): texts_in(each) for name, each in listed.items()} if isinstance(listed, dict) else {}
        )
        counts = info.get("shard_counts")
        known = {str(name): int(n) for name, n in counts.items()} if isinstance(counts, dict) else {}
        return cls(place, parts, texts_in(splits.get("exclude")), known, about)

    def source(self, split: str, new: NewSpec, start: str, name: str = "", **keys: Any) -> dict[str, Any]:
        """The shards of a split as a source."""
        place = self.place.rstrip("/")
        wanted = name or os.path.basename(place)
        if split not in self.parts:
            new.note(
                f"{wanted}: it has no split `{split}`, but {', '.join(self.parts) or 'none'}; all its shards are taken"
            )
        names = self.parts.get(split) or list(self.counts) or ["*.tar"]
        kept = [each for each in names if each not in self.excluded]
        if any("/" in each.partition(".tar")[2] for each in self.excluded):
            new.note(
                f"{wanted}: single samples are excluded there; drop them by `select: package.module:function`"
            )
        fields = _fields(self.about, wanted, new)
        return new.source(
            wanted,
            [new.path(f"{place}/{each}", start) for each in kept],
            samples=self.samples(kept),
            rename=fields,
            **keys,
        )

    def samples(self, shards: list[str]) -> int | None:
        """How many samples shards have, if each is counted."""
        from wdspec.urls.braces import Braces

        if (count_shards(shards) or _MOST) >= _MOST:
            return None
        names = [name for text in shards for name in Braces(text)]
        return (
            sum(self.counts[name] for name in names) or None if all(n in self.counts for n in names) else None
        )


def _fields(about: dict[Any, Any], where: str, new: NewSpec) -> dict[str, str]:
    """`field_map` as `rename`."""
    listed = about.get("field_map")
    renamed = {}
    for field, text in listed.items() if isinstance(listed, dict) else ():
        match = _NESTED.fullmatch(str(text))
        if match is not None:
            new.note(
                f"{where}: `{field}: {text}` is a value inside a field: take it out in a function of `map`"
            )
        renamed[str(field)] = str(match[1] if match else text).replace(",", ";")
    if about.get("sample_loader"):
        new.note(
            f"{where}: its `sample_loader` is code beside the shards: name it in `map: package.module:function`"
        )
    elif str(about.get("__class__", "")).startswith("Crude"):
        new.note(f"{where}: crude samples come as they are; what a cooker did is a function of `map`")
    targets = list(renamed.values())
    return {field: text for field, text in renamed.items() if targets.count(text) == 1}


def _read(path: str) -> dict[Any, Any]:
    try:
        return Given.read(path).top
    except OSError:
        return {}


def _recognises(given: Given) -> bool:
    return given.is_folder and os.path.isdir(os.path.join(given.folder, META))


def _convert(given: Given, new: NewSpec) -> None:
    folder = PreparedFolder.read(given.folder, given.folder)
    assert folder is not None, "it is recognised by its folder"
    start = os.path.relpath(given.folder, new.folder)
    folder = PreparedFolder(start, folder.parts, folder.excluded, folder.counts, folder.about)
    tags = named(folder.about.get("subflavors"))
    name = os.path.basename(given.folder.rstrip("/"))
    splits = {
        split: {"dataset": [folder.source(split, new, new.folder, f"{name}-{split}", tags=tags)]}
        for split, shards in folder.parts.items()
        if shards
    }
    if splits:
        new.spec["splits"] = splits
    else:
        new.spec["dataset"] = [folder.source("all", new, new.folder, name, tags=tags)]


DIALECT = Dialect("energon-folder", "a folder that Energon has prepared", _recognises, _convert)
