"""Libraries whose versions may change the values of samples, by the names of their packages."""

ALWAYS = ("numpy", "pillow", "torch", "simplejpeg")
"""They read if they are installed: a node that reads for a trainer needs those that the trainer has."""
IF_BOTH = (
    *("av", "torchcodec", "soundfile", "soxr", "nvidia-nvimgcodec-cu12", "torchvision", "torchaudio"),
    *("opencv-python", "opencv-python-headless", "pyarrow", "pylance"),
    *("safetensors", "msgpack", "cbor2", "tokenizers"),
)
"""Reading fails by itself if one of them is missing."""
