"""The words of the spec language that several rooms must agree on, as plain data."""

from __future__ import annotations

ARRAY_IMAGES = frozenset({"l", "l8", "rgb", "rgb8", "rgba", "rgba8"})
"""Image decoders that give numpy arrays: uint8 with an ``8``, else float32 in 0..1; HW or HWC."""

TORCH_IMAGES = frozenset({"torch", "torchl", "torchl8", "torchrgb", "torchrgb8", "torchrgba", "torchrgba8"})
"""Image decoders that give torch tensors: HW or CHW; ``torch`` is ``torchrgb``."""

PIL_IMAGES = frozenset({"pil", "pill", "pilrgb", "pilrgba"})
"""Image decoders that give Pillow images; ``pil`` is ``pilrgb``."""

IMAGE_DECODERS = ARRAY_IMAGES | TORCH_IMAGES | PIL_IMAGES

RAW = "raw"
"""The decoder that leaves a field as bytes."""

TEXT_DECODERS = frozenset({"txt", "text", "transcript"})
INTEGER_DECODERS = frozenset({"cls", "cls2", "index", "inx", "id", "count", "class"})
JSON_DECODERS = frozenset({"json", "jsn"})
NUMPY_DECODERS = frozenset({"npy", "npz"})
PICKLE_DECODERS = frozenset({"pkl", "pickle", "pyd", "pth"})
"""Decoders that can run code hidden in the data: they need ``allow: [pickle]``."""

BASIC_DECODERS = TEXT_DECODERS | INTEGER_DECODERS | JSON_DECODERS | NUMPY_DECODERS | PICKLE_DECODERS
"""Decoders named like the extension they read by default."""

DECODERS = IMAGE_DECODERS | BASIC_DECODERS | {RAW}
"""Every decoder name that this release reads."""

UNBUILT_DECODERS = frozenset(
    {"mp", "msg", "msgpack", "cbor", "ten", "tb", "tenbin"}
    | {"audio", "torch_audio", "flac", "mp3", "wav", "m4a", "ogg", "wma"}
    | {"video", "torch_video", "mp4", "ogv", "mjpeg", "avi", "mov", "h264", "webm", "wmv"}
)
"""Decoder names that the language knows and this release refuses as not built yet."""

DEFAULT_IMAGE_DECODER = "rgb8"
"""What images become, in a mix that rescales any, unless ``decode`` says otherwise."""

IMAGE_EXTENSIONS = frozenset(
    {"jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "bmp", "dib", "tif", "tiff", "webp"}
    | {"ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "ico", "tga", "img", "image"}
)
"""Extensions (and the field name ``image``) that surely hold pictures, for checks made without data."""

DEFAULT_SCALE = (0.5, 2.0)
"""The range of ``scale`` where only ``scaleprob`` is given."""

RESERVED_VARIABLES = frozenset({"REWRITE", "CACHE", "CACHE_SIZE", "SECURE"})
"""Names no ``${variable}`` may have: ``WDS_`` before them spells one of wdspec's own settings."""

ALLOWABLE = frozenset({"pickle"})
"""What ``allow:`` may switch on."""
