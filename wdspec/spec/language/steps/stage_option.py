"""A stage: a function of the user's own from an iterator of samples to an iterator of samples."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from wdspec.spec.language.effects import AffectsOrder
from wdspec.spec.language.model import Model
from wdspec.spec.language.value_types import CallableName, Positive, refuse
from wdspec.spec.problems.message_words import shown


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
