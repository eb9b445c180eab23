"""What is fuzzed: each function takes any bytes, and raises only if they find a defect.

`scripts/fuzz` lets atheris look for such bytes; `test_targets.py` tries the corpus, and mutations of it, with every
change. The first byte of the input chooses options.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from pathlib import Path
from unittest import mock

from wdspec.base.errors import ShardError, SpecError, UrlError
from wdspec.formats import blocks
from wdspec.formats.decompress import decompress
from wdspec.formats.records import RecordSamples, splitter_of
from wdspec.formats.tar.members import iter_members
from wdspec.formats.tar.reader import TarSamples
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.load import check, load
from wdspec.urls.braces import Braces
from wdspec.urls.rewrite import parse_rules, rewrite
from wdspec.urls.urls import kind_of, local_path, parse_shards, scheme_of, slip_in

BLOCK = 512
FORMATS = ("cbor", "msgpack", "jsonl")
MOST_BYTES = 1 << 26
"""Bytes that an input may unpack to before this is given up: bombs are bounded by their readers, not here."""
warnings.simplefilter("ignore")


class Stream(io.RawIOBase):
    """Forward only, a few bytes at a time."""

    def __init__(self, data, step):
        self._file, self._step = io.BytesIO(data), step

    def readable(self):
        return True

    def read(self, size=-1):
        return self._file.read(min(size, self._step))


def outcome(samples):
    """All samples before the first error, and whether there was one."""
    found = []
    try:
        for sample in samples:
            found.append(sample)
    except ShardError as error:
        return found, bool(str(error))
    return found, False


def with_checksums(data):
    """Gives all blocks that look like headers the checksum that they need to be read."""
    fixed = bytearray(data)
    for at in range(0, len(data) - BLOCK + 1, BLOCK):
        if data[at + 257 : at + 262] == b"ustar":
            fixed[at + 148 : at + 156] = b" " * 8
            fixed[at + 148 : at + 156] = b"%06o\0 " % sum(fixed[at : at + BLOCK])
    return bytes(fixed)


def tar(data):
    """Tars: nothing but ShardErrors, and the same samples through any window and as a stream."""
    choice, data = data[:1] or b"\0", data[1:]
    options = {
        "lenient_end": bool(choice[0] & 1),
        "may_be_empty": bool(choice[0] & 2),
        "key_rule": KeyRule(kind="last_dot" if choice[0] & 4 else "first_dot"),
    }
    if choice[0] & 8:
        data = with_checksums(data)
    whole = outcome(TarSamples(io.BytesIO(data), **options))
    assert sum(len(value) for sample in whole[0] for value in sample.values() if type(value) is bytes) <= (
        len(data) * max(1, len(whole[0]))  # hard links hold their file's bytes again
    )
    with mock.patch.object(blocks, "CHUNK", BLOCK * (1 + (choice[0] >> 5))):
        assert outcome(TarSamples(io.BytesIO(data), **options)) == whole
        streamed = outcome(TarSamples(Stream(data, 700), **options))
        assert streamed == whole or (
            streamed[1] and streamed[0] == whole[0][: len(streamed[0])]
        )  # hard links
    members, failed = outcome(iter_members(io.BytesIO(data), **_walk(options)))
    assert whole[1] or not failed or b"time=" in data  # times are passed over faster than they are checked
    assert all(member.end <= len(data) + BLOCK or failed for member in members)


def _walk(options):
    return {name: value for name, value in options.items() if name != "key_rule"}


def records(data):
    """Records, and compressed shards: nothing but ShardErrors, and the same rest from any sample on."""
    choice, data = data[:1] or b"\0", data[1:]
    split = splitter_of(FORMATS[choice[0] % 3])
    if choice[0] & 128:
        try:
            with decompress(io.BytesIO(data)) as file:
                data = b""
                while len(data) < MOST_BYTES and (piece := file.read(1 << 16)):
                    data += piece
        except ShardError:
            return
    reader = RecordSamples(io.BytesIO(data), split, may_be_empty=True)
    places, samples = [(0, 0)], []
    with contextlib.suppress(ShardError):
        for sample in reader:
            samples.append(sample)
            places.append((reader.next_offset, reader.next_index))
    offset, index = places[len(places) // 2]
    rest, _ = outcome(RecordSamples(Stream(data, 50), split, offset=offset, index=index, may_be_empty=True))
    assert repr(rest) == repr(samples[len(places) // 2 :])


def spec(data):
    """Specs load or raise a SpecError that explains the problem; a loaded spec can be shown and checked."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spec.yaml")
        path.write_bytes(data)
        try:
            loaded = load(path)
        except SpecError as error:
            refusal = error
        else:
            refusal = None
            assert repr(loaded)
        if refusal is not None:
            assert str(refusal)
            assert refusal.problems
            return
        checked, _ = check(path)
        assert checked is not None or b"environments" in data or b"splits" in data  # which are checked all


def urls(data):
    """Braces, lists of shards, rules and schemes: read, or a UrlError; lengths and indices agree."""
    text, _, second = data.decode("utf-8", "surrogateescape").partition("\n")
    with contextlib.suppress(UrlError):
        braces = Braces(text)
        assert len(braces) > 0
        assert braces[len(braces) - 1] == braces[-1]
        if len(braces) < 1000:
            assert list(braces) == [braces[n] for n in range(len(braces))]
    with contextlib.suppress(UrlError):
        for part in parse_shards([text], "/base"):
            assert len(part.braces) > 0
            kind_of(part.braces[0])
    with contextlib.suppress(UrlError):
        rewrite(text, parse_rules(second))
    with contextlib.suppress(UrlError):
        local_path(text)
    assert scheme_of(text) == scheme_of(text).lower()
    slip_in(text)


TARGETS = {"tar": tar, "records": records, "spec": spec, "urls": urls}
