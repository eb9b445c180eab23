"""Hashes for finding repeated samples: of keys, of bytes, and of the brightness of images.

The hashes are kept in a temporary file, in which equal ones are found with bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b, shake_256
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.base.files import ScratchFile
from wdspec.jobs.check.facts import Hashes, ShardFacts
from wdspec.read.fetching import Objects

SPREAD = 128
"""At least this many bytes of a field are hashed, evenly spread. If two hashes are equal, all bytes are compared."""
END = 32
"""Bytes hashed at the end of a field."""
FEWEST = 64
"""A sample whose fields are all shorter is hashed as a whole."""
FEWEST_OF_ALL = 16
"""Samples with fewer bytes in all fields are not hashed, as many have the same label."""
MOST_ITEMS = 32
"""Items of a list that are hashed."""
LONGEST = 128
"""Longer keys are hashed separately first."""
_WIDTH = 2 * SPREAD + END
_ROWS, _COLUMNS, _PATCH = 8, 9, 4
_FACTORS = np.frombuffer(shake_256(b"wdspec check").digest(8 * (_WIDTH + 1)), np.uint64) | np.uint64(1)
"""Random odd numbers. They must never change, since reports contain hashes."""
MOST_AT_ONCE = 1 << 24
"""Hashes that are sorted at a time, about 400 MB with their positions; more are split by their first bits."""
_CHUNK = 1 << 22

Positions = npt.NDArray[np.int64]


def key_hashes(keys: Sequence[str | None]) -> Hashes:
    """Hashes of keys; 0 for None."""
    hashes = np.zeros(len(keys), np.uint64)
    encoded = [b"" if key is None else key.encode("utf-8", "surrogateescape") for key in keys]
    long = [at for at, key in enumerate(encoded) if len(key) > LONGEST]
    for at in long:
        encoded[at] = blake2b(encoded[at], digest_size=LONGEST // 2).digest()
    if encoded:
        # Numbers of 8 bits: differences by a large power of two would affect few bits of a product.
        lengths = np.fromiter(map(len, encoded), np.uint64, len(encoded))
        width = max(1, int(lengths.max()))
        rows = np.array(encoded, dtype=f"S{width}").view(np.uint8).reshape(-1, width)
        hashes = _mix(rows.astype(np.uint64) @ _FACTORS[:width] + lengths * _FACTORS[-1])
        hashes[[at for at, key in enumerate(keys) if key is None]] = 0
    return hashes


_MARK = np.uint64(1)
"""The bit of the hash of a key that says that the selection of its source leaves the sample out."""


def mark_keys(hashes: Hashes, left_out: Sequence[int]) -> Hashes:
    """Mark the hashes at some places, and no others."""
    hashes &= ~_MARK
    hashes[left_out] |= _MARK
    return hashes


def without_marked(hashes: Hashes) -> Hashes:
    """The hashes of keys, 0 for those that are marked."""
    return np.where(hashes & _MARK, np.uint64(0), hashes)


def without_marks(hashes: Hashes) -> Hashes:
    """The hashes of all keys, marked or not."""
    return hashes & ~_MARK


def content_part(data: bytes) -> bytes:
    """The bytes of a content that are hashed; none of a short one."""
    size = len(data)
    if size < 2 * SPREAD:
        return data if size >= FEWEST_OF_ALL else b""
    return data[:: size // SPREAD] + data[-END:]


def content_hashes(parts: Sequence[bytes], sizes: Sequence[int]) -> Hashes:
    """Hashes of the results of `content_part` for contents of some sizes; 0 for an empty part."""
    rows = np.frombuffer(b"".join([part.ljust(_WIDTH, b"\0") for part in parts]), np.uint32)
    sums = rows.reshape(len(parts), -1).astype(np.uint64) @ _FACTORS[: _WIDTH // 4]
    hashes = _mix(sums + np.array(sizes, np.uint64) * _FACTORS[-1])
    hashes[[at for at, part in enumerate(parts) if not part]] = 0
    return hashes


def _mix(sums: npt.NDArray[np.uint64]) -> Hashes:
    """Mix the bits of sums, whose low bits depend on few bits of the summands."""
    sums ^= sums >> np.uint64(32)
    sums *= np.uint64(0x9E3779B97F4A7C15)
    return sums ^ (sums >> np.uint64(29))


def look_hash(image: Any) -> int:
    """64 bits that show where an image is brighter than to its left; 0 for other values, and for uniform images.

    Args:
        image: an array (height, width, 3), (height, width), or a tensor (3, height, width), of any type.
    """
    array = np.asarray(image)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array[min(1, array.shape[0] - 1)]
    elif array.ndim == 3:
        array = array[:, :, min(1, array.shape[2] - 1)]  # green, which is most of the brightness
    if array.ndim != 2 or min(array.shape) < _COLUMNS or array.dtype.kind not in "uif":
        return 0
    rows = np.linspace(0, array.shape[0] - 1, _ROWS * _PATCH).astype(np.intp)
    columns = np.linspace(0, array.shape[1] - 1, _COLUMNS * _PATCH).astype(np.intp)
    patches = array[np.ix_(rows, columns)].astype(np.float32).reshape(_ROWS, _PATCH, _COLUMNS, _PATCH)
    grey = patches.mean(axis=(1, 3))
    bits = np.packbits(grey[:, 1:] > grey[:, :-1])
    if not 8 <= int(np.unpackbits(bits).sum()) <= 56:
        return 0
    return int.from_bytes(bits.tobytes(), "little")


class Content(NamedTuple):
    """What of a sample is compared with other samples."""

    data: bytes
    fields: tuple[str, ...] = ()
    """The fields that it is of; none for all."""


def content_of(sample: Mapping[str, Any], objects: Objects | None, most_items: int | None = None) -> Content:
    """The content of a raw sample: its longest file or text, or all fields together if all are short.

    Names of fields do not count, so that samples with other names are found too, and numbers do not, since rows of few
    numbers are equal by chance. References count, as the objects are part of the sample; with short fields, so do
    numbers beside them, such as a box in an image that others have, too.

    Args:
        sample: the raw sample.
        objects: what it names, from `fetch`; None for nothing.
        most_items: how many items of lists count; None for all.
    """
    holders = frozenset() if objects is None else objects.holders
    fields = {
        name: value if type(value) is bytes else _bytes_of(value, most_items)
        for name, value in sample.items()
        if name[:2] != "__"
    }
    held = {name: data for name, data in fields.items() if name in holders and data not in (b"", b"[]")}
    others = [name for name in fields if name not in held]
    size = max((len(fields[name]) for name in others), default=0)
    if size >= FEWEST:
        longest = max((fields[name], name) for name in others if len(fields[name]) == size)
        chosen = (longest[1], *sorted(held))
        data = longest[0]
    else:
        chosen = ()
        data = b"\0".join(sorted(filter(None, fields.values())))
        if held:
            held = {name: each or repr(sample[name]).encode() for name, each in fields.items()}
    if held:
        data += blake2b(repr(sorted(held.items())).encode(), digest_size=16).digest()
    return Content(data, chosen if len(chosen) < len(fields) else ())


def _bytes_of(value: Any, most_items: int | None) -> bytes:
    """A value that is not bytes as bytes; none of a number."""
    if value is None or isinstance(value, (int, float, np.generic)):
        return b""
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return value.tobytes()
    if isinstance(value, list):
        value = value[:most_items]
    return repr(value).encode("utf-8", "surrogatepass")


class Pairs(NamedTuple):
    """Pairs of samples with the same hash, as positions in the file, shape (pairs,); `first` is before `second`."""

    first: Positions
    second: Positions

    def of(self, chosen: npt.NDArray[np.bool_]) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.first[chosen], self.second[chosen])


class HashFile(ScratchFile):
    """Hashes by position, in the order of adding. A context manager, which deletes the file."""

    def __init__(self) -> None:
        super().__init__("check")
        self.count = 0

    def add(self, hashes: Hashes) -> range:
        """Add the hashes of a shard, and return their positions."""
        self._file.write(hashes.tobytes())
        self.count += len(hashes)
        return range(self.count - len(hashes), self.count)

    def _map(self) -> Hashes:
        """All hashes, in the file."""
        self._file.flush()
        return np.memmap(self._file, np.uint64, "r", shape=(self.count,))

    def equal_pairs(self, most: int = MOST_AT_ONCE) -> Iterator[Pairs]:
        """Find positions with the same hash, except 0. A hash of n samples yields n - 1 pairs.

        Args:
            most: number of hashes to sort at a time.
        """
        if not self.count:
            return
        hashes = self._map()
        parts = 1 << max(0, (-(-self.count // most) - 1).bit_length())
        shift = np.uint64(64 - (parts.bit_length() - 1))
        for part in range(parts):
            found: list[Hashes] = []
            places: list[Positions] = []
            for at in range(0, self.count, _CHUNK):
                chunk = np.asarray(hashes[at : at + _CHUNK])
                is_chosen = chunk != 0
                if parts > 1:
                    is_chosen &= (chunk >> shift) == part
                found.append(chunk[is_chosen])
                places.append(np.flatnonzero(is_chosen) + at)
            values, positions = np.concatenate(found), np.concatenate(places)
            order = np.argsort(values, kind="stable")
            values, positions = values[order], positions[order]
            same = np.flatnonzero(values[1:] == values[:-1])
            if len(same):
                yield Pairs(positions[same], positions[same + 1])


class HashSpool(HashFile):
    """Keeps the hashes of shards out of memory until all shards have been checked."""

    def __init__(self) -> None:
        super().__init__()
        self._spooled: list[tuple[ShardFacts, str, range]] = []

    def take(self, facts: ShardFacts) -> None:
        """Move the hashes of a shard into the file."""
        for name in ("keys", "contents", "looks"):
            hashes = getattr(facts, name)
            if len(hashes):
                self._spooled.append((facts, name, self.add(hashes)))
                setattr(facts, name, hashes[:0].copy())

    def give_back(self) -> None:
        """Return the hashes to the shards, as parts of the file."""
        if self.count:
            stored = self._map()
            for facts, name, positions in self._spooled:
                setattr(facts, name, stored[positions.start : positions.stop])
