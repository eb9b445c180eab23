"""What a change of a key does to the reading: declared where the key is defined, and digested into states from there.

A key without a declaration would be a wrong resume in silence: `tests/planning/test_order_digest.py` demands one of
every key, and an example that shows that it is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

T = TypeVar("T")


class Affects(NamedTuple):
    """The effect of a key, as a mark in the annotation of its field."""

    what: Literal["order", "samples", "neither"]
    """`order`: which samples come, and when. A state does not fit a spec that differs in it.
    `samples`: what is in them. A run may go on with a change, and warns of it.
    `neither`: where bytes come from, how fast, how an epoch is cut, which steps are left out, what happens to
    failures."""
    order_if_skipping: bool = False
    """With `missing: skip` it chooses the samples, too, since it asks for fields."""
    only: str = ""
    """Beside what alone it has that effect, for the reference."""

    def __str__(self) -> str:
        if self.order_if_skipping:
            return f"{self.what}; order with `missing: skip`"
        return f"{self.what}, only with {self.only}" if self.only else self.what


AffectsOrder = Annotated[T, Affects("order")]
AffectsSamples = Annotated[T, Affects("samples")]
AsksForFields = Annotated[T, Affects("samples", order_if_skipping=True)]
AffectsNeither = Annotated[T, Affects("neither")]


class DeclaredKey(NamedTuple):
    """A key with a value of its own, no map of further keys."""

    name: str
    """From the holder on, as it is written: `epoch.pass`."""
    attributes: tuple[str, ...]
    """The same in the models: `epoch`, `remainder`."""
    affects: Affects | None
    default: Any

    def stated(self, holder: Any) -> list[Any]:
        """Its values in a model, one for each map where it is a key of a list of maps; none if all are the default.

        Among others, one that is the default is None.
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
    """The keys of a model and of the maps in it; `dataset` is left out, whose sources declare their own."""
    return tuple(_declared(model))


def inner_model(field: FieldInfo) -> type[BaseModel] | None:
    """The model of the maps that a key takes, or of the maps in the list that it takes; None for other values."""
    return _model_in(field.annotation)


def affects_of(field: FieldInfo) -> Affects | None:
    """What a field declares."""
    return next((mark for mark in field.metadata if isinstance(mark, Affects)), None)


def _declared(model: type[BaseModel]) -> Iterator[DeclaredKey]:
    for attribute, field in model.model_fields.items():
        affects = affects_of(field)
        if attribute == "dataset" or (affects is None and not field.description):
            continue
        name, inner = field.alias or attribute, inner_model(field)
        if inner is None or affects is not None:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield DeclaredKey(name, (attribute,), affects, default)
            continue
        for key in declared_keys(inner):
            yield key._replace(name=f"{name}.{key.name}", attributes=(attribute, *key.attributes))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    inner = get_args(annotation)  # asked first: Python 3.10 takes `tuple[int, ...]` for a class
    if inner:
        return next((model for each in inner if (model := _model_in(each))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def stated_values(holder: BaseModel, effect: str, covered: frozenset[str]) -> dict[str, Any]:
    """The values of a model's keys with an effect, where they are not the default, as JSON has them.

    Args:
        effect: what the keys affect.
        covered: names of keys to leave out, or the first of their attributes.
    """
    found = {}
    for key in _keys_with_effect(type(holder), effect, covered):
        if values := key.stated(holder):
            found[key.name] = plain_value(values[0] if len(values) == 1 else values)
    return found


def plain_value(value: Any) -> Any:
    """A value of a model as JSON has it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    return [plain_value(each) for each in value] if isinstance(value, (list, tuple)) else value


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
