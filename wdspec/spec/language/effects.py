"""What a key affects: the order of samples, their content, or which samples are dropped.

Each key declares it where it is defined, and the digests in states are made from the declarations. Without one, a run
could resume wrongly and silently, so `tests/planning/test_order_digest.py` demands a declaration of every key, and an
example that proves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

T = TypeVar("T")


class Affects(NamedTuple):
    """What a key affects; a mark in the annotation of its field."""

    what: Literal["order", "samples", "neither"]
    """`order`: which samples are read, and when. A state cannot be loaded if such a key differs.
    `samples`: what is in them. A run resumes with a change, and warns about it.
    `neither`: where bytes come from, how fast, how an epoch is cut, which steps are left out, how failures are
    handled."""
    order_if_skipping: bool = False
    """With `missing: skip` it also affects the order, since samples without the fields that it asks for are dropped."""
    only: str = ""
    """The other key without which it has no such effect, for the reference."""

    def __str__(self) -> str:
        if self.order_if_skipping:
            return f"{self.what}; order with `missing: skip`"
        return f"{self.what}, only with {self.only}" if self.only else self.what


AffectsOrder = Annotated[T, Affects("order")]
AffectsSamples = Annotated[T, Affects("samples")]
AsksForFields = Annotated[T, Affects("samples", order_if_skipping=True)]
AffectsNeither = Annotated[T, Affects("neither")]
FOR_DIGEST = {"for": "digest"}
"""The context in which models leave out keys that do not count in digests of what they do to samples."""


class Drops(NamedTuple):
    """That a key drops samples because of their content; a mark next to its `Affects`."""

    values: tuple[Any, ...] = ()
    """The values that do so; empty: all except the default and empty ones."""
    counted_as: Literal["dropped", "skipped"] = "dropped"
    """How reports count these samples: as left out by the spec, or as errors that are skipped."""
    when_read: bool = False
    """Whether the samples are dropped as they are read (`read/selection.py`), before they are shuffled and decoded."""


class NotInAPass(NamedTuple):
    """That a key of the top level cannot be combined with `epoch: pass`; a mark in the annotation of its field."""

    why: str
    """The reason."""


class DeclaredKey(NamedTuple):
    """A key with a value, not a map of other keys."""

    name: str
    """The path of keys as it is written: `epoch.pass`."""
    attributes: tuple[str, ...]
    """The path of attributes in the models: `epoch`, `remainder`."""
    affects: Affects | None
    drops: Drops | None
    default: Any

    def drops_samples(self, holder: Any) -> bool:
        """Whether a model drops samples with this key."""
        values = () if self.drops is None else self.drops.values
        return self.drops is not None and any(
            value in values if values else value for value in self.stated(holder)
        )

    def stated(self, holder: Any) -> list[Any]:
        """Its values in a model: one, or one for each map if it is a key of a list of maps.

        The list is empty if all are the default. Among other values, a default is None.
        """
        *outer, last = self.attributes
        held = [holder]
        for attribute in outer:
            maps = [getattr(each, attribute) for each in held if each is not None]
            held = [each for value in maps for each in (value if isinstance(value, tuple) else (value,))]
        values = [None if each is None else getattr(each, last) for each in held]
        stated = [None if value == self.default else value for value in values]
        return [] if all(value is None for value in stated) else stated


@cache
def declared_keys(model: type[BaseModel]) -> tuple[DeclaredKey, ...]:
    """The keys of a model and of the maps in it; except `dataset`, since sources declare their keys themselves."""
    return tuple(_declaration(model))


def inner_model(field: FieldInfo) -> type[BaseModel] | None:
    """The model of the map that a key takes, or of the maps in its list; None for other values."""
    return _model_in(field.annotation)


def affects_of(field: FieldInfo) -> Affects | None:
    """What a field declares, if it does."""
    return next((mark for mark in field.metadata if isinstance(mark, Affects)), None)


def _declaration(model: type[BaseModel]) -> Iterator[DeclaredKey]:
    for attribute, field in model.model_fields.items():
        affects = affects_of(field)
        if attribute == "dataset" or (affects is None and not field.description):
            continue
        name, inner = field.alias or attribute, inner_model(field)
        if inner is None or affects is not None:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            drops = next((mark for mark in field.metadata if isinstance(mark, Drops)), None)
            yield DeclaredKey(name, (attribute,), affects, drops, default)
            continue
        for key in declared_keys(inner):
            yield key._replace(name=f"{name}.{key.name}", attributes=(attribute, *key.attributes))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    inner = get_args(annotation)  # asked first: Python 3.10 takes `tuple[int, ...]` for a class
    if inner:
        return next((model for each in inner if (model := _model_in(each))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def stated_values(holder: BaseModel, effect: str, covered: frozenset[str]) -> dict[str, Any]:
    """The values of all keys of a model with an effect that are not the default, as plain JSON values.

    Args:
        effect: what the keys affect.
        covered: keys to leave out, by their names or the first of their attributes.
    """
    found = {}
    for key in _keys_with_effect(type(holder), effect, covered):
        if values := key.stated(holder):
            found[key.name] = plain_value(values[0] if len(values) == 1 else values)
    return found


def plain_value(value: Any) -> Any:
    """Convert a value of a model to plain JSON values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", context=FOR_DIGEST)
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(each) for each in value]
    return f"{value.normalize():f}" if isinstance(value, Decimal) else value


@cache
def _keys_with_effect(
    model: type[BaseModel], effect: str, covered: frozenset[str]
) -> tuple[DeclaredKey, ...]:
    return tuple(
        key
        for key in declared_keys(model)
        if key.affects is not None
        and key.affects.what == effect
        and not covered & {key.name, key.attributes[0]}
    )
