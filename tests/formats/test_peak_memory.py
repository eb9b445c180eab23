"""A compressed shard takes hardly more memory than a plain one, whatever its compression ratio."""

import io
import subprocess
import sys
import tarfile

import pytest

from wdspec.formats.compression import BY_NAME
from wdspec.formats.tar.reader import TarSamples
from wdspec.write.tar_writer import END, HeaderMaker

READ = """
import sys
from wdspec.formats.decompress import decompress
from wdspec.formats.tar.reader import TarSamples
with open(sys.argv[1], "rb", buffering=0) as file:
    read = sum(len(sample["bin"]) for sample in TarSamples(decompress(file)))
print(read, next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
UNPACK = """
import sys
from wdspec.formats import compression
compression.MAX_DECOMPRESSED = 1_000_000
data = open(sys.argv[1], "rb").read()
try:
    compression.BY_NAME["zst"].decompress(data)
except ValueError as error:
    refused = "more than 1,000,000 bytes" in str(error)
print(int(refused), next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
MEMBERS = 100


def peak(script, path):
    """What a script prints: a number, and the most memory its process had, in bytes."""
    done = subprocess.run([sys.executable, "-c", script, path], check=True, capture_output=True, text=True)
    number, kilobytes = done.stdout.split()
    return int(number), int(kilobytes) * 1024


def write(path, compression=None):
    """A tar of 100 MB, all zeros except its headers."""
    stream, maker, body = compression and compression.compressor(), HeaderMaker(), bytes(1_000_000)
    with open(path, "wb") as file:
        for n in range(MEMBERS):
            data = maker.header(b"%d.bin" % n, len(body)) + body + bytes(-len(body) % 512)
            file.write(stream.compress(data) if stream else data)
        file.write(stream.compress(END) + stream.flush() if stream else END)
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
@pytest.mark.parametrize("name", ["gz", "zst"])
def test_a_compressed_shard_takes_less_than_20_mb_more_than_a_plain_one(name, tmp_path):
    plain = peak(READ, write(tmp_path / "plain"))
    compressed = peak(READ, write(tmp_path / "compressed", BY_NAME[name]))
    assert plain[0] == compressed[0] == MEMBERS * 1_000_000
    assert compressed[1] - plain[1] < 20_000_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
def test_a_too_large_field_is_rejected_before_unpacking(tmp_path):
    (tmp_path / "small").write_bytes(BY_NAME["zst"].compress(bytes(1_000_001)))
    (tmp_path / "bomb").write_bytes(BY_NAME["zst"].compress(bytes(300_000_000)))
    small, bomb = (peak(UNPACK, tmp_path / name) for name in ("small", "bomb"))
    assert small[0] == bomb[0] == 1
    assert bomb[1] - small[1] < 5_000_000


def test_members_of_more_than_64_mb_are_read_from_local_files(tmp_path):
    size = 65 * 2**20
    with open(tmp_path / "a.tar", "wb") as file:
        for name in ("a.bin", "b.bin"):
            info = tarfile.TarInfo(name)
            info.size = size
            file.write(info.tobuf())
            file.seek(size, io.SEEK_CUR)
        file.truncate(file.tell() + 1024)
    with open(tmp_path / "a.tar", "rb", buffering=0) as file:
        assert [(each["__key__"], len(each["bin"])) for each in TarSamples(file)] == [
            ("a", size),
            ("b", size),
        ]
