"""Fields by their extension, and handlers for them."""

from __future__ import annotations

from typing import Any

from wdspec.base.errors import DecodingError as DecodingError
from wdspec.fluent.decoder import Decoder as Decoder
from wdspec.fluent.field_handlers import handle_extension as handle_extension
from wdspec.fluent.field_handlers import imagehandler as imagehandler
from wdspec.fluent.field_handlers import torch_audio as torch_audio
from wdspec.fluent.field_handlers import torch_video as torch_video
from wdspec.fluent.replacements import hint_for
from wdspec.spec.language.decoders import BY_NAME

ImageHandler = imagehandler
imagespecs = {
    name: (row.image.container, row.image.dtype, row.image.mode.lower())
    for name, row in BY_NAME.items()
    if row.image and row.image.dtype != "uint16"
}


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("autodecode", name))
