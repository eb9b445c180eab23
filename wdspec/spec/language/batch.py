"""What `batch` says: how many samples make one, and how the values of each field become one value."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from wdspec.base.errors import did_you_mean
from wdspec.spec.language.effects import AffectsNeither, AffectsOrder, AffectsSamples
from wdspec.spec.language.samples import Call
from wdspec.spec.language.values import (
    CALLABLE_FORM,
    BatchSize,
    Boolean,
    Model,
    Positive,
    read_callable,
    read_integer,
    read_list,
    read_number,
    refuse,
)
from wdspec.spec.problems import quoted, shown

Way = Literal["stack", "list", "pad", "nested", "call"]
_WORDS = ("stack", "list", "pad", "nested")
_FORMS = (
    "write `stack`, `list`, `pad`, `nested`, `{pad: {side: left, value: 0, multiple: 8}}`, or a function of the list "
    "of values, `package.module:function`"
)
_PAD_KEYS = ("side", "value", "axis", "multiple", "limit", "length")


class Padding(Model):
    """How values of unequal length are brought to one."""

    side: Literal["right", "left"] = "right"
    """Where the padding goes."""
    value: float | int = 0
    """What it is."""
    axis: tuple[int, ...] = (0,)
    """The axes of one value whose lengths differ; negative ones count from the last."""
    multiple: int | None = None
    """The length is a multiple of this."""
    limit: int | None = None
    """What is longer loses its end."""
    length: int | None = None
    """The length is always this: what is longer loses its end."""


class FieldCollation(Model):
    """How the values of one field become one value of a batch."""

    way: Way = "stack"
    padding: Padding | None = None
    """With `pad`."""
    call: Call | None = None
    """With `call`: from the list of values to the value."""


class Collation(Model):
    """How samples become a batch, beyond what stacks by itself."""

    call: Call | None = None
    """From the list of samples to the whole batch."""
    fields: dict[str, FieldCollation] = Field({})
    """By field; others are stacked."""

    @property
    def functions(self) -> list[str]:
        """The names of the user's functions in it."""
        calls = [self.call, *(how.call for how in self.fields.values())]
        return [call.call for call in calls if call is not None]


def read_collation(value: Any) -> Any:
    """`{field: way, …}`, or a function of the samples: `package.module:function` or `{call: …, args: {…}}`."""
    if isinstance(value, Collation):
        return value
    if isinstance(value, str) and ":" in value:
        return {"call": _read_call(value)}
    if isinstance(value, dict) and "call" in value:
        return {"call": _read_call(value)}
    if isinstance(value, dict):
        return {"fields": {str(name): _read_way(way, str(name)) for name, way in value.items()}}
    hint = (
        "name the fields, `collate: {tokens: pad}`, or a function of the samples, `package.module:function`"
    )
    if value == "list":
        hint = "write `ragged: list` for lists of whatever does not stack, or name the fields: `collate: {boxes: list}`"
    return refuse("E202", f"expected a map of fields, but this is {shown(value)}", hint)


def _read_way(value: Any, name: str) -> Any:
    """How the values of one field become one."""
    if isinstance(value, str) and ":" in value:
        return {"way": "call", "call": _read_call(value)}
    if isinstance(value, str):
        if value not in _WORDS:
            hint = did_you_mean(value, _WORDS) or _FORMS
            refuse("E203", f"{quoted(value)} is no way to collate `{name[:60]}`", hint)
        return {"way": value, "padding": {}} if value == "pad" else {"way": value}
    if isinstance(value, dict) and "call" in value:
        return {"way": "call", "call": _read_call(value)}
    if isinstance(value, dict) and set(value) == {"pad"}:
        return {"way": "pad", "padding": _read_padding(value["pad"])}
    if isinstance(value, dict) and value:
        wrong = next(str(key) for key in value if key != "pad")
        hint = "write `{pad: {…}}`" if wrong in _PAD_KEYS else did_you_mean(wrong, ("pad", "call")) or _FORMS
        refuse("E201", f"unknown key {quoted(wrong)} in the collation of `{name[:60]}`", hint)
    return refuse("E202", f"expected a way to collate `{name[:60]}`, but this is {shown(value)}", _FORMS)


def _read_padding(value: Any) -> Any:
    """`left`, `right`, or a map of what is said of the padding."""
    if value in ("left", "right"):
        return {"side": value}
    if not isinstance(value, dict):
        refuse("E202", f"expected a map, but this is {shown(value)}", "write `{pad: {side: left, value: 0}}`")
    for key in value:
        if key not in _PAD_KEYS:
            hint = did_you_mean(str(key), _PAD_KEYS) or f"the keys here are {', '.join(_PAD_KEYS)}"
            refuse("E201", f"unknown key {quoted(str(key))} in `pad`", hint)
    said = {key: each for key, each in value.items() if each is not None}
    if said.get("side", "right") not in ("left", "right"):
        refuse("E203", f"{shown(said['side'])} is no side of `pad`", "write `left` or `right`")
    if "value" in said and not (isinstance(said["value"], int) and not isinstance(said["value"], bool)):
        said["value"] = read_number(said["value"])
    if "axis" in said:
        said["axis"] = tuple(read_integer(each) for each in read_list(said["axis"]))
    for key in ("multiple", "limit", "length"):
        if key in said and (not isinstance(read_integer(said[key]), int) or int(said[key]) < 1):
            refuse("E204", f"`{key}` of `pad` is at least 1, but this is {shown(said[key])}")
        if key in said:
            said[key] = read_integer(said[key])
    if "length" in said and {"multiple", "limit"} & said.keys():
        refuse("E203", "`length` of `pad` leaves nothing to `multiple` and `limit`", "write one or the other")
    if said.get("limit", 0) % said.get("multiple", 1):
        hint = f"write a multiple of {said['multiple']}"
        refuse("E203", f"a `limit` of {said['limit']} is no multiple of {said['multiple']}", hint)
    return said


def _read_call(value: Any) -> Any:
    if isinstance(value, dict):
        for key in value:
            if key not in ("call", "args"):
                hint = "write `{call: package.module:function, args: {…}}`"
                refuse("E201", f"unknown key {quoted(str(key))} beside `call`", hint)
        if not isinstance(value.get("args") or {}, dict):
            refuse(
                "E202", f"`args` is a map, but this is {shown(value['args'])}", "write `args: {name: value}`"
            )
        return {"call": read_callable(value["call"]), "args": value.get("args") or {}}
    return {"call": read_callable(value)}


def read_ragged(value: Any) -> Any:
    """`error`, `list`, or for the fields named here: `{boxes: list}` or `[boxes]`."""
    if value in ("error", "list"):
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    hint = "write `ragged: list`, or name the fields: `ragged: {boxes: list}`"
    if isinstance(value, dict):
        for name, way in value.items():
            if way not in ("error", "list"):
                refuse("E203", f"{shown(way)} is no choice for `{str(name)[:60]}`", "write `list` or `error`")
        return tuple(str(name) for name, way in value.items() if way == "list")
    hint = did_you_mean(value, ("list", "error")) or hint
    return refuse("E203", f"{shown(value)} is no choice for `ragged`", hint)


Ragged = Annotated[
    Literal["error", "list"] | tuple[str, ...],
    BeforeValidator(read_ragged),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["error", "list"]},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "object", "additionalProperties": {"enum": ["error", "list"]}},
            ],
        }
    ),
]
_CALL = {
    "type": "object",
    "properties": {"call": CALLABLE_FORM, "args": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
    "required": ["call"],
    "additionalProperties": False,
}
_WHOLE = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "\\$\\{"}]}
_PADDING = {
    "type": "object",
    "properties": {
        "side": {"enum": ["right", "left"]},
        "value": {"type": "number"},
        "axis": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
        "multiple": _WHOLE,
        "limit": _WHOLE,
        "length": _WHOLE,
    },
    "additionalProperties": False,
}
_WAY = {
    "anyOf": [
        {"enum": list(_WORDS)},
        {"type": "string", "pattern": ":|\\$\\{"},
        {
            "type": "object",
            "properties": {"pad": {"anyOf": [{"enum": ["right", "left"]}, _PADDING]}},
            "required": ["pad"],
            "additionalProperties": False,
        },
        _CALL,
    ]
}
MaybeCollation = Annotated[
    Collation,
    BeforeValidator(read_collation),
    WithJsonSchema(
        {
            "anyOf": [
                CALLABLE_FORM,
                _CALL,
                {"type": "object", "additionalProperties": _WAY},
            ]
        }
    ),
]


class Batch(Model):
    """How many samples make a batch, and how they become one."""

    size: AffectsOrder[BatchSize | None] = Field(None, description="Samples for each rank.")
    global_size: AffectsOrder[Positive | None] = Field(None, description="Samples over all ranks together.")
    accumulate: AffectsNeither[Boolean] = Field(
        False,
        description="With fewer ranks than `elastic.ranks`, give a rank its part of a global batch as several "
        "batches of `size` in a row, instead of one big one.",
    )
    ragged: AffectsSamples[Ragged] = Field(
        "error",
        description="What happens to a field whose values do not stack, as they differ in shape or type: an error that "
        "names them; or with `list` a list. `{boxes: list}` makes a list of that field always.",
    )
    collate: AffectsSamples[MaybeCollation | None] = Field(
        None,
        description="How the values of a field become one: `{tokens: pad}`. `stack`; `list`; `pad`, which gives "
        "(values, mask, lengths) and takes `{pad: {side: left, value: 0, axis: 0, multiple: 8, limit: 2048}}` or "
        "`length: 2048`; `nested`, a nested tensor of torch's; or a function of the list of values, "
        "`package.module:function`. A function in place of the map makes the whole batch of the list of samples.",
    )


def read_batch(value: Any) -> Any:
    """`32` or `{size: 32}` or `{global_size: 512}`."""
    if isinstance(value, dict):
        listed, collated = (value.get(key) for key in ("ragged", "collate"))
        names = listed if isinstance(listed, (dict, list, tuple)) else ()
        twice = [str(name) for name in names if isinstance(collated, dict) and name in collated]
        if twice:
            hint = "take it out of `ragged`: `collate` has `list`, too"
            refuse("E203", f"`ragged` and `collate` both say what becomes of {quoted(twice[0])}", hint)
    return value if isinstance(value, (dict, Batch)) else {"size": value}
