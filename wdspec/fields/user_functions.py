"""Decoders that users write: any function from bytes to a value, named `package.module:function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wdspec.errors import WdspecError
from wdspec.fields.decoding_errors import UserDecoderError, one_line
from wdspec.importing import check_arguments, import_function


class UserDecoder:
    """A function known by name, imported when a process first decodes with it and never before.

    Raises:
        SpecError: on first use, when it cannot be imported, or does not take bytes. It is no FieldError, so that an
            error policy that skips bad samples does not skip all of them.
        UserDecoderError: it has failed.
    """

    def __init__(self, name: str, folder: str = "") -> None:
        self.name, self.folder = name, folder
        self._function: Callable[[bytes], Any] | None = None

    def __call__(self, data: bytes) -> Any:
        if self._function is None:
            function = import_function(self.name, "decoder", self.folder)
            check_arguments(function, f"decoder: {self.name}", 1)
            self._function = function
        try:
            return self._function(data)
        except WdspecError:
            raise
        except Exception as cause:
            raise UserDecoderError(f"cannot decode as {self.name}: {one_line(cause)}") from cause

    def __reduce__(self) -> tuple[Any, ...]:
        return UserDecoder, (self.name, self.folder)
