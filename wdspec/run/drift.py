"""A warning if the shares of the cost drift from those of the spec, with `mix: {shares_in: cost}`.

Samples are drawn by share / `mean_cost`, so a source whose samples cost more than `mean_cost` says gets a larger share
of the cost than the spec says: after a change of its shards, for example, or of the function that measures.
"""

from __future__ import annotations

import logging
import sys

from wdspec.run.stream import Stream

log = logging.getLogger("wdspec")

MOST = 0.02
"""Drift of a share that needs no warning, as a part of the whole cost."""


class DriftWatch:
    """Looks at the shares at steps 64, 128, 256, … of the training loop, and warns once."""

    def __init__(self) -> None:
        self._steps, self._next = 0, 64

    def tick(self, stream: Stream) -> None:
        """Count a step of the stream, and perhaps look at its shares."""
        self._steps += 1
        if self._steps < self._next:
            return
        self._next *= 2
        drifts = stream.tally().drifts(stream.run.mean_costs, MOST)
        if not drifts:
            return
        self._next = sys.maxsize
        names = [source.name for source in stream.run.plan.sources]
        shares = [f"{names[at]!r} has {share:.1%} instead of {planned:.1%}" for at, share, planned in drifts]
        log.warning(
            "the shares of the cost drift from those of the spec by more than %.0f %%: %s; samples cost more or less "
            "than `mean_cost` says: run `wdspec stats` again before the next run (this one keeps its order)",
            100 * MOST,
            ", ".join(shares),
        )
