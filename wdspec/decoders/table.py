"""The table of decoders: a row each, and what is looked up in it.

The order is that of the tables in docs/decoders.md, which `documentation` makes from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wdspec.decoders.decoder_options import CLIPPING, FRAMING, REDUCING
from wdspec.decoders.image_formats import FORMAT_OF, IMAGE_FIELDS
from wdspec.decoders.row import DecoderRow, ImageSpec

DEFAULT_IMAGE_DECODER = "rgb8"
"""What images become, in a mix that rescales any, unless ``decode`` says otherwise."""
RAW = "raw"
"""The decoder that leaves a field as bytes."""


def _codec(function: str) -> str:
    return f"wdspec.fields.codecs.{function}"


def _basic(names: str, gives: str, read: str, write: str, **more: Any) -> DecoderRow:
    """A decoder named like the extensions that it reads where a spec says nothing."""
    reads = _codec(read) if read else ""
    return DecoderRow(
        tuple(names.split()), gives, read=reads, write=_codec(write), **{"by_default": True, **more}
    )


_NPY = "a writable numpy array, or for npz a dict of them"
_NPY_OBJECTS = _codec("pickles:read_numpy_objects")

BASIC = (
    _basic(
        "htm html text transcript txt",
        "`str`: UTF-8, kept to the letter",
        "text:read_text",
        "text:write_text",
    ),
    _basic(
        "class cls cls2 count id index inx",
        "`int`; spaces and newlines around it are fine",
        "text:read_integer",
        "text:write_integer",
    ),
    _basic("jsn json", "what the JSON says; `null` is None", "json_text:read_json", "json_text:write_json"),
    _basic("npy", _NPY, "numpy_files:read_numpy", "numpy_files:write_npy", read_trusting=_NPY_OBJECTS),
    _basic("npz", _NPY, "numpy_files:read_numpy", "numpy_files:write_npz", read_trusting=_NPY_OBJECTS),
    _basic(
        "mp msg msgpack",
        "the MessagePack value",
        "msgpack_and_cbor:read_msgpack",
        "msgpack_and_cbor:write_msgpack",
        needs={"msgpack": "formats"},
    ),
    _basic(
        "cbor",
        "the CBOR value",
        "msgpack_and_cbor:read_cbor",
        "msgpack_and_cbor:write_cbor",
        needs={"cbor2": "formats"},
    ),
    _basic(
        "pth",
        "tensors and plain containers on the CPU (`weights_only`, from torch 2.10 on)",
        "tensors:read_torch",
        "tensors:write_torch",
        read_trusting=_codec("pickles:read_torch_objects"),
        write_trusting=_codec("pickles:write_torch_objects"),
        needs={"torch": "torch"},
        is_pickle=True,
    ),
    _basic(
        "safetensors",
        "a dict of numpy arrays",
        "tensors:read_safetensors",
        "tensors:write_safetensors",
        needs={"safetensors": "safetensors"},
    ),
    DecoderRow(
        ("torch_safetensors",),
        "a dict of torch tensors",
        read=_codec("tensors:read_torch_safetensors"),
        extensions=("safetensors",),
        by_default=True,
        needs={"safetensors": "safetensors", "torch": "torch"},
    ),
    _basic(
        "pickle pkl pyd",
        "any Python object; refused without `allow: [pickle]`",
        "",
        "pickles:refuse_to_write",
        read_trusting=_codec("pickles:read_pickle"),
        write_trusting=_codec("pickles:write_pickle"),
        pickle=True,
        is_pickle=True,
    ),
    _basic(
        "tb ten tenbin",
        "left out on purpose: an error that says so; `raw` keeps the bytes",
        "tenbin:refusing_reader",
        "tenbin:refusing_writer",
        made=True,
        left_out=True,
    ),
)
"""What goes by the extension."""


def _images() -> Iterator[DecoderRow]:
    """Decoders of pictures: a container, channels and a type each."""
    for container, dtypes in {
        "numpy": {"8": "uint8", "16": "uint16", "": "float32"},
        "torch": {"8": "uint8", "": "float32"},
        "pil": {"": "uint8"},
    }.items():
        prefix = "" if container == "numpy" else container
        for mark, dtype in dtypes.items():
            for mode in ("L", "RGB", "RGBA"):
                name = f"{prefix}{mode.lower()}{mark}"
                spec = ImageSpec(container, mode, dtype)
                plain = prefix and mode == "RGB" and not mark
                yield DecoderRow(
                    (prefix, name) if plain else (name,),
                    spec.gives,
                    read=_codec("images.image_decoder:image_decoder"),
                    write=_codec("images.image_encoder:image_encoder"),
                    extensions=tuple(sorted(FORMAT_OF)),
                    writes=tuple(sorted(IMAGE_FIELDS)),
                    needs={"torch": "torch"} if container == "torch" else {},
                    options={"upright": {}, "pillow": {}, **{option: {} for option in (*FRAMING, *REDUCING)}},
                    made=True,
                    image=spec,
                )


IMAGES = tuple(_images())

_SOUND = {
    "wav": "write_wav",
    "aif aiff": "write_aiff",
    "au": "write_au",
    "flac": "write_flac",
    "mp3": "write_mp3",
    "ogg oga opus": "",
}
"""Extensions of the sound that libsndfile reads → what writes them; see the codec for why ogg is not written."""
_FFMPEG_SOUND = "m4a aac wma"
_FILM = "mp4 m4v mov avi mkv webm ogv mpg mpeg mjpeg h264 wmv"


def _audio(names: str, gives: str, **more: Any) -> DecoderRow:
    facts = {"read": _codec("audio:read_audio"), "needs": {"soundfile": "audio"}, **more}
    return DecoderRow(tuple(names.split()), gives, **facts)


def _video(names: str, gives: str, extensions: str = "", **torch: str) -> DecoderRow:
    return DecoderRow(
        tuple(names.split()),
        gives,
        read=_codec("video:film_decoder"),
        extensions=tuple(extensions.split()),
        needs={"av": "video", **torch},
        options={
            "torchcodec": {"torchcodec": "torchcodec", **torch},
            "silent": {},
            **{o: {} for o in (*CLIPPING, *FRAMING)},
        },
        made=True,
    )


_ALL_SOUND = tuple(" ".join((*_SOUND, _FFMPEG_SOUND)).split())
MEDIA = (
    _audio(
        "audio",
        "(samples, rate): numpy float32 in -1..1 of shape (channels, samples), and Hz",
        extensions=_ALL_SOUND,
    ),
    _audio(
        "torch_audio",
        "the same with a torch tensor",
        read=_codec("audio:read_torch_audio"),
        extensions=_ALL_SOUND,
        needs={"soundfile": "audio", "torch": "torch"},
    ),
    *(_audio(names, "as `audio`", write=_codec(f"audio:{by}") if by else "") for names, by in _SOUND.items()),
    _audio(_FFMPEG_SOUND, "as `audio`", needs={"av": "video"}),
    _video(
        "video",
        "(frames, samples, facts): numpy uint8 of shape (frames, height, width, 3), sound as above, or of shape (1, 0) "
        'if there is none, and `{"video_fps": …, "audio_fps": …}`',
        _FILM,
    ),
    _video("torch_video", "the same with torch tensors", _FILM, torch="torch"),
    _video(_FILM, "as `video`"),
)
"""Sound and films, which stay bytes unless a spec asks for them."""

ROWS = (*BASIC, *IMAGES, *MEDIA, DecoderRow((RAW,), "the bytes of the file", everything=True))

BY_NAME = {name: row for row in ROWS for name in row.names}
"""Name of a decoder, or of one that is left out → its row."""
WRITTEN_BY = {
    extension: row for row in ROWS if row.write for extension in row.writes or row.extensions or row.names
}
"""Extension → the row of what writes it."""
