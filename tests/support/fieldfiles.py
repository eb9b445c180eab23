"""A small whole file of every kind that is decoded."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from functools import cache
from typing import Any

import cbor2
import msgpack
import numpy as np
import safetensors.numpy
import torch
import zstandard
from PIL import Image

from wdspec.spec.language.decoders import BY_NAME, FORMAT_OF

VALUE = {"a": [1, -2, 3.5, None, True], "b": {"c": "ü", "d": ""}}
"""What the structured formats hold."""
RATE = 8000
SOUND = np.stack([np.sin(np.arange(1600) / 9), np.cos(np.arange(1600) / 23)]).astype(np.float32) / 2
"""Two channels, 0.2 s."""

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def picture(suffix: str) -> bytes:
    """20×12 colours in a format by its extension (grey where it knows no colour)."""
    y, x = np.mgrid[:12, :20]
    image = Image.fromarray(np.stack([x * 12, y * 20, (x + y) * 7], axis=-1).astype(np.uint8))
    image = image.convert({"pgm": "L", "pbm": "1", "xbm": "1"}.get(suffix, "RGB"))
    file = io.BytesIO()
    image.save(file, FORMAT_OF[suffix].pillow)
    return file.getvalue()


def npy(array: Any) -> bytes:
    """An npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz() -> bytes:
    """An npz file of two arrays, compressed."""
    file = io.BytesIO()
    np.savez_compressed(file, a=np.arange(6.0).reshape(2, 3), b=np.array([True]))
    return file.getvalue()


def pth() -> bytes:
    """A torch file of a tensor and a list."""
    file = io.BytesIO()
    torch.save({"a": torch.arange(6).reshape(2, 3), "b": [1, "x"]}, file)
    return file.getvalue()


def sound(suffix: str) -> bytes:
    """`SOUND` by libsndfile, or by PyAV for what that does not write."""
    if suffix in ("m4a", "aac", "wma"):
        container, codec = {"m4a": ("mp4", "aac"), "aac": ("adts", "aac"), "wma": ("asf", "wmav2")}[suffix]
        return film(container, None, codec, 44100)
    import soundfile

    file = io.BytesIO()
    kind = {"oga": "OGG", "opus": "OGG", "aif": "AIFF"}.get(suffix, suffix.upper())
    how = {"opus": "OPUS", "ogg": "VORBIS", "oga": "VORBIS"}.get(suffix)
    soundfile.write(file, SOUND.T, RATE, format=kind, subtype=how)
    return file.getvalue()


CODECS = {
    "mp4": ("mp4", "libx264", "aac"),
    "m4v": ("mp4", "mpeg4", None),
    "mov": ("mov", "mpeg4", "aac"),
    "avi": ("avi", "mpeg4", "pcm_s16le"),
    "mkv": ("matroska", "libx264", "aac"),
    "webm": ("webm", "libvpx", "libopus"),
    "mpg": ("mpeg", "mpeg1video", "mp2"),
    "mpeg": ("mpeg", "mpeg2video", None),
    "mjpeg": ("mjpeg", "mjpeg", None),
    "h264": ("h264", "libx264", None),
    "wmv": ("asf", "wmv2", None),
    "ogv": ("ogg", "libvpx", "libopus"),
}
"""Extension → container, video and audio codec. Ogg holds VP8 here, since this ffmpeg writes no Theora."""
FRAMES = 8


@cache
def film(container: str, video: str | None, audio: str | None, rate: int = 16000) -> bytes:
    """Frames of 64×48 that get lighter, at 24 a second, with 0.25 s of a tone."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        pictures: Any = out.add_stream(video, rate=24) if video else None
        tone: Any = out.add_stream(audio, rate=48000 if audio == "libopus" else rate) if audio else None
        if pictures:
            pictures.width, pictures.height, pictures.bit_rate = 64, 48, 2_000_000
            pictures.pix_fmt = "yuvj420p" if video == "mjpeg" else "yuv420p"
            for level in range(FRAMES):
                grey = np.full((48, 64, 3), 20 + level * 25, np.uint8)
                out.mux(pictures.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
            out.mux(pictures.encode())
        if tone:
            tone.bit_rate = 64000
            channels = tone.codec_context.layout.nb_channels
            samples = np.tile(np.sin(np.arange(tone.rate // 4, dtype=np.float32) / 9) / 2, (channels, 1))
            frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout=tone.codec_context.layout.name)
            frame.sample_rate = tone.rate
            resampler = av.AudioResampler(
                tone.format, tone.layout, tone.rate, tone.codec_context.frame_size or None
            )
            for part in [*resampler.resample(frame), *resampler.resample(None)]:
                out.mux(tone.encode(part))
            out.mux(tone.encode())
    return file.getvalue()


@cache
def whole_files() -> dict[str, bytes]:
    """Extension → a file that is decoded without an error."""
    files = dict.fromkeys(sorted(BY_NAME["txt"].names), "héllo\n".encode())
    files |= dict.fromkeys(sorted(BY_NAME["cls"].names), b" 12\n")
    files |= dict.fromkeys(sorted(BY_NAME["json"].names), json.dumps(VALUE).encode())
    files |= {"npy": npy(np.arange(6.0).reshape(2, 3)), "npz": npz(), "pth": pth()}
    files |= dict.fromkeys(["mp", "msg", "msgpack"], msgpack.packb(VALUE)) | {"cbor": cbor2.dumps(VALUE)}
    files |= {"safetensors": safetensors.numpy.save({"a": np.arange(6.0).reshape(2, 3)})}
    files |= {suffix: picture(suffix) for suffix in sorted(FORMAT_OF)}
    for suffix in ("flac", "mp3", "wav", "ogg", "oga", "opus", "aif", "aiff", "au", "m4a", "aac", "wma"):
        files[suffix] = sound(suffix)
    files |= {suffix: film(*codecs) for suffix, codecs in CODECS.items()}
    files |= {f"json.{packing}": pack(files["json"]) for packing, pack in PACKINGS.items()}
    return files
