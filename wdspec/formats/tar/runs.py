"""Samples with the same files as their neighbours, cut out of a window all at once.

    names:  a.txt a.json | b.txt b.json | c.txt c.json | …      a run: each sample has the endings of the first one;
    keys:   a            | b            | c            | …      the last is left out, as more of it may follow

A sample of two small files takes a fifth less so than header by header, and not where samples are larger. Whatever does
not fit ends the run, and is left to the loop of `tar_reader`, which gives the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK
from wdspec.formats.tar.headers import HeaderRun, headers_from, shown
from wdspec.formats.tar.keys import KeySplitter, SuffixTree

FEWEST = 32
"""Samples of a run, or it is none: what numpy takes for each call is then small beside what it saves."""
_PATIENCE = 3
"""Windows without a run after which none is looked for in a shard."""


class SampleRun(NamedTuple):
    """Whole samples that lie one behind the other."""

    samples: Iterator[tuple[int, int, dict[str, Any]]]
    """Those to be delivered: where the next one begins in the shard, its index there, and the sample."""
    length: int
    """How many there are, with those that are not delivered."""
    key: bytes
    """Of the last one."""
    end: int
    """Where in the window the next sample begins."""


class SampleRuns:
    """The runs of one shard.

    Args:
        split: how names split into key and suffix, around a dot.
        tree: what suffixes become.
        template: what every sample has, `__key__` first.
        stride, residue: only samples with `index % stride == residue` are delivered.
    """

    def __init__(
        self, split: KeySplitter, tree: SuffixTree, template: Mapping[str, Any], stride: int, residue: int
    ) -> None:
        self._split, self._tree, self._template = split, tree, template
        self._stride, self._residue = stride, residue
        self.patience = _PATIENCE
        """Windows in which to look for a run, until there is one; 0 where that was in vain."""

    def find(
        self, buffer: bytes, base: int, at: int, index: int, like: tuple[int, bytes, int], seen: set[bytes]
    ) -> SampleRun | None:
        """The run that begins with a sample, if there is one.

        Args:
            buffer, base: the window, and its offset in the shard.
            at: where in the window the sample begins.
            index: of the sample in the shard.
            like: bytes of a sample in the mean so far; `tail` and `tail_sum` of an ordinary member.
            seen: the keys that came before; takes those of the run.
        """
        self.patience -= 1
        size, tail, tail_sum = like
        if size * FEWEST > len(buffer) - at:
            return None
        headers = headers_from(buffer, at, tail, tail_sum)
        if headers is None:
            return None
        endings = self._endings(headers.names)
        fields, keys = self._fields(endings), self._keys(headers.names, endings)
        if not fields or len(keys) <= FEWEST or len(set(keys)) < len(keys) or not seen.isdisjoint(keys):
            return None
        keys.pop()  # of the last sample, more may follow
        count, stop = len(keys), len(keys) * len(endings)
        seen.update(keys)
        self.patience = _PATIENCE
        first = (self._residue - index) % self._stride
        begins = (headers.data[len(endings) : stop + 1 : len(endings)] + (base - BLOCK)).tolist()
        samples = zip(
            begins[first :: self._stride],
            range(index + first + 1, index + count + 1, self._stride),
            self._cut(buffer, headers, fields, keys, first),
            strict=True,
        )
        return SampleRun(samples, count, keys[-1], int(headers.data[stop]) - BLOCK)

    def _cut(
        self, buffer: bytes, headers: HeaderRun, fields: list[str | None], keys: list[bytes], first: int
    ) -> list[dict[str, Any]]:
        """The samples to be delivered, column by column."""
        width, stop = len(fields), len(keys) * len(fields)
        texts = shown(b"\0".join(keys)).split("\0")[first :: self._stride]
        empty = {**self._template, **dict.fromkeys(field for field in fields if field is not None)}
        samples = [empty.copy() for _ in texts]
        for sample, key in zip(samples, texts, strict=True):
            sample["__key__"] = key
        for place, field in enumerate(fields, first * width):
            if field is not None:
                its = slice(place, stop, width * self._stride)
                spans = zip(samples, headers.data[its].tolist(), headers.ends[its].tolist(), strict=True)
                for sample, begin, end in spans:
                    sample[field] = buffer[begin:end]
        return samples

    def _endings(self, names: list[bytes]) -> list[bytes]:
        """What follows the key in the names of the first sample; nothing where that has no end, or is none."""
        parts = self._split(names[0])
        key = parts and parts[0]
        endings: list[bytes] = []
        for name in names:
            parts = self._split(name)
            if parts is None:
                break
            if parts[0] != key:
                return endings
            endings.append(b"." + parts[1])
        return []

    def _fields(self, endings: list[bytes]) -> list[str | None]:
        """What the files of a sample become; nothing where one cannot be had, which the loop reports."""
        node, fields = self._tree.root, []
        try:
            for ending in endings:
                field, node = node.get(ending[1:]) or self._tree.step(node, ending[1:])
                fields.append(field)
        except ShardError:
            return []
        return fields

    def _keys(self, names: list[bytes], endings: list[bytes]) -> list[bytes]:
        """The keys of the samples that have these endings; the last one may have others, too."""
        if not endings:
            return []
        width = len(endings)
        count = len(names) // width
        keys = [name[: -len(endings[0])] for name in names[: count * width : width]]
        asked = [key + ending for key in keys for ending in endings]
        if asked != names[: len(asked)]:
            count = next(place for place, name in enumerate(asked) if name != names[place]) // width
            keys = keys[:count]
        joined = b"\0".join([b"", *keys, b""])
        if b"\0__" in joined or joined.count(b"\0") != count + 1:
            return []  # perhaps the name of a meta file, or one that ends before its field
        if b"." in joined or b"/\0" in joined or b"\0\0" in joined:
            first = endings[0]
            whole = (self._split(key + first) == (key, first[1:]) for key in keys)
            keys = keys[: next((place for place, is_whole in enumerate(whole) if not is_whole), count)]
        return keys
