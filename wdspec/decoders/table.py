"""The table of decoders: a row each, and what is looked up in it.

The order is that of docs/decoders.md, which is made from it (see `documentation`).
"""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.decoders.image_formats import FORMAT_OF, IMAGE_FIELDS
from wdspec.decoders.row import DecoderRow, ImageSpec

_CODECS = "wdspec.fields.codecs"
_SOUND = {
    ("wav",): "write_wav",
    ("aif", "aiff"): "write_aiff",
    ("au",): "write_au",
    ("flac",): "write_flac",
    ("mp3",): "write_mp3",
    ("ogg", "oga", "opus"): "",
}
"""Extensions of the sound that libsndfile reads → what writes them; see the codec for why ogg is not written."""
_FFMPEG_SOUND = ("m4a", "aac", "wma")
_FILM = ("mp4", "m4v", "mov", "avi", "mkv", "webm", "ogv", "mpg", "mpeg", "mjpeg", "h264", "wmv")

DEFAULT_IMAGE_DECODER = "rgb8"
"""What images become, in a mix that rescales any, unless ``decode`` says otherwise."""
RAW = "raw"
"""The decoder that leaves a field as bytes."""


def _basic() -> Iterator[DecoderRow]:
    """Decoders named like the extensions that they read where a spec says nothing."""
    yield DecoderRow(
        ("htm", "html", "text", "transcript", "txt"),
        "`str`: UTF-8, kept to the letter",
        read=f"{_CODECS}.text:read_text",
        write=f"{_CODECS}.text:write_text",
        by_default=True,
    )
    yield DecoderRow(
        ("class", "cls", "cls2", "count", "id", "index", "inx"),
        "`int`; spaces and newlines around it are fine",
        read="builtins:int",
        write=f"{_CODECS}.text:write_integer",
        by_default=True,
    )
    yield DecoderRow(
        ("jsn", "json"),
        "what the JSON says; `null` is None",
        read=f"{_CODECS}.json_text:read_json",
        write=f"{_CODECS}.json_text:write_json",
        by_default=True,
    )
    for name in ("npy", "npz"):
        yield DecoderRow(
            (name,),
            "a writable numpy array, or for npz a dict of them",
            read=f"{_CODECS}.numpy_files:read_numpy",
            read_trusting=f"{_CODECS}.pickles:read_numpy_objects",
            write=f"{_CODECS}.numpy_files:write_{name}",
            by_default=True,
        )
    yield DecoderRow(
        ("mp", "msg", "msgpack"),
        "the MessagePack value",
        read=f"{_CODECS}.msgpack_and_cbor:read_msgpack",
        write=f"{_CODECS}.msgpack_and_cbor:write_msgpack",
        by_default=True,
        needs={"msgpack": "formats"},
    )
    yield DecoderRow(
        ("cbor",),
        "the CBOR value",
        read=f"{_CODECS}.msgpack_and_cbor:read_cbor",
        write=f"{_CODECS}.msgpack_and_cbor:write_cbor",
        by_default=True,
        needs={"cbor2": "formats"},
    )
    yield DecoderRow(
        ("pth",),
        "tensors and plain containers on the CPU (`weights_only`, from torch 2.10 on)",
        read=f"{_CODECS}.tensors:read_torch",
        read_trusting=f"{_CODECS}.pickles:read_torch_objects",
        write=f"{_CODECS}.tensors:write_torch",
        write_trusting=f"{_CODECS}.pickles:write_torch_objects",
        by_default=True,
        needs={"torch": "torch"},
        is_pickle=True,
    )
    yield DecoderRow(
        ("safetensors",),
        "a dict of numpy arrays",
        read=f"{_CODECS}.tensors:read_safetensors",
        write=f"{_CODECS}.tensors:write_safetensors",
        by_default=True,
        needs={"safetensors": "safetensors"},
    )
    yield DecoderRow(
        ("torch_safetensors",),
        "a dict of torch tensors",
        read=f"{_CODECS}.tensors:read_torch_safetensors",
        extensions=("safetensors",),
        by_default=True,
        needs={"safetensors": "safetensors", "torch": "torch"},
    )
    yield DecoderRow(
        ("pickle", "pkl", "pyd"),
        "any Python object; refused without `allow: [pickle]`",
        read_trusting=f"{_CODECS}.pickles:read_pickle",
        write=f"{_CODECS}.pickles:refuse_to_write",
        write_trusting=f"{_CODECS}.pickles:write_pickle",
        by_default=True,
        pickle=True,
        is_pickle=True,
    )
    yield DecoderRow(
        ("tb", "ten", "tenbin"),
        "left out on purpose: an error that says so; `raw` keeps the bytes",
        read=f"{_CODECS}.tenbin:refusing_reader",
        write=f"{_CODECS}.tenbin:refusing_writer",
        by_default=True,
        made=True,
        left_out=True,
    )


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
                    read=f"{_CODECS}.images.image_decoder:image_decoder",
                    write=f"{_CODECS}.images.image_encoder:image_encoder",
                    extensions=tuple(sorted(FORMAT_OF)),
                    writes=tuple(sorted(IMAGE_FIELDS)),
                    needs={"torch": "torch"} if container == "torch" else {},
                    options={"upright": {}, "pillow": {}},
                    made=True,
                    image=spec,
                )


def _media() -> Iterator[DecoderRow]:
    """Sound and films, which stay bytes unless a spec asks for them."""
    yield DecoderRow(
        ("audio",),
        "(samples, rate): numpy float32 in -1..1 of shape (channels, samples), and Hz",
        read=f"{_CODECS}.audio:read_audio",
        extensions=(*(name for names in _SOUND for name in names), *_FFMPEG_SOUND),
        needs={"soundfile": "audio"},
    )
    yield DecoderRow(
        ("torch_audio",),
        "the same with a torch tensor",
        read=f"{_CODECS}.audio:read_torch_audio",
        extensions=(*(name for names in _SOUND for name in names), *_FFMPEG_SOUND),
        needs={"soundfile": "audio", "torch": "torch"},
    )
    for names, writer in _SOUND.items():
        yield DecoderRow(
            names,
            "as `audio`",
            read=f"{_CODECS}.audio:read_audio",
            write=f"{_CODECS}.audio:{writer}" if writer else "",
            needs={"soundfile": "audio"},
        )
    yield DecoderRow(_FFMPEG_SOUND, "as `audio`", read=f"{_CODECS}.audio:read_audio", needs={"av": "video"})
    yield DecoderRow(
        ("video",),
        "(frames, samples, facts): numpy uint8 of shape (frames, height, width, 3), sound as above, or of shape (1, 0) "
        'if there is none, and `{"video_fps": …, "audio_fps": …}`',
        read=f"{_CODECS}.video:film_decoder",
        extensions=_FILM,
        needs={"av": "video"},
        options={"torchcodec": {"torchcodec": "torchcodec"}},
        made=True,
    )
    yield DecoderRow(
        ("torch_video",),
        "the same with torch tensors",
        read=f"{_CODECS}.video:film_decoder",
        extensions=_FILM,
        needs={"av": "video", "torch": "torch"},
        options={"torchcodec": {"torchcodec": "torchcodec", "torch": "torch"}},
        made=True,
    )
    yield DecoderRow(
        _FILM,
        "as `video`",
        read=f"{_CODECS}.video:film_decoder",
        needs={"av": "video"},
        options={"torchcodec": {"torchcodec": "torchcodec"}},
        made=True,
    )


BASIC = tuple(_basic())
"""What goes by the extension."""
IMAGES = tuple(_images())
MEDIA = tuple(_media())
"""Sound and films."""
ROWS = (*BASIC, *IMAGES, *MEDIA, DecoderRow((RAW,), "the bytes of the file", everything=True))

BY_NAME = {name: row for row in ROWS for name in row.names}
"""Name of a decoder, or of one that is left out → its row."""
WRITTEN_BY = {
    extension: row for row in ROWS if row.write for extension in row.writes or row.extensions or row.names
}
"""Extension → the row of what writes it."""


def split_decoder(name: str) -> tuple[str, frozenset[str]]:
    """A decoder's name without its options, and these: ``rgb8+upright`` is ``rgb8`` and ``upright``."""
    if ":" in name:
        return name, frozenset()
    base, *options = name.split("+")
    return base, frozenset(options)
