"""The table of decoders as Markdown, made from the tables that decode: `docs/decoders.md`.

python -m wdspec.fields.decoders_page > docs/decoders.md
"""

from __future__ import annotations

from collections.abc import Iterable

from wdspec.fields.decoders.by_extension import BASIC
from wdspec.fields.decoders.compressed_fields import UNPACKERS
from wdspec.fields.decoders.images import IMAGE_SPECS, IMAGE_SUFFIXES
from wdspec.fields.decoders.optional_libraries import EXTRAS
from wdspec.spec.language.vocabulary import AUDIO_EXTENSIONS, LEFT_OUT_DECODERS, VIDEO_EXTENSIONS

_START = """\
# Decoders

Made by `python -m wdspec.fields.decoders_page` from the tables that decode; do not edit it by hand.

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
| `audio`, or an extension below | (samples, rate): numpy float32 in -1..1 of shape (channels, samples), and Hz | \
`wdspec[audio]`; m4a, aac and wma `wdspec[video]` |
| `torch_audio` | the same with a torch tensor | also `wdspec[torch]` |
| `video`, or an extension below | (frames, samples, facts): numpy uint8 of shape (frames, height, width, 3), sound as \
above, or of shape (1, 0) if there is none, and `{"video_fps": …, "audio_fps": …}` | `wdspec[video]` |
| `torch_video` | the same with torch tensors | also `wdspec[torch]` |
| `video+torchcodec`, `torch_video+torchcodec` | the same, read by torchcodec instead of PyAV | \
`wdspec[torchcodec]`, and the ffmpeg it needs |

Nothing is resampled, all frames are kept, and rotation is not applied. Frames may take 4 GiB, sound 1 GiB. By PyAV,
playlists that name other files or URLs are never followed; torchcodec gives no such promise.

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
    parts = [_START, "| extension | value | needs |\n|--|--|--|\n"]
    rows: dict[tuple[str, str], list[str]] = {}
    for name, reader in BASIC.items():
        needs = f"`wdspec[{EXTRAS[reader.needs]}]`" if reader.needs else ""
        rows.setdefault((reader.gives, needs), []).append(name)
    parts += [f"| {_listed(names)} | {gives} | {needs} |\n" for (gives, needs), names in rows.items()]
    left_out = _listed(sorted(LEFT_OUT_DECODERS))
    parts.append(f"| {left_out} | left out on purpose: an error that says so; `raw` keeps the bytes | |\n")
    parts.append(
        f"\nA suffix that ends in {_listed(UNPACKERS)} is unpacked first: `json.gz` is read as json, and the field "
        "keeps\nthe name `json.gz`. Unpacked it may have 1 GiB; zst needs `wdspec[zstd]` before Python 3.14.\n"
    )
    parts += [_IMAGES, "| decoder | value | shape |\n|--|--|--|\n"]
    parts += [_image_row(name) for name in sorted(IMAGE_SPECS, key=_image_order)]
    parts += [_AFTER_IMAGES, _listed(sorted(IMAGE_SUFFIXES)), ".\n", _MEDIA]
    parts += ["Audio: ", _listed(sorted(AUDIO_EXTENSIONS)), ".\n"]
    parts += ["Video: ", _listed(sorted(VIDEO_EXTENSIONS)), ".\n"]
    return "".join([*parts, _END])


def _image_row(name: str) -> str:
    container, mode, dtype = IMAGE_SPECS[name]
    if container == "pil":
        return f"| `{name}` | `PIL.Image`, mode {mode} | |\n"
    channels = len(mode) if mode != "L" else 0
    if container == "numpy":
        shape = "(height, width" + (f", {channels})" if channels else ")")
    else:
        shape = (f"({channels}, " if channels else "(") + "height, width)"
    return f"| `{name}` | {container} {dtype}{' in 0..1' if dtype == 'float32' else ''} | {shape} |\n"


def _image_order(name: str) -> tuple[int, int, str, str]:
    container, mode, dtype = IMAGE_SPECS[name]
    return ("numpy", "torch", "pil").index(container), ("uint8", "uint16", "float32").index(dtype), mode, name


def _listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(decoders_text(), end="")
