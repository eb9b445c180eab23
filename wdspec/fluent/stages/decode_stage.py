"""Decoding in pipelines: `Decoder` as a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wdspec.errors import FieldError
from wdspec.fields.decoder_handlers import Decoder
from wdspec.fields.decoder_handlers import Handler as FieldHandler
from wdspec.fluent.handlers import Handler, reraise_exception
from wdspec.fluent.stages.stage import placed, stage


@stage
def decode(
    source: Iterator[Any],
    *handlers: str | FieldHandler | Sequence[str | FieldHandler],
    handler: Handler = reraise_exception,
    pre: Sequence[FieldHandler] | None = None,
    post: Sequence[FieldHandler] | None = None,
    only: str | Sequence[str] | None = None,
    partial: bool = False,
    allow: Sequence[str] = (),
) -> Iterator[Any]:
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
        SpecError: there is no such decoder, or WDS_SECURE=1 forbids it.
    """
    decoder = Decoder(*handlers, pre=pre, post=post, only=only, partial=partial, allow=allow)
    return _decoded(source, decoder, handler)


def _decoded(source: Iterator[Any], decoder: Decoder, handler: Handler) -> Iterator[Any]:
    for raw in source:
        try:
            sample = decoder(raw)
        except FieldError as error:
            if handler(placed(error, raw)):
                continue
            return
        yield sample
