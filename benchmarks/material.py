"""Shards for the benchmarks: made in a folder, the same bytes each time."""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

Fields = dict[str, bytes]


def text_sample(rng: random.Random, index: int) -> Fields:
    """About 1 KB of text and a short json."""
    return {"txt": rng.randbytes(512).hex().encode(), "json": facts(index)}


def picture_sample(rng: random.Random, index: int) -> Fields:
    """About 40 KB in place of a jpg (nothing here decodes it), a class and a short json."""
    return {
        "jpg": rng.randbytes(rng.randrange(30_000, 50_000)),
        "cls": str(index % 1000).encode(),
        "json": facts(index),
    }


def facts(index: int) -> bytes:
    """A json like those that accompany images."""
    return json.dumps({"index": index, "caption": f"picture number {index}", "size": [640, 480]}).encode()


def write_shards(
    folder: Path, name: str, make: Callable[[random.Random, int], Fields], megabytes: float, shards: int
) -> int:
    """Write tars of `megabytes` in all as `folder/name-000000.tar`, ...; return the number of samples."""
    folder.mkdir(parents=True, exist_ok=True)
    index = 0
    for shard in range(shards):
        rng = random.Random(f"{name} {shard}")
        with tarfile.open(folder / f"{name}-{shard:06d}.tar", "w") as tar:
            while tar.offset < megabytes * 1e6 / shards:
                for extension, data in make(rng, index).items():
                    member = tarfile.TarInfo(f"{index:08d}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                index += 1
    return index


def brace_pattern(folder: Path | str, name: str, shards: int) -> str:
    """The URL pattern of the shards of `write_shards`."""
    return f"{folder}/{name}-{{000000..{shards - 1:06d}}}.tar"
