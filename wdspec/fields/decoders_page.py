"""The table of decoders as Markdown, made from the table of decoders: `docs/decoders.md`.

python -m wdspec.fields.decoders_page > docs/decoders.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wdspec.decoders.image_formats import FORMAT_OF
from wdspec.decoders.row import DecoderRow
from wdspec.decoders.table import BASIC, IMAGES, MEDIA
from wdspec.fields.compressed_fields import UNPACKERS

_START = """\
# Decoders

Made by `python -m wdspec.fields.decoders_page` from the table of decoders; do not edit it by hand.

`decode` says how fields become values: one name for whatever it fits (`decode: rgb8`), a list of which the first that
fits a field wins (`decode: [rgb8, audio]`), or a map by field name or suffix (`decode: {image: rgb8, meta: raw}`). A
suffix counts whole or from a dot on: `jpg` also decodes `seg.jpg`. What `decode` says nothing of goes by the last part
of its suffix; images, audio and video then stay bytes, and so does whatever is not in these tables.

In Python the same names go into `wdspec.Decoder("rgb8", …)`, beside handlers of your own:
`wdspec.handle_extension("seg.png", read_labels)`; see [python.md](python.md). What writes the same
extensions is in [writing.md](writing.md).

## By extension

"""
_IMAGES = """\

## Images

One name decodes all images of a sample. The format goes by the bytes; of an animation the first frame counts.

"""
_AFTER_IMAGES = """
- Arrays are writable and C-contiguous. In a batch they become tensors, with the shapes given here.
- Pictures of 16 bits, grey or colour, keep them in the `16` and float decoders, and are scaled to 8 bits in the others.
  In a `16` decoder an 8-bit value v becomes 257·v. (16-bit grey with alpha, and 16-bit JPEG 2000 in colour, come
  with 8.)
- Samples of 32 bits have no agreed range and are refused; decode them by a function of your own.
- Alpha is kept or dropped, never applied.
- `rgb8+upright` turns and mirrors images as their EXIF orientation says; `scale` comes after. Without it the pixels
  come as they are stored. (TIFF and AVIF are always upright: there the orientation belongs to the format.)
- Where simplejpeg is installed (`wdspec[fast]`) it reads JPEG for numpy and torch decoders: Pillow's values within 1
  grey level (on all files tested, exactly). Files it finds fault with, and CMYK, Pillow reads. `rgb8+pillow` keeps it
  out.
- An image of more than 178,956,970 pixels is refused.

Extensions: """
_MEDIA = """\

## Audio and video

| decoder | value | needs |
|--|--|--|
"""
_AFTER_MEDIA = """
- Nothing is resampled, all frames are kept, and rotation is not applied. Frames may take 4 GiB, sound 1 GiB.
- `audio` reads m4a, aac and wma as well: with `wdspec[video]`.
- `video+torchcodec` and `torch_video+torchcodec` read by torchcodec instead of PyAV. They need `wdspec[torchcodec]`,
  and the ffmpeg it needs. By PyAV, playlists that name other files or URLs are never followed; torchcodec gives no
  such promise.
"""
_END = """\

## Your own

`package.module:function` is called with the bytes of the field; what it returns is the value. It is imported when a
process first decodes with it, and never under `WDS_SECURE=1`. `raw` leaves a field as bytes, packed if it was.

## What data may do

Nothing here runs what data says. Pickles are errors, which name the remedy, unless the spec has `allow: [pickle]`; then
`npy` with objects and `pth` of any content are read too. `WDS_SECURE=1` forbids that, and `pth` altogether: even by
`weights_only` it is a pickle. For new data use `npz` or `safetensors`.

A field that cannot be decoded is an error that says source, URL, key, field and cause; `errors: skip` counts it and
goes on. A library that is not installed is an error that names its extra, and is never skipped.
"""


def decoders_text() -> str:
    """The whole page."""
    parts = [_START, "| extension | value | needs |\n|--|--|--|\n", *_rows(BASIC)]
    parts.append(
        f"\nA suffix that ends in {_listed(UNPACKERS)} is unpacked first: `json.gz` is read as json, and the field "
        "keeps\nthe name `json.gz`. Unpacked it may have 1 GiB; zst needs `wdspec[zstd]` before Python 3.14.\n"
    )
    parts += [_IMAGES, "| decoder | value | shape |\n|--|--|--|\n"]
    for row in IMAGES:
        if row.image:
            shape = f" {row.image.shape}".rstrip()
            parts += [f"| `{name}` | {row.gives} |{shape} |\n" for name in row.names]
    parts += [_AFTER_IMAGES, _listed(sorted(FORMAT_OF)), ".\n", _MEDIA, *_rows(MEDIA), _AFTER_MEDIA]
    return "".join([*parts, _END])


def _rows(rows: Iterable[DecoderRow]) -> Iterator[str]:
    """Lines of a table, one for all decoders that give the same and need the same."""
    lines: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        needs = " ".join(f"`wdspec[{extra}]`" for extra in dict.fromkeys(row.needs.values()))
        lines.setdefault((row.gives, needs), []).extend(row.names)
    return (f"| {_listed(names)} | {gives} | {needs} |\n" for (gives, needs), names in lines.items())


def _listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(decoders_text(), end="")
