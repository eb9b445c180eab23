"""Stages that call functions on samples and fields, rename fields, choose them by patterns, or make tuples of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from wdspec.base.errors import FieldError, MissingFieldError, UsageError
from wdspec.fields.extensions import is_reserved, listed_fields
from wdspec.fields.samples import SampleFields
from wdspec.webdataset.handlers import ErrorHandler, reraise_exception
from wdspec.webdataset.stage import DROPPED, each, stage


@stage
def map(
    source: Iterator[Any], f: Callable[[Any], Any], handler: ErrorHandler = reraise_exception
) -> Iterator[Any]:
    """Calls a function on every sample.

    A sample for which it returns None is left out. A dict keeps the sample's `__key__` and `__url__`, unless
    the function gives others.

    Raises:
        Exception: what the function raises, unless the handler says otherwise.
    """

    def mapped(sample: Any) -> Any:
        result = f(sample)
        if type(result) is dict and type(sample) is dict:
            for name in ("__key__", "__url__"):
                if name not in result and name in sample:
                    result[name] = sample[name]
        return DROPPED if result is None else result

    return each(source, mapped, handler)


@stage
def map_dict(
    source: Iterator[Any], /, *, handler: ErrorHandler = reraise_exception, **functions: Callable[[Any], Any]
) -> Iterator[Any]:
    """Calls functions on fields: ``map_dict(jpg=augment)``. The samples they came in stay as they were.

    Raises:
        FieldError: a sample without the field (a KeyError too), unless the handler says otherwise.
    """

    def mapped(sample: Any) -> Any:
        result = dict(sample)
        for name, f in functions.items():
            if name not in sample:
                raise MissingFieldError(
                    f"map_dict is to change the field {name!r}, but the sample {_has(sample)}"
                )
            result[name] = f(sample[name])
        return result

    return each(source, mapped, handler)


@stage
def map_tuple(
    source: Iterator[Any],
    *functions: Callable[[Any], Any] | None,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[Any]:
    """Calls one function on each value of a tuple, in order; None leaves a value as it is, and so does no function.

    Raises:
        FieldError: more functions than values, unless the handler says otherwise.
    """

    def mapped(sample: Any) -> Any:
        values = list(sample)
        if len(functions) > len(values):
            raise FieldError(f"map_tuple has {len(functions)} functions for a sample of {len(values)} values")
        for index, f in enumerate(functions):
            if f is not None:
                values[index] = f(values[index])
        return tuple(values)

    return each(source, mapped, handler)


@stage
def select(
    source: Iterator[Any], predicate: Callable[[Any], bool], handler: ErrorHandler = reraise_exception
) -> Iterator[Any]:
    """Keeps the samples for which a function is true."""
    return each(source, lambda sample: sample if predicate(sample) else DROPPED, handler)


@stage
def associate(
    source: Iterator[Any],
    extra: Mapping[str, Mapping[str, Any]] | Callable[[str], Mapping[str, Any]],
    *,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[Any]:
    """Adds fields by the sample's key; the samples they are added to stay as they were.

    Args:
        extra: `__key__` → fields, as a dict (keys that are not in it get none) or as a function.
    """
    find = extra if callable(extra) else lambda key: extra.get(key, {})
    return each(source, lambda sample: {**sample, **find(sample["__key__"])}, handler)


def _has(sample: Any) -> str:
    return f"has {', '.join(name for name in sample if not name.startswith('__')) or 'no fields'}"


@stage
def to_tuple(
    source: Iterator[Any],
    *keys: str,
    handler: ErrorHandler = reraise_exception,
    missing_is_error: bool = True,
    none_is_error: bool = False,
) -> Iterator[Any]:
    """The named fields of each sample as a tuple: ``to_tuple("jpg;png", "json")``, or ``to_tuple("jpg;png json")``.

    Args:
        keys: fields in order; of alternatives ``a;b`` the first present.
        missing_is_error: whether a field that is not there is an error, or becomes None.
        none_is_error: whether a value None is an error, such as that of a JSON field `null`.

    Raises:
        FieldError: a sample without a field; says which it has.
    """
    entries = [tuple(filter(None, entry.split(";"))) for key in keys for entry in key.split()]
    if not entries:
        raise UsageError('to_tuple needs the names of fields, such as to_tuple("jpg;png", "json")')
    firsts = [names[0] for names in entries]

    def tuple_of(sample: Any) -> tuple[Any, ...]:
        if not none_is_error:
            try:
                return tuple([sample[name] for name in firsts])
            except KeyError:
                pass
        values = tuple(_first(sample, names, missing_is_error) for names in entries)
        if none_is_error and any(value is None for value in values):
            names = entries[[value is None for value in values].index(True)]
            raise FieldError(f"the field `{';'.join(names)}` is None, and none_is_error forbids that")
        return values

    return each(source, tuple_of, handler, FieldError)


def _first(sample: dict[str, Any], names: tuple[str, ...], missing_is_error: bool) -> Any:
    for name in names:
        if name in sample:
            return sample[name]
    if not missing_is_error:
        return None
    raise FieldError(
        f"the sample has no field `{';'.join(names)}`; it has: {listed_fields(sample)}. Add an alternative with "
        "`;`, or pass missing_is_error=False for None"
    )


@stage
def rename(
    source: Iterator[Any], /, *, handler: ErrorHandler = reraise_exception, keep: bool = True, **new: str
) -> Iterator[Any]:
    """Renames fields: ``rename(image="jpg;png")``; of alternatives the first present, and the others go.

    Args:
        keep: whether fields that are not mentioned stay. `__key__` and the like always do.
        new: new name → the names it may have had.

    Raises:
        FieldError: a sample with none of them, or one that already has the new name.
    """
    fields = SampleFields(
        rename={name: tuple(olds.split(";")) for name, olds in new.items()},
        only=None if keep else tuple(new),
        names=("raw",),
        secure=False,
    )
    return each(source, fields, handler, FieldError)


@stage
def rename_keys(
    source: Iterator[Any],
    /,
    *rules: tuple[str, str],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
    **new: str,
) -> Iterator[Any]:
    """Renames the fields that match patterns: ``rename_keys(image="*.jpg")``; `__key__` and the like stay.

    Args:
        rules: pairs (new name, glob); letter case does not count, and the last rule that fits wins.
        keep_unselected: whether fields that no rule fits stay.
        must_match: whether a rule that fits no field of a sample is an error.
        duplicate_is_error: whether two fields of one new name are, or the later one wins.
        new: further rules.

    Raises:
        FieldError: as `must_match` and `duplicate_is_error` say.
    """
    patterns = [(name, glob.lower()) for name, glob in (*rules, *new.items())]

    def renamed(sample: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        matched = set()
        for name, value in sample.items():
            fitting = [new for new, glob in patterns if fnmatchcase(name.lower(), glob)]
            matched.update(fitting)
            if is_reserved(name) or (keep_unselected and not fitting):
                target = name
            elif fitting:
                target = fitting[-1]
            else:
                continue
            if duplicate_is_error and target in result:
                raise FieldError(f"rename_keys makes the field {target!r} twice; write narrower patterns")
            result[target] = value
        lacking = [f"{new}={glob!r}" for new, glob in patterns if new not in matched]
        if must_match and lacking:
            raise FieldError(
                f"rename_keys: no field fits {', '.join(lacking)}; the sample has: {listed_fields(sample)}"
            )
        return result

    return each(source, renamed, reraise_exception, FieldError)


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
                result[name] = value if is_reserved(name) else _decode_field(name, value, table, must_decode)
        except FieldError:
            raise
        except Exception as cause:
            raise FieldError(f"cannot decode: {type(cause).__name__}: {cause}", field=name) from cause
        return result

    return each(source, decoded, handler)


def _decode_field(
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
