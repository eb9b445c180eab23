"""Shards and specs for the tests of behaviours."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image
from shardmaking import write_source


def png(shade=0):
    file = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write_tar(path, members, mode="w"):
    """A tar of (name, bytes), or of (name, link target, type)."""
    with tarfile.open(path, mode, format=tarfile.USTAR_FORMAT) as tar:
        for name, content, *kind in members:
            info = tarfile.TarInfo(name)
            if kind:
                info.type, info.linkname = kind[0], content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return str(path)


@pytest.fixture
def tar(tmp_path):
    """Makes a tar of members; returns its path."""
    count = iter(range(1000))
    return lambda *members, name=None, mode="w": write_tar(
        tmp_path / (name or f"t{next(count)}.tar"), members, mode
    )


@pytest.fixture
def x_tgz(tmp_path):
    """The 47 samples of webdataset's own tests: png, cls, xml and wnid."""
    members = [
        (f"{i:04d}.{suffix}", data)
        for i in range(47)
        for suffix, data in (
            ("png", png(i)),
            ("cls", b"%d\n" % i),
            ("wnid", b"n%d" % i),
            ("xml", b"<a/>" * 200),
        )
    ]
    return write_tar(tmp_path / "x.tgz", members, "w:gz")


@pytest.fixture
def source(tmp_path):
    """Makes `shards` shards of `samples` samples; returns their braces."""
    return lambda shards=6, samples=10, name="s": write_source(tmp_path / "source", name, shards, samples)
