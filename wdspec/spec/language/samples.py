"""How files become samples and fields become values: names of keys, decoders, scaling, functions of the user's own."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from wdspec.base.errors import did_you_mean
from wdspec.spec.language.advice import DECODERS as FOREIGN_DECODERS
from wdspec.spec.language.advice import number_meant
from wdspec.spec.language.decoder_options import option_values, shown_option, split_decoder
from wdspec.spec.language.decoders import BY_NAME, DEFAULT_IMAGE_DECODER
from wdspec.spec.language.effects import AffectsOrder
from wdspec.spec.language.values import (
    DECODERS,
    FIELD_FORM,
    LEFT_OUT_DECODERS,
    TEXT_FORM,
    FieldPattern,
    Model,
    one_or_more,
    read_callable,
    read_field_pattern,
    read_number,
    read_text,
    real_form,
    refuse,
    text_form,
    words_form,
)
from wdspec.spec.problems import quoted, shown
from wdspec.urls.rewrite import NESTED, REMEDY, nested_repeat

_AROUND_PLUS = re.compile(r"\s*\+\s*")
AUTO = "auto"
"""As a decoder: what comes by extension where `decode` says nothing."""


def read_decoder(value: Any) -> Any:
    """The name of a decoder, perhaps with options (`rgb8+upright`), or of a function from bytes to value."""
    value = read_text(value)
    if ":" in value:
        return read_callable(value)
    base, options = split_decoder(value)
    if base in LEFT_OUT_DECODERS:
        hint = "use `raw` or a function of your own; for new data `npz` or `safetensors`"
        refuse("E209", f"the decoder {quoted(base)} (webdataset's tenbin) is left out on purpose", hint)
    if base not in DECODERS:
        folded = base.lower()
        close = did_you_mean(base, sorted(DECODERS))
        hint = f"did you mean `{folded}`?" if folded in DECODERS else FOREIGN_DECODERS.get(folded) or close
        if base.partition("=")[0] in BY_NAME[DEFAULT_IMAGE_DECODER].options:
            hint = f"it is an option of a decoder: `{DEFAULT_IMAGE_DECODER}+{value}`"
        hint = hint or "see docs/decoders.md for the list of decoders"
        refuse("E209", f"there is no decoder {quoted(base)}", hint)
    known = sorted(BY_NAME[base].options)
    for option in sorted(options - set(known)):
        hint = did_you_mean(option, known) or (
            f"its options: {', '.join(f'`{base}+{shown_option(each)}`' for each in known)}"
            if known
            else "it takes none"
        )
        refuse("E209", f"the decoder {quoted(base)} has no option {quoted(option)}", hint)
    try:
        option_values(value)
    except ValueError as error:
        refuse("E209", f"{quoted(value)}: {error}", "docs/decoders.md has the options, with examples")
    return value


def _decoder_forms() -> str:
    """A pattern of the names of decoders with their options, and of functions."""
    plain = [re.escape(name) for name in sorted(DECODERS) if not BY_NAME[name].options]
    choices: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(DECODERS):
        if BY_NAME[name].options:
            choices.setdefault(tuple(BY_NAME[name].options), []).append(re.escape(name))
    optional = [
        f"({'|'.join(names)})([+]({'|'.join(options)})(=[^\\s+]*)?)*" for options, names in choices.items()
    ]
    return "|".join([*plain, *optional, AUTO, r"[^\s:./]+(\.[^\s:./]+)*:[^\s:./]+(\.[^\s:./]+)*"])


_DECODER_TEXT = _decoder_forms()
DecoderName = Annotated[str, BeforeValidator(read_decoder)]


class Decode(Model):
    """How the fields of a sample become Python values."""

    names: tuple[DecoderName, ...] = ()
    """Decoders for the whole sample, the first that fits wins."""
    fields: dict[str, DecoderName] = Field({})
    """The decoder of each field named here."""


def read_decode(value: Any) -> Any:
    """`rgb`, `[rgb, json]`, `{image: rgb, meta: json}`, or `auto`, which is what comes without `decode`."""
    if isinstance(value, str):
        if (joined := _AROUND_PLUS.sub("+", value)) != value:
            refuse("E209", f"{quoted(value)} has spaces around its `+`", f"write `{joined}`")
        value = value.split() or [value]
    if isinstance(value, (list, tuple)):
        if AUTO in value[:-1]:
            refuse(
                "E209",
                f"`{AUTO}` fits every field, so that what stands behind it is never tried",
                "put it last",
            )
        return {"names": value[:-1] if value[-1:] == [AUTO] else value}
    if isinstance(value, dict):
        return {"fields": {field: name for field, name in value.items() if name != AUTO}}
    if not isinstance(value, Decode):
        hint = f"write `rgb8`, `pil` or another decoder; `{AUTO}` decodes by extension, `raw` leaves bytes"
        refuse("E202", f"expected a decoder, a list or a map of them, but this is {shown(value)}", hint)
    return value


Decoding = Annotated[
    Decode,
    BeforeValidator(read_decode),
    WithJsonSchema(
        {
            "anyOf": [
                words_form(_DECODER_TEXT),
                {"type": "array", "items": text_form(_DECODER_TEXT)},
                {"type": "object", "additionalProperties": text_form(_DECODER_TEXT)},
            ],
            "examples": ["rgb8", "pil", "rgb8+upright", {"image": "torchrgb", "text": "txt"}],
        }
    ),
]


def _two_groups(value: str) -> str:
    groups = check_regex(value).groups
    if groups != 2:
        hint = r"one group for the key, one for the field: `(.*/\d+)\.(.*)`"
        refuse("E212", f"the regex {quoted(value)} has {groups} groups, but a key rule needs two", hint)
    return value


def check_regex(value: str) -> re.Pattern[str]:
    """The compiled regex; refuses what is none."""
    if len(value) > 1000:
        refuse("E212", f"a regex of {len(value)} characters is too long", "keep it under 1000")
    try:
        regex = re.compile(value)
        if nested_repeat(value):
            refuse("E212", f"the regex {quoted(value)} {NESTED}", REMEDY)
        return regex
    except (re.error, OverflowError, RecursionError) as error:
        where = (
            f" (at character {error.pos + 1})"
            if isinstance(error, re.error) and error.pos is not None
            else ""
        )
        refuse(
            "E212",
            f"{quoted(value)} is not a regex: {error.args[0]}{where}",
            "see Python's `re` for the syntax",
        )


Regex = Annotated[
    str,
    AfterValidator(lambda value: check_regex(value) and value),
    BeforeValidator(read_text),
    WithJsonSchema(TEXT_FORM),
]


class KeyRule(Model):
    """Where the name of a file splits into the sample's key and the field."""

    kind: AffectsOrder[Literal["first_dot", "last_dot", "regex"]] = "first_dot"
    """The rule."""
    regex: AffectsOrder[Annotated[str, AfterValidator(_two_groups), BeforeValidator(read_text)] | None] = (
        Field(None, description="A regex over the whole name with two groups: key and field.")
    )


def read_key_rule(value: Any) -> Any:
    """`first_dot`, `last_dot` or `{regex: …}`."""
    if isinstance(value, dict):
        return {"kind": "regex", "regex": "", **value} if "kind" not in value else value
    if isinstance(value, KeyRule):
        return value
    if value not in ("first_dot", "last_dot"):
        hint = (
            did_you_mean(value, ["first_dot", "last_dot"]) or "write `first_dot`, `last_dot` or `{regex: …}`"
        )
        refuse("E203", f"{shown(value)} is no key rule", hint)
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
                    "properties": {"regex": TEXT_FORM},
                    "required": ["regex"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
RenameTargets = Annotated[
    tuple[FieldPattern, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: read_field_pattern(value).split(";") if isinstance(value, str) else value),
    one_or_more(FIELD_FORM),
]


def read_scale(value: Any) -> Any:
    """`s` or `[lo, hi]`: finite, above 0, in order."""
    forms = "write one factor such as `0.5`, or a range such as `[0.5, 2.0]`"
    pair = value if isinstance(value, (list, tuple)) else (value, value)
    if isinstance(value, (dict, str)) and not _is_numeric(value):
        meant = number_meant(value)
        hint = f"write `{meant}`" if meant else f"it is a factor: {forms}"
        refuse("E202", f"expected a number or a range, but this is {shown(value)}", hint)
    if len(pair) != 2:
        refuse("E210", f"a range has two ends, but this list has {len(pair)} entries", forms)
    low, high = (read_number(end) for end in pair)
    if low <= 0 or high <= 0:
        refuse("E210", f"a scale factor must be above 0, but this is {min(low, high):g}", forms)
    if low > high:
        refuse("E210", f"the range runs backwards: {low:g} is above {high:g}", f"write `[{high:g}, {low:g}]`")
    if high > 1000:
        refuse("E210", f"a scale factor of {high:g} is beyond reason", "the limit is 1000")
    return (low, high)


def _is_numeric(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]  # whatever cannot become a number raises
    except (TypeError, ValueError):
        return False
    return True


_FACTOR = real_form(exclusiveMinimum=0, maximum=1000)
Scale = Annotated[
    tuple[float, float],
    BeforeValidator(read_scale),
    WithJsonSchema(
        {
            "anyOf": [
                *_FACTOR["anyOf"],
                {"type": "array", "items": _FACTOR, "minItems": 2, "maxItems": 2},
            ]
        }
    ),
]
