"""How files become samples and fields become values: key rules, decoders, scaling, and user functions.

The user functions are those of `map`, which take whole samples or single fields, and the `stage`, which takes an
iterator of samples and returns another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from wdspec.base.amounts import pluralize
from wdspec.base.errors import did_you_mean
from wdspec.spec.language import values
from wdspec.spec.language.advice import ADVICE
from wdspec.spec.language.advice import DECODERS as FOREIGN_DECODERS
from wdspec.spec.language.decoder_options import option_values, show_option
from wdspec.spec.language.decoders import BY_NAME, DEFAULT_IMAGE_DECODER, split_decoder
from wdspec.spec.language.effects import FOR_DIGEST, AffectsNeither, AffectsOrder, AffectsPlan, Key
from wdspec.spec.language.making import STEPS, hint_of, step_of
from wdspec.spec.problems import describe, quote
from wdspec.urls.rewrite import NESTED, REMEDY, nested_repeat

_AROUND_PLUS = re.compile(r"\s*\+\s*")
AUTO = "auto"
"""As a decoder: decode by extension, as without `decode`."""


_INNER_CAPITAL = re.compile("(?<=[a-z])(?=[A-Z])")


def read_decoder(value: Any) -> Any:
    """Read the name of a decoder, perhaps with options (`rgb8+upright`), or of a function of bytes."""
    value = values.read_text(value if isinstance(value, str) else _refuse_options(value))
    if ":" in value:
        return values.read_callable(value)
    base, options = split_decoder(value)
    if base in values.LEFT_OUT_DECODERS:
        hint = "use `raw` or your own function; for new data `npz` or `safetensors`"
        values.refuse(
            "E209", f"the decoder {quote(base)} (webdataset's tenbin) is intentionally not supported", hint
        )
    if base not in values.DECODERS:
        folded = base.lower()
        close = did_you_mean(base, sorted(values.DECODERS))
        hint = (
            f"did you mean `{folded}`?"
            if folded in values.DECODERS
            else FOREIGN_DECODERS.get(folded) or close
        )
        if base.partition("=")[0] in BY_NAME[DEFAULT_IMAGE_DECODER].options:
            hint = f"it is an option of a decoder: `{DEFAULT_IMAGE_DECODER}+{value}`"
        snake = _INNER_CAPITAL.sub("_", base.partition("(")[0]).lower()  # `RandomResizedCrop(224)`
        hint = hint or ADVICE.get(snake) or "see docs/decoders.md for the list of decoders"
        values.refuse("E209", f"unknown decoder {quote(base)}", hint)
    known = sorted(BY_NAME[base].options)
    for option in sorted(options - set(known)):
        hint = (
            did_you_mean(option, known)
            or (known and ADVICE.get(option.lower()))
            or (
                f"its options are {', '.join(f'`{base}+{show_option(each)}`' for each in known)}"
                if known
                else "it has no options"
            )
        )
        values.refuse("E209", f"the decoder {quote(base)} has no option {quote(option)}", hint)
    try:
        option_values(value)
    except ValueError as error:
        values.refuse("E209", f"{quote(value)}: {error}", "docs/decoders.md has the options, with examples")
    return value


def _refuse_options(value: Any) -> Any:
    """Refuse a map or a list of options with the text that they make; other values are returned."""
    if isinstance(value, (dict, list, tuple)) and (joined := _join_options(value)):
        hint = f"options follow the decoder in one text: write `{joined}`"
        values.refuse("E202", f"expected text, but this is {describe(value)}", hint)
    return value


def _join_options(value: Any) -> str:
    """The text with the decoder and the options of a map or a list, if there is a decoder that has them all."""

    def flatten(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [word for key, each in value.items() for word in flatten_option(str(key), each)]
        return (
            [word for each in value for word in flatten(each)]
            if isinstance(value, (list, tuple))
            else [str(value)]
        )

    def flatten_option(key: str, each: Any) -> list[str]:
        if key in values.DECODERS or isinstance(each, dict):
            return [key, *(flatten(each) if isinstance(each, (dict, list, tuple)) else [])]
        if key in ("decoder", "name", "type"):
            return [str(each)]
        shown = "x".join(map(str, each)) if isinstance(each, (list, tuple)) else each
        return [key if each is True else f"{key}={shown}"]

    text = "+".join(flatten(value))
    for start in ("", f"{DEFAULT_IMAGE_DECODER}+", "audio+", "video+"):
        with suppress(PydanticCustomError):
            return str(read_decoder(start + text))
    return ""


def _decoder_forms() -> str:
    """A pattern of all decoders with their options, and of functions."""
    plain = [re.escape(name) for name in sorted(values.DECODERS) if not BY_NAME[name].options]
    choices: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(values.DECODERS):
        if BY_NAME[name].options:
            choices.setdefault(tuple(BY_NAME[name].options), []).append(re.escape(name))
    optional = [
        f"({'|'.join(names)})([+]({'|'.join(options)})(=[^\\s+]*)?)*" for options, names in choices.items()
    ]
    return "|".join([*plain, *optional, AUTO, r"[^\s:./]+(\.[^\s:./]+)*:[^\s:./]+(\.[^\s:./]+)*"])


_DECODER_TEXT = _decoder_forms()
DecoderName = Annotated[str, BeforeValidator(read_decoder)]


class Decode(values.Model):
    """How the fields of a sample are decoded."""

    names: tuple[DecoderName, ...] = ()
    """Decoders of the whole sample; for each field the first that fits is used."""
    fields: dict[str, DecoderName] = Field({})
    """Decoders of single fields."""


def read_decode(value: Any) -> Any:
    """Read `rgb`, `[rgb, json]`, `{image: rgb, meta: json}`, or `auto`, which is the default."""
    if isinstance(value, str):
        if (joined := _AROUND_PLUS.sub("+", value)) != value:
            values.refuse("E209", f"{quote(value)} has spaces around its `+`", f"write `{joined}`")
        value = value.split() or [value]
    if isinstance(value, (list, tuple)):
        maps = [each for each in value if isinstance(each, dict)]
        if maps:
            fields = {field: name for each in maps for field, name in each.items()}
            shown = ", ".join(f"{field}: {name}" for field, name in fields.items())
            hint = f"write a map without a list: `decode: {{{shown[:80]}}}`"
            if len(maps) < len(value):
                hint += "; fields that it does not name are decoded by extension"
            values.refuse(
                "E202", "a list has decoders of whole samples, but this one has a map of fields", hint
            )
        if AUTO in value[:-1]:
            values.refuse(
                "E209",
                f"`{AUTO}` fits every field, so that the decoders after it are never used",
                "put it last",
            )
        return {"names": value[:-1] if value[-1:] == [AUTO] else value}
    if isinstance(value, dict):
        return {"fields": {field: name for field, name in value.items() if name != AUTO}}
    if not isinstance(value, Decode):
        hint = f"write `rgb8`, `pil` or another decoder; `{AUTO}` decodes by extension, `raw` leaves bytes"
        values.refuse(
            "E202", f"expected a decoder, a list or a map of them, but this is {describe(value)}", hint
        )
    return value


Decoding = Annotated[
    Decode,
    BeforeValidator(read_decode),
    WithJsonSchema(
        {
            "anyOf": [
                values.words_form(_DECODER_TEXT),
                {"type": "array", "items": values.text_form(_DECODER_TEXT)},
                {"type": "object", "additionalProperties": values.text_form(_DECODER_TEXT)},
            ],
            "examples": ["rgb8", "pil", "rgb8+upright", {"image": "torchrgb", "text": "txt"}],
        }
    ),
]


def _two_groups(value: str) -> str:
    groups = check_regex(value).groups
    if groups != 2:
        hint = r"one group for the key, one for the field: `(.*/\d+)\.(.*)`"
        values.refuse("E212", f"the regex {quote(value)} has {groups} groups, but a key rule needs two", hint)
    return value


def check_regex(value: str) -> re.Pattern[str]:
    """Compile a regex; refuse a wrong one."""
    if len(value) > 1000:
        values.refuse("E212", f"a regex of {len(value)} characters is too long", "use at most 1000")
    try:
        regex = re.compile(value)
        if nested_repeat(value):
            values.refuse("E212", f"the regex {quote(value)} {NESTED}", REMEDY)
        return regex
    except (re.error, OverflowError, RecursionError) as error:
        where = (
            f" (at character {error.pos + 1})"
            if isinstance(error, re.error) and error.pos is not None
            else ""
        )
        values.refuse(
            "E212",
            f"{quote(value)} is not a regex: {error.args[0]}{where}",
            "see Python's `re` for the syntax",
        )


Regex = Annotated[
    str,
    AfterValidator(lambda value: check_regex(value) and value),
    BeforeValidator(values.read_text),
    WithJsonSchema(values.TEXT_FORM),
]


class KeyRule(values.Model):
    """How a file name is split into the sample's key and the field."""

    kind: AffectsPlan[Literal["first_dot", "last_dot", "regex"]] = "first_dot"
    """The rule."""
    regex: AffectsPlan[
        Annotated[str, AfterValidator(_two_groups), BeforeValidator(values.read_text)] | None
    ] = Field(None, description="A regex that matches the whole name, with two groups: key and field.")


def read_key_rule(value: Any) -> Any:
    """Read `first_dot`, `last_dot` or `{regex: …}`."""
    if isinstance(value, dict):
        return {"kind": "regex", "regex": "", **value} if "kind" not in value else value
    if isinstance(value, KeyRule):
        return value
    if value not in ("first_dot", "last_dot"):
        hint = (
            did_you_mean(value, ["first_dot", "last_dot"]) or "write `first_dot`, `last_dot` or `{regex: …}`"
        )
        values.refuse("E203", f"{describe(value)} is not a key rule", hint)
    return {"kind": value}


KeyRuleOrWord = Annotated[
    KeyRule,
    BeforeValidator(read_key_rule),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["first_dot", "last_dot"]},
                {"type": "string", "pattern": "\\$\\{"},
                {
                    "type": "object",
                    "properties": {"regex": values.TEXT_FORM},
                    "required": ["regex"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
RenameTargets = Annotated[
    tuple[values.FieldPattern, ...],
    Field(min_length=1),
    BeforeValidator(
        lambda value: values.read_field_pattern(value).split(";") if isinstance(value, str) else value
    ),
    values.one_or_more(values.FIELD_FORM),
]


def read_scale(value: Any) -> Any:
    """Read `s` or `[lo, hi]`: finite, above 0, in order."""
    forms = "write one factor such as `0.5`, or a range such as `[0.5, 2.0]`"
    pair = value if isinstance(value, (list, tuple)) else (value, value)
    if isinstance(value, (dict, str)) and not _is_numeric(value):
        meant = values.number_meant(value)
        hint = f"write `{meant}`" if meant else f"it is a factor: {forms}"
        values.refuse("E202", f"expected a number or a range, but this is {describe(value)}", hint)
    if len(pair) != 2:
        values.refuse(
            "E210", f"a range has two ends, but this list has {pluralize(len(pair), 'item')}", forms
        )
    low, high = (values.read_number(end) for end in pair)
    if low <= 0 or high <= 0:
        values.refuse("E210", f"a scale factor must be above 0, but this is {min(low, high):g}", forms)
    if low > high:
        values.refuse(
            "E210", f"the range is backwards: {low:g} is above {high:g}", f"write `[{high:g}, {low:g}]`"
        )
    if high > 1000:
        values.refuse("E210", f"a scale factor of {high:g} is too large", "the limit is 1000")
    return (low, high)


def _is_numeric(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]  # raises for anything that is not a number
    except (TypeError, ValueError):
        return False
    return True


_FACTOR = values.real_form(exclusiveMinimum=0, maximum=1000)
Scale = Annotated[
    tuple[float, float],
    BeforeValidator(read_scale),
    WithJsonSchema(
        {"anyOf": [*_FACTOR["anyOf"], {"type": "array", "items": _FACTOR, "minItems": 2, "maxItems": 2}]}
    ),
]


_KEYS = ("call", "args", "method", "with", "sets")
_FORMS = "write `package.module:function`, or `{call: package.module:function, args: {…}}`"


class Call(values.Model):
    """A user function, with arguments bound to it."""

    call: Annotated[values.CallableName, Key("samples read")] = Field(
        description="The function or class, `package.module:name`."
    )
    args: Annotated[dict[str, Any], Key("samples read")] = Field({}, description="Keyword arguments to bind.")
    method: Annotated[values.Text | None, Key("samples read")] = Field(
        None,
        description="Use this method of the object that `call` returns, which is called once per worker: for example "
        "`encode` of `transformers:AutoTokenizer.from_pretrained`.",
    )
    given: Annotated[dict[str, Any], Key("samples read")] = Field(
        {}, alias="with", description="Keyword arguments of `method`."
    )
    sets: Annotated[values.Texts | None, Key("neither read")] = Field(
        None,
        description="For a function of whole samples: the fields that it adds or changes. `batch` can then measure and "
        "pack by these fields: `sets: [input_ids, labels]`. It has an effect only on keys of `batch` that read them.",
    )
    field: str | None = None
    """The field whose value it takes and returns; None for whole samples."""

    @classmethod
    def takes(cls, keys: Iterable[str]) -> bool:
        """Whether the keys are those of a call; if not, they are names of fields."""
        return not set(_KEYS).isdisjoint(keys)

    @property
    def set_fields(self) -> tuple[str, ...]:
        """The fields that it is known to set."""
        return (self.sets or ()) if self.field is None else (self.field,)

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        # Without unset keys, so that digests of specs are the same as before these keys existed.
        is_digest = info.context == FOR_DIGEST
        return {
            key: value
            for key, value in dump(self).items()
            if key in ("call", "args") or (value and not (is_digest and key == "sets"))
        }


def fields_set_by(own: Iterable[Call], tags: Iterable[str], later: Iterable[Call]) -> frozenset[str]:
    """The fields that `map` is known to set.

    Args:
        own: the functions of the source.
        tags: its tags, which come after these functions.
        later: the functions of the spec.
    """
    first = {name for call in own for name in call.set_fields} - set(tags)
    return frozenset(first.union(name for call in later for name in call.set_fields))


def functions_of(names: Iterable[str], calls: Iterable[Call]) -> list[Call]:
    """The functions of `map` on which some fields may depend, in order.

    Functions of whole samples may read and change all fields.
    """
    listed, measured = list(calls), set(names)
    whole = max((at for at, call in enumerate(listed) if call.field is None), default=-1)
    return [call for at, call in enumerate(listed) if at <= whole or call.field in measured]


def read_calls(value: Any) -> Any:
    """Read `m:f`, `{call: m:f, args: {…}}`, `{field: either, …}`, or a list of these."""
    return [call for entry in _entries(value) for call in _read_entry(entry)]


def _read_entry(entry: Any) -> Iterator[Any]:
    if isinstance(entry, dict) and not Call.takes(entry) and entry:
        for field, calls in entry.items():
            if isinstance(calls, dict) and not Call.takes(calls):
                seen = _without_call(calls)
                values.refuse(
                    "E202",
                    f"expected a function of `{str(field)[:60]}`, but this is {seen}",
                    _hint(calls, field),
                )
            for each in _entries(calls):
                if isinstance(each, dict) and "field" in each:
                    values.refuse("E201", "unknown key `field` next to `call`", "the key above is the field")
                if isinstance(each, dict) and each.get("sets"):
                    hint = f"remove it: the function sets `{str(field)[:60]}`"
                    values.refuse("E203", "`sets` is only for functions of whole samples", hint)
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
                values.refuse("E201", f"unknown key {quote(str(key))} next to `call`", hint)
        if entry.get("with") and not entry.get("method"):
            hint = (
                "write `args: {…}` for the arguments of a function, or add a method, such as `method: encode`"
            )
            values.refuse("E203", "`with` has arguments of a method, but there is no `method`", hint)
        yield entry
    else:
        seen = _without_call(entry)
        values.refuse("E202", f"expected the name of a function, but this is {seen}", _hint(entry))


def _without_call(entry: Any) -> str:
    """Describe something that is not a call; for a map, its first key."""
    first = next(iter(entry), None) if isinstance(entry, dict) else None
    return describe(entry) if first is None else f"a map with {quote(str(first))}, but without `call`"


def _hint(entry: Any, field: object = None) -> str:
    if field in STEPS or (isinstance(entry, dict) and step_of(entry)):
        written, name = ({field: entry}, None) if field in STEPS else (entry, field)
        return f"steps are in `make`, not in `map`: {hint_of(written, name)}"
    return did_you_mean(next(iter(entry), None), _KEYS) or _FORMS if isinstance(entry, dict) else _FORMS


def _entries(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


_ARGUMENTS = {"anyOf": [{"type": "object"}, {"type": "null"}]}
_NAMES = {
    "anyOf": [values.TEXT_FORM, {"type": "array", "items": values.TEXT_FORM, "minItems": 1}, {"type": "null"}]
}
CALL_FORMS: list[dict[str, Any]] = [
    values.CALLABLE_FORM,
    {
        "type": "object",
        "properties": {
            "call": values.CALLABLE_FORM,
            "args": _ARGUMENTS,
            "method": values.TEXT_FORM,
            "with": _ARGUMENTS,
            "sets": _NAMES,
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


class StageOption(values.Model):
    """A function that takes an iterator of samples and returns another one, with any number of samples."""

    call: Annotated[values.CallableName, Key("order read")] = Field(
        description="The function, `package.module:name`, or a class whose object is called."
    )
    args: AffectsOrder[dict[str, Any]] = Field({}, description="Keyword arguments to bind.")
    every: AffectsOrder[values.Positive] = Field(
        1000,
        description="The input of the function ends after this number of samples of a slot (rounded up to whole "
        "batches), so it must yield the samples that it holds back. It is then called again. A run resumes from the "
        "last such point, and reads later samples again.",
    )

    @property
    def name(self) -> str:
        """What it is, in states and messages."""
        return self.call

    @property
    def functions(self) -> list[str]:
        """The names of the user functions in it."""
        return [self.call]


def read_stage(value: Any) -> Any:
    """Read `m:f`, or `{call: m:f, args: {…}, every: 1000}`."""
    if isinstance(value, (dict, StageOption)):
        return value
    if not isinstance(value, str):
        values.refuse(
            "E202",
            f"expected the name of a function, but this is {describe(value)}",
            "write `stage: package.module:function`",
        )
    return {"call": value}


StageOrNone = Annotated[StageOption, BeforeValidator(read_stage)] | None


def read_gpus(value: Any) -> Any:
    """Read a number of GPUs: whole, or a part of one that others share."""
    number = values.read_number(value)
    if number > 1 and not number.is_integer():
        values.refuse(
            "E210",
            f"{number:g} GPUs are not whole GPUs, nor a part of one",
            f"write {number:.0f}, or a fraction such as `0.5`",
        )
    return number


class BatchCall(values.Model):
    """A function that processes many samples of a shard at once, such as a model."""

    # None of these matters to a run: loaders refuse specs with this key.
    call: AffectsNeither[values.CallableName] = Field(
        description="A class, `package.module:Class`, which is created once in each process, or a function. It takes a "
        "list of samples, and returns a list of the same length: the new samples, or None for samples to drop."
    )
    args: AffectsNeither[dict[str, Any]] = Field(
        {}, description="Keyword arguments of the class or function."
    )
    batch: AffectsNeither[values.Positive] = Field(
        64, description="Number of samples per call; the last call for a shard may get fewer."
    )
    gpus: AffectsNeither[
        Annotated[float, Field(ge=0), BeforeValidator(read_gpus), WithJsonSchema(values.real_form())]
    ] = Field(
        0, description="GPUs of each process, which sees only these; `0.5` lets two processes share one."
    )


def read_batch_call(value: Any) -> Any:
    """Read `m:C`, or `{call: m:C, args: {…}, batch: 64, gpus: 1}`."""
    if isinstance(value, (dict, BatchCall)):
        return value
    if not isinstance(value, str):
        values.refuse(
            "E202",
            f"expected the name of a class, but this is {describe(value)}",
            "write `map_batches: package.module:Class`",
        )
    return {"call": value}


BatchCallOrNone = Annotated[BatchCall, BeforeValidator(read_batch_call)] | None
