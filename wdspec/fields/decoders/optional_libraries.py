"""Libraries that only some decoders need, imported when a process first decodes with them."""

from __future__ import annotations

import importlib
from typing import Any

from wdspec.errors import UsageError

EXTRAS = {
    "av": "video",
    "cbor2": "formats",
    "msgpack": "formats",
    "safetensors": "safetensors",
    "soundfile": "audio",
    "torch": "torch",
    "torchcodec": "torchcodec",
    "zstandard": "zstd",
}
"""Library → the extra of wdspec that installs it."""


def library(module: str, user: str) -> Any:
    """Imports a module of one of these libraries.

    Args:
        module: its name, such as ``msgpack`` or ``safetensors.numpy``.
        user: what needs it, for the message.

    Raises:
        UsageError: it is not installed, or does not load; names the extra. It is no FieldError, so that an error
            policy that skips bad samples does not skip all of them.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as cause:
        raise absent(module.partition(".")[0], user, cause) from cause


def absent(name: str, user: str, cause: BaseException | None = None) -> UsageError:
    """The error for a library that is not there; one that is there and does not load says why."""
    if cause is None or (
        isinstance(cause, ModuleNotFoundError) and str(cause.name).partition(".")[0] == name
    ):
        return UsageError(
            f"{user} needs {name}, which is not installed: `pip install 'wdspec[{EXTRAS[name]}]'`"
        )
    why = " ".join(str(cause).split())[:300]
    return UsageError(
        f"{user} needs {name}, which is installed and cannot be loaded: {why}. See what it needs itself, or install "
        f"`wdspec[{EXTRAS[name]}]` anew"
    )
