"""The checksums that AIStore keeps of its objects, computed while their bytes pass."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

import logging
from wdspec.errors import ShardError

log = logging.getLogger("wdspec")


_told: set[str] = set()
_STANDARD = frozenset({"md5", "sha256", "sha512"})


class Digest(Protocol):
    """A checksum under way."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class Verification:
    """The checksum of one object, over as many answers as it takes to read it from its start to its end.

    What is read twice counts once; where something is left out, nothing can be said at the end.

    Args:
        digest: under way.
        value: what it must come to.
        total: bytes of the object.
    """

    def __init__(self, digest: Digest, value: str, total: int) -> None:
        self._digest, self._value, self._total, self._at = digest, value, total, 0

    def takes(self, data: bytes, at: int) -> None:
        """Bytes of the object, from an offset on. Raises ShardError where the last of them shows another checksum."""
        if at > self._at or not data:
            return
        new = data[self._at - at :]
        if not new:
            return
        self._digest.update(new)
        self._at += len(new)
        if self._at == self._total and self._digest.hexdigest() != self._value:
            raise ShardError(
                f"its checksum is {self._digest.hexdigest()}, but AIStore keeps {self._value} for it: bytes were "
                "changed, on the way or in the cluster; read it again, or fetch it anew there (`ais evict`), or switch "
                "this off with `aistore: {checksum: ignore}`"
            )


def digest_of(headers: Mapping[str, str]) -> tuple[Digest, str] | None:
    """A fresh digest of the type that the headers of an answer name, and the value it must come to.

    None where there is no checksum, or none that can be computed here, which is said once.
    """
    kind, value = headers.get("ais-checksum-type", "").lower(), headers.get("ais-checksum-value", "").lower()
    if not value or kind in ("", "none"):
        return None
    if kind in _STANDARD:
        return hashlib.new(kind, usedforsecurity=False), value
    if kind in ("xxhash", "xxhash2"):  # both are XXH64
        try:
            import xxhash
        except ImportError:
            _tell(kind, "pip install 'wdspec[aistore]'")
            return None
        return xxhash.xxh64(), value
    _tell(kind, "give the bucket checksums of the type xxhash2, md5, sha256 or sha512")
    return None


def _tell(kind: str, advice: str) -> None:
    if kind not in _told:
        _told.add(kind)
        log.warning(
            "AIStore's checksums of the type %s cannot be verified here: %s, or silence this with "
            "`aistore: {checksum: ignore}`",
            kind,
            advice,
        )
