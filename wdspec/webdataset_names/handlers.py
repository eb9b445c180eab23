"""What to do about errors."""

from __future__ import annotations

from typing import Any

from wdspec.fluent.error_handlers import ignore_and_continue as ignore_and_continue
from wdspec.fluent.error_handlers import ignore_and_stop as ignore_and_stop
from wdspec.fluent.error_handlers import reraise_exception as reraise_exception
from wdspec.fluent.error_handlers import warn_and_continue as warn_and_continue
from wdspec.fluent.error_handlers import warn_and_stop as warn_and_stop
from wdspec.fluent.replacements import hint_for


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("handlers", name))
