"""What follows from a key: what it affects in a run, and what depends on it when shards are measured.

Each key declares it where it is defined, and all digests are made from the declarations. Without one, a run could
resume wrongly and silently, so `tests/planning/test_every_digest.py` changes every key in specs of many kinds: exactly
the digests that it declares may move.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, Discriminator
from pydantic.fields import FieldInfo

from wdspec.spec.language.values import FilePath, Model

T = TypeVar("T")
M = TypeVar("M")


class Affects(NamedTuple):
    """What a key affects in a run."""

    what: Literal["order", "samples", "neither"]
    """`order`: which samples are read, and when. A state cannot be loaded if such a key differs.
    `samples`: what is in them. A run resumes with a change, and warns about it.
    `neither`: where bytes come from, how fast, how an epoch is cut, which steps are left out, how failures are
    handled."""
    order_if_skipping: bool = False
    """With `missing: skip` it also affects the order, since samples without the fields that it asks for are dropped."""
    order_if_read: bool = False
    """It also affects the order if an expression reads a field that it concerns (`planning/expressions.py`)."""
    only: str = ""
    """The other key without which it has no such effect, for the reference."""
    in_plan: bool = False
    """Whether the description of an order has its effect on the plan, in place of its value."""

    def is_described_as(self, effect: str) -> bool:
        """Whether descriptions of an effect have the key: `order`, `samples`, or `fields`, which asks for fields."""
        return self.order_if_skipping if effect == "fields" else self.what == effect and not self.in_plan

    def __str__(self) -> str:
        conditions = ["if an expression reads it"] if self.order_if_read and self.what == "samples" else []
        conditions += ["with `missing: skip`"] if self.order_if_skipping else []
        if conditions:
            return f"{self.what}; order {' or '.join(conditions)}"
        return f"{self.what}, only with {self.only}" if self.only else self.what


_PLACES = frozenset({"group", "top", "both"})
_EFFECTS = {
    "order": Affects("order"),
    "plan": Affects("order", in_plan=True),
    "samples": Affects("samples"),
    "fields": Affects("samples", order_if_skipping=True),
    "neither": Affects("neither"),
}
STEPS = frozenset({"shard", "damage", "choice", "again", "values", "cost", "packing"})
"""The steps of reading a shard; results of `wdspec stats` and `wdspec check` stay valid if theirs are the same.

`shard`: which samples a shard has. `damage`: which of those with damage count. `choice`: which ones are kept. `again`:
which of them a pass reads once more. `values`: what they are after decoding. `cost`: what each one costs. `packing`:
which ones batches by cost leave out.
"""
FOR_DIGEST = {"for": "digest"}
"""The context in which models leave out keys that do not count in digests of what they do to samples."""


class Drops(NamedTuple):
    """That a key drops samples because of their content."""

    values: Container[Any] = ()
    """The values that do so; empty: all except the default and empty ones."""
    counted_as: Literal["dropped", "skipped"] = "dropped"
    """How reports count these samples: as left out by the spec, or as errors that are skipped."""
    when_read: bool = False
    """Whether the samples are dropped as they are read (`read/selection.py`), before they are shuffled and decoded."""


class Only(NamedTuple):
    """The other key without which a key has no effect on the order."""

    other: str


class Needs(NamedTuple):
    """That a key has no meaning without one of some others.

    Others are written as `cost` (in the same map), `pack.length` (in a map below it) or `/epoch.pass` (at the top
    level); with `=` they must have a value: `/mix.draw=round_robin`.
    """

    others: str
    hint: str = "add {others}, or remove it"
    """The remedy, with `{key}`, `{value}`, `{others}`, the split that was chosen, as `{place}`, and `{measure}`."""
    code: str = "E206"
    value: Any = None
    """The value, or the tuple of values, that needs them; None for all."""
    unless: str = ""
    """Others with which it is right, or another row reports the problem."""
    only: str = ""
    """Others without which another row reports the problem."""
    at_value: bool = False
    """Whether the problem is in the value, not in the key."""


WINDOWED = "/batch.cost /batch.group_by /batch.pack"
"""The keys by which batches are planned from windows, for `Excludes`."""
COUNT_BATCHES = "write how many batches, such as `epoch: {{batches: 1000}}`"
COUNT_BATCHES_OR_TOKENS = f"{COUNT_BATCHES}, or about how many tokens, such as `epoch: {{{{tokens: 10e6}}}}`"


class Excludes(NamedTuple):
    """That a key cannot go with any of some others. The arguments are those of `Needs`."""

    others: str
    hint: str = "remove one of the two"
    code: str = "E207"
    value: Any = None
    unless: str = ""
    only: str = ""
    at_value: bool = False


class Which(NamedTuple):
    """Why others cannot go with a key, after its name: "`stage`, which may yield any number of samples"."""

    why: str
    value: Any = None
    """The value that they cannot go with; None for all."""
    shown: str = ""
    """How messages write the key, if not by its name."""


class Key:
    """All that follows from a key, next to the type of its values in the annotation of its field.

    Args:
        words: what it affects: `order`, or `plan` if the description of an order has its effect on the plan;
            `samples`, or `fields` if it asks for fields; or `neither`. `read` if expressions depend on it. Then the
            steps of reading that depend on it (`STEPS`). And `whole` if descriptions have its value even if that is
            the default. In a source, `group` if a nested mix may have the key, and `both` if it is a filter: that of
            `defaults` applies as well. In `mix`, `top` if no nested mix may have the key.
        marks: what else is to be known about it.
    """

    __slots__ = ("affects", "is_whole", "marks", "place", "steps")

    def __init__(self, words: str = "", *marks: NamedTuple) -> None:
        said = frozenset(words.split())
        effect = said & _EFFECTS.keys()
        assert len(effect) < 2, words
        assert said <= _EFFECTS.keys() | STEPS | {"read", "whole"} | _PLACES, words
        only = next((mark.other for mark in marks if isinstance(mark, Only)), "")
        is_read = "read" in said
        self.affects = _EFFECTS[min(effect)]._replace(only=only, order_if_read=is_read) if effect else None
        self.steps = said & STEPS
        self.is_whole = "whole" in said
        self.place = said & _PLACES
        self.marks = marks


AffectsOrder = Annotated[T, Key("order")]
AffectsPlan = Annotated[T, Key("plan")]
AffectsSamples = Annotated[T, Key("samples")]
AffectsNeither = Annotated[T, Key("neither")]
_NOTHING = Key()


class DeclaredKey(NamedTuple):
    """A key with a value, not a map of other keys."""

    name: str
    """The path of keys as it is written: `epoch.pass`."""
    attributes: tuple[str, ...]
    """The path of attributes in the models: `epoch`, `remainder`."""
    affects: Affects | None
    drops: Drops | None
    steps: frozenset[str]
    is_whole: bool
    default: Any

    def drops_samples(self, holder: Any) -> bool:
        """Whether a model drops samples with this key."""
        return self.drops is not None and any(
            value in self.drops.values if self.drops.values else value for value in self.stated(holder)
        )

    def stated(self, holder: Any) -> list[Any]:
        """Its values in a model: one, or one for each map if it is a key of a list of maps.

        The list is empty if all are the default. Among other values, a default is None.
        """
        if self.attributes[0] not in holder.model_fields_set:  # thousands of sources set few keys
            return []
        (*outer, last), held = self.attributes, [holder]
        for attribute in outer:
            maps = [getattr(each, attribute) for each in held if each is not None]
            held = [each for value in maps for each in (value if isinstance(value, tuple) else (value,))]
        stated = [None if one is None or (its := getattr(one, last)) == self.default else its for one in held]
        return [] if all(value is None for value in stated) else stated


@cache
def declared_keys(model: type[Model]) -> tuple[DeclaredKey, ...]:
    """The keys of a model and of the maps in it; except `dataset`, since sources declare their keys themselves."""
    return tuple(_declaration(model))


OF_SOURCES = frozenset({"dataset", "companions"})
"""Keys whose maps are sources, which declare their keys themselves, or the companions of sources."""


def inner_model(field: FieldInfo) -> type[Model] | None:
    """The model of the map that a key takes, or of the maps in its list; None for other values."""
    kind = _kind_in(field.annotation)
    return None if isinstance(kind, FilePath) or has_named_maps(field) else kind


def has_named_maps(field: FieldInfo) -> bool:
    """Whether a key takes a map of names, each with a map of its own."""
    return any(isinstance(mark, FilePath) and mark.in_entries for mark in field.metadata)


def named_model(field: FieldInfo) -> type[Model] | None:
    """The model of the maps under the names that a key takes; None for other values."""
    kind = _kind_in(field.annotation) if has_named_maps(field) else None
    return None if isinstance(kind, FilePath) else kind


Paths = dict[str, FilePath | type[Model]]


@cache
def paths_in(model: type[BaseModel]) -> Paths:
    """The keys of a model whose values are paths, and the models of the maps under a key that have some."""
    found: Paths = {}
    for name, field in model.model_fields.items():
        marks = [mark for mark in field.metadata if isinstance(mark, FilePath)]
        kind = marks[0] if marks else _kind_in(field.annotation)
        if isinstance(kind, FilePath) or (kind is not None and name not in OF_SOURCES and paths_in(kind)):
            found[field.alias or name] = kind
    return found


def keys_in_place(model: type[BaseModel], place: str) -> tuple[str, ...]:
    """The keys of a model that are declared with a word for where they may stand or apply: `group`, `top` or `both`."""
    fields = model.model_fields.items()
    return tuple(field.alias or name for name, field in fields if place in key_of(field).place)


def key_of(field: FieldInfo) -> Key:
    """What a field declares."""
    keys = [mark for mark in field.metadata if isinstance(mark, Key)]
    assert len(keys) < 2, f"{field} is declared twice"
    return keys[0] if keys else _NOTHING


def mark_of(field: FieldInfo, kind: type[M]) -> M | None:
    """The mark of a kind that a field declares, if it does."""
    return next((mark for mark in key_of(field).marks if isinstance(mark, kind)), None)


class Row(NamedTuple):
    """A mark of a key that needs or excludes others."""

    keys: tuple[str, ...]
    """The path of the key, as it is written."""
    attributes: tuple[str, ...]
    """The same path in the models."""
    mark: Needs | Excludes


@cache
def rows_of(model: type[BaseModel]) -> tuple[Row, ...]:
    """The rows of a model and of the maps in it; except `dataset`, since sources have their own."""
    found = []
    for name, field in model.model_fields.items():
        key, inner = field.alias or name, inner_model(field)
        found += [
            Row((key,), (name,), each) for each in key_of(field).marks if isinstance(each, (Needs, Excludes))
        ]
        for keys, attributes, mark in rows_of(inner) if inner is not None and name not in OF_SOURCES else ():
            found.append(Row((key, *keys), (name, *attributes), mark))
    return tuple(found)


def _declaration(model: type[Model]) -> Iterator[DeclaredKey]:
    for attribute, field in model.model_fields.items():
        key = key_of(field)
        if key.affects is None and (attribute in OF_SOURCES or not field.description):
            continue
        name, inner = field.alias or attribute, inner_model(field)
        if inner is None or key.affects is not None:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            drops = mark_of(field, Drops)
            yield DeclaredKey(name, (attribute,), key.affects, drops, key.steps, key.is_whole, default)
            continue
        for each in declared_keys(inner):
            is_idle = each.affects is not None and each.affects.what == "neither"
            yield each._replace(
                name=f"{name}.{each.name}",
                attributes=(attribute, *each.attributes),
                steps=each.steps if each.steps or is_idle else key.steps,
                is_whole=key.is_whole,
            )


def _kind_in(annotation: Any) -> type[Model] | FilePath | None:
    """The first model in a type, or the first mark of paths."""
    if isinstance(annotation, FilePath):
        return annotation
    inner = get_args(annotation)  # asked first: Python 3.10 takes `tuple[int, ...]` for a class
    if any(isinstance(each, Discriminator) for each in inner):
        return None  # models of several kinds
    if inner:
        return next((kind for each in inner if (kind := _kind_in(each)) is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Model) else None


def described(
    holder: BaseModel, effect: str, *, whole: bool = True, only_whole: bool = False
) -> dict[str, Any]:
    """The values of all keys of a model with an effect (`order`, `samples`, `fields`) or a step, as plain JSON values.

    Those that are the default are left out, unless they are declared as `whole`, so a new key changes no description
    of specs that do not use it. Keys with an effect on the plan are left out, too. Without `whole`, that word has no
    effect; with `only_whole`, keys without that word are left out.
    """
    found: dict[str, Any] = {}
    written = holder.model_fields_set
    for key in _keys_with(type(holder), effect):
        if key.is_whole and whole:
            found[key.attributes[0]] = plain_value(getattr(holder, key.attributes[0]))
        # Asked here, too, as thousands of sources leave out nearly all keys, and a call takes longer.
        elif not only_whole and key.attributes[0] in written and (values := key.stated(holder)):
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
def _keys_with(model: type[Model], effect: str) -> tuple[DeclaredKey, ...]:
    return tuple(
        key
        for key in declared_keys(model)
        if effect in key.steps or (key.affects is not None and key.affects.is_described_as(effect))
    )
