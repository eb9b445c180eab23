"""One thing that is wrong or doubtful with data, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wdspec.base.errors import FieldError, WdspecError
from wdspec.base.redaction import redacted
from wdspec.formats.samples import LOST
from wdspec.spec.codes import is_error

_PLACE = ("shard", "member", "key", "field", "offset")


@dataclass(frozen=True)
class DataProblem:
    """Of a code `D…` or `W5…` (`wdspec rule D107`)."""

    code: str
    message: str
    """What was seen, and what to do."""
    source: str = ""
    shard: str = ""
    """Its URL, as the spec spells it; empty where it is about a source as a whole."""
    member: str | None = None
    """Name of the file within the shard."""
    key: str | None = None
    """Of the sample."""
    field: str | None = None
    offset: int | None = None
    """Byte in the uncompressed shard: of the member's first header, or of the sample's."""

    @property
    def is_error(self) -> bool:
        """Whether part of the data cannot be used; else it is a warning."""
        return is_error(self.code)

    @classmethod
    def of(cls, error: Exception, cause: str = "shard", **place: Any) -> DataProblem:
        """An error of reading, by its own code and place.

        Args:
            cause: where it arose, as for `Budget`.
            place: what is known of where, beside what the error knows.
        """
        message, code = str(error), ""
        if isinstance(error, WdspecError):
            message, code, place = error.message, error.code, {**place, **error.place}
        else:
            message = f"{type(error).__name__}: {message}"
        if cause == "map" and not isinstance(error, FieldError):
            code = "D203"
        known = {name: place[name] for name in _PLACE if place.get(name) is not None}
        return cls(
            code or ("D102" if cause == "shard" else "D202"),
            redacted(message.removesuffix(LOST)),  # whoever checks reads on where that can be
            source=str(place.get("source") or ""),
            **{"shard": str(place.get("url") or ""), **known},
        )

    def as_json(self) -> dict[str, Any]:
        """The problem as values; all names are there, whether known or not."""
        return {
            "code": self.code,
            "severity": "error" if self.is_error else "warning",
            "message": self.message,
            "source": self.source or None,
            "shard": self.shard or None,
            "member": self.member,
            "key": self.key,
            "field": self.field,
            "offset": self.offset,
        }
