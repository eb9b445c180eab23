"""Functions of the user's own, as `map` names them: of whole samples, or of single fields.

A stage: a function of the user's own from an iterator of samples to an iterator of samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from wdspec.base.errors import did_you_mean
from wdspec.spec.language.effects import AffectsOrder, AffectsSamples
from wdspec.spec.language.values import CALLABLE_FORM, TEXT_FORM, CallableName, Model, Positive, Text, refuse
from wdspec.spec.problems import quoted, shown

_KEYS = ("call", "args", "method", "with")
_FORMS = "write `package.module:function`, or `{call: package.module:function, args: {…}}`"


class Call(Model):
    """A function of the user's own, with arguments bound to it."""

    call: AffectsSamples[CallableName] = Field(description="The function or class, `package.module:name`.")
    args: AffectsSamples[dict[str, Any]] = Field({}, description="Keyword arguments to bind.")
    method: AffectsSamples[Text | None] = Field(
        None,
        description="`call` makes an object, once a worker, and this method of it is the function: `encode` of "
        "`transformers:AutoTokenizer.from_pretrained`, say.",
    )
    given: AffectsSamples[dict[str, Any]] = Field(
        {}, alias="with", description="Keyword arguments of `method`."
    )
    field: str | None = None
    """The field whose value alone it gets and gives; None for the whole sample."""

    @classmethod
    def takes(cls, keys: Iterable[str]) -> bool:
        """A map with none of its keys has names of fields instead."""
        return not set(_KEYS).isdisjoint(keys)

    @model_serializer(mode="wrap")
    def _said(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without what is not said, so that the digests of specs stay what they were before these keys came.
        return {key: value for key, value in dump(self).items() if key in ("call", "args") or value}


def read_calls(value: Any) -> Any:
    """`m:f`, `{call: m:f, args: {…}}`, `{field: either, …}`, or a list of these."""
    return [call for entry in _entries(value) for call in _read_entry(entry)]


def _read_entry(entry: Any) -> Iterator[Any]:
    if isinstance(entry, dict) and not Call.takes(entry) and entry:
        for field, calls in entry.items():
            if isinstance(calls, dict) and not Call.takes(calls):
                refuse(
                    "E202", f"expected a function of `{str(field)[:60]}`, but this is {shown(calls)}", _FORMS
                )
            for each in _entries(calls):
                if isinstance(each, dict) and "field" in each:
                    refuse(
                        "E201", "unknown key `field` beside `call`", "the key above says which field it is"
                    )
                yield from ({**call, "field": str(field)} for call in _read_call(each))
    else:
        yield from _read_call(entry)


def _read_call(entry: Any) -> Iterator[Any]:
    if isinstance(entry, Call):
        yield entry.model_dump(by_alias=True)
    elif isinstance(entry, str):
        yield {"call": entry}
    elif isinstance(entry, dict) and Call.takes(entry):
        for key in entry:
            if key not in (*_KEYS, "field"):
                hint = did_you_mean(str(key), _KEYS) or f"the keys here are {', '.join(_KEYS)}"
                refuse("E201", f"unknown key {quoted(str(key))} beside `call`", hint)
        if entry.get("with") and not entry.get("method"):
            hint = "write `args: {…}` for the arguments of a function, or add `method: encode`"
            refuse("E203", "`with` has the arguments of a method, but `method` names none", hint)
        yield entry
    else:
        refuse("E202", f"expected the name of a function, but this is {shown(entry)}", _FORMS)


def _entries(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


_ARGUMENTS = {"anyOf": [{"type": "object"}, {"type": "null"}]}
CALL_FORMS: list[dict[str, Any]] = [
    CALLABLE_FORM,
    {
        "type": "object",
        "properties": {
            "call": CALLABLE_FORM,
            "args": _ARGUMENTS,
            "method": TEXT_FORM,
            "with": _ARGUMENTS,
        },
        "required": ["call"],
        "additionalProperties": False,
    },
]
_FUNCTIONS = {"anyOf": [*CALL_FORMS, {"type": "array", "items": {"anyOf": CALL_FORMS}}]}
_OF_FIELDS = {
    "type": "object",
    "minProperties": 1,
    "properties": dict.fromkeys(_KEYS, False),
    "additionalProperties": _FUNCTIONS,
}
Calls = Annotated[
    tuple[Call, ...],
    BeforeValidator(read_calls),
    WithJsonSchema(
        {
            "anyOf": [
                *CALL_FORMS,
                _OF_FIELDS,
                {"type": "array", "items": {"anyOf": [*CALL_FORMS, _OF_FIELDS]}},
            ],
            "examples": [{"image": "mylib.images:flip", "text": ["mylib.text:clean"]}],
        }
    ),
]


class StageOption(Model):
    """A function from an iterator of samples to an iterator of samples, of any number."""

    call: AffectsOrder[CallableName] = Field(
        description="The function, `package.module:name`, or a class whose object is called."
    )
    args: AffectsOrder[dict[str, Any]] = Field({}, description="Keyword arguments to bind.")
    every: AffectsOrder[Positive] = Field(
        1000,
        description="Its input ends after so many samples of a slot (rounded up to whole batches), so that it gives "
        "what it holds back, and it is called anew. A resumed run goes on from there, and takes again what came since.",
    )


def read_stage(value: Any) -> Any:
    """`m:f`, or `{call: m:f, args: {…}, every: 1000}`."""
    if isinstance(value, (dict, StageOption)):
        return value
    if not isinstance(value, str):
        refuse(
            "E202",
            f"expected the name of a function, but this is {shown(value)}",
            "write `stage: package.module:function`",
        )
    return {"call": value}


StageOrNone = Annotated[StageOption, BeforeValidator(read_stage)] | None
