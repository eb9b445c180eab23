"""How long a target is asked again that says it has no such object.

One that has just joined does not have yet what is its own now, and gateways hear of it at different times: for seconds,
objects that exist are answered with 404.
"""

from __future__ import annotations

from time import monotonic

PATIENCE = 10.0
"""Seconds from the first 404 of an object to the one that counts."""
BELIEVED = 30.0
"""Seconds for which all that a target says is missing counts at once, after one has counted: of a thousand missing
shards not each costs the patience."""


class MissingObjects:
    """What the targets of a cluster said of missing objects, in this process."""

    def __init__(self) -> None:
        self._believed: dict[str, float] = {}

    def counts(self, host: str, since: float) -> bool:
        """Whether a target's 404 is to be believed.

        Args:
            host: the target.
            since: when the object was first said to be missing, by `time.monotonic`.
        """
        now = monotonic()
        if now - since >= PATIENCE:
            self._believed[host] = now
        return now - self._believed.get(host, -BELIEVED) < BELIEVED
