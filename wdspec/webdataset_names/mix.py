"""Several datasets as one."""

from __future__ import annotations

from typing import Any

from wdspec.fluent.datapipeline import RandomMix as RandomMix
from wdspec.fluent.datapipeline import RoundRobin as RoundRobin
from wdspec.fluent.replacements import hint_for


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("mix", name))
