"""Reads mutated files of a format, and compares with another reader: `python hostile.py FORMAT FIRST COUNT [EVERY]`.

It runs in a process with 2 GB of memory besides its modules. A file that takes 20 s of CPU time, or ten times as long
while it waits, raises anything but an error with a code, or is read without an error but not as the other reader reads
it, is a defect: its number is printed. The commands of the program read one file of `EVERY`, too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import signal
import struct
import sys
import tarfile
import tempfile
import traceback
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np

from wdspec.base.errors import MissingShardError, ShardError, UsageError

sys.path.append(str(Path(__file__).parents[1] / "support"))
MEMORY, SECONDS = 2 << 30, 20
BLOCK = 512
ROWS = [
    {
        "__key__": f"k{number}",
        "text": f"text of {number}",
        "number": number * 1001,
        "data": bytes([number]) * 9 * number,
    }
    for number in range(12)
]


def _tar(format):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for number, row in enumerate(ROWS):
            key = f"{row['__key__']}{'long' * 30 * (number % 3 == 1 and format != tarfile.USTAR_FORMAT)}"
            for suffix, data in (("bin", row["data"]), ("txt", row["text"].encode())):
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _read_tar(data):
    """Adjacent members with the same key, as tarfile reads them."""
    samples = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", errors="surrogateescape") as tar:
        for info in tar:
            if not 0 <= info.size <= len(data):
                raise tarfile.ReadError
            folder, _, base = info.name.rpartition("/")
            if not (info.isreg() or info.islnk() or info.type not in tarfile.SUPPORTED_TYPES):
                continue
            stem, dot, suffix = base.partition(".")
            if not stem or not dot or (info.name[:2] == "__" and info.name.partition("/")[0].endswith("__")):
                continue
            key = f"{folder}/{stem}" if "/" in info.name else stem
            if not samples or samples[-1]["__key__"] != key:
                samples.append({"__key__": key})
            samples[-1][suffix.lower()] = tar.extractfile(info).read()
    return samples


def _jsonl():
    rows = [{name: value for name, value in row.items() if name != "data"} for row in ROWS]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _cbor():
    import cbor2

    return b"".join(map(cbor2.dumps, ROWS))


def _msgpack():
    import msgpack

    return b"".join(map(msgpack.packb, ROWS))


def _table():
    import pyarrow as pa

    return pa.table({name: [row[name] for row in ROWS] for name in ROWS[0]})


def _lists():
    """A table with lists and maps."""
    table = _table().append_column("ids", [[[number] * (number % 3) for number in range(len(ROWS))]])
    turns = [[{"role": "user", "text": row["text"]}] * (row["number"] % 2) for row in ROWS]
    return table.append_column("turns", [turns])


def _parquet(table, **options):
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=5, **options)
    return out.getvalue()


def _arrow(maker):
    import pyarrow as pa

    out, table = io.BytesIO(), _table()
    with getattr(pa.ipc, maker)(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return out.getvalue()


_MDS = {"__key__": "str", "text": "str", "number": "int", "data": "bytes"}


def _mds():
    from mdsdata import plain_shard

    rows = [
        {
            name: value.to_bytes(8, "little")
            if name == "number"
            else value
            if name == "data"
            else value.encode()
            for name, value in row.items()
        }
        for row in ROWS
    ]
    return plain_shard(_MDS, rows)


def _npy():
    out = io.BytesIO()
    np.save(out, np.arange(60, dtype=np.uint16))
    return out.getvalue()


def _named(records):
    """Records as samples: small letters, and numbers for missing keys."""
    found = []
    for number, record in enumerate(records):
        key = record.get("__key__")
        sample = {"__key__": str(number) if key is None else str(key)}
        for name, value in record.items():
            if name != "__key__" and value is not None:
                is_meta = len(name) > 4 and name.startswith("__") and name.endswith("__")
                sample[name if is_meta else name.lower()] = value
        found.append(sample)
    return found


def _read_jsonl(data):
    rows = (json.loads(line.decode()) for line in data.split(b"\n") if line.strip())
    return [{**sample} for sample in _named(rows)]


def _read_cbor(data):
    import cbor2

    file, rows = io.BytesIO(data), []
    while file.tell() < len(data):
        rows.append(cbor2.load(file))
    return _named(rows)


def _read_msgpack(data):
    import msgpack

    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(data)
    return _named(unpacker)


def _read_parquet(data):
    import pyarrow.parquet as pq

    return _named(pq.read_table(io.BytesIO(data)).to_pylist())


def _read_arrow(data):
    import pyarrow as pa

    # Not by the places in the footer, which the program does not need: wrong ones end the process within pyarrow.
    return _named(pa.ipc.open_stream(data[8:] if data[:6] == b"ARROW1" else data).read_all().to_pylist())


def _read_mds(data):
    """As MosaicML's reader: a sample is found by its offset, its values by the sizes at its start."""
    (count,) = struct.unpack_from("<I", data)
    ends = struct.unpack_from(f"<{count + 1}I", data, 4)
    about = json.loads(data[8 + 4 * count : ends[0]].decode())
    decode = {"str": bytes.decode, "bytes": bytes, "int": lambda part: int(np.frombuffer(part, "<i8")[0])}
    rows = []
    for start, end in pairwise(ends):
        sample, at, sizes = data[start:end], 0, []
        for size in about["column_sizes"]:
            sizes.append(struct.unpack_from("<I", sample, at)[0] if size is None else size)
            at += 4 * (size is None)
        rows.append({})
        for name, kind, size in zip(about["column_names"], about["column_encodings"], sizes, strict=True):
            rows[-1][name] = decode[kind](sample[at : at + size])
            at += size
    return _named(rows)


def _read_npy(data):
    array = np.load(io.BytesIO(data))
    rows = array if array.ndim == 2 else array[: len(array) // 6 * 6].reshape(-1, 6)
    return [row.tolist() for row in rows]


FORMATS = {
    "ustar": (lambda: _tar(tarfile.USTAR_FORMAT), _read_tar, "tar"),
    "gnu": (lambda: _tar(tarfile.GNU_FORMAT), _read_tar, "tar"),
    "pax": (lambda: _tar(tarfile.PAX_FORMAT), _read_tar, "tar"),
    "jsonl": (_jsonl, _read_jsonl, "jsonl"),
    "cbor": (_cbor, _read_cbor, "cbor"),
    "msgpack": (_msgpack, _read_msgpack, "msgpack"),
    "parquet": (lambda: _parquet(_table(), write_page_checksum=True), _read_parquet, "parquet"),
    "parquet-lists": (
        lambda: _parquet(_lists(), compression="none", use_dictionary=False),
        _read_parquet,
        "parquet",
    ),
    "arrow-file": (lambda: _arrow("new_file"), _read_arrow, "arrow"),
    "arrow-stream": (lambda: _arrow("new_stream"), _read_arrow, "arrow"),
    "mds": (_mds, _read_mds, "mds"),
    "npy": (_npy, _read_npy, "tokens"),
}
"""A good file, the other reader, and the format as in a spec."""


def read(data, format):
    """The samples, and the errors."""
    from wdspec.formats.readers import READERS, Surroundings
    from wdspec.formats.statistics import Verification
    from wdspec.formats.tar.reader import TarSamples
    from wdspec.spec.language.options import TokenOptions

    errors = []
    if format == "tar":
        samples = TarSamples(io.BytesIO(data), on_error=errors.append)
    else:
        verify = Verification(errors.append)  # as `check` does
        around = Surroundings(tokens=TokenOptions(length=6), open_beside=_nothing_beside, verify=verify)
        options = {"constants": {"__url__": "a.npy"}} if format == "tokens" else {}
        samples = READERS[format].read(io.BytesIO(data), around, on_error=errors.append, **options)
    try:
        found = [dict(sample) for sample in samples]
    except (ShardError, UsageError) as error:
        errors.append(error)
        found = []
    assert all(str(error) for error in errors)
    if format == "tokens":
        found = [next(value for name, value in each.items() if name[:2] != "__") for each in found]
        found = [np.asarray(each).tolist() for each in found]
    return found, errors


def _nothing_beside(suffix):
    raise MissingShardError(f"there is no {suffix}")


def mutate(data, generator):
    """Change a few bytes, or cut, repeat, move or zero a piece; in tars, also with a correct checksum."""
    data = bytearray(data)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        at = generator.randrange(len(data) or 1)
        size = generator.choice((1, 4, 8, 64, BLOCK, 2 * BLOCK))
        match generator.randrange(8):
            case 0 | 1 if data:
                data[at] ^= 1 << generator.randrange(8)
            case 2:
                data[at : at + 1] = generator.randbytes(1)
            case 3:
                del data[at : at + size]
            case 4:
                data[at:at] = data[max(0, at - size) : at]
            case 5:
                data[at : at + size] = bytes(min(size, len(data) - at))
            case 6:
                data[at : at + 8] = generator.choice((b"\xff" * 8, b"\x7f" + b"\xff" * 7, bytes(7) + b"\x40"))
            case 7:
                start = at - at % BLOCK
                block = data[start : start + BLOCK]
                if block[257:262] == b"ustar":
                    # The name and the size: tarfile also refuses damaged times and owners, and knows other types.
                    place = generator.choice((*range(100), *range(124, 136)))
                    block[place] = generator.randrange(256)
                    block[148:156] = b" " * 8
                    block[148:156] = b"%06o\0 " % sum(block)
                    data[start : start + BLOCK] = block
    return bytes(data)


def plain(value):
    """A value that can be compared: arrays as lists, numbers that are no number as text."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return repr(value)


def judge(data, oracle, format):
    """What is wrong with how a file is read; "" if nothing is."""
    found, errors = read(data, format)
    if errors:
        return ""
    try:
        expected = oracle(data)
    except Exception as refusal:
        return f"no error, but the other reader: {type(refusal).__name__}: {str(refusal)[:80]}"
    if plain(found) != plain(expected):
        return f"{str(found)[:200]} instead of {str(expected)[:200]}"
    return ""


COMMANDS = (
    ("check", "--all", "--jobs", "0", "s.yaml"),
    ("head", "s.yaml"),
    ("explain", "s.yaml"),
    ("stats", "--jobs", "0", "s.yaml"),
    ("batch", "--steps", "0..3", "--samples", "s.yaml"),
    ("lock", "--hash", "--jobs", "1", "s.yaml"),
    ("process", "--jobs", "0", "--force", "--output", "processed", "s.yaml"),
    ("ls", "SHARD"),
    ("cat", "--decode", "--force", "-o", "copy.tar", "SHARD"),
    ("split", "--force", "--maxcount", "5", "-o", "part-%06d.tar", "SHARD"),
    ("sort", "--force", "-o", "sorted.tar", "SHARD"),
)
"""All in this process: `check`, `stats` and `process` would start another one for each file."""


def run_commands(data, format, folder):
    """What is wrong with what commands do with a shard: they end with a status, and never with a traceback."""
    from wdspec.cli.main import main

    shard = f"a.{'npy' if format == 'tokens' else format}"
    with open(f"{folder}/{shard}", "wb") as file:
        file.write(data)
    more = "tokens: {length: 6}" if format == "tokens" else "errors: {skip: true}"
    with open(f"{folder}/s.yaml", "w") as file:
        file.write(
            f"wdspec: 1\ndataset:\n  - {{name: a, shards: {shard}, format: {format}, {more}}}\nbatch: 1\nepoch: pass\n"
        )
    for command in COMMANDS:
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
        status = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                main([shard if each == "SHARD" else each for each in command])
            except SystemExit as done:
                status = done.code or 0
        text = out.buffer.getvalue().decode("utf-8", "replace")
        if status not in (0, 1, 2) or "Traceback" in text or "internal error" in text:
            return f"{' '.join(command)}: status {status}: {text[-300:]}"
    return ""


def limit(seconds):
    """Limit the CPU time of what follows, which does not depend on other processes, and its waiting; 0: no limit."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)


def too_long(number, _):
    raise TimeoutError("it is too slow" if number == signal.SIGPROF else "it waits")


def main(name, first, count, every=0):
    warnings.simplefilter("ignore")
    make, oracle, format = FORMATS[name]
    good = make()
    assert judge(good, oracle, format) == "", judge(good, oracle, format)
    if every:
        import torch  # noqa: F401  # its libraries take address space

    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, too_long)
    defects = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number in range(first, first + count):
            data = mutate(good, random.Random(f"{name}{number}"))
            print(number, end="\r", file=sys.stderr, flush=True)  # if it crashes, this is where
            limit(SECONDS)
            try:
                fault = judge(data, oracle, format)
                if not fault and every and number % every == 0:
                    limit(SECONDS * len(COMMANDS))
                    fault = run_commands(data, format, folder)
            except BaseException as error:
                fault = f"{type(error).__name__}: {error} {traceback.format_exc()[-300:]}"
            limit(0)
            if fault:
                defects += 1
                print(f"{name} {number}: {fault}", flush=True)
        os.chdir("/")
    return defects


if __name__ == "__main__":
    sys.exit(min(100, main(sys.argv[1], *map(int, sys.argv[2:]))))
