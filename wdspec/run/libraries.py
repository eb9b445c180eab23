"""Libraries whose versions may change the values of samples, by the names of their packages."""

from importlib import metadata

ALWAYS = ("numpy", "pillow", "torch", "simplejpeg")
"""They read if they are installed: a node that reads for a trainer needs those that the trainer has."""
IF_BOTH = (
    *("av", "torchcodec", "soundfile", "soxr", "nvidia-nvimgcodec-cu12", "torchvision", "torchaudio"),
    *("opencv-python", "opencv-python-headless", "pyarrow", "pylance"),
    *("safetensors", "msgpack", "cbor2", "tokenizers"),
)
"""Reading fails by itself if one of them is missing."""


def version_of(library: str) -> str | None:
    """Return the installed version of a library; None if there is none."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
