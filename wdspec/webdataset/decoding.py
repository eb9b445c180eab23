"""Fields of samples decoded by handlers and by extension, outside of a spec: `SampleDecoder`, and `decode` as a stage.

A *handler* is a function of a key and bytes. The key is the field's name with a dot before it (``.seg.jpg``); the
result is the value, or None where the handler has nothing to do with such fields, and the next one is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wdspec.base.errors import FieldError, SpecError, WdspecError
from wdspec.base.user_code import secure_mode
from wdspec.fields.decode import DecodeRules, one_line
from wdspec.fields.extensions import endings, is_reserved
from wdspec.formats.compression import BY_NAME as COMPRESSIONS
from wdspec.formats.compression import unpacked
from wdspec.webdataset.handlers import ErrorHandler, reraise_exception
from wdspec.webdataset.stage import Stage, each, makes_stages, stage

FieldHandler = Callable[[str, bytes], Any]


class ForExtensions:
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


handle_extension = ForExtensions


def extension_of(name: str) -> str:
    """The last part of a field's name, in lower case."""
    return name.rpartition(".")[2].lower()


Sample = dict[str, Any]
Steps = tuple[tuple[str, ...], tuple[tuple[str, Callable[[bytes], Any]], ...]]
"""For samples of the same names in the same order: those like ``__key__``, and the fields with their decoders."""

MAX_LAYOUTS = 1024
"""Layouts remembered before all are forgotten; real data has a handful."""


class SampleDecoder:
    """Decodes the fields of samples by handlers, then by extension; callable, and it pickles if they do.

    A packing at the end of a field's name (``txt.gz``) is undone first; the key that handlers see is without it.
    Then the handlers are asked in turn until one gives a value. What none takes is read by its extension (see
    docs/decoders.md), or else stays bytes. ``__names__`` pass, as text if they are bytes.

    Args:
        handlers: decoder names such as ``"rgb8"``, ``"torch_audio"`` or ``"raw"``, and handlers; one list of them
            is fine too. What `handle_extension` made is decided on once for each layout of samples.
        pre: handlers to ask first, instead of undoing packings.
        post: handlers to ask last, instead of reading by extension.
        only: fields to decode, words or a list; others stay as they are. ``cls`` is not ``left.cls``.
        partial: leave values that are no bytes as they are, instead of an error.
        allow: ``("pickle",)`` to read pickles, as `allow` in a spec.

    Raises:
        SpecError: there is no such decoder, or WDS_SECURE forbids what is allowed: what the variable says
            when the decoder is made holds, also in copies of it in other processes.
    """

    def __init__(
        self,
        *handlers: str | FieldHandler | Sequence[str | FieldHandler],
        pre: Sequence[FieldHandler] | None = None,
        post: Sequence[FieldHandler] | None = None,
        only: str | Sequence[str] | None = None,
        partial: bool = False,
        allow: Sequence[str] = (),
    ) -> None:
        flat: list[str | FieldHandler] = []
        for entry in handlers:
            flat += [entry] if isinstance(entry, str) or callable(entry) else entry
        self.handlers = tuple(flat)
        self.pre = None if pre is None else tuple(pre)
        self.post = None if post is None else tuple(post)
        self.only = frozenset(only.split() if isinstance(only, str) else only) if only is not None else None
        self.partial = partial
        secure = secure_mode()
        self._by_extension = DecodeRules(allow_pickle="pickle" in allow, secure=secure)
        self._rules = {
            name: DecodeRules((name,), {}, False, "pickle" in allow, secure)
            for name in self.handlers
            if isinstance(name, str)
        }
        self._layouts: dict[tuple[str, ...], Steps] = {}

    def __call__(self, sample: Mapping[str, Any]) -> Sample:
        """Decodes a sample into a new dict.

        Raises:
            FieldError: a field cannot be decoded, or is no bytes; says which, and why.
            WdspecError: a mistake that is not the sample's, such as a library that is not installed.
        """
        names = tuple(sample)
        reserved, steps = self._layouts.get(names) or self._study(names)
        decoded = dict(sample)
        name = ""
        try:
            for name in reserved:
                if type(decoded[name]) is bytes:
                    decoded[name] = decoded[name].decode()
            for name, decode in steps:
                value = decoded[name]
                if type(value) is bytes:
                    decoded[name] = decode(value)
                elif isinstance(value, (bytes, bytearray, memoryview)):
                    decoded[name] = decode(bytes(value))
                elif not self.partial:
                    raise FieldError(
                        f"a {type(value).__name__} cannot be decoded, only bytes; was it decoded already? "
                        "Name the fields by `only`, or set `partial=True`"
                    )
        except WdspecError as error:
            error.at(url=sample.get("__url__"), key=sample.get("__key__"), field=name or None)
            raise
        except Exception as cause:
            message = f"cannot decode as {extension_of(name)}: {one_line(cause)}"
            place = {part: sample.get(f"__{part}__") for part in ("source", "url", "key")}
            raise FieldError(message).at(**place, field=name) from cause
        return decoded

    def _study(self, names: tuple[str, ...]) -> Steps:
        steps: list[tuple[str, Callable[[bytes], Any]]] = []
        for name in names:
            if not is_reserved(name) and (self.only is None or name in self.only):
                decode = self._chain(name)
                if decode is not None:
                    steps.append((name, decode))
        if len(self._layouts) >= MAX_LAYOUTS:
            self._layouts.clear()
        self._layouts[names] = tuple(filter(is_reserved, names)), tuple(steps)
        return self._layouts[names]

    def _chain(self, name: str) -> Callable[[bytes], Any] | None:
        """The function for a field, with all that its name alone decides decided."""
        plain, layers = unpacked(name.lower()) if self.pre is None else (name.lower(), ())
        key = name[: len(plain)] if layers else name
        asked: list[FieldHandler] = []
        last: Callable[[bytes], Any] | None = None
        for handler in (*(self.pre or ()), *self.handlers, *(self.post or ())):
            if isinstance(handler, str):
                if self._rules[handler].takes(plain):
                    found = self._rules[handler].decoder_of(plain, plain)
                    last = _same if found is None else found.decode
                    break
            elif isinstance(handler, ForExtensions):
                if handler.takes(key):
                    last = handler.function
                    break
            else:
                asked.append(handler)
        if last is _same and not asked:
            return None  # `raw`: it is not even unpacked
        if last is None and self.post is None and not unpacked(plain)[1]:
            found = self._by_extension.decoder_of(plain, plain)
            last = found.decode if found else None
        return _chained(layers, asked, "." + key, last or _same) if asked or layers else last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_layouts": {}}

    def __repr__(self) -> str:
        return f"Decoder({', '.join(map(repr, self.handlers))})"


def _chained(
    layers: tuple[str, ...], handlers: Sequence[FieldHandler], key: str, last: Callable[[bytes], Any]
) -> Callable[[bytes], Any]:
    """Packings to undo, handlers to ask one by one, and what reads the field if none of them does."""
    unpackers = [COMPRESSIONS[layer].decompress for layer in layers]

    def decode(data: bytes) -> Any:
        for unpack in unpackers:
            data = unpack(data)
        for handler in handlers:
            value = handler(key, data)
            if value is not None:
                return value
        return last(data)

    return decode


def _same(data: bytes) -> bytes:
    return data


@makes_stages
def decode(
    *handlers: str | FieldHandler | Sequence[str | FieldHandler],
    handler: ErrorHandler = reraise_exception,
    pre: Sequence[FieldHandler] | None = None,
    post: Sequence[FieldHandler] | None = None,
    only: str | Sequence[str] | None = None,
    partial: bool = False,
    allow: Sequence[str] = (),
) -> Stage:
    """Decodes the fields of each sample, by the decoders of specs and functions of the user's own.

    Args:
        handlers: names such as ``"rgb8"`` or ``"pil"``, and functions (key, bytes) → value; see `Decoder`, also for
            the arguments not named here.
        handler: what to do about a sample that cannot be decoded.
        only: fields to decode; others stay bytes.
        partial: let values be that are no bytes.
        allow: ``["pickle"]`` to read pickles, if the data is trusted.

    Raises:
        FieldError: a field cannot be decoded, with URL, key, field and cause.
        SpecError: there is no such decoder, or WDS_SECURE forbids it: what the variable says now holds, in all workers.
    """
    decoder = SampleDecoder(*handlers, pre=pre, post=post, only=only, partial=partial, allow=allow)
    return decode_by(decoder, handler)


@stage
def decode_by(source: Iterator[Any], decoder: SampleDecoder, handler: ErrorHandler) -> Iterator[Any]:
    """`decode` with its decoder given."""
    return each(source, decoder, handler, FieldError)
