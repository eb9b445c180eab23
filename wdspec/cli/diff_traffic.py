"""How a change to a spec affects what an epoch reads of stores: a table, and the values of the JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wdspec.advice.traffic import Traffic
from wdspec.cli.output import Block, Row, Table, size


def show_traffic(old: Traffic | None, new: Traffic | None) -> Iterator[Block]:
    """A table of what an epoch reads of each store before and after; nothing if it stays the same, or is unknown."""
    if old is None or new is None:
        known = new or old
        if known is not None and known.sources:
            side, other = ("before", "after") if new is None else ("after", "before")
            yield f"an epoch reads {known.in_words()} {side}; the sizes of the shards {other} are not known"
        return
    rows = list(_rows(old, new))
    if rows:
        columns = ("store", "bytes>", "change>", "requests>")
        has_copies = any(each.is_cached for side in (old, new) for each in side.sources)
        headings = (*columns, "bytes of the second>") if has_copies else columns
        per = " and ".join(dict.fromkeys((old.per, new.per)))
        title = f"read of stores per {per}, before → after"
        yield Table(headings, [row[: len(headings)] for row in rows], title)
    if new.unknown and (rows or new.unknown != old.unknown):
        yield f"what is read of {new.unknown_in_words} after the change is unknown, and counts as 0"
    if old.unknown and old.unknown != new.unknown:
        yield f"what is read of {old.unknown_in_words} before the change is unknown, and counts as 0"


def _rows(old: Traffic, new: Traffic) -> Iterator[Row]:
    """A row for each store of which an epoch reads more or less, and for all of them."""
    nothing = Traffic((), (), new.by, new.per)
    before, now = old.stores, new.stores
    names = dict.fromkeys((*now, *before))
    pairs = {name: (before.get(name, nothing), now.get(name, nothing)) for name in names}
    changed = {name: pair for name, pair in pairs.items() if _amounts(pair[0]) != _amounts(pair[1])}
    if len(changed) > 1 or (changed and len(names) > 1):
        changed["all"] = old, new
    for name, (was, is_now) in changed.items():
        yield (
            name,
            _both(was, is_now, lambda each: size(each.fetched_bytes())),
            _describe_change(was.fetched_bytes(), is_now.fetched_bytes()),
            _both(was, is_now, lambda each: "?" if (n := each.requests()) is None else f"{round(n):,}"),
            _both(was, is_now, lambda each: size(each.fetched_bytes(2) - each.fetched_bytes())),
        )


def _amounts(traffic: Traffic) -> tuple[int | None, ...]:
    amounts = traffic.fetched_bytes(), traffic.fetched_bytes(2), traffic.requests(), traffic.requests(2)
    return tuple(None if each is None else round(each) for each in amounts)


def _both(old: Traffic, new: Traffic, cell: Callable[[Traffic], str]) -> str:
    """`before → after`, or one cell if both are the same."""
    before, after = cell(old), cell(new)
    return after if before == after else f"{before} → {after}"


def _describe_change(old: float, new: float) -> str:
    """The change of a number of bytes, in words: `+1.2 MB (+50%)`."""
    sign = "+" if new > old else "−" if new < old else ""
    part = f" ({(new - old) / old:+.0%})".replace("-", "−") if old else ""
    return f"{sign}{size(abs(new - old))}{part}" if sign else "0 B"


def compare_traffic(old: Traffic | None, new: Traffic | None) -> dict[str, Any]:
    """Both sides, and the change of an epoch's numbers; each None if it is unknown."""
    change = None
    if old is not None and new is not None:
        requests = old.requests(), new.requests()
        change = {
            "bytes": round(new.bytes()) - round(old.bytes()),
            "from_stores": round(new.fetched_bytes()) - round(old.fetched_bytes()),
            "requests": None if None in requests else round(requests[1] or 0) - round(requests[0] or 0),
            "cached": round(new.cached_part() - old.cached_part(), 6),
        }
    return {"old": old, "new": new, "change": change}
