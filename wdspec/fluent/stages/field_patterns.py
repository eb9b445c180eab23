"""Stages that choose and decode fields by patterns of their names, as `fnmatch` has them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from wdspec.base.errors import FieldError
from wdspec.fields.extensions import is_reserved, listed_fields
from wdspec.fluent.error_handlers import ErrorHandler, reraise_exception
from wdspec.fluent.stage import each, stage

StreamDecoder = Callable[[io.BytesIO], Any]


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(f".{name}", pattern) for pattern in patterns)


@stage
def extract_keys(
    source: Iterator[Any],
    *patterns: str | Sequence[str],
    duplicate_is_error: bool = True,
    ignore_missing: bool = False,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[Any]:
    """The fields that fit patterns, as a tuple: ``extract_keys("*.jpg;*.png", "cls")``.

    Args:
        patterns: one a value, with alternatives ``a;b``; each is tried on the name, and on it with a dot before it.
        duplicate_is_error: whether several fields that fit one pattern are, or the first of them counts.
        ignore_missing: whether a pattern that no field fits is left out of the tuple.

    Raises:
        FieldError: as these say; it names the fields there are.
    """
    wanted = [pattern.split(";") if isinstance(pattern, str) else pattern for pattern in patterns]

    def fitting_values(sample: Any) -> tuple[Any, ...]:
        values = []
        for alternatives in wanted:
            fitting = [name for name in sample if _fits(name, alternatives)]
            if len(fitting) > 1 and duplicate_is_error:
                raise FieldError(
                    f"{', '.join(fitting)} all fit `{';'.join(alternatives)}`; write narrower patterns, or pass "
                    "duplicate_is_error=False for the first of them"
                )
            if fitting:
                values.append(sample[fitting[0]])
            elif not ignore_missing:
                raise FieldError(
                    f"no field fits `{';'.join(alternatives)}`; the sample has: {listed_fields(sample)}"
                )
        return tuple(values)

    return each(source, fitting_values, handler, FieldError)


@stage
def xdecode(
    source: Iterator[Any],
    /,
    *decoders: tuple[str, StreamDecoder | None],
    must_decode: bool = True,
    handler: ErrorHandler = reraise_exception,
    **by_extension: StreamDecoder,
) -> Iterator[Any]:
    """Decodes fields by functions of a stream: ``xdecode(("*.left.png", imageio.imread), json=json.load)``.

    Args:
        decoders: pairs (pattern, function of an open binary file → value); with None for a function the bytes stay.
            The first that fits a name, or it with a dot before it, decodes the field.
        must_decode: whether a field that none fits is an error, or stays as it is. ``bin`` are bytes, ``txt`` text.
        by_extension: functions for ``*.name``.

    Unlike webdataset's it never unpickles: ``pyd`` is a field like others.

    Raises:
        FieldError: no decoder fits a field, or one fails.
    """
    table = [*decoders, *((f"*.{name}", f) for name, f in by_extension.items()), *_PLAIN]

    def decoded(sample: Any) -> dict[str, Any]:
        result, name = {}, ""
        try:
            for name, value in sample.items():
                result[name] = value if is_reserved(name) else _decoded(name, value, table, must_decode)
        except FieldError:
            raise
        except Exception as cause:
            raise FieldError(f"cannot decode: {type(cause).__name__}: {cause}", field=name) from cause
        return result

    return each(source, decoded, handler)


def _decoded(
    name: str, value: Any, table: Sequence[tuple[str, StreamDecoder | None]], must_decode: bool
) -> Any:
    for pattern, function in table:
        if _fits(name, (pattern,)):
            if function is None:
                return value
            return function(io.BytesIO(value) if isinstance(value, bytes) else value)
    if must_decode:
        raise FieldError(
            f"xdecode has no decoder that fits; add one such as {name.rpartition('.')[2]}=f, or pass must_decode=False",
            field=name,
        )
    return value


def _text(stream: io.BytesIO) -> str:
    return stream.read().decode()


_PLAIN: tuple[tuple[str, StreamDecoder | None], ...] = (("*.bin", None), ("*.txt", _text))
