"""Decoding samples outside a spec, by handlers and by extension: `SampleDecoder`, and the stage `decode`.

A *handler* is a function of a key and bytes. The key is the name of the field with a leading dot (``.seg.jpg``). The
handler returns the value, or None to leave the field to the next handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wdspec.base.errors import FieldError, SpecError, WdspecError
from wdspec.base.user_code import secure_mode
from wdspec.fields.decode import DecodeRules, one_line
from wdspec.fields.extensions import is_reserved
from wdspec.formats.compression import BY_NAME as COMPRESSIONS
from wdspec.spec.language.decoders import endings, import_decoder, split_packing
from wdspec.webdataset.handlers import ErrorHandler, reraise_exception
from wdspec.webdataset.items import samples
from wdspec.webdataset.stage import Stage, each, item_stage, makes_stages

FieldHandler = Callable[[str, bytes], Any]


class ForExtensions:
    """A handler that decodes fields of some extensions by a function of bytes.

    Args:
        extensions: words such as ``"jpg png"``, or a list. An extension matches whole parts at the end of a name:
            ``jpg`` matches ``jpg`` and ``left.jpg``, ``seg.jpg`` matches ``a.seg.jpg`` but not ``jpg``. Case and a
            leading dot are ignored.
        function: bytes → value; None is a value too.

    Raises:
        SpecError: there is no extension.

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
        """Whether the handler decodes a field of this name."""
        return not set(endings(key.lower().lstrip("."))).isdisjoint(self.extensions)

    def __call__(self, key: str, data: bytes) -> Any:
        return self.function(data) if self.takes(key) else None

    def __repr__(self) -> str:
        return f"handle_extension({' '.join(self.extensions)!r}, {self.function!r})"


handle_extension = ForExtensions


def extension_of(name: str) -> str:
    """Return the last part of a field's name, in lower case."""
    return name.rpartition(".")[2].lower()


Sample = dict[str, Any]
Steps = tuple[tuple[str, ...], tuple[tuple[str, Callable[[bytes], Any]], ...]]
"""Reserved names such as ``__key__``, and fields with their decoders, for samples with the same names in order."""

MAX_LAYOUTS = 1024
"""Layouts to remember before all are forgotten; real data has a handful."""


class SampleDecoder:
    """Decodes the fields of samples by handlers, then by extension. Call it on a sample; it pickles if they do.

    A field with a packing at the end of its name (``txt.gz``) is decompressed first, and handlers get the key without
    the packing. The handlers are then called in turn until one returns a value. Other fields are decoded by their
    extension (see docs/decoders.md), or stay bytes. ``__names__`` are kept; bytes in them become text.

    Args:
        handlers: names of decoders, such as ``"rgb8"``, ``"torch_audio"`` or ``"raw"``, and handlers; also one list
            of them. Those of `handle_extension` are chosen once for each layout of samples.
        pre: handlers to call first, instead of decompressing.
        post: handlers to call last, instead of decoding by extension.
        only: fields to decode, as words or a list; others stay as they are. ``cls`` does not match ``left.cls``.
        partial: keep values that are not bytes, instead of raising an error.
        allow: ``("pickle",)`` to read pickles, like `allow` in a spec.

    Raises:
        SpecError: a decoder is unknown, or WDS_SECURE forbids it. The variable is read when the decoder is created,
            and also counts for copies in other processes.
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
        for name in self._rules:
            import_decoder(name)
        self._layouts: dict[tuple[str, ...], Steps] = {}

    def __call__(self, sample: Mapping[str, Any]) -> Sample:
        """Decode a sample into a new dict.

        Raises:
            FieldError: a field cannot be decoded, or is not bytes.
            WdspecError: the error is not in the sample; for example, a library is not installed.
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
                        f"a {type(value).__name__} cannot be decoded, only bytes can; was it decoded already? "
                        "List the fields to decode in `only`, or set `partial=True`"
                    )
        except WdspecError as error:
            error.at(url=sample.get("__url__"), key=sample.get("__key__"), field=name or None)
            raise
        except Exception as cause:
            message = f"cannot decode as {extension_of(name)}: {one_line(cause, sample[name])}"
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
        """Return what decodes a field of this name, or None if it stays bytes."""
        plain, layers = split_packing(name.lower()) if self.pre is None else (name.lower(), ())
        key = name[: len(plain)] if layers else name
        called: list[FieldHandler] = []
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
                called.append(handler)
        if last is _same and not called:
            return None  # `raw`: it is not even decompressed
        if last is None and self.post is None and not split_packing(plain)[1]:
            found = self._by_extension.decoder_of(plain, plain)
            last = found.decode if found else None
        return _build_chain(layers, called, "." + key, last or _same) if called or layers else last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_layouts": {}}

    def __repr__(self) -> str:
        return f"Decoder({', '.join(map(repr, self.handlers))})"


def _build_chain(
    layers: tuple[str, ...], handlers: Sequence[FieldHandler], key: str, last: Callable[[bytes], Any]
) -> Callable[[bytes], Any]:
    """Return a function that undoes packings and calls handlers one by one, and finally `last`."""
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
    """Decode the fields of each sample, by the decoders of specs and by user functions.

    Args:
        handlers: names such as ``"rgb8"`` or ``"pil"``, and functions (key, bytes) → value; see `Decoder`, also for
            `pre` and `post`.
        handler: what to do about a sample that cannot be decoded.
        only: fields to decode; others stay bytes.
        partial: keep values that are not bytes.
        allow: ``["pickle"]`` to read pickles, if you trust the data.

    Raises:
        FieldError: a field cannot be decoded; names URL, key, field and cause.
        SpecError: a decoder is unknown, or WDS_SECURE forbids it. The variable is read now, also for all workers.
    """
    decoder = SampleDecoder(*handlers, pre=pre, post=post, only=only, partial=partial, allow=allow)
    return decode_by(decoder, handler)


@item_stage
def decode_by(source: Iterator[Any], decoder: SampleDecoder, handler: ErrorHandler) -> Iterator[Any]:
    """Decode each sample by a decoder that was built before."""
    return each(samples(source, "decode"), decoder, handler, FieldError)
