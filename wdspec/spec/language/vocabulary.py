"""The words of the spec language that several rooms must agree on, as plain data."""

from __future__ import annotations

ARRAY_IMAGES = frozenset({"l", "l8", "l16", "rgb", "rgb8", "rgb16", "rgba", "rgba8", "rgba16"})
"""Image decoders that give numpy arrays: uint8 with an ``8``, uint16 with a ``16``, else float32 in 0..1; HW, HWC."""

TORCH_IMAGES = frozenset({"torch", "torchl", "torchl8", "torchrgb", "torchrgb8", "torchrgba", "torchrgba8"})
"""Image decoders that give torch tensors: HW or CHW; ``torch`` is ``torchrgb``."""

PIL_IMAGES = frozenset({"pil", "pill", "pilrgb", "pilrgba"})
"""Image decoders that give Pillow images; ``pil`` is ``pilrgb``."""

IMAGE_DECODERS = ARRAY_IMAGES | TORCH_IMAGES | PIL_IMAGES

RAW = "raw"
"""The decoder that leaves a field as bytes."""

TEXT_DECODERS = frozenset({"txt", "text", "transcript", "html", "htm"})
INTEGER_DECODERS = frozenset({"cls", "cls2", "index", "inx", "id", "count", "class"})
JSON_DECODERS = frozenset({"json", "jsn"})
NUMPY_DECODERS = frozenset({"npy", "npz"})
PACKED_DECODERS = frozenset({"mp", "msg", "msgpack", "cbor"})
TENSOR_DECODERS = frozenset({"pth", "safetensors", "torch_safetensors"})
PICKLE_DECODERS = frozenset({"pkl", "pickle", "pyd"})
"""Decoders that run what the data says: they need ``allow: [pickle]``."""

SECURE_REFUSES = PICKLE_DECODERS | {"pth"}
"""What WDS_SECURE=1 forbids: a torch file is a pickle, even where a restricted unpickler reads it."""

BASIC_DECODERS = (
    TEXT_DECODERS
    | INTEGER_DECODERS
    | JSON_DECODERS
    | NUMPY_DECODERS
    | PACKED_DECODERS
    | TENSOR_DECODERS
    | PICKLE_DECODERS
)
"""Decoders named like the extension they read by default."""

AUDIO_EXTENSIONS = frozenset(
    {"flac", "mp3", "wav", "ogg", "oga", "opus", "aif", "aiff", "au", "m4a", "aac", "wma"}
)
VIDEO_EXTENSIONS = frozenset(
    {"mp4", "m4v", "mov", "avi", "mkv", "webm", "ogv", "mpg", "mpeg", "mjpeg", "h264", "wmv"}
)

AUDIO_DECODERS = frozenset({"audio", "torch_audio"}) | AUDIO_EXTENSIONS
"""Sound decoders: ``audio`` and the names of extensions give numpy arrays, ``torch_audio`` tensors."""

VIDEO_DECODERS = frozenset({"video", "torch_video"}) | VIDEO_EXTENSIONS
"""Film decoders: ``video`` and the names of extensions give numpy arrays, ``torch_video`` tensors."""

MEDIA_DECODERS = AUDIO_DECODERS | VIDEO_DECODERS
"""Decoders that a spec asks for: sound and films stay bytes if it does not."""

DECODERS = IMAGE_DECODERS | BASIC_DECODERS | MEDIA_DECODERS | {RAW}
"""Every decoder name."""

PACKINGS = frozenset({"gz", "bz2", "xz", "zst"})
"""Last parts of a suffix that are undone before decoding: ``json.gz`` is read as ``json``."""

LEFT_OUT_DECODERS = frozenset({"ten", "tb", "tenbin"})
"""Decoders of webdataset that wdspec leaves out on purpose: its own binary format for lists of arrays."""

IMAGE_OPTIONS = frozenset({"upright", "pillow"})
"""``rgb8+upright`` turns pictures as their EXIF orientation says; ``rgb8+pillow`` keeps faster readers out."""

VIDEO_OPTIONS = frozenset({"torchcodec"})
"""``video+torchcodec`` reads by torchcodec instead of PyAV."""


def split_decoder(name: str) -> tuple[str, frozenset[str]]:
    """A decoder's name without its options, and these: ``rgb8+upright`` is ``rgb8`` and ``upright``."""
    if ":" in name:
        return name, frozenset()
    base, *options = name.split("+")
    return base, frozenset(options)


def options_of(base: str) -> frozenset[str]:
    """The options that a decoder may be given."""
    if base in IMAGE_DECODERS:
        return IMAGE_OPTIONS
    return VIDEO_OPTIONS if base in VIDEO_DECODERS else frozenset()


DEFAULT_IMAGE_DECODER = "rgb8"
"""What images become, in a mix that rescales any, unless ``decode`` says otherwise."""

IMAGE_EXTENSIONS = frozenset(
    {"jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "bmp", "dib", "tif", "tiff", "webp", "avif"}
    | {"ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "jpx"}
)
"""Extensions of the pictures that image decoders read."""

IMAGE_FIELDS = IMAGE_EXTENSIONS | {"img", "image"}
"""What the last part of a field's name may be that surely holds a picture, for checks made without data."""

DEFAULT_SCALE = (0.5, 2.0)
"""The range of ``scale`` where only ``scaleprob`` is given."""

RESERVED_VARIABLES = frozenset({"REWRITE", "CACHE", "CACHE_SIZE", "SECURE"})
"""Names no ``${variable}`` may have: ``WDS_`` before them spells one of wdspec's own settings."""

ALLOWABLE = frozenset({"pickle"})
"""What ``allow:`` may switch on."""
