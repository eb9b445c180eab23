"""Handlers of fields: what `Decoder` asks for values.

A *handler* is a function of a key and bytes. The key is the field's name with a dot before it (``.seg.jpg``); the
result is the value, or None where the handler has nothing to do with such fields, and the next one is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wdspec.base.errors import SpecError
from wdspec.base.user_code import secure_mode
from wdspec.fields.codecs.audio import read_torch_audio
from wdspec.fields.codecs.video import FilmDecoder
from wdspec.fields.decode import DecodeRules
from wdspec.fields.extensions import endings
from wdspec.spec.language.decoders import BY_NAME, FORMAT_OF

FieldHandler = Callable[[str, bytes], Any]


class ForExtensions:
    """A handler that decodes fields of some extensions by a function of bytes; see `handle_extension`."""

    def __init__(self, extensions: str | Sequence[str], function: Callable[[bytes], Any]) -> None:
        words = extensions.split() if isinstance(extensions, str) else extensions
        self.extensions = tuple(word.lower().lstrip(".") for word in words)
        if not self.extensions or not all(self.extensions):
            raise SpecError(f"{extensions!r} names no extension; write for example 'jpg png'")
        self.function = function

    def takes(self, key: str) -> bool:
        """Whether a field of this name is decoded: its ending, from some dot on, is one of the extensions."""
        return not set(endings(key.lower().lstrip("."))).isdisjoint(self.extensions)

    def __call__(self, key: str, data: bytes) -> Any:
        return self.function(data) if self.takes(key) else None

    def __repr__(self) -> str:
        return f"handle_extension({' '.join(self.extensions)!r}, {self.function!r})"


def handle_extension(extensions: str | Sequence[str], function: Callable[[bytes], Any]) -> ForExtensions:
    """A handler that decodes fields of some extensions by a function of bytes.

    Args:
        extensions: words such as ``"jpg png"``, or a list. An extension takes every field that ends in it from a
            dot on: ``jpg`` takes ``jpg`` and ``left.jpg``, ``seg.jpg`` takes ``a.seg.jpg`` and not ``jpg``.
            Letter case and a dot in front do not matter.
        function: bytes → value; None is a value too.

    Raises:
        SpecError: no extension is given.

    Example:
        >>> decoder = Decoder(handle_extension("bin", len))
        >>> decoder({"__key__": "0001", "left.bin": b"abc"})
        {'__key__': '0001', 'left.bin': 3}
    """
    return ForExtensions(extensions, function)


def imagehandler(spec: str, extensions: Sequence[str] = tuple(sorted(FORMAT_OF))) -> ForExtensions:
    """A handler for images.

    Args:
        spec: what they become, such as ``rgb8`` or ``torchrgb+upright``; see docs/decoders.md.
        extensions: the extensions it takes.

    Raises:
        SpecError: there is no such spec, or no extension.
    """
    decoder = DecodeRules((spec,), secure=secure_mode()).decoder_of("jpg", "jpg")
    if decoder is None or decoder.rescale is None:
        raise SpecError(f"{spec!r} is no image decoder; write for example 'rgb8'")
    return ForExtensions(extensions, decoder.decode)


def torch_audio(key: str, data: bytes) -> Any:
    """A handler that turns sound into (samples, rate): a float32 tensor (channels, samples), and Hz."""
    return read_torch_audio(data) if extension_of(key) in BY_NAME["audio"].extensions else None


def torch_video(key: str, data: bytes) -> Any:
    """A handler that turns films into (frames, samples, facts); see `wdspec.fields.codecs.video`."""
    suffix = extension_of(key)
    return FilmDecoder(torch=True, suffix=suffix)(data) if suffix in BY_NAME["video"].extensions else None


def extension_of(name: str) -> str:
    """The last part of a field's name, in lower case."""
    return name.rpartition(".")[2].lower()
