"""Choosing the decoder of a field, which may be a user function: the meaning of `decode`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from typing import Any

from wdspec.base.encodings import describe_encoding
from wdspec.base.errors import FieldError, SpecError, UsageError, WdspecError
from wdspec.base.user_code import check_arguments, import_function
from wdspec.fields.scale import Numbers
from wdspec.formats.compression import BY_NAME as COMPRESSIONS
from wdspec.spec.language.decoder_options import DRAWING, option_values
from wdspec.spec.language.decoders import (
    BY_NAME,
    DEFAULT_IMAGE_DECODER,
    FORMAT_OF,
    MEDIA,
    RAW,
    choose_decoder,
    draws,
    first_taking,
    makes_media,
    split_decoder,
    split_packing,
)

ALLOW = "`allow: [pickle]` (in Python: `decode(allow=['pickle'])`)"
"""What a message names as the consent to read pickles."""


class UserDecoderError(FieldError):
    """A user function in `decode` failed, because of the data or of a mistake in the function.

    A function raises a FieldError itself if it knows that the data is the cause.
    """

    code = "D203"


_OBJECT = re.compile(r"(file )?<[\w.]+ object at 0x[0-9a-f]+>")
"""How libraries name the file in memory that they could not read."""


def one_line(cause: Exception, data: Any = b"") -> str:
    """Return the message of an exception in one line of limited length, with its type if necessary.

    Args:
        cause: the exception.
        data: the bytes that could not be decoded.
    """
    text = _OBJECT.sub("the file", " ".join(str(cause).split()))
    if isinstance(cause, UnicodeDecodeError):
        return describe_encoding(cause.object) or text
    if data and text.startswith("invalid literal for int()"):
        return describe_encoding(data) or (
            f"{data[:60]!r} is not an integer, which consists of digits; if these are names of classes, write `decode: "
            "{cls: txt}`, and the step `label` makes their numbers"
        )
    if not text or not isinstance(cause, (ValueError, OSError, EOFError)):
        text = f"{type(cause).__name__}: {text}".rstrip(": ")
    return text if len(text) <= 300 else f"{text[:300]}…"


class UserDecoder:
    """A user function by its name, imported when a process first decodes with it.

    Raises:
        SpecError: on first use, if it cannot be imported or does not accept bytes. This is not a FieldError, so that
            an error policy that skips bad samples does not skip all of them.
        UserDecoderError: the function failed.
    """

    def __init__(self, name: str, folder: str = "") -> None:
        self.name, self.folder = name, folder
        self._function: Callable[[bytes], Any] | None = None

    def __call__(self, data: bytes) -> Any:
        if self._function is None:
            function = import_function(self.name, "decoder", self.folder)
            check_arguments(function, f"decoder: {self.name}", 1)
            self._function = function
        try:
            return self._function(data)
        except WdspecError:
            raise
        except Exception as cause:
            raise UserDecoderError(f"cannot decode as {self.name}: {one_line(cause)}") from cause

    def __reduce__(self) -> tuple[Any, ...]:
        return UserDecoder, (self.name, self.folder)


@dataclass(frozen=True)
class FieldDecoder:
    """How one field becomes a value."""

    label: str
    """The name for messages: ``jpeg``, ``json``, ``mylib:read``."""
    decode: Callable[[bytes], Any]
    """Bytes → value; for images, in their own size."""
    rescale: Callable[[bytes, float | None, Numbers | None], Any] | None = None
    """For images and others that draw: bytes, a factor and the numbers of the sample → value."""
    makes_media: bool = False
    """Whether it makes pixels, frames or sound."""


@dataclass(frozen=True)
class Unpacked:
    """A decoder after a packing, as for ``json.gz``."""

    packing: str
    inner: Callable[..., Any] | None

    def __call__(self, data: bytes, *drawn: Any) -> Any:
        data = COMPRESSIONS[self.packing].decompress(data)
        return self.inner(data, *drawn) if self.inner else data


@dataclass(frozen=True)
class DecodeRules:
    """The `decode` of a source, and what it may use.

    The decoder of a field is that of the key with the name of the field; or else of the longest key that is the
    original suffix or its end after a dot; or else the first of ``names`` that matches (an image decoder matches the
    suffixes of images, ``audio`` and ``video`` theirs, others their own suffix, ``raw`` and functions everything); or
    else the default of the suffix. Case matters in names of fields, but not in suffixes. A packing at the end of the
    suffix (gz, bz2, xz, zst) is undone first, except for ``raw``.

    Raises:
        SpecError: a decoder or option is unknown; pickle is not allowed; there is a function, but WDS_SECURE=1; or
            images are not decoded, but `scale` is on.
    """

    names: tuple[str, ...] = ()
    """Decoders for the whole sample."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Decoders by field name or suffix."""
    scales: bool = False
    """Whether images may be rescaled, for which all of them must be decoded."""
    allow_pickle: bool = False
    secure: bool = False
    """Forbid functions and pickle (WDS_SECURE=1)."""
    folder: str = ""
    """The folder of the spec, where functions are searched first."""

    def __post_init__(self) -> None:
        if self.secure and self.allow_pickle:
            raise SpecError("WDS_SECURE=1 forbids `allow: [pickle]`; remove one of them")
        for name in (*self.names, *self.fields.values()):
            self._check(name)
        if self.scales:
            self._refuse_unscalable("images", first_taking(self.names, "jpg") or DEFAULT_IMAGE_DECODER)
        for key in self.fields:
            self.check(key, key)

    def check(self, name: str, suffix: str) -> None:
        """Raise the SpecError that a field with this name and suffix would raise, in advance."""
        self._choose(name, suffix)

    def decoder_of(self, name: str, suffix: str) -> FieldDecoder | None:
        """Return the decoder of a field, or None if it stays bytes.

        Args:
            name: the current name of the field.
            suffix: the suffix of its file.
        """
        plain, layers = split_packing(suffix.lower())
        chosen = self._choose(name, suffix)
        if chosen == RAW:
            return None
        decoder = self._build(chosen, name, plain)
        for packing in reversed(layers):
            decoder = _unpack_first(packing, decoder)
        return decoder

    def makes_media(self, name: str, suffix: str) -> bool:
        """Whether a field with this name and suffix is decoded to pixels, frames or sound."""
        return makes_media(self._choose(name, suffix))

    @property
    def draw(self) -> bool:
        """Whether a decoder draws numbers of the sample."""
        return any(map(draws, (*self.names, *self.fields.values())))

    @property
    def functions(self) -> list[str]:
        """The names of user functions."""
        return [name for name in (*self.names, *self.fields.values()) if ":" in name]

    def takes(self, suffix: str) -> bool:
        """Whether one of ``names`` decodes files of this suffix, which has no packing."""
        return first_taking(self.names, suffix.rpartition(".")[2]) is not None

    def _choose(self, name: str, suffix: str) -> str | None:
        """Return the name of the decoder of a field; None if it has none."""
        chosen = choose_decoder(self.names, self.fields, name, suffix)
        if self.scales and split_packing(suffix.lower())[0].rpartition(".")[2] in FORMAT_OF:
            chosen = chosen or DEFAULT_IMAGE_DECODER
            self._refuse_unscalable(repr(name), chosen)
        return chosen

    def _build(self, chosen: str | None, name: str, plain: str) -> FieldDecoder | None:
        if chosen is None:
            return None
        if ":" in chosen:
            return FieldDecoder(chosen, UserDecoder(chosen, self.folder))
        base, options = split_decoder(chosen)
        row = BY_NAME[base]
        target = row.read_trusting if self.allow_pickle and row.read_trusting else row.read
        if not target or (self.secure and row.is_pickle):
            return FieldDecoder(base, partial(refuse_to_read, base, self.secure))
        read = resolve_name(target)
        if row.made:
            read = read(chosen, name, plain)
        if row.image is None:
            rescale = read if options & DRAWING and draws(chosen) else None
            return FieldDecoder(base, read, rescale, row in MEDIA)
        format = FORMAT_OF.get(plain.rpartition(".")[2])
        return FieldDecoder(format.pillow.lower() if format else f"image ({base})", read, read, True)

    def _refuse_unscalable(self, what: str, chosen: str) -> None:
        row = BY_NAME.get(split_decoder(chosen)[0])
        if row is None or row.image is None:
            raise SpecError(
                f"`scale` needs {what} decoded by wdspec, but `decode` says {chosen!r}; use an image decoder such as "
                f"{DEFAULT_IMAGE_DECODER!r} there, or switch scaling off with `scale: 1`"
            )

    def _check(self, name: str) -> None:
        if ":" in name:
            if self.secure:
                raise SpecError(f"WDS_SECURE=1 forbids the decoder {name}, as it is user code")
            return
        base, options = split_decoder(name)
        row = BY_NAME.get(base)
        if row is None:
            raise SpecError(f"unknown decoder {base!r}")
        if row.pickle and not self.allow_pickle:
            raise SpecError(f"the decoder {base!r} runs code in the data; if you trust the data, add {ALLOW}")
        if row.is_pickle and self.secure:
            raise SpecError(f"WDS_SECURE=1 forbids the decoder {base!r}, as its files are pickles")
        if row.left_out:
            raise SpecError(
                f"the decoder {base!r} (tenbin) is not supported on purpose; use npz or safetensors"
            )
        for option in options - row.options.keys():
            raise SpecError(f"the decoder {base!r} has no option {option!r}")
        try:
            option_values(name)
        except ValueError as error:
            raise SpecError(f"the decoder {name!r}: {error}") from None


def refuse_to_read(name: str, secure: bool, data: bytes) -> Any:
    """Raise UsageError, which no error policy skips: pickles are not allowed, or forbidden by WDS_SECURE."""
    consent = "which WDS_SECURE=1 forbids;" if secure else f"so it needs your consent: {ALLOW}; or"
    raise UsageError(
        f"a pickle can run code hidden in the data, {consent} exclude it with `extensions`, or keep the bytes with "
        f"`decode: {{{name}: raw}}` (in Python: `select_files=` or `decode(only=…)`)"
    )


def _unpack_first(packing: str, decoder: FieldDecoder | None) -> FieldDecoder:
    if decoder is None:
        return FieldDecoder(packing, Unpacked(packing, None))
    rescale = Unpacked(packing, decoder.rescale) if decoder.rescale else None
    return FieldDecoder(
        f"{decoder.label}.{packing}", Unpacked(packing, decoder.decode), rescale, decoder.makes_media
    )
