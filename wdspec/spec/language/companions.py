"""`companions`: samples of another source beside a sample, which are not in the mix."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from wdspec.spec.language import values
from wdspec.spec.problems import describe


class Companion(values.Model):
    """The companions that a field of a source has."""

    short: ClassVar[str] = "source"

    source: values.Text = Field(description="The name of an entry of `companions` at the top level.")
    chance: values.Fraction = Field(1.0, description="The probability that a sample gets companions.")
    count: values.Positive = Field(
        1, description="How many companions a sample gets. With more than one, the field is a list."
    )


OWN_KEYS = frozenset(Companion.model_fields) - {"source"}
"""The keys of a companion that are not those of its source."""


def read_companions(value: Any) -> Any:
    """Read a map of fields: the values are names, or maps. The names of fields are checked."""
    if not isinstance(value, dict):
        hint = "write `companions: {noise: {source: musan, chance: 0.5}}`"
        values.refuse("E202", f"expected a map of fields, but this is {describe(value)}", hint)
    for name in value:
        values.read_field_pattern(name)
        if ";" in name or "." in name or name.startswith("__"):
            hint = "write a name such as `noise`: `noise.wav` is then a field of the companion"
            values.refuse("E215", f"`{name[:60]}` cannot be the field of companions", hint)
    return {name: {"source": each} if isinstance(each, str) else each for name, each in value.items()}


_FORM = {
    "anyOf": [
        values.TEXT_FORM,
        {
            "type": "object",
            "properties": {
                "source": {**values.TEXT_FORM, "description": Companion.model_fields["source"].description},
                "shards": {"description": "The shards, in place of `source`, with other keys of a source."},
                "chance": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": 1,
                    "description": Companion.model_fields["chance"].description,
                },
                "count": {
                    "type": "integer",
                    "minimum": 1,
                    "description": Companion.model_fields["count"].description,
                },
            },
        },
    ]
}
Companions = Annotated[
    dict[str, Companion],
    BeforeValidator(read_companions),
    WithJsonSchema({"type": "object", "additionalProperties": _FORM}),
]
