"""Columns of progress bars that count the samples which do not come, where a spec says that some may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wdspec.spec.spec import Spec


class LiveCount:
    """A number that is looked up each time it is shown, for bars that move while nothing comes."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count

    def __format__(self, form: str) -> str:
        return format(self._count(), form)


def skip_columns(
    spec: Spec, skipped: int | LiveCount = 0, dropped: int | LiveCount = 0
) -> dict[str, tuple[str, Any]]:
    """The columns for `progress`: `skipped` where a source skips errors, `dropped` where one leaves samples out."""
    columns: dict[str, tuple[str, Any]] = {}
    if any(source.errors.skip for source in spec.sources):
        columns["skipped"] = "{:,} skipped", skipped
    if any(source.select is not None or source.missing == "skip" for source in spec.sources):
        columns["dropped"] = "{:,} left out", dropped
    return columns
