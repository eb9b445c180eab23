"""Collecting facts about the values of one shard, in columns of some hundred samples at a time, which is fast.

`SampleWatch` takes samples one by one; it replaces large values by their `Brief`, to save memory.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import eq, mul
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from wdspec.fields.values import Audio, describe, describe_shape, is_array, is_image
from wdspec.formats.tar.headers import to_text
from wdspec.jobs.check.facts import (
    CLASS_NAMES,
    IGNORED,
    MOST_CLASSES,
    MOST_KINDS,
    MOST_SIZES,
    FieldFacts,
    Hashes,
    Kinds,
    SampleFacts,
    SamplePlace,
    Seen,
    merge,
)
from wdspec.jobs.check.hashes import (
    MOST_ITEMS,
    content_hashes,
    content_of,
    content_part,
    key_hashes,
    look_hash,
    mark_keys,
)
from wdspec.read.fetching import Objects
from wdspec.spec.language.decoders import IMAGE_FIELDS
from wdspec.write.recipes import CLASS_FIELDS

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_MODES = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
_FRAME = struct.Struct(">HHB")
_JPEG_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of frames; the excluded ones are tables."""


class ImageHead(NamedTuple):
    """Facts from the header of an image."""

    mode: str
    """`RGB`, `L`, `CMYK`, `I;16`, …"""
    width: int
    height: int
    is_cut: bool
    """Whether the file ends before its format does."""


def image_head(data: bytes) -> ImageHead | None:
    """Read the header of an image file; return None for other files."""
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    if data.startswith(_PNG) and len(data) > 29:
        width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
        mode = "I;16" if depth == 16 and kind == 0 else _PNG_MODES.get(kind, "?")
        return ImageHead(mode, width, height, b"IEND" not in data[-64:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about decompression bombs: only the header is read
            with Image.open(io.BytesIO(data)) as image:
                is_cut = data[:4] == b"RIFF" and len(data) < int.from_bytes(data[4:8], "little") + 8
                return ImageHead(image.mode, *image.size, is_cut)
    except Exception:  # decoding reports any damage
        return None


def _jpeg(data: bytes) -> ImageHead | None:
    at, end = 2, len(data) - 9
    while at < end:
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker not in _FRAMES:
            at += 2 + (data[at + 2] << 8 | data[at + 3])
        else:
            height, width, parts = _FRAME.unpack_from(data, at + 5)
            # Image data never contains the end marker; some writers append other data after it.
            return ImageHead(_JPEG_MODES.get(parts, "?"), width, height, data.rfind(b"\xff\xd9", at) < 0)
    return None


_IMAGE_PARTS = (1, 3, 4)


class Brief(NamedTuple):
    """The facts about an array, a tensor, an image, or an image file."""

    kind: str | tuple[Any, Any]
    """Its type, or its shape and dtype."""
    size: int | None
    """Bytes of a file; None for a decoded value."""
    head: ImageHead | None
    """Header of the image file."""
    is_finite: bool


def is_large(value: Any) -> bool:
    """Whether a value is replaced by its `Brief`."""
    return is_array(value) or is_image(value) or type(value) is Audio


def brief(value: Any, file: Any) -> Any:
    """Return the `Brief` of a large value, and other values as they are.

    Args:
        value: as its source yields it.
        file: the image file that it was decoded from, if any.
    """
    if type(value) is Audio and is_array(value.samples):  # NaN is an error when it is decoded
        channels = "x".join(map(str, value.samples.shape[:-1]))
        return Brief(f"audio at {value.rate} Hz, channels: {channels}", None, None, True)
    head = image_head(file) if type(file) is bytes else None
    if type(value) is bytes:
        return value if head is None else Brief("bytes", len(value), head, True)
    if is_array(value):
        shape, dtype = value.shape, value.dtype
        return Brief((shape, dtype), None, head, head is not None or _is_finite(value))
    return Brief(describe(value), None, head, True) if is_image(value) else value


def _is_finite(value: Any) -> bool:
    """Whether all elements are finite. Images are not tested, as they were decoded from integers."""
    kind = str(value.dtype)
    if "float" not in kind and "complex" not in kind:
        return True
    shape = value.shape
    if len(shape) == 3 and (shape[0] in _IMAGE_PARTS or shape[-1] in _IMAGE_PARTS):
        return True
    total = value.sum()
    return bool(np.isfinite(complex(total)))


Report = Callable[[str, str, SamplePlace, str], None]
"""(code, message, sample, field) -> None."""


class Rows(NamedTuple):
    """The samples of a column of values, by row."""

    place: Callable[[int], SamplePlace]
    """Returns the place of the sample of a row; called only for reported samples."""
    report: Report

    def add_problem(self, code: str, message: str, row: int, field: str) -> None:
        """Report a wrong value."""
        self.report(code, message, self.place(row), field)


LONGEST_CLASS = 64
"""Maximum length of the name of a class, in characters."""
MOST_NAMES = 1_000
"""Maximum number of different texts to count as names of classes."""
_NOT_FINITE = (
    "the value is not finite (NaN or infinite), and so will the loss be; drop such samples with `select`"
)


class KindCounts:
    """Counts kinds of values of one shard, with the first place of each.

    Args:
        into: gets the counts at the end, by the text of each kind.
        most: maximum number of kinds; later ones are ignored.
    """

    def __init__(self, into: Kinds, most: int) -> None:
        self._into, self._most = into, most
        self._times: Counter[Any] = Counter()
        self._first: dict[Any, SamplePlace] = {}

    @property
    def kinds(self) -> int:
        """Number of kinds."""
        return len(self._first)

    def add(self, seen: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        """Count the kinds in the samples of some rows."""
        self._times.update(seen)
        if len(self._times) > len(self._first) < self._most:
            for row, kind in zip(rows, seen, strict=True):
                if kind not in self._first:
                    self._first[kind] = samples.place(row)

    def finish(self) -> None:
        """Merge the counts into `into`."""
        for kind, first in self._first.items():
            name = kind
            if not isinstance(kind, str):  # width and height of an image, or the shape and type of an array
                name = "{}x{}".format(*kind) if isinstance(kind[0], int) else describe_shape(*kind)
            merge(self._into, {name: Seen(self._times[kind], first)}, self._most)


class FieldWatch:
    """Collects facts about one field of a shard.

    Args:
        name: of the field.
        facts: of all fields, by name; entries of JSON are added as `json.label`.
    """

    def __init__(self, name: str, facts: dict[str, FieldFacts]) -> None:
        self.name, self._all = name, facts
        self._facts = facts.setdefault(name, FieldFacts())
        last = name.rpartition(".")[2].lower()
        self._is_class = last in CLASS_NAMES
        self._last: Any = None
        self._inner: dict[str, FieldWatch] = {}
        of_field = self._facts
        self._kinds = KindCounts(of_field.kinds, MOST_KINDS)
        self._modes = KindCounts(of_field.modes, MOST_KINDS)
        self._sizes = KindCounts(of_field.sizes, MOST_SIZES)
        self._counted = None if of_field.classes is None else KindCounts(of_field.classes, MOST_CLASSES + 1)

    def finish(self) -> None:
        """Add the counts to the facts."""
        for tally in (self._kinds, self._modes, self._sizes, self._counted):
            if tally is not None:
                tally.finish()
        if self._counted is None:
            self._facts.classes = None
        for inner in self._inner.values():
            inner.finish()

    def look(self, values: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        """Take values in the order of the shard, with the rows of their samples."""
        types = set(map(type, values))
        if len(types) > 1:
            for kind in types:
                own = [at for at, value in enumerate(values) if type(value) is kind]
                self._look([values[at] for at in own], samples, [rows[at] for at in own])
        else:
            self._look(values, samples, rows)

    def _look(self, values: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        first = values[0]
        if isinstance(first, Brief):
            self._briefs(values, samples, rows)
        elif isinstance(first, (bool, int, np.integer)):
            self._kinds.add([type(first).__name__] * len(values), samples, rows)
            self._classes(values, samples, rows)
        elif isinstance(first, (float, np.floating)):
            self._kinds.add([type(first).__name__] * len(values), samples, rows)
            for row, value in zip(rows, values, strict=True):
                if not np.isfinite(value):
                    samples.add_problem("D208", _NOT_FINITE, row, self.name)
        elif isinstance(first, (str, bytes, list, tuple, dict)):
            self._kinds.add([type(first).__name__] * len(values), samples, rows)
            self._lengths(list(map(len, values)))
            if isinstance(first, str):
                self._names(values, samples, rows)
            elif isinstance(first, dict):
                self._entries(values, samples, rows)
        else:
            self._kinds.add([type(first).__name__] * len(values), samples, rows)

    def _briefs(self, values: Sequence[Brief], samples: Rows, rows: Sequence[int]) -> None:
        kinds, sizes, heads, finite = zip(*values, strict=True)
        self._kinds.add(kinds, samples, rows)
        known = [size for size in sizes if size is not None]
        if known:
            self._lengths(known)
        for at in [] if all(finite) else [at for at, is_finite in enumerate(finite) if not is_finite]:
            samples.add_problem("D208", _NOT_FINITE, rows[at], self.name)
        own = rows if None not in heads else [row for row, head in zip(rows, heads, strict=True) if head]
        if own:
            self._heads([head for head in heads if head is not None], samples, own)
        for at in [at for at, head in enumerate(heads) if head is not None and head.is_cut]:
            if sizes[at] is not None:
                message = f"the image ends before its format does, at byte {sizes[at]:,}"
                samples.add_problem("D212", message, rows[at], self.name)

    def _heads(self, heads: Sequence[ImageHead], samples: Rows, rows: Sequence[int]) -> None:
        modes, widths, heights, _ = zip(*heads, strict=True)
        self._modes.add(modes, samples, rows)
        self._sizes.add(list(zip(widths, heights, strict=True)), samples, rows)
        sides, areas = list(map(min, widths, heights)), list(map(mul, widths, heights))
        low, high = min(sides), max(areas)
        smallest, largest = (samples.place(rows[at]) for at in (sides.index(low), areas.index(high)))
        self._facts.extend((low, smallest), (high, largest))

    def _lengths(self, lengths: list[int]) -> None:
        count, total, low, high = self._facts.lengths
        least = min(lengths)
        low = min(low, least) if count else least
        self._facts.lengths = (count + len(lengths), total + sum(lengths), low, max(high, max(lengths)))

    def _classes(self, values: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        facts = self._facts
        is_number = self._is_class and not isinstance(values[0], str)
        wrong = (at for at, value in enumerate(values) if value < 0 and value != IGNORED)
        if is_number and min(values) < 0 and (row := next(wrong, None)) is not None:
            samples.add_problem(
                "D209",
                f"the class {values[row]} is below 0: losses do not accept it as an index",
                rows[row],
                self.name,
            )
        counted = self._counted
        if counted is None:
            return
        facts.alike += sum(map(eq, values, values[1:])) + (self._last is not None and values[0] == self._last)
        facts.pairs += len(values) - (self._last is None)
        self._last = values[-1]
        counted.add(list(map(str, values)), samples, rows)
        if counted.kinds > MOST_CLASSES:
            self._counted = None

    def _names(self, values: Sequence[str], samples: Rows, rows: Sequence[int]) -> None:
        """Count short texts as classes while few of them are different."""
        if self._counted is None:
            return
        if max(map(len, values)) > LONGEST_CLASS or self._counted.kinds > MOST_NAMES:
            self._counted = None
            return
        self._classes(values, samples, rows)

    def _entries(self, values: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        present = set().union(*values)
        for entry in CLASS_NAMES if not present.isdisjoint(CLASS_NAMES) else ():
            own = [at for at, value in enumerate(values) if isinstance(value.get(entry), (int, str))]
            if own:
                name = f"{self.name}.{entry}"
                watch = self._inner.get(entry)
                if watch is None:
                    watch = self._inner[entry] = FieldWatch(name, self._all)
                watch.look([values[at][entry] for at in own], samples, [rows[at] for at in own])


MOST_ROWS = 256
"""Samples held at most, to be examined together."""

_Held = tuple[Mapping[str, Any], int, int, str]
"""A sample, its index, offset and key."""


class SampleWatch:
    """Collects facts about the samples of one shard.

    Args:
        shard: its URL.
        report: called with problems of values.
        looks: whether to hash the brightness of images.
        objects: what the samples name.
    """

    def __init__(
        self, shard: str, report: Report, looks: bool = False, objects: Objects | None = None
    ) -> None:
        self.facts = SampleFacts()
        self._shard, self._report, self._wants_looks, self._objects = shard, report, looks, objects
        self._keys: list[str | None] = []
        self._parts: list[bytes] = []
        """Parts of the contents of samples that are not hashed yet."""
        self._sizes: list[int] = []
        """The sizes of these contents."""
        self._contents: list[Hashes] = []
        self._left_out: list[int] = []
        self._looks: dict[int, int] = {}
        self._watches: dict[str, FieldWatch] = {}
        self._large: dict[tuple[str, ...], list[tuple[str, bool]]] = {}
        """By layout: the fields with large values, and whether they are images."""
        self._held: dict[tuple[str, ...], list[_Held]] = {}
        """By layout."""
        self._rows = 0

    def raw(self, raw: Mapping[str, Any], index: int, offset: int) -> None:
        """Take a raw sample of the shard."""
        number, name = map(raw.get, CLASS_FIELDS)
        if number is not None and name is not None:
            both = (to_text(each) if type(each) is bytes else str(each) for each in (number, name))
            pair = " ".join(each.strip()[:LONGEST_CLASS] for each in both)
            merge(
                self.facts.classes, {pair: Seen(1, self.place(index, offset, raw["__key__"]))}, MOST_CLASSES
            )
        while len(self._keys) < index:  # lost samples
            self._keys.append(None)
            self._parts.append(b"")
            self._sizes.append(0)
        self._keys.append(raw["__key__"])
        data = content_of(raw, self._objects, MOST_ITEMS).data
        self._parts.append(content_part(data))
        self._sizes.append(len(data))
        if len(self._parts) >= MOST_ROWS:
            self._hash_parts()

    def leave_out(self) -> None:
        """Note that the selection of the source leaves out the last raw sample."""
        self._left_out.append(len(self._keys) - 1)

    def place(self, index: int, offset: int, key: str) -> SamplePlace:
        """The place of a sample of the shard."""
        return SamplePlace(self._shard, index, offset, key)

    def decoded(self, sample: Mapping[str, Any], raw: Mapping[str, Any], index: int, offset: int) -> None:
        """Take a sample as its source yields it."""
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
        """Examine the held samples."""
        for names, held in self._held.items():
            samples = [each[0] for each in held]
            shown = [name for name in names if not name.startswith("__")]
            merge(self.facts.layouts, {" ".join(shown): Seen(len(held), self.place(*held[0][1:]))})
            rows = Rows(partial(self._place_of, held), self._report)
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
        """Examine the held samples, and return all facts; called once, at the end."""
        self.flush()
        for watch in self._watches.values():
            watch.finish()
        return self.facts

    def hashes(self) -> tuple[Hashes, Hashes, Hashes]:
        """Hashes of keys, of contents, and of looks, by index."""
        self._hash_parts()
        keys, contents = key_hashes(self._keys), np.concatenate([*self._contents, np.zeros(0, np.uint64)])
        looks = np.zeros(len(keys) if self._looks else 0, np.uint64)
        for index, look in self._looks.items():
            looks[index] = look
        contents[self._left_out] = 0
        return mark_keys(keys, self._left_out), contents, looks

    def _hash_parts(self) -> None:
        if self._parts:
            self._contents.append(content_hashes(self._parts, self._sizes))
            self._parts.clear()
            self._sizes.clear()


def _file_of(raw: Mapping[str, Any], name: str) -> Any:
    """The file that an image was decoded from: the one of its name, or if renamed, the only image."""
    if name in raw:
        return raw[name]
    files = [value for field, value in raw.items() if field.rpartition(".")[2].lower() in IMAGE_FIELDS]
    return files[0] if len(files) == 1 else None
