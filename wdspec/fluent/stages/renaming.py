"""Stages that rename fields, or make tuples of them."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from wdspec.base.errors import FieldError, UsageError
from wdspec.fields.extensions import is_reserved, listed_fields
from wdspec.fields.samples import SampleFields
from wdspec.fluent.error_handlers import ErrorHandler, reraise_exception
from wdspec.fluent.stage import each, placed, stage


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
    for sample in source:
        yield _renamed(sample, patterns, keep_unselected, must_match, duplicate_is_error)


def _renamed(
    sample: dict[str, Any],
    rules: list[tuple[str, str]],
    keep_unselected: bool,
    must_match: bool,
    unique: bool,
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    matched = set()
    for name, value in sample.items():
        fitting = [new for new, glob in rules if fnmatchcase(name.lower(), glob)]
        matched.update(fitting)
        if is_reserved(name) or (keep_unselected and not fitting):
            target = name
        elif fitting:
            target = fitting[-1]
        else:
            continue
        if unique and target in result:
            raise placed(
                FieldError(f"rename_keys makes the field {target!r} twice; write narrower patterns"), sample
            )
        result[target] = value
    lacking = [f"{new}={glob!r}" for new, glob in rules if new not in matched]
    if must_match and lacking:
        error = FieldError(
            f"rename_keys: no field fits {', '.join(lacking)}; the sample has: {listed_fields(sample)}"
        )
        raise placed(error, sample)
    return result
