"""Samples as they come from one shard: what they show is gathered, in columns, and hashes of each are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wdspec.checking.shards.sample_hashes import content_hash, key_hash, largest, look_hash
from wdspec.checking.shards.shard_facts import Hashes, SampleFacts, SamplePlace, Seen, merge
from wdspec.checking.shards.value_briefs import brief, is_large
from wdspec.checking.shards.value_columns import FieldWatch
from wdspec.decoders.image_formats import IMAGE_FIELDS

MOST_ROWS = 256
"""Samples held at most, to be looked at together."""
_NONE = bytes(8)

TellOf = Callable[[str, str, SamplePlace, str], None]
"""(code, message, sample, field) -> None."""


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
        self._contents: list[bytes] = []
        self._looks: dict[int, int] = {}
        self._largest: dict[tuple[str, ...], str | None] = {}
        self._watches: dict[str, FieldWatch] = {}
        self._large: dict[tuple[str, ...], list[tuple[str, bool]]] = {}
        """By layout: the fields that are held in short, and whether they are images."""
        self._held: dict[tuple[str, ...], list[tuple[Mapping[str, Any], SamplePlace]]] = {}
        self._rows = 0

    def raw(self, raw: Mapping[str, Any], index: int, offset: int) -> SamplePlace:
        """Notes a sample as the shard has it; returns its place."""
        names, key = tuple(raw), raw["__key__"]
        if names not in self._largest:
            self._largest[names] = largest(raw)
        while len(self._keys) < index:  # samples that were lost
            self._keys.append(None)
            self._contents.append(_NONE)
        self._keys.append(key)
        name = self._largest[names]
        data = raw[name] if name is not None else None
        self._contents.append(content_hash(data) if type(data) is bytes else _NONE)
        return SamplePlace(self._shard, index, offset, key)

    def decoded(self, sample: Mapping[str, Any], raw: Mapping[str, Any], place: SamplePlace) -> None:
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
                    self._looks.setdefault(place.number, hashed)
                sample[name] = brief(value, _file_of(raw, name) if is_image else None)
        self._held.setdefault(names, []).append((sample, place))
        self._rows += 1
        if self._rows == MOST_ROWS:
            self.flush()

    def flush(self) -> None:
        """Looks at what is held."""
        for names, held in self._held.items():
            samples, places = zip(*held, strict=True)
            shown = [name for name in names if not name.startswith("__")]
            merge(self.facts.layouts, {" ".join(shown): Seen(len(held), places[0])})

            def tell(code: str, message: str, row: int, field: str, places: Any = places) -> None:
                self._tell(code, message, places[row], field)

            for name in shown:
                watch = self._watches.get(name)
                if watch is None:
                    watch = self._watches[name] = FieldWatch(name, self.facts.fields, tell)
                watch.tell = tell
                watch.look([sample[name] for sample in samples], places, range(len(held)))
        self.facts.delivered += self._rows
        self._held.clear()
        self._rows = 0

    def hashes(self) -> tuple[Hashes, Hashes, Hashes]:
        """Of keys, of contents, and of looks, by index."""
        hashed = [_NONE if key is None else key_hash(key) for key in self._keys]
        keys, contents = (np.frombuffer(b"".join(each), np.uint64) for each in (hashed, self._contents))
        looks = np.zeros(len(keys) if self._looks else 0, np.uint64)
        for index, look in self._looks.items():
            looks[index] = look
        return keys, contents, looks


def _file_of(raw: Mapping[str, Any], name: str) -> Any:
    """The file that an image was decoded of: that of its name, or, where it was renamed, the only one."""
    if name in raw:
        return raw[name]
    files = [value for field, value in raw.items() if field.rpartition(".")[2].lower() in IMAGE_FIELDS]
    return files[0] if len(files) == 1 else None
