"""A flipped bit in a compressed shard with a checksum at its end: perhaps reported late, but never missed."""

import gzip
import io
import random

import pytest
from backports import zstd

from wdspec.base.errors import ShardError
from wdspec.formats.decompress import decompress
from wdspec.formats.tar.reader import TarSamples

PACKED = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "zst": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
}


def flips(pack, name, seed, count):
    """Count flips that were reported before an altered sample was delivered, after one, and that changed nothing."""
    generator = random.Random(seed)
    files = [(f"{n:03d}.txt", generator.randbytes(300).hex().encode()) for n in range(200)]
    packed = PACKED[name](pack(files))
    before = after = nothing = 0
    for _ in range(count):
        data = bytearray(packed)
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        samples = []
        try:
            for sample in TarSamples(decompress(io.BytesIO(bytes(data)))):
                samples.append((f"{sample['__key__']}.txt", sample["txt"]))
        except ShardError:
            altered = samples != files[: len(samples)]
            before, after = before + (not altered), after + altered
        else:
            assert samples == files
            nothing += 1
    return before, after, nothing


@pytest.mark.parametrize("name", PACKED)
def test_no_altered_shard_ends_without_an_error(pack, name):
    before, after, nothing = flips(pack, name, 1, 60)
    assert nothing < 5  # the flags and the time in gzip's header
    assert before + after >= 55


@pytest.mark.long
@pytest.mark.parametrize("name", PACKED)
def test_no_altered_shard_ends_without_an_error_however_often(pack, name):
    assert flips(pack, name, 2, 5000)[2] < 100
