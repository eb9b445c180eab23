"""Other programs read our files: GNU tar, and the command line tools of each compression."""

import os
import shutil
import subprocess

import pytest

import wdspec

LONG = "folder-" * 30 + "/" + "name-" * 40
KEYS = ["a/000", "größe", LONG, "d" * 150 + "/" + "x" * 90]
TOOLS = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstd"}


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@needs("tar")
@pytest.mark.parametrize("format", ["auto", "gnu", "pax"])
def test_gnu_tar_lists_and_unpacks_every_member(format, tmp_path):
    with wdspec.TarWriter(tmp_path / "a.tar", format=format) as writer:
        for n, key in enumerate(KEYS):
            writer.write({"__key__": key, "txt": f"number {n}"})
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        ["tar", "-xvf", "../a.tar"], cwd=tmp_path / "out", capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [(tmp_path / "out" / f"{key}.txt").read_text() for key in KEYS] == [
        f"number {n}" for n in range(4)
    ]


@pytest.mark.parametrize(
    "suffix", [pytest.param(suffix, marks=needs(tool)) for suffix, tool in TOOLS.items()]
)
def test_each_compression_is_unpacked_by_its_standard_tool(suffix, tmp_path):
    for name in ("a.tar", f"b.tar.{suffix}"):
        with wdspec.TarWriter(tmp_path / name) as writer:
            writer.write({"__key__": "k", "txt": "text" * 10_000})
    unpacked = subprocess.run(
        [TOOLS[suffix], "-dc", tmp_path / f"b.tar.{suffix}"], capture_output=True, check=True
    )
    assert unpacked.stdout == (tmp_path / "a.tar").read_bytes()
