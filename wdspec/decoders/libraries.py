"""Libraries that only some decoders need, imported when a process first decodes with them."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from wdspec.decoders.decoder_options import split_decoder
from wdspec.decoders.table import BY_NAME, ROWS
from wdspec.errors import UsageError

EXTRAS = {
    "backports.zstd": "zstd",
    **{
        library: extra
        for row in ROWS
        for needs in (row.needs, *row.options.values())
        for library, extra in needs.items()
    },
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
        name = module if module in EXTRAS else module.partition(".")[0]
        raise absent(name, user, cause) from cause


def require_libraries(name: str) -> None:
    """Checks that the libraries of a decoder can be imported, without importing them.

    Raises:
        UsageError: one is not installed; names it, and the extra.
    """
    base, options = split_decoder(name)
    for module in BY_NAME[base].libraries(options) if base in BY_NAME else ():
        if find_spec(module) is None:
            raise absent(module, f"`decode: {name}`")


def absent(name: str, user: str, cause: BaseException | None = None) -> UsageError:
    """The error for a library that is not installed; for one that is and does not load, it says why."""
    if cause is None or (
        isinstance(cause, ModuleNotFoundError) and str(cause.name).partition(".")[0] == name.partition(".")[0]
    ):
        return UsageError(
            f"{user} needs {name}, which is not installed: `pip install 'wdspec[{EXTRAS[name]}]'`"
        )
    why = " ".join(str(cause).split())[:300]
    return UsageError(
        f"{user} needs {name}, which is installed and cannot be loaded: {why}. See what it needs itself, or install "
        f"`wdspec[{EXTRAS[name]}]` anew"
    )
