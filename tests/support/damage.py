"""Shards with one fault each, and its place according to `tarfile`, for tests of `wdspec check`."""

import gzip
import io
import json
import tarfile
from typing import NamedTuple

import numpy as np
from PIL import Image

SPEC = """\
wdspec: 1
dataset:
  - name: a
    shards: "{pattern}"
    extensions: jpg cls json npy
    decode: {{jpg: rgb8}}
batch: 4
epoch: 100
"""
_rng = np.random.default_rng(0)


class Fault(NamedTuple):
    """What is wrong with a shard."""

    code: str
    member: str | None
    """Name of the member, if one is at fault."""
    offset: int | None


def jpeg(size=(24, 16), mode="RGB"):
    shape = size[::-1] + ((3,) if mode == "RGB" else ())
    buffer = io.BytesIO()
    Image.fromarray(_rng.integers(0, 256, shape, dtype=np.uint8), mode).save(buffer, "jpeg")
    return buffer.getvalue()


def array(values):
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values, np.float32))
    return buffer.getvalue()


def sample(shard, number, **more):
    """(name, bytes) of the members of a good sample; `more` replaces fields, None leaves one out."""
    fields = {
        "jpg": jpeg(),
        "cls": b"%d" % (number % 5),
        "json": json.dumps({"shard": shard, "n": number}).encode(),
        "npy": array(_rng.random(4)),
    }
    fields.update(more)
    return [(f"s{shard:04d}{number:03d}.{name}", data) for name, data in fields.items() if data is not None]


def packed(members, **kinds):
    """A tar of (name, bytes) pairs, or (name, TarInfo type, link)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kinds.get("format", tarfile.USTAR_FORMAT)) as tar:
        for name, content, *link in members:
            info = tarfile.TarInfo(name)
            if link:
                info.type, info.linkname = content, link[0]
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return bytearray(buffer.getvalue())


def offsets(data):
    """Name of each member -> (offset of its first header, of its data), by `tarfile`."""
    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as tar:
        return {info.name: (info.offset, info.offset_data) for info in tar}


def samples(shard, count=5, **changed):
    """The members of a good shard; `changed`: of sample 2."""
    return [
        member
        for number in range(count)
        for member in sample(shard, number, **(changed if number == 2 else {}))
    ]


def with_header(data, name, kind):
    """The tar with another typeflag of a member, and the checksum that belongs to it."""
    at = offsets(data)[name][0]
    header = data[at : at + 512]
    header[156:157] = kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data[at : at + 512] = header
    return data


class Whole:
    """A good shard, to be damaged."""

    def __init__(self, shard):
        self.shard = shard
        self.good = packed(samples(shard))
        self.where = offsets(self.good)
        self.end = self.where[f"s{shard:04d}004.npy"][1] + 512
        self.jpg, self.cls, self.js, self.npy = (
            f"s{shard:04d}002.{name}" for name in ("jpg", "cls", "json", "npy")
        )


def damaged(shard):
    """Name of the kind of damage -> (bytes of the shard, its faults, the suffix of its name). None: no file.

    Each damaged shard has its own keys, numbered from here.
    """
    c = Whole(shard)
    made = {}

    def add(kind, data, *faults, suffix=".tar"):
        nonlocal c
        made[kind] = (None if data is None else bytes(data), [Fault(*fault) for fault in faults], suffix)
        c = Whole(c.shard + 1)

    def at(data, name):
        return offsets(data)[name][0]

    add("missing", None, ("D101", None, None))
    add("0 bytes", b"", ("D103", None, 0))
    add("zeros", bytes(50_000), ("D104", None, 0))
    add("no members", bytes(10_240), ("D105", None, 0))
    add("an HTML page", b"<!DOCTYPE html><html>" + b"x" * 3000, ("D106", None, 0))
    add("a Git LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ("D106", None, 0))
    add("a zip file", b"PK\3\4" + b"z" * 2000, ("D106", None, 0))
    add("cut in a member", c.good[: c.where[c.jpg][1] + 100], ("D107", c.jpg, c.where[c.jpg][0]))
    add("cut in a header", c.good[: c.where[c.cls][0] + 100], ("D107", None, c.where[c.cls][0]))
    flipped = bytearray(c.good)
    flipped[c.where[c.cls][0] + 3] ^= 4
    add("a changed header", flipped, ("D108", None, c.where[c.cls][0]))
    add("no end marker", c.good[: c.end], ("D109", None, c.end))
    add("zeros for a tail", c.good[: c.end] + bytes(40_000), ("D110", None, c.end))
    hole = c.good[: c.where[c.jpg][0]] + bytes(512) + c.good[c.where[c.jpg][0] :]
    add("a hole", hole, ("D110", None, c.where[c.jpg][0]))
    second = packed(samples(c.shard + 5000))
    add("two tars", c.good + second, ("D111", None, len(c.good)))
    add("bytes after the end", c.good + b"junk" * 200, ("D112", None, len(c.good)))
    name = "d" * 120 + f"/{c.cls}"
    long = packed([*sample(c.shard, 0), (name, b"1")], format=tarfile.GNU_FORMAT)
    start = at(long, name)
    long[start + 512 + 5] ^= 1
    add("a damaged long name", long, ("D113", None, start))
    squeezed = bytearray(gzip.compress(c.good, mtime=0))
    squeezed[len(squeezed) // 2] ^= 0x55
    add("damaged gzip", squeezed, ("D114", None, None), suffix=".tar.gz")
    add("cut gzip", gzip.compress(c.good, mtime=0)[:-900], ("D114", None, None), suffix=".tar.gz")
    add("a sparse member", with_header(bytearray(c.good), c.js, b"S"), ("D115", c.js, c.where[c.js][0]))
    add(
        "a member of another volume",
        with_header(bytearray(c.good), c.js, b"M"),
        ("D116", None, c.where[c.js][0]),
    )
    link = packed([*samples(c.shard, 2), *sample(c.shard, 2, cls=None), (c.cls, tarfile.SYMTYPE, "../cls")])
    add("a symbolic link", link, ("D117", c.cls, at(link, c.cls)))
    fifo = packed([*samples(c.shard, 2), *sample(c.shard, 2, cls=None), (c.cls, tarfile.FIFOTYPE, "")])
    add("a FIFO", fifo, ("D118", c.cls, at(fifo, c.cls)))
    hard = packed(
        [*samples(c.shard, 2), *sample(c.shard, 2, cls=None), (c.cls, tarfile.LNKTYPE, "nothing.cls")]
    )
    add("a hard link to nothing", hard, ("D119", c.cls, at(hard, c.cls)))
    twice = packed(
        [*samples(c.shard, 2), *sample(c.shard, 2), (c.cls.replace("cls", "CLS"), b"1"), *sample(c.shard, 3)]
    )
    add(
        "a member twice", twice, ("D204", c.cls.replace("cls", "CLS"), at(twice, c.cls.replace("cls", "CLS")))
    )
    torn = packed([*sample(c.shard, 2)[:2], *sample(c.shard, 3), *sample(c.shard, 2)[2:]])
    add("a torn sample", torn, ("D201", None, 0), ("D205", c.js, at(torn, c.js)))
    lacking = packed(samples(c.shard, cls=None))
    add("a missing field", lacking, ("D201", None, at(lacking, c.jpg)))
    noise = packed(samples(c.shard, jpg=b"\xff\xd8\xff" + b"n" * 500))
    add("a picture that is none", noise, ("D202", c.jpg, at(noise, c.jpg)))
    cut = packed(samples(c.shard, jpg=jpeg()[:-200]))
    add("a cut picture", cut, ("D202", c.jpg, at(cut, c.jpg)))
    broken = packed(samples(c.shard, json=b'{"a": 1'))
    add("broken JSON", broken, ("D202", c.js, at(broken, c.js)))
    empty = packed(samples(c.shard, json=b""))
    add("an empty field", empty, ("D202", c.js, at(empty, c.js)), ("D312", c.js, at(empty, c.js)))
    twice = packed(samples(c.shard, json=b'{"a": [{"b": 1, "b": 2}]}'))
    add("a name twice in JSON", twice, ("D320", c.js, at(twice, c.js)))
    below = packed(samples(c.shard, cls=b"-1"))
    add("a negative class", below, ("D209", c.cls, at(below, c.cls)))
    nan = packed(samples(c.shard, npy=array([1, float("nan"), 2, 3])))
    add("NaN", nan, ("D208", c.npy, at(nan, c.npy)))
    add("gzip called tar", gzip.compress(c.good, mtime=0), ("D309", None, 0))
    add("a plain tar called gz", c.good, ("D309", None, 0), suffix=".tar.gz")
    grey = packed(samples(c.shard, jpg=jpeg(mode="L")))
    add("a grey picture", grey, ("D305", None, at(grey, c.jpg)))
    far = packed(samples(c.shard, cls=b"65535"))
    add("a class far out", far, ("D310", None, at(far, c.jpg)))
    wide = packed(samples(c.shard, npy=array(np.zeros(7))))
    add("another shape", wide, ("D210", None, None))
    same = jpeg()
    equal = packed([*samples(c.shard, 2), *sample(c.shard, 2, jpg=same), *sample(c.shard, 3, jpg=same)])
    add("one picture twice", equal, ("D304", None, at(equal, f"s{c.shard:04d}003.jpg")))
    return made
