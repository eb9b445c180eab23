"""The cost of a single draw of a source, with even shares.

python -m benchmarks.draw_cost            # seconds
python -m benchmarks.draw_cost --quick    # checks that it runs
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction

from benchmarks.tables import Asked, Table, show
from wdspec.planning.draws import Draws
from wdspec.planning.topology import Topology

MOST = 0.5
"""The target, in µs."""


def draw_cost(sources: int, per_slot: int, turns: int) -> float:
    """Seconds of the processor for one draw, as a slot takes them."""
    weights = [1 + 37 * i % 101 for i in range(sources)]
    draws = Draws([Fraction(w, sum(weights)) for w in weights], 1, Topology(8, 4), per_slot)
    rows = max(1, draws.block // per_slot)
    best = float("inf")
    for _ in range(turns):
        start = time.process_time()
        for i in range(20):
            draws.batches(3, 2, i * rows, rows).ravel().tolist()
        best = min(best, (time.process_time() - start) / (20 * rows * per_slot))
    return best


def tables(quick: bool) -> Iterator[Table]:
    sizes = (1, 8, 64, 256)
    costs = {
        sources: [draw_cost(sources, size, 2 if quick else 7) * 1e6 for size in sizes]
        for sources in (2, 5, 50)
    }
    lines = [[f"{sources} sources", *(f"{cost:.2f}" for cost in found)] for sources, found in costs.items()]
    worst = Asked("draws: a draw, at most", max(max(found) for found in costs.values()), MOST, False, " µs")
    yield Table(
        "µs of processor time per draw, by batch size",
        ["", *(f"{size}" for size in sizes)],
        lines,
        [worst],
    )


if __name__ == "__main__":
    show(tables, __doc__)
