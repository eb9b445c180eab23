"""What all models of the language have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of all models: immutable, strict about keys, built on first use."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, populate_by_name=True, hide_input_in_errors=True
    )


M = TypeVar("M", bound=Model)


def shared(model: type[M]) -> Callable[[], M]:
    """Gives every holder the same default instance, made without building the model's validator."""
    instance = cast(M, model.model_construct())

    def give() -> M:
        return instance

    return give
