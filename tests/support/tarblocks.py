"""Single blocks of tars, also such as no program writes."""

import tarfile

BLOCK = 512


def header(name, size=0, type=b"0", **more):
    """A header with just this in its field of 100 bytes."""
    info = tarfile.TarInfo("x")
    info.type, info.size = type, size
    for key, value in more.items():
        setattr(info, key, value)
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    block[:100] = name[:100].ljust(100, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def filled(data):
    return data + bytes(-len(data) % BLOCK)
