"""Python values → the bytes of their files, by the extension: the table of encoders, in step with the decoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wdspec.fields.basic_encoding import BASIC_ENCODERS, PICKLE_ENCODERS, gzipped
from wdspec.fields.image_encoding import IMAGE_ENCODERS
from wdspec.spec.errors import FieldError, UsageError

Encode = Callable[[Any], bytes]
Sample = Mapping[str, Any]
EncodeSample = Callable[[Sample], Sample]
"""A sample with values → the same with bytes; entries that begin with ``_`` pass as they are."""

ENCODERS: dict[str, Encode] = {**IMAGE_ENCODERS, **BASIC_ENCODERS}
"""Extension → what writes it, but for pickles."""

_BYTES = (bytes, bytearray, memoryview)
_GZIP_MAGIC = b"\x1f\x8b\x08"
_TENBIN = frozenset({"ten", "tb", "tenbin"})


def make_encoder(
    encoder: bool | Mapping[str, Encode] | EncodeSample | None = True, *, allow_pickle: bool = False
) -> EncodeSample:
    """What turns the values of a sample into bytes.

    Args:
        encoder: True for `FieldEncoder`; a map of extension → function to put before its table; a function that
            encodes whole samples; False or None where all values are bytes (or text) already.
        allow_pickle: whether ``pkl``, ``pickle``, ``pyd`` and ``pth`` are written.

    Raises:
        UsageError: it is none of these.
    """
    if encoder is False or encoder is None:
        return _encoded_already
    if encoder is True:
        return FieldEncoder({}, allow_pickle=allow_pickle)
    if isinstance(encoder, Mapping):
        return FieldEncoder(encoder, allow_pickle=allow_pickle)
    if callable(encoder):
        return encoder
    raise UsageError(
        f"`encoder` is True, False, a dict of extension to function, or a function, not {type(encoder).__name__}"
    )


class FieldEncoder:
    """Encodes each field by the last part of its name: `seg.png` as png.

    - bytes are taken for the file's content, and kept; under a name that ends in ``.gz`` they are compressed,
      unless they are gzip already;
    - a str is text: UTF-8 under any extension that has no encoder, but a value to be encoded under ``json``;
    - ``x.gz`` is encoded as ``x``, then compressed.

    Args:
        own: extension, or a whole field name → function from value to bytes; asked first, the longer first.
        allow_pickle: whether pickles are written.
    """

    def __init__(self, own: Mapping[str, Encode], *, allow_pickle: bool = False) -> None:
        self._own = {name.lower().lstrip("."): encode for name, encode in own.items()}
        self._allow_pickle = allow_pickle
        self._steps: dict[str, tuple[Encode | None, int]] = {}

    def __call__(self, sample: Sample) -> Sample:
        """The sample with bytes for values.

        Raises:
            FieldError: a value has no encoder, or none that takes it; names key and field.
        """
        return {
            name: value if name[:1] == "_" else self._encoded(sample, name, value)
            for name, value in sample.items()
        }

    def _encoded(self, sample: Sample, name: str, value: Any) -> bytes:
        step = self._steps.get(name)
        if step is None:
            if len(self._steps) > 10_000:
                self._steps.clear()
            step = self._steps[name] = self._study(name)
        encode, layers = step
        if type(value) is bytes and not layers:
            return value
        try:
            if isinstance(value, _BYTES):
                data = bytes(value)
                return data if data.startswith(_GZIP_MAGIC) else _in_layers(data, layers)
            if encode is not None:
                return _in_layers(bytes(encode(value)), layers)
            if isinstance(value, str):
                return _in_layers(value.encode("utf-8"), layers)
            raise TypeError(_unknown(name, value))
        except FieldError as error:
            error.at(key=sample.get("__key__"), field=name)
            raise
        except Exception as cause:
            said = " ".join(str(cause).split()) or type(cause).__name__
            raise FieldError(
                f"cannot be encoded: {said[:400]}", key=sample.get("__key__"), field=name
            ) from cause

    def _study(self, name: str) -> tuple[Encode | None, int]:
        """The encoder of a field, if it has one, and how often its output is compressed."""
        plain, layers = name.lower(), 0
        if plain in self._own:
            return self._own[plain], 0
        while plain.endswith(".gz") or plain == "gz":
            plain, layers = plain[:-3], layers + 1
        parts = plain.split(".")
        for start in range(len(parts)):
            own = self._own.get(".".join(parts[start:]))
            if own is not None:
                return own, layers
        last = parts[-1]
        if last in PICKLE_ENCODERS:
            return PICKLE_ENCODERS[last] if self._allow_pickle else _refuse_pickle, layers
        return _refuse_tenbin if last in _TENBIN else ENCODERS.get(last), layers

    def __repr__(self) -> str:
        return f"FieldEncoder({self._own!r}, allow_pickle={self._allow_pickle})"


def _refuse_pickle(value: Any) -> bytes:
    raise TypeError(
        "it would be stored as a pickle, which runs code when it is read; use json, npy or msgpack, or consent by "
        "`allow_pickle=True` (and by `allow: [pickle]` where it is read)"
    )


def _refuse_tenbin(value: Any) -> bytes:
    raise TypeError("tenbin is left out on purpose; use npy, or npz for several arrays")


def _unknown(name: str, value: Any) -> str:
    last = name.lower().removesuffix(".gz").rpartition(".")[2]
    return (
        f"there is no encoder for {last!r} to take a value of type {type(value).__name__}; give bytes, use a known "
        f"extension (such as json, npy, png, txt, cls), or pass `encoder={{{last!r}: function}}`"
    )


def _in_layers(data: bytes, layers: int) -> bytes:
    for _ in range(layers):
        data = gzipped(data)
    return data


def _encoded_already(sample: Sample) -> Sample:
    encoded: dict[str, Any] = {}
    for name, value in sample.items():
        if name[:1] != "_":
            if isinstance(value, str):
                value = value.encode("utf-8")
            elif not isinstance(value, _BYTES):
                raise FieldError(
                    f"{type(value).__name__} instead of bytes; encode it, or leave out `encoder=False`",
                    key=sample.get("__key__"),
                    field=name,
                )
        encoded[name] = value
    return encoded
