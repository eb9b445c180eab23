"""Sources without an end, such as shards that are drawn with replacement, behind a stage that leaves everything out.

Reading would never end, and nothing would come. `Repeated` sees that a whole pass was empty; here no pass ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wdspec.base.errors import ShardError

_ROUNDS = 20
"""How many times the list may be read while a stage leaves everything out."""
_ITEMS = 1_000_000
"""How many items may be left out if the source is not a list."""


class EndlessSource:
    """Counts the items that a source without an end gives during a pass.

    Args:
        items: what the source gives in this pass.
        size: the number of different items, if it is known: those of the list of shards.
    """

    def __init__(self, items: Iterator[Any], size: int | None) -> None:
        self.items = self._count(items)
        """The items, each counted when it is taken."""
        self._drawn = 0
        self._limit = _ITEMS if size is None else _ROUNDS * size
        self._seen = (
            f"{_ITEMS:,} items were read"
            if size is None
            else f"the list of {size} shards was read {_ROUNDS} times"
        )

    def _count(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self._drawn += 1
            yield item

    def watch(
        self, run: Callable[[Iterator[Any]], Iterator[Any]], items: Iterator[Any], name: str
    ) -> Iterator[Any]:
        """Yield what a stage makes of items. It must not collect items, as a batch or a buffer does.

        A reader of shards is watched all the time, as a store can fail later; other stages up to their first item.

        Raises:
            ShardError: it left out everything for too long.
        """
        since: int | None = None
        is_done = False

        def count() -> Iterator[Any]:
            nonlocal since
            for item in items:
                if since is None:
                    since = self._drawn
                elif self._drawn - since > self._limit:
                    raise ShardError(
                        f"{self._seen} without a single item: `{name}` leaves out everything, and the source has no "
                        "end; check its function, or what its handler leaves out (`handler=wdspec.warn_and_continue` "
                        "prints each error)"
                    )
                yield item
                if is_done:
                    yield from items

        results = run(count())
        for result in results:
            since = None
            is_done = items is not self.items
            yield result
            if is_done:
                yield from results
