"""Samples as they come from one shard: what they show is gathered, in columns, and hashes of each are kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from wdspec.checking.shards.sample_hashes import content_hashes, content_part, key_hashes, largest, look_hash
from wdspec.checking.shards.shard_facts import Hashes, SampleFacts, SamplePlace, Seen, merge
from wdspec.checking.shards.value_briefs import brief, is_large
from wdspec.checking.shards.value_columns import FieldWatch, Rows, TellOf
from wdspec.spec.language.decoders import IMAGE_FIELDS

MOST_ROWS = 256
"""Samples held at most, to be looked at together."""

_Held = tuple[Mapping[str, Any], int, int, str]
"""A sample, its index, offset and key."""


class SampleWatch:
    """Takes the samples of one shard.

    Args:
        shard: its URL.
        tell: is told what is wrong with values.
        looks: whether hashes of what images look like are wanted.
    """

    def __init__(self, shard: str, tell: TellOf, looks: bool = False) -> None:
        self.facts = SampleFacts()
        self._shard, self._tell, self._wants_looks = shard, tell, looks
        self._keys: list[str | None] = []
        self._parts: list[bytes] = []
        """Of the largest fields of samples whose contents are not hashed yet,"""
        self._sizes: list[int] = []
        """and how large those are."""
        self._contents: list[Hashes] = []
        self._looks: dict[int, int] = {}
        self._largest: dict[tuple[str, ...], str | None] = {}
        self._watches: dict[str, FieldWatch] = {}
        self._large: dict[tuple[str, ...], list[tuple[str, bool]]] = {}
        """By layout: the fields that are held in short, and whether they are images."""
        self._held: dict[tuple[str, ...], list[_Held]] = {}
        """By layout."""
        self._rows = 0

    def raw(self, raw: Mapping[str, Any], index: int) -> None:
        """Notes a sample as the shard has it."""
        names = tuple(raw)
        if names not in self._largest:
            self._largest[names] = largest(raw)
        while len(self._keys) < index:  # samples that were lost
            self._keys.append(None)
            self._parts.append(b"")
            self._sizes.append(0)
        self._keys.append(raw["__key__"])
        name = self._largest[names]
        data = raw[name] if name is not None else b""
        if type(data) is not bytes:
            data = b""
        self._parts.append(content_part(data))
        self._sizes.append(len(data))
        if len(self._parts) >= MOST_ROWS:
            self._hash_parts()

    def place(self, index: int, offset: int, key: str) -> SamplePlace:
        """Where a sample of the shard is."""
        return SamplePlace(self._shard, index, offset, key)

    def decoded(self, sample: Mapping[str, Any], raw: Mapping[str, Any], index: int, offset: int) -> None:
        """Notes a sample as its source delivers it."""
        names = tuple(sample)
        large = self._large.get(names)
        if large is None:
            large = self._large[names] = [
                (name, is_image)
                for name, value in sample.items()
                if (is_image := name.rpartition(".")[2].lower() in IMAGE_FIELDS) or is_large(value)
            ]
        if large:
            sample = dict(sample)
            for name, is_image in large:
                value = sample[name]
                if is_image and self._wants_looks and is_large(value) and (hashed := look_hash(value)):
                    self._looks.setdefault(index, hashed)
                sample[name] = brief(value, _file_of(raw, name) if is_image else None)
        held = self._held.get(names)
        if held is None:
            held = self._held[names] = []
        held.append((sample, index, offset, raw["__key__"]))
        self._rows += 1
        if self._rows == MOST_ROWS:
            self.flush()

    def flush(self) -> None:
        """Looks at what is held."""
        for names, held in self._held.items():
            samples = [each[0] for each in held]
            shown = [name for name in names if not name.startswith("__")]
            merge(self.facts.layouts, {" ".join(shown): Seen(len(held), self.place(*held[0][1:]))})
            rows = Rows(partial(self._place_of, held), self._tell)
            for name in shown:
                watch = self._watches.get(name)
                if watch is None:
                    watch = self._watches[name] = FieldWatch(name, self.facts.fields)
                watch.look([sample[name] for sample in samples], rows, range(len(held)))
        self.facts.delivered += self._rows
        self._held.clear()
        self._rows = 0

    def _place_of(self, held: list[_Held], row: int) -> SamplePlace:
        return self.place(*held[row][1:])

    def finish(self) -> SampleFacts:
        """Looks at what is held, and gives what was gathered; nothing comes behind."""
        self.flush()
        for watch in self._watches.values():
            watch.finish()
        return self.facts

    def hashes(self) -> tuple[Hashes, Hashes, Hashes]:
        """Of keys, of contents, and of looks, by index."""
        self._hash_parts()
        keys, contents = key_hashes(self._keys), np.concatenate([*self._contents, np.zeros(0, np.uint64)])
        looks = np.zeros(len(keys) if self._looks else 0, np.uint64)
        for index, look in self._looks.items():
            looks[index] = look
        return keys, contents, looks

    def _hash_parts(self) -> None:
        if self._parts:
            self._contents.append(content_hashes(self._parts, self._sizes))
            self._parts.clear()
            self._sizes.clear()


def _file_of(raw: Mapping[str, Any], name: str) -> Any:
    """The file that an image was decoded of: that of its name, or, where it was renamed, the only one."""
    if name in raw:
        return raw[name]
    files = [value for field, value in raw.items() if field.rpartition(".")[2].lower() in IMAGE_FIELDS]
    return files[0] if len(files) == 1 else None
