"""The table of decoders, one row each; image formats; and the libraries that only some decoders need.

The order is that of the tables in docs/decoders.md, which are made from this one. Libraries are imported when a process
first decodes with them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any, NamedTuple

from wdspec.base.errors import UsageError, in_one_line, install_command
from wdspec.spec.language.decoder_options import CLIPPING, DRAWING, FINISHING, FRAMING, REDUCING, SOUNDING


class ImageSpec(NamedTuple):
    """What an image decoder returns."""

    container: str
    """``numpy``, ``torch`` or ``pil``."""
    mode: str
    """Pillow's name for the channels: ``L``, ``RGB`` or ``RGBA``."""
    dtype: str
    """``uint8``, ``uint16``, or ``float32`` for values in 0..1."""

    @property
    def gives(self) -> str:
        """The value, for the documentation."""
        if self.container == "pil":
            return f"`PIL.Image`, mode {self.mode}"
        return f"{self.container} {self.dtype}{' in 0..1' if self.dtype == 'float32' else ''}"

    @property
    def shape(self) -> str:
        """The shape, for the documentation: channels last in arrays, first in tensors, none in Pillow images."""
        sides = ["height", "width"]
        if self.mode != "L":
            sides.insert(0 if self.container == "torch" else 2, str(len(self.mode)))
        return "" if self.container == "pil" else f"({', '.join(sides)})"


@dataclass(frozen=True)
class DecoderRow:
    """A decoder. Functions are named ``package.module:function``, and imported on first use."""

    names: tuple[str, ...]
    """Its names in a spec: ``decode: rgb8``."""
    gives: str
    """The value that it returns, in Markdown."""
    read: str = ""
    """Function from bytes to a value, safe for any data. Empty if there is none, such as for pickles."""
    write: str = ""
    """Function from a value to bytes, for fields of the row's `extensions`. Empty if only bytes can be written."""
    extensions: tuple[str, ...] = ()
    """What it decodes if it is set for the whole sample (`decode: [audio]`); empty: each name is an extension."""
    column: str | None = None
    """A column of a table, or an extension, that it decodes in the same way: Hugging Face's names for media."""
    everything: bool = False
    """Whether it decodes files of any extension."""
    writes: tuple[str, ...] = ()
    """Extensions that `write` is for, if they are others."""
    by_default: bool = False
    """Whether it decodes files of its extensions if a spec sets no decoder."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """The libraries that it needs, and the extras of wdspec that install them."""
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Its options (`rgb8+upright`), and the libraries that they need instead of `needs`, if these are others."""
    made: bool = False
    """Whether `read` is a factory that takes the decoder's name with options, the field's name and its suffix, and
    returns the reader; and `write` one that takes the extension and returns the writer."""
    read_trusting: str = ""
    """Another reader for ``allow: [pickle]``, which may run code in the data."""
    write_trusting: str = ""
    """Another writer for ``allow: [pickle]``."""
    pickle: bool = False
    """Whether a spec with it needs ``allow: [pickle]``."""
    is_pickle: bool = False
    """Whether its files are pickles, which WDS_SECURE forbids however they are read."""
    image: ImageSpec | None = None
    """What decoders of images return; these can rescale."""
    left_out: bool = False
    """Not a decoder, but a name of webdataset that wdspec intentionally does not support; its functions say so."""

    def takes(self, name: str, extension: str) -> bool:
        """Whether the decoder, under `name`, decodes files of an extension if it is set for the whole sample."""
        return self.everything or extension in (*(self.extensions or (name,)), self.column)

    def libraries(self, options: frozenset[str]) -> Mapping[str, str]:
        """The libraries that the decoder needs with these options, and the extras that install them."""
        return next((self.options[option] for option in sorted(options) if self.options[option]), self.needs)


class ImageFormat(NamedTuple):
    """A format of image files."""

    pillow: str
    """Its name in Pillow."""
    plugin: str
    """Pillow's module for it is ``PIL.<plugin>ImagePlugin``."""
    extensions: tuple[str, ...]
    saving: Mapping[str, Any] = {}
    """Options of Pillow's `save`: lossless if the format allows it, otherwise the best quality."""
    wide: bool = False
    """Whether it can have 16 bits per channel."""
    alpha: bool = False
    """Whether it can have an alpha channel."""
    palette: bool = False
    """Whether it can have a palette, or be black and white."""
    vague: bool = False
    """Whether other data may begin like it, so that it is read only in files of its extensions."""
    written: bool = True
    """Whether any image can be written in it, at its size and in its colours."""


# Pillow's own list includes h5, fits, mpg, ps and eps; for the last two it would start Ghostscript.
IMAGE_FORMATS = (
    ImageFormat("JPEG", "Jpeg", ("jpg", "jpeg", "jpe", "jfif"), {"quality": 100, "subsampling": 0}),
    ImageFormat("PNG", "Png", ("png", "apng"), wide=True, alpha=True, palette=True),
    ImageFormat("GIF", "Gif", ("gif",), alpha=True, palette=True),
    ImageFormat("BMP", "Bmp", ("bmp", "dib"), palette=True),
    ImageFormat("PPM", "Ppm", ("ppm", "pgm", "pbm", "pnm"), wide=True),
    ImageFormat(
        "TIFF",
        "Tiff",
        ("tif", "tiff"),
        {"compression": "tiff_adobe_deflate"},
        wide=True,
        alpha=True,
        palette=True,
    ),
    ImageFormat("WEBP", "WebP", ("webp",), {"lossless": True, "exact": True}, alpha=True),
    ImageFormat("JPEG2000", "Jpeg2K", ("jp2", "j2k", "jpx"), {"irreversible": False}, wide=True, alpha=True),
    ImageFormat("AVIF", "Avif", ("avif",), {"quality": 100, "subsampling": "4:4:4"}, alpha=True),
    ImageFormat("TGA", "Tga", ("tga",), {"compression": "tga_rle"}, alpha=True, palette=True, vague=True),
    ImageFormat("SGI", "Sgi", ("sgi",), alpha=True),
    ImageFormat("PCX", "Pcx", ("pcx",), palette=True, vague=True),
    ImageFormat("DDS", "Dds", ("dds",), alpha=True),
    ImageFormat("ICO", "Ico", ("ico",), written=False),
    ImageFormat("ICNS", "Icns", ("icns",), written=False),
    ImageFormat("XBM", "Xbm", ("xbm",), written=False),
)

FORMAT_OF = {extension: format for format in IMAGE_FORMATS for extension in format.extensions}
"""The format that each extension names."""

IMAGE_FIELDS = frozenset({*FORMAT_OF, "img", "image"})
"""Last parts of names of fields that are images; `img` and `image` are written as JPEG, and name no format."""
IMAGE_MEASURES = ("width", "height", "pixels", "aspect")
"""What an expression can read of an image from its header."""
_NOT_WRITTEN = {name for format in IMAGE_FORMATS if not format.written for name in format.extensions}

DEFAULT_IMAGE_DECODER = "rgb8"
"""The decoder of images in a mix that rescales any, unless ``decode`` sets another one."""
RAW = "raw"
"""The decoder that leaves a field as bytes."""


def _codec(function: str) -> str:
    return f"wdspec.fields.codecs.{function}"


def _basic(names: str, gives: str, read: str, write: str, **more: Any) -> DecoderRow:
    """A decoder named like the extensions that it decodes by default."""
    reads = _codec(read) if read else ""
    return DecoderRow(
        tuple(names.split()), gives, read=reads, write=_codec(write), **{"by_default": True, **more}
    )


_NPY = "a writable numpy array, or for npz a dict of them"
_NPY_OBJECTS = _codec("pickles:read_numpy_objects")

BASIC = (
    _basic("htm html text transcript txt", "`str`: UTF-8, unchanged", "text:read_text", "text:write_text"),
    _basic(
        "class cls cls2 count id index inx",
        "`int`; spaces and newlines around it are allowed",
        "text:read_integer",
        "text:write_integer",
    ),
    _basic("jsn json", "the JSON value; `null` is None", "text:read_json", "text:write_json_text"),
    _basic("npy", _NPY, "arrays:read_numpy", "arrays:write_npy", read_trusting=_NPY_OBJECTS),
    _basic("npz", _NPY, "arrays:read_numpy", "arrays:write_npz", read_trusting=_NPY_OBJECTS),
    _basic(
        "mp msg msgpack",
        "the MessagePack value",
        "text:read_msgpack",
        "text:write_msgpack",
        needs={"msgpack": "formats"},
    ),
    _basic("cbor", "the CBOR value", "text:read_cbor", "text:write_cbor", needs={"cbor2": "formats"}),
    _basic(
        "pth",
        "tensors and plain containers on the CPU (`weights_only`, from torch 2.10 on)",
        "arrays:read_torch",
        "arrays:write_torch",
        read_trusting=_codec("pickles:read_torch_objects"),
        write_trusting=_codec("pickles:write_torch_objects"),
        needs={"torch": "torch"},
        is_pickle=True,
    ),
    _basic(
        "safetensors",
        "a dict of numpy arrays",
        "arrays:read_safetensors",
        "arrays:write_safetensors",
        needs={"safetensors": "safetensors"},
    ),
    DecoderRow(
        ("torch_safetensors",),
        "a dict of torch tensors",
        read=_codec("arrays:read_torch_safetensors"),
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
        "intentionally not supported: raises an error that says so; `raw` keeps the bytes",
        "arrays:refusing_reader",
        "arrays:refusing_writer",
        made=True,
        left_out=True,
    ),
)
"""Decoders of extensions."""


def _images() -> Iterator[DecoderRow]:
    """Decoders of images, one for each container, channels and type."""
    for container, dtypes in {
        "numpy": {"8": "uint8", "16": "uint16", "": "float32"},
        "torch": {"8": "uint8", "": "float32"},
        "pil": {"": "uint8"},
    }.items():
        prefix = "" if container == "numpy" else container
        needs = {"torch": "torch"} if container == "torch" else {}
        for mark, dtype in dtypes.items():
            for mode in ("L", "RGB", "RGBA"):
                name = f"{prefix}{mode.lower()}{mark}"
                spec = ImageSpec(container, mode, dtype)
                plain = prefix and mode == "RGB" and not mark
                yield DecoderRow(
                    (prefix, name) if plain else (name,),
                    spec.gives,
                    read=_codec("image_decoder:image_decoder"),
                    write=_codec("image_encoder:image_encoder"),
                    extensions=tuple(sorted(IMAGE_FIELDS)),
                    column="image",
                    writes=tuple(name for name in sorted(IMAGE_FIELDS) if name not in _NOT_WRITTEN),
                    needs=needs,
                    options={
                        "upright": {},
                        "pillow": {},
                        "roi_decoding": {"nvidia.nvimgcodec": "roi", **needs},
                        **{option: {} for option in (*FRAMING, *REDUCING, *FINISHING)},
                    },
                    made=True,
                    image=spec,
                )


IMAGES = tuple(_images())

_SOUND = {"wav": True, "aif aiff": True, "au": True, "flac": True, "mp3": True, "ogg oga opus": False}
"""Extensions that libsndfile reads, and whether they are written; the codec says why ogg is not."""
_FFMPEG_SOUND = "m4a aac wma"
_FILM = "mp4 m4v mov avi mkv webm ogv mpg mpeg mjpeg h264 wmv"


def _audio(names: str, gives: str, **more: Any) -> DecoderRow:
    facts = {"read": _codec("audio:audio_decoder"), "needs": {"soundfile": "audio"}, "made": True, **more}
    resampling = {"soxr": "audio", **facts["needs"]}
    options = {"clip": {}, "gain": {}, "mono": {}, "rate": resampling, "speed": resampling}
    return DecoderRow(tuple(names.split()), gives, options=options, **facts)


def _video(names: str, gives: str, extensions: str = "", **torch: str) -> DecoderRow:
    return DecoderRow(
        tuple(names.split()),
        gives,
        read=_codec("video:film_decoder"),
        extensions=tuple(extensions.split()),
        column="video" if extensions else None,
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
        column="audio",
    ),
    _audio(
        "torch_audio",
        "as `audio`, with a torch tensor",
        extensions=_ALL_SOUND,
        column="audio",
        needs={"soundfile": "audio", "torch": "torch"},
    ),
    *(
        _audio(names, "as `audio`", write=_codec("audio:audio_encoder") if is_written else "")
        for names, is_written in _SOUND.items()
    ),
    _audio(_FFMPEG_SOUND, "as `audio`", needs={"av": "video"}),
    _video(
        "video",
        "(frames, samples, facts): numpy uint8 of shape (frames, height, width, 3); audio as above, or of shape (1, 0) "
        'if there is none; and `{"video_fps": …, "audio_fps": …}`',
        _FILM,
    ),
    _video("torch_video", "as `video`, with torch tensors", _FILM, torch="torch"),
    _video(_FILM, "as `video`"),
)
"""Decoders of audio and video, which stay bytes by default."""

ROWS = (*BASIC, *IMAGES, *MEDIA, DecoderRow((RAW,), "the bytes of the file", everything=True))

BY_NAME = {name: row for row in ROWS for name in row.names}
"""The row of each name, including names that are not supported."""
WRITTEN_BY = {
    extension: row for row in ROWS if row.write for extension in row.writes or row.extensions or row.names
}
"""The row that writes each extension."""


PACKINGS = frozenset({"gz", "bz2", "xz", "zst"})
"""Last parts of a suffix that are decompressed before decoding: ``json.gz`` is read as ``json``."""


def split_packing(suffix: str) -> tuple[str, tuple[str, ...]]:
    """Split packings off a suffix, outermost first: ``json.gz`` gives ``json`` and ``(gz,)``."""
    layers: list[str] = []
    while True:
        shorter, _, last = suffix.rpartition(".")
        if last not in PACKINGS:
            return suffix, tuple(layers)
        suffix = shorter
        layers.append(last)


def endings(suffix: str) -> list[str]:
    """Return a suffix and its ends after each dot: ``a.seg.jpg``, ``seg.jpg``, ``jpg``."""
    parts = suffix.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def split_decoder(name: str) -> tuple[str, frozenset[str]]:
    """Split a decoder's name and its options: ``rgb8+upright`` is ``rgb8`` and ``upright``."""
    if ":" in name:
        return name, frozenset()
    base, *options = name.split("+")
    return base, frozenset(option.partition("=")[0] for option in options)


def drawing_options(name: str) -> list[str]:
    """The options of a decoder that draw random numbers, sorted. `gain=-3` draws none."""
    if ":" in name:
        return []
    pairs = (option.partition("=") for option in name.split("+")[1:])
    return sorted(
        {
            option
            for option, _, value in pairs
            if option in DRAWING and (option not in SOUNDING or ".." in value)
        }
    )


def draws(name: str) -> bool:
    """Whether a decoder draws random numbers."""
    return bool(DRAWING & split_decoder(name)[1]) and bool(drawing_options(name))


def key_for(fields: Iterable[str], name: str, suffix: str) -> str | None:
    """Return the key of a `decode` map that decodes a field; None if there is none.

    Args:
        fields: the keys: names of fields, or suffixes.
        name: the current name of the field.
        suffix: the suffix of its file.
    """
    suffix, keys = suffix.lower(), list(fields)
    ends = (*endings(suffix), *endings(split_packing(suffix)[0]))
    lowered = {key.lower(): key for key in keys}
    exact = (key for key in (name, *ends) if key in keys)
    return next(iter((*exact, *(lowered[end] for end in ends if end in lowered))), None)


def first_taking(names: Iterable[str], last: str) -> str | None:
    """Return the first of the decoders of a whole sample that decodes files of an extension; None if none does."""
    bases = ((name, split_decoder(name)[0]) for name in names)
    return next((name for name, base in bases if ":" in name or BY_NAME[base].takes(base, last)), None)


def choose_decoder(names: Sequence[str], fields: Mapping[str, str], name: str, suffix: str) -> str | None:
    """Return the decoder that `decode` sets for a field, or else the one of its extension; None if it has none.

    Args:
        names: decoders of the whole sample.
        fields: decoders by name of a field, or by suffix.
        name, suffix: as for `key_for`.
    """
    if fields and (key := key_for(fields, name, suffix)) is not None:
        return fields[key]
    last = split_packing(suffix.lower())[0].rpartition(".")[2]
    default = last if last in BY_NAME and BY_NAME[last].by_default else None
    return (first_taking(names, last) if names else None) or default


def makes_media(decoder: str | None) -> bool:
    """Whether a decoder makes pixels, frames or sound."""
    row = BY_NAME.get(split_decoder(decoder or "")[0])
    return row is not None and (row.image is not None or row in MEDIA)


def is_in_header(suffix: str, rest: Sequence[str | int]) -> bool:
    """Whether the header of a file says what an expression reads of it, so that its decoder does not matter.

    Args:
        suffix: what follows the key in the name of the file.
        rest: the path of the value in the field.
    """
    plain, layers = split_packing(suffix.lower())
    ending = plain.rpartition(".")[2]
    if layers or len(rest) != 1:
        return False
    if rest[0] == "seconds":
        return any(ending in BY_NAME[kind].extensions for kind in ("audio", "video"))
    return (ending in IMAGE_FIELDS and rest[0] in IMAGE_MEASURES) or (ending == "npy" and rest[0] == "length")


def measures_of(suffix: str, decoder: str | None) -> tuple[str, ...] | None:
    """Return what an expression can read of a field besides its value; None if that depends on the data.

    Args:
        suffix: what follows the key in the name of the file.
        decoder: the decoder of the field; None for bytes.
    """
    row = None if decoder is None or ":" in decoder else BY_NAME[split_decoder(decoder)[0]]
    ending = suffix.lower().rpartition(".")[2]
    if ending in IMAGE_FIELDS and (decoder is None or (row is not None and row.image is not None)):
        return (*IMAGE_MEASURES, "bucket", "length")
    if row is BY_NAME["txt"]:
        return ("length",)
    return () if row is BY_NAME["cls"] else None


def reads_header(suffix: str, part: str) -> bool:
    """Whether a part of a field, such as `width` or `seconds`, is read from the header of its file."""
    ending = suffix.lower().rpartition(".")[2]
    if part == "seconds":
        return any(ending in BY_NAME[kind].extensions for kind in ("audio", "video"))
    return ending in IMAGE_FIELDS and part in (*IMAGE_MEASURES, "bucket")


EXTRAS = {
    "backports.zstd": "zstd",
    "pyarrow": "parquet",
    "lance": "lance",
    "tokenizers": "text",
    "jinja2": "text",
    **{
        library: extra
        for row in ROWS
        for needs in (row.needs, *row.options.values())
        for library, extra in needs.items()
    },
}
"""The extra of wdspec that installs each library."""


def library(module: str, user: str) -> Any:
    """Import a module of one of these libraries.

    Args:
        module: its name, such as ``msgpack`` or ``safetensors.numpy``.
        user: what needs it, for the message.

    Raises:
        UsageError: it is not installed, or cannot be loaded; names the extra. It is not a FieldError, so that a policy
            that skips bad samples does not skip all of them.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as cause:
        name = module if module in EXTRAS else module.partition(".")[0]
        raise absent(name, user, cause) from cause


def require_libraries(name: str) -> None:
    """Check that the libraries of a decoder are installed, without importing them.

    Raises:
        UsageError: one is not installed; names it and the extra.
    """
    base, options = split_decoder(name)
    for module in BY_NAME[base].libraries(options) if base in BY_NAME else ():
        if not is_installed(module):
            raise absent(module, f"`decode: {name}`")


def import_decoder(name: str) -> None:
    """Import the function of a decoder before workers are forked, so that they share its libraries."""
    row = BY_NAME.get(split_decoder(name)[0])
    if row is not None and row.read:
        resolve_name(row.read)


def is_installed(module: str) -> bool:
    """Whether a library is installed, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def absent(name: str, user: str, cause: BaseException | None = None) -> UsageError:
    """Make the error for a library that is not installed; or, with a cause, for one that cannot be loaded."""
    if cause is None or (
        isinstance(cause, ModuleNotFoundError) and str(cause.name).partition(".")[0] == name.partition(".")[0]
    ):
        return UsageError(
            f"{user} needs {name}, which is not installed: {install_command(f'wdspec[{EXTRAS[name]}]')}"
        )
    return UsageError(
        f"{user} needs {name}, which is installed but cannot be loaded: {in_one_line(cause)}. Check what it needs "
        f"itself, or reinstall it: {install_command(f'wdspec[{EXTRAS[name]}]')}"
    )
