"""Decoding in pipelines: `Decoder` as a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wdspec.base.errors import FieldError
from wdspec.fluent.error_handlers import ErrorHandler, reraise_exception
from wdspec.fluent.field_handlers import FieldHandler
from wdspec.fluent.sample_decoder import SampleDecoder
from wdspec.fluent.stage import Stage, each, makes_stages, stage


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
