"""Decoders that users write: any function from bytes to a value, named `package.module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from wdspec.errors import SpecError


class UserDecoder:
    """A function known by name, imported when a process first decodes with it and never before.

    Raises:
        SpecError: on first use, when it cannot be imported. It is no FieldError, so that an error policy that
            skips bad samples does not skip all of them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._function: Callable[[bytes], Any] | None = None

    def __call__(self, data: bytes) -> Any:
        if self._function is None:
            self._function = import_function(self.name)
        return self._function(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return UserDecoder, (self.name,)


def import_function(name: str) -> Callable[[bytes], Any]:
    """Imports what `package.module:attribute.path` names; SpecError says what failed."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except Exception as cause:
        raise SpecError(
            f"cannot import the decoder {name}: {type(cause).__name__}: {cause}; "
            "it is written `package.module:function` and must be importable in every worker"
        ) from cause
    if not callable(found):
        raise SpecError(
            f"the decoder {name} is a {type(found).__name__}, not a function from bytes to a value"
        )
    return found  # type: ignore[no-any-return]  # callable is all that can be known of it
