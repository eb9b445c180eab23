"""The job of `wdspec dedup`: find samples that are repeated in a spec, of which the first one stays.

Each shard is read by itself, and gives a hash of 128 bits for each sample: of its key, its content, a field, or the
pixels of its images. `groups.py` finds equal ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from wdspec.base.errors import UsageError
from wdspec.base.files import open_regular
from wdspec.jobs.engine import Engine
from wdspec.jobs.groups import INDEX_BITS, KeyTexts, Numbers, SampleGroups
from wdspec.jobs.job import LiveCount, ReadTask, ShardFailed, ShardJob
from wdspec.planning.keys import key64
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.shard import Piece
from wdspec.read.transform import parts_of
from wdspec.shards.lock import check_harmless
from wdspec.shards.shards import check_readable, list_shards
from wdspec.spec.language.decoders import IMAGE_FIELDS
from wdspec.spec.spec import Source, Spec
from wdspec.stores.outputs import LocalOutput
from wdspec.urls.urls import ShardUrl

KEY, CONTENT, PIXELS = "key", "content", "pixels"
DROPS = "drop.tsv"
"""The file with all repeated samples, by shard and index."""
_HEAD = "# wdspec dedup: source, shard, index, key\n"
MOST_EXAMPLES = 5


@dataclass(frozen=True)
class IdentityTask(ReadTask):
    """A shard whose samples are compared."""

    by: str
    """What makes samples equal: `key`, `content`, `pixels`, or the name of a field."""
    position: int
    """Its number among the shards of all sources."""


class Identities(NamedTuple):
    """The samples of a shard that the spec keeps."""

    keys: list[str]
    indexes: Numbers
    hashes: Numbers
    """Shape (samples, 2); 0 for a sample that cannot be compared."""
    skipped: int
    """Errors that the policy of the source skips."""


def identify(task: IdentityTask) -> Identities:
    """Read a shard, and hash its samples.

    Raises:
        WdspecError: the shard is damaged, and the policy of the source is to raise.
    """
    budget = ErrorBudget(task.parts.errors, task.source).without_log()
    chooses = task.parts.selection is not None and task.parts.selection.by_value is not None
    opener = task.parts.open if chooses or task.by != KEY else task.parts.open.headers
    identity = _IDENTITIES.get(task.by) or (lambda raw: _hash_field(raw, task.by))
    choose = task.parts.build_choice(budget)
    keys, indexes, digests = [], [], []
    opened = opener(Piece(task.shard), on_error=lambda error: budget(error, "shard", url=task.shard.text))
    with closing(opened):
        for raw in opened:
            index = opened.next_index - 1
            if choose(raw):
                keys.append(raw["__key__"])
                indexes.append(index)
                digests.append(identity(raw))
    hashes = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
    return Identities(keys, np.array(indexes, np.uint64), hashes, budget.skipped.total())


_NOTHING = bytes(16)
"""In place of the hash of a sample that cannot be compared."""


def _digest(pieces: Iterator[bytes]) -> bytes:
    state = blake2b(digest_size=16)
    for piece in pieces:
        state.update(len(piece).to_bytes(8, "little"))
        state.update(piece)
    return state.digest()


def _hash_key(raw: Mapping[str, Any]) -> bytes:
    return _digest(iter([raw["__key__"].encode("utf-8", "surrogateescape")]))


def _hash_content(raw: Mapping[str, Any]) -> bytes:
    fields = sorted(name for name in raw if name[:2] != "__")
    return (
        _digest(piece for name in fields for piece in (name.encode(), _bytes_of(raw[name])))
        if fields
        else _NOTHING
    )


def _hash_field(raw: Mapping[str, Any], name: str) -> bytes:
    return _digest(iter([_bytes_of(raw[name])])) if raw.get(name) is not None else _NOTHING


def _hash_pixels(raw: Mapping[str, Any]) -> bytes:
    """The pixels of the images of a sample, whatever their formats and names."""
    images = [
        _pixels_of(raw[name])
        for name in sorted(raw)
        if type(raw[name]) is bytes and name.rpartition(".")[2].lower() in IMAGE_FIELDS
    ]
    if not images or None in images:
        return _NOTHING
    return _digest(iter([each for each in images if each is not None]))


def _pixels_of(data: bytes) -> bytes | None:
    """Mode, size and pixels of an image; None if it cannot be decoded."""
    from PIL import Image

    with suppress(Exception):  # Pillow raises many kinds; the sample stays, and is counted
        image: Image.Image = Image.open(BytesIO(data))
        if image.mode == "P":
            image = image.convert("RGBA" if "transparency" in image.info else "RGB")
        if image.mode == "RGBA" and image.getchannel("A").getextrema() == (255, 255):
            image = image.convert("RGB")
        return f"{image.mode} {image.size}".encode() + image.tobytes()
    return None


def _bytes_of(value: Any) -> bytes:
    """A value of a field as bytes, with its type if it is not bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return f"{value.dtype} {value.shape}".encode() + value.tobytes()
    return f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")


_IDENTITIES: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = {
    KEY: _hash_key,
    CONTENT: _hash_content,
    PIXELS: _hash_pixels,
}


@dataclass
class SourceCounts:
    """What was found in a source."""

    samples: int = 0
    """Samples that the spec keeps."""
    not_compared: int = 0
    """Samples without the field or an image, or with an image that cannot be decoded."""
    repeated: int = 0
    """Samples that are equal to an earlier one."""
    listed: int = 0
    """Of these, those that `exclude` can leave out: no sample of the source that stays has their key."""


class Example(NamedTuple):
    """A repeated sample, and the first one that it is equal to."""

    source: str
    shard: str
    key: str
    first_source: str
    first_shard: str
    first_key: str


@dataclass
class Repeats:
    """The result of a job."""

    by: str
    sources: dict[str, SourceCounts]
    examples: list[Example] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Shards that could not be read, and why."""
    skipped: int = 0
    """Errors that the policies of the sources skip."""
    lists: dict[str, str] = field(default_factory=dict)
    """By source: the file for `exclude`."""
    drops: str | None = None
    """The file for `wdspec process --drop`."""

    @property
    def repeated(self) -> int:
        """All repeated samples."""
        return sum(counts.repeated for counts in self.sources.values())


class DedupJob(ShardJob[IdentityTask, Identities]):
    """The samples of one or more specs, to compare.

    Args:
        specs: the specs; a sample of an earlier one comes first.
        by: see `IdentityTask`.
        each_source: whether to compare samples of one source only.
        is_saved: whether the URLs of shards are written to a file.

    Raises:
        UsageError: a URL that is written to a file has a secret.
        WdspecError: shards cannot be listed.
    """

    title = "comparing samples"

    def __init__(
        self, specs: Sequence[Spec], by: str, *, each_source: bool = False, is_saved: bool = False
    ) -> None:
        self.by = by
        self._each_source = each_source
        self.tasks: list[IdentityTask] = []
        self.starts: list[int] = []
        """The number of the first shard of each spec."""
        for spec in specs:
            check_readable(spec)
            shards = list_shards(spec.of(spec.sources))
            for name, urls in shards.lists.items() if is_saved else ():
                check_harmless(name, urls.parts, "the list")
            self.starts.append(len(self.tasks))
            positions = count(len(self.tasks))

            def choose(
                source: Source, number: int, shard: ShardUrl, positions: Iterator[int] = positions
            ) -> Mapping[str, Any]:
                return {"by": by, "position": next(positions)}

            self.tasks += IdentityTask.of_spec(spec, spec.sources, shards, parts_of(spec, shards), choose)
        self.result = Repeats(by, {task.source: SourceCounts() for task in self.tasks})
        self._samples = 0

    def columns(self) -> Mapping[str, tuple[str, Any]]:
        return {"samples": ("{:,} samples", LiveCount(lambda: self._samples))}

    def read(self, engine: Engine, groups: SampleGroups, texts: KeyTexts) -> None:
        """Read all shards. Closes the engine."""
        self._groups, self._texts = groups, texts
        self.run_tasks(identify, self.tasks, engine, retries=1)

    def take(self, task: IdentityTask, outcome: Identities | ShardFailed) -> None:
        if isinstance(outcome, ShardFailed):
            self.result.failed.append((task.shard.text, outcome.cause))
            return
        counts = self.result.sources[task.source]
        is_known = outcome.hashes.any(axis=1) if len(outcome.hashes) else np.zeros(0, np.bool_)
        counts.samples += len(outcome.keys)
        counts.not_compared += len(outcome.keys) - int(is_known.sum())
        self._samples += len(outcome.keys)
        self.result.skipped += outcome.skipped
        salt = np.uint64(key64(task.source))
        keys = _hash_keys(outcome.keys) ^ salt
        hashes = outcome.hashes.copy()
        hashes[:, 1] ^= salt if self._each_source else np.uint64(0)
        unknown = np.flatnonzero(~is_known)  # each stays, and may have the key of another sample
        hashes[unknown, 0] = keys[unknown]
        hashes[unknown, 1] = np.uint64(task.position << INDEX_BITS) | outcome.indexes[unknown]
        self._groups.add(task.position, outcome.indexes, hashes, keys)
        self._texts.add(task.position, outcome.indexes, outcome.keys)


def _hash_keys(keys: Sequence[str]) -> Numbers:
    digests = (blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest() for key in keys)
    return np.frombuffer(b"".join(digests), np.uint64)


def find_repeats(
    spec: Spec, engine: Engine, by: str, *, each_source: bool = False, folder: str | None = None
) -> Repeats:
    """Find the samples of a spec that are equal to an earlier one: in an earlier source, shard, or place.

    Args:
        spec: the spec. Samples that its selections leave out do not count.
        engine: runs the work; closed at the end.
        by: what makes samples equal: `key`, `content` (all fields), `pixels`, or the name of a field.
        each_source: whether to compare samples of one source only.
        folder: where to write lists: keys of each source for `exclude`, and all repeated samples for `wdspec process`.

    Raises:
        UsageError: no sample can be compared in this way, or a URL that a list would have has a secret.
        WdspecError: shards cannot be listed.
        OSError: the lists cannot be written.
    """
    job = DedupJob([spec], by, each_source=each_source, is_saved=folder is not None)
    result = job.result
    with ExitStack() as stack:
        groups = stack.enter_context(SampleGroups(len(job.tasks)))
        texts = stack.enter_context(KeyTexts())
        job.read(engine, groups, texts)
        compared = sum(counts.samples - counts.not_compared for counts in result.sources.values())
        if by not in (KEY, CONTENT) and not compared and not result.failed:
            what = "an image that can be decoded" if by == PIXELS else f"a field `{by}`"
            raise UsageError(f"no sample has {what}; the fields of a sample are shown by `wdspec head`")
        lists = None if folder is None else stack.enter_context(_Lists(folder, list(result.sources)))
        for found in groups.repeated():
            task = job.tasks[found.shard]
            counts = result.sources[task.source]
            keys = texts.read(found.shard, found.indexes)
            shared = found.shares_key.tolist()
            listed = [key for key, shares in zip(keys, shared, strict=True) if not shares and _is_line(key)]
            counts.repeated += len(keys)
            counts.listed += len(listed)
            if lists is not None:
                lists.add(task, found.indexes.tolist(), keys, listed)
            for key, first in zip(keys, found.firsts.tolist(), strict=True):
                if len(result.examples) == MOST_EXAMPLES:
                    break
                owner = job.tasks[first >> INDEX_BITS]
                place = np.array([first & ((1 << INDEX_BITS) - 1)], np.int64)
                (first_key,) = texts.read(owner.position, place)
                result.examples.append(
                    Example(task.source, task.shard.text, key, owner.source, owner.shard.text, first_key)
                )
        if lists is not None and not result.failed:
            lists.commit()
            result.lists, result.drops = lists.written, lists.drops
    return result


class _Lists:
    """The lists of repeated samples, which appear together. A context manager."""

    def __init__(self, folder: str, sources: Sequence[str]) -> None:
        self._folder = folder
        self.drops: str | None = None
        self.written: dict[str, str] = {}
        names = {source: f"{source.replace('/', '.')}.txt" for source in sources}
        if len({*names.values()}) < len(names):
            names = {source: f"{number}-{name}" for number, (source, name) in enumerate(names.items(), 1)}
        self._names = names
        self._files: dict[str, LocalOutput] = {}

    def __enter__(self) -> _Lists:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.abort()

    def _file(self, name: str) -> LocalOutput:
        if name not in self._files:
            self._files[name] = LocalOutput(os.path.join(self._folder, name))
            if name == DROPS:
                self._files[name].write(_HEAD.encode())
        return self._files[name]

    def add(
        self, task: IdentityTask, indexes: Sequence[int], keys: Sequence[str], listed: Sequence[str]
    ) -> None:
        """Add the repeated samples of a shard, and the keys of those that `exclude` can leave out."""
        if listed:
            self._file(self._names[task.source]).write(_encode(f"{key}\n" for key in listed))
        rows = zip(indexes, keys, strict=True)
        source, shard = _escape(task.source), _escape(task.shard.text)
        self._file(DROPS).write(
            _encode(f"{source}\t{shard}\t{index}\t{_escape(key)}\n" for index, key in rows)
        )

    def commit(self) -> None:
        """Make the lists appear."""
        for name, file in self._files.items():
            file.commit()
            if name == DROPS:
                self.drops = file.path
        self.written = {
            source: self._files[name].path for source, name in self._names.items() if name in self._files
        }


def _is_line(key: str) -> bool:
    """Whether a key can be a line of a list of keys."""
    return bool(key) and key == key.rstrip("\r\n") and "\n" not in key and "\0" not in key


def _encode(lines: Iterator[str]) -> bytes:
    return "".join(lines).encode("utf-8", "surrogateescape")


_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _escape(text: str) -> str:
    return re.sub(r"[\\\t\n\r]", lambda mark: _ESCAPES[mark[0]], text)


def _unescape(text: str) -> str:
    marks = {written: mark for mark, written in _ESCAPES.items()}
    return re.sub(r"\\.", lambda written: marks.get(written[0], written[0]), text)


Drops = dict[tuple[str, str], dict[int, str]]
"""Source and URL of a shard -> the keys of the samples to drop, by index."""


def read_drops(path: str) -> Drops:
    """Read the list of all repeated samples.

    Raises:
        UsageError: the file is no such list, or cannot be read.
    """
    found: Drops = {}
    try:
        with open_regular(path) as file:
            if file.readline().decode("utf-8", "replace") != _HEAD:
                raise UsageError(f"`{path}` is not a list of `wdspec dedup`; name its {DROPS}")
            for number, line in enumerate(file, 2):
                cells = line.decode("utf-8", "surrogateescape").removesuffix("\n").split("\t")
                if len(cells) != 4 or not cells[2].isascii() or not cells[2].isdecimal():
                    raise UsageError(
                        f"{path}:{number}: expected source, shard, index and key, with tabs between them"
                    )
                source, shard, index, key = cells
                found.setdefault((_unescape(source), _unescape(shard)), {})[int(index)] = _unescape(key)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None
    return found


class KeyDifferences(NamedTuple):
    """The keys that only one of two specs has."""

    here: int
    there: int
    first_here: list[tuple[str, str, str]]
    """Source, shard and key of the first ones."""
    first_there: list[tuple[str, str, str]]
    failed: list[tuple[str, str]]
    """Shards that could not be read, and why."""


def compare_keys(spec: Spec, other: Spec, engine: Engine, path: str | None = None) -> KeyDifferences:
    """Find the keys of the samples of a spec that another one lacks, and the reverse.

    Args:
        spec, other: the specs. Samples that their selections leave out do not count.
        engine: runs the work; closed at the end.
        path: where to write all of them: a line for each, with `<` for a key of `spec`, and `>` for one of `other`.

    Raises:
        WdspecError: shards cannot be listed.
        OSError: the file cannot be written.
    """
    job = DedupJob([spec, other], KEY)
    border = job.starts[1]
    counts = [0, 0]
    first: list[list[tuple[str, str, str]]] = [[], []]
    with ExitStack() as stack:
        groups = stack.enter_context(SampleGroups(len(job.tasks)))
        texts = stack.enter_context(KeyTexts())
        job.read(engine, groups, texts)
        output = None if path is None else LocalOutput(path)
        if output is not None:
            stack.callback(output.abort)
        for found in groups.lacking(border):
            side, task = int(found.shard >= border), job.tasks[found.shard]
            keys = texts.read(found.shard, found.indexes)
            counts[side] += len(keys)
            room = MOST_EXAMPLES - len(first[side])
            first[side] += [(task.source, task.shard.text, key) for key in keys[:room]]
            if output is not None:
                output.write(_encode(f"{'<>'[side]} {key}\n" for key in keys))
        if output is not None and not job.result.failed:
            output.commit()
    return KeyDifferences(counts[0], counts[1], first[0], first[1], job.result.failed)
