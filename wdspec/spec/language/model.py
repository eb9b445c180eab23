"""What all models of the language have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of all models: immutable, strict about keys, built on first use."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, populate_by_name=True, hide_input_in_errors=True
    )

    @classmethod
    def takes(cls, keys: Iterable[str]) -> bool:
        """Whether a map with these keys is meant for this model; for another of the forms of its key if not."""
        return True


M = TypeVar("M", bound=Model)


def shared(model: type[M]) -> Callable[[], M]:
    """Gives every holder the same default instance, made without building the model's validator."""
    instance = cast(M, model.model_construct())

    def give() -> M:
        return instance

    return give
