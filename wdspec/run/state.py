"""The state of a run as JSON: its format, a check for damage, and merging the states of several ranks.

    {"batch": J, "digest": …, "order": …, …,                  the same on every rank
     "ranks": {"6": "states of its slots", "7": …}}           one entry for each canonical rank that was read here

An entry holds how far each source was read in every slot of its canonical rank (`StreamState` in read/source.py), as a
short text (`encode`). Nothing else is needed to resume exactly at batch J on any legal topology, and a rank that
resumes uses only its own entries. `torch.distributed.checkpoint` saves a state by its keys; since entries are keyed by
canonical rank, it merges the states of all ranks by itself. An entry starts with a stamp of everything that must be the
same on all ranks, so entries of different batches are never mixed. Where it does not follow from the position, an entry
ends with a comma and, in such columns as well, what was received of its canonical rank (run/received.py).

Without `batch` (or with `accumulate`) a step gives a rank one item for each of its canonical ranks. So a state also
says how many items of the step were yielded (`given`).

The text of an entry holds the numbers of its `StreamState`s column by column, in as few bits as possible:

    slots k = 0..K-1 of rank c, sources s       numbers(s, k)[j], source after source: column j
    ┌ s₀: [2, 51200, 10, …] ┐                   ─▶  differences from what the source and other columns suggest
    └ s₁: [0, 0, 0, …]      ┘ …                 ─▶  minimum, common divisor of the differences, bits of each value
                                                ─▶  zlib ─▶ base85

Equal values, such as those of sources that were not read, take no bits. Offsets in a tar are multiples of 512 and take
nine bits less. All slots of a source are about equally far, its shards have about as many samples, and these about as
many bytes. So `_shift` takes the `_Guides` of the source away if there are many states, which leaves 25 of 47 bits late
in a run. The rest is nearly random and does not compress; zlib finds repeated slots, and its checksum finds damage.
State files get truncated and edited, so every value is checked before it is used. Texts of version 4, without guides
and in base64, are still read.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wdspec.base.errors import UsageError
from wdspec.planning.digest import differences, digest
from wdspec.planning.past import past_as_text, past_from_text
from wdspec.planning.shares import shares_as_text, shares_from_text
from wdspec.read.source import StreamState
from wdspec.spec.language.steps import StepRanges

Slot = list[StreamState] | None
"""The state of each source in a slot; None if the slot was not read."""
_COLUMN = struct.Struct("<qqBI")
"""Minimum, divisor, bits of a value, number of values."""
TOTALS = ","
"""What is between the slots of an entry and what was received (run/received.py)."""
_MARKS = ("-", "=")
"""Start texts of version 5, without and with guides."""
_MANY = 64
"""States of an entry from which on guides are worth their size."""
_FRACTION = 6
"""Bits after the point in `_Guides.slope`."""
_STEADY = 32
"""Maximum difference between an index and what `_Guides.per_shard` suggests, for the suggestion to be used."""
_HUGE = 1 << 48
"""Numbers from which on no guides are used, so that no difference overflows."""
_MOST = 1 << 28
"""Limit in bytes for the columns of a rank, against hostile texts."""


def encode(slots: Sequence[Slot]) -> str:
    """Return the slots k = 0..K-1 of a canonical rank as ASCII text."""
    read = [slot for slot in slots if slot]
    rows = [state.numbers() for source in zip(*read, strict=True) for state in source]
    columns: list[Sequence[int] | NDArray[np.int64]] = [
        [bool(slot) for slot in slots],
        [len(row) for row in rows],
    ]
    if is_guided := len(rows) >= _MANY:
        columns += _guide(rows, len(read))
    elif rows:
        columns += [[row[n] for row in rows if n < len(row)] for n in range(max(map(len, rows)))]
    return _MARKS[is_guided] + pack_columns(np.array(column, dtype=np.int64) for column in columns)


def _guide(rows: Sequence[Sequence[int]], slots: int) -> list[NDArray[np.int64]]:
    """Return the columns of guides, and those of the numbers of all sources and slots without what these suggest."""
    widths, width = np.array([len(row) for row in rows]), max(map(len, rows))
    numbers = np.array([[*row, *[0] * (width - len(row))] for row in rows], dtype=np.int64)
    guides, coded = _Guides.of(numbers, slots), numbers.copy()
    _shift(coded, numbers, guides, -1)
    if max(numbers.max(), coded.max(), -coded.min()) >= _HUGE:
        guides, coded = _Guides(*(np.zeros(len(rows) // slots, np.int64) for _ in range(4))), numbers
    return [*guides, *(coded[widths > n, n] for n in range(width))]


class _Guides(NamedTuple):
    """What the numbers of each source are compared with; each has shape (sources,)."""

    ordinal: NDArray[np.int64]
    """The least `ordinal`."""
    per_shard: NDArray[np.int64]
    """Samples of a shard; 0 if unknown."""
    is_steady: NDArray[np.int64]
    """Whether all shards have that many, nearly, so that turn and ordinal give the indices in the open shards."""
    slope: NDArray[np.int64]
    """Bytes of a sample in a shard, in units of 512 / 64."""

    @classmethod
    def of(cls, numbers: NDArray[np.int64], slots: int) -> _Guides:
        """Return the guides for the numbers of all sources, shape (sources * slots, width)."""
        by_source = numbers.reshape(-1, slots, numbers.shape[1])
        turn, ordinal, lanes = by_source[:, :, 0], by_source[:, :, 1], by_source[:, :, 4]
        places = np.arange((numbers.shape[1] - 5) // 3)
        is_open = lanes[:, :, None] > places
        offsets = np.where(is_open, by_source[:, :, 6::3][:, :, : len(places)], 0).sum(
            (1, 2), dtype=np.float64
        )
        samples = np.where(is_open, by_source[:, :, 7::3][:, :, : len(places)], 0)
        finished = (turn - lanes).clip(0).sum(1)
        read = (ordinal - samples.sum(2)).clip(0).sum(1)
        per_shard = np.where(finished > 0, np.rint(read / np.maximum(finished, 1)), 0).astype(np.int64)
        indices = samples.sum((1, 2))
        slope = np.where(indices > 0, np.rint(offsets * (1 << _FRACTION) / 512 / np.maximum(indices, 1)), 0)
        guides = cls(
            ordinal.min(1),
            per_shard,
            np.ones_like(per_shard),
            slope.clip(0, 1 << 14 << _FRACTION).astype(np.int64),
        )
        coded = numbers.copy()
        _shift(coded, numbers, guides, -1)
        left = np.where(is_open, coded.reshape(by_source.shape)[:, :, 7::3][:, :, : len(places)], 0)
        is_steady = (per_shard > 0) & (np.abs(left).max((1, 2), initial=0) <= _STEADY)
        return guides._replace(is_steady=is_steady.astype(np.int64))


def _shift(numbers: NDArray[np.int64], known: NDArray[np.int64], guides: _Guides, sign: int) -> None:
    """Take away from numbers what the guides suggest (sign -1), or add it (sign 1).

    Args:
        numbers: shape (sources * slots, width); changed.
        known: the numbers as they are. To add, the same array, whose columns are complete when they are needed.
        guides: of each source.
        sign: 1 or -1.
    """
    ordinal, per_shard, is_steady, slope = (
        np.repeat(guide, len(numbers) // max(1, len(guide))) for guide in guides
    )
    numbers[:, 1] += sign * ordinal
    numbers[:, 0] += sign * np.where(per_shard > 0, known[:, 1] // np.maximum(per_shard, 1), 0)
    lanes = known[:, 4]
    left = known[:, 1] - per_shard * (known[:, 0] - lanes)  # samples read of the open shards
    for lane in range((numbers.shape[1] - 5) // 3):
        is_open = lanes > lane
        if not is_open.any():
            break
        offset, index = 6 + 3 * lane, 7 + 3 * lane
        numbers[:, index] += sign * np.where(
            is_open & (is_steady > 0), left // np.maximum(lanes - lane, 1), 0
        )
        left = left - np.where(is_open, known[:, index], 0)
        numbers[:, offset] += sign * np.where(is_open, (known[:, index] * slope >> _FRACTION) * 512, 0)


def decode(text: str, workers: int, sources: int) -> list[Slot]:
    """Return the slots of a text: the inverse of `encode`.

    Args:
        workers: K.
        sources: number of sources of a slot.

    Raises:
        ValueError: this is not such a text, or has another number of workers or sources.
    """
    is_read, widths, columns = _read(text, workers, sources)
    rows: list[list[int]] = [[] for _ in widths]
    for n, column in enumerate(columns):
        for row, number in zip(np.flatnonzero(widths > n).tolist(), column.tolist(), strict=True):
            rows[row].append(number)
    states = [StreamState.from_numbers(row) for row in rows]
    slots, count = iter(range(len(states))), int(is_read.sum())
    return [states[next(slots) :: count] if was_read else None for was_read in is_read]


def decode_numbers(
    text: str, workers: int, sources: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64]] | None:
    """Return the numbers of a text for `StreamState.given_by`, which is fast for thousands of ranks.

    Returns:
        Which of the K slots were read, shape (K,), and the first five numbers of each source in each of these, shape
        (sources, slots, 5). None if some states have stretches, so more than five numbers.

    Raises:
        ValueError: as `decode`.
    """
    is_read, widths, columns = _read(text, workers, sources)
    if not len(widths):
        return is_read, np.zeros((sources, 0, 5), dtype=np.int64)
    if widths.min() < 5 or min(int(column.min()) for column in columns) < 0:
        raise ValueError("numbers are missing, or below 0")
    numbers = np.stack(columns[:5], axis=1)
    if (widths != 5 + 3 * numbers[:, 4]).any():
        return None
    return is_read, numbers.reshape(sources, -1, 5)


def _read(
    text: str, workers: int, sources: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return which slots were read, how many numbers each state has, and the columns of these numbers."""
    packed = base64.b85decode(text[1:]) if text[:1] in _MARKS else base64.b64decode(text, validate=True)
    file = open_columns(packed)
    is_read = read_column(file, workers).astype(bool)
    widths = read_column(file, int(is_read.sum()) * sources)
    guides = None
    if text[:1] == _MARKS[1] and len(widths):
        guides = _Guides(*(read_column(file, sources) for _ in range(4)))
    numbers = [read_column(file, int((widths > n).sum())) for n in range(int(widths.max(initial=0)))]
    if file.read(1):
        raise ValueError("there is data after the columns")
    if guides is not None:
        _add_guides(numbers, widths, guides)
    return is_read, widths, numbers


def _add_guides(columns: list[NDArray[np.int64]], widths: NDArray[np.int64], guides: _Guides) -> None:
    """Add the guides to the columns of a text, in place."""
    if widths.min() < 5 or len(widths) * len(columns) * 8 > _MOST:
        raise ValueError("numbers are missing, or too many")
    numbers = np.zeros((len(widths), len(columns)), dtype=np.int64)
    for n, column in enumerate(columns):
        numbers[widths > n, n] = column
    _shift(numbers, numbers, guides, 1)
    columns[:] = [numbers[widths > n, n] for n in range(len(columns))]


def pack_columns(columns: Iterable[NDArray[np.int64]]) -> str:
    """Return columns of numbers as ASCII text, in as few bits as possible."""
    return base64.b85encode(zlib.compress(b"".join(map(_pack, columns)))).decode()


def _pack(values: NDArray[np.int64]) -> bytes:
    least = int(values.min()) if len(values) else 0
    above = values - least
    divisor = int(np.gcd.reduce(above)) or 1
    above //= divisor
    bits = int(above.max(initial=0)).bit_length()
    flags = (above[:, None] >> np.arange(bits)) & 1
    return _COLUMN.pack(least, divisor, bits, len(values)) + np.packbits(flags.astype(np.uint8)).tobytes()


def open_columns(packed: bytes) -> io.BytesIO:
    """Return a file of columns, from the bytes that `pack_columns` writes in base85.

    Raises:
        ValueError: these are not such bytes.
    """
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(packed, _MOST)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflate.eof or inflate.unused_data:
        raise ValueError("it is truncated, or too long")
    return io.BytesIO(data)


def read_column(file: io.BytesIO, count: int) -> NDArray[np.int64]:
    """Read the next column of a file (`open_columns`), which must have `count` values."""
    header = file.read(_COLUMN.size)
    if len(header) < _COLUMN.size:
        raise ValueError("a column is missing")
    least, divisor, bits, values = _COLUMN.unpack(header)
    size = (bits * values + 7) // 8
    packed = np.frombuffer(file.read(size), np.uint8)
    if values != count or bits > 63 or len(packed) < size:
        raise ValueError(f"a column has {values} values of {count}")
    flags = np.unpackbits(packed, count=bits * values).reshape(values, bits)
    numbers: NDArray[np.int64] = flags.astype(np.int64) @ (np.int64(1) << np.arange(bits, dtype=np.int64))
    numbers *= divisor
    numbers += least
    return numbers


State = dict[str, Any]

FORMAT, VERSION = "wdspec-state", 6
PLAIN_VERSION = 5
"""Version of states of plain mixes and passes that do not say what was received, which older releases read."""
READABLE = (4, PLAIN_VERSION, VERSION)
"""Versions that can be read."""
WORKER_FORMAT = "wdspec-worker-state"
"""Format of the state of one worker of a DataLoader that is not wdspec's (`foreign`)."""
_NO_STEPS = StepRanges().as_text()
"""`skip` of a state without skipped steps."""
NO_SHARES = shares_as_text(())
"""`shares` of a state without shares set at run time."""
_UNSET = {"shares": NO_SHARES, "skip": _NO_STEPS, "past": None}
"""What the training loop may set, as a state says that nothing is."""


def check_undamaged(state: Any) -> None:
    """Raise a UsageError unless this is an undamaged state, of a version that can be read."""
    if isinstance(state, Mapping) and state.get("format") == WORKER_FORMAT:
        raise UsageError(
            "this is the state of one worker of a DataLoader; load the state of the whole StatefulDataLoader into a "
            "StatefulDataLoader with the same number of workers"
        )
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise UsageError(
            "this is not a state of a wdspec pipeline or loader; pass what state_dict() returned"
        )
    if not _is_count(state.get("version")):
        raise damage_error("`version` is missing" if "version" not in state else "`version` is not a number")
    if state["version"] not in READABLE:
        raise UsageError(
            f"the state has format version {state['version']}, this wdspec reads versions {READABLE[0]} to {VERSION}; "
            "finish the run with the release that wrote the state, or start the data again: without a state, with "
            "another `seed`"
        )
    for name, is_right in _KINDS.items():
        if name not in state and name in _OPTIONAL:
            continue
        if name not in state:
            raise damage_error(f"`{name}` is missing")
        if not is_right(state[name]):
            raise damage_error(f"`{name}` is {str(state[name])[:60]!r}")
    try:
        order = _order(state["order"], state["digest"])
    except (ValueError, RecursionError):
        raise damage_error("`order` does not match its `digest`") from None
    if "epoch" in state and state["epoch"][1] > state["batch"]:
        raise damage_error(f"step {state['batch']} is before its epoch, which starts at {state['epoch'][1]}")
    if state["given"] and state["given"] >= state["items"]:
        raise damage_error(f"{state['given']} of {state['items']} items of a step were yielded")
    count = len(order["sources"])
    others = state["sources"][count:]
    # After the sources and the streams of companions, a stage and the windows of batches have a place of their own.
    kinds = [kind for name in others if (kind := name.partition(" ")[0]) != COMPANION]
    if {*state["sources"][:count]} != {*order["sources"]} or kinds not in _SECTIONS:
        raise damage_error(f"`sources` is {state['sources']}, and `order` has others")
    written = stamp(state)
    for rank, entry in state["ranks"].items():
        if not (isinstance(rank, str) and rank.isdecimal() and isinstance(entry, str)):
            raise damage_error(f"canonical rank {rank!r} is {str(entry)[:60]!r}")
        if not entry.startswith(written):
            raise UsageError(
                f"canonical rank {rank} was saved at another position than the rest of the state ({entry[:40]!r}…, "
                f"not {written!r}…); save on all ranks after the same batch, and load all of one checkpoint"
            )


@lru_cache(maxsize=4)
def _order(text: str, written: str) -> dict[str, Any]:
    """Return the order that a state describes; nearly always the same for thousands of merged states."""
    order: dict[str, Any] = json.loads(text)
    if not isinstance(order, dict) or digest(order) != written:
        raise ValueError
    return order


def stamp(state: Mapping[str, Any]) -> str:
    """Return what every entry starts with: a stamp of what must be the same on all ranks."""
    settings = {key: state[key] for key, unset in _UNSET.items() if state.get(key, unset) != unset}
    text = digest({"order": state["digest"], **settings}) if settings else state["digest"]
    return f"{state['batch']}.{state['given']}.{state['items']}.{text[:8]}:"


def skipped_steps(state: Mapping[str, Any]) -> StepRanges:
    """Return the steps that were skipped, or are set to be; older states have no such key."""
    return StepRanges.from_text(state.get("skip", _NO_STEPS))


def ranks_of(state: Mapping[str, Any]) -> list[int]:
    """Return the canonical ranks in a state."""
    return sorted(map(int, state["ranks"]))


def entry_of(state: Mapping[str, Any], rank: int) -> str:
    """Return the text of the slots of a canonical rank, from a state that `check_undamaged` accepts."""
    return str(state["ranks"][str(rank)]).partition(":")[2].partition(TOTALS)[0]


def totals_of(state: Mapping[str, Any], rank: int) -> str:
    """Return the text of what a canonical rank has received; empty if its entry does not say it."""
    return str(state["ranks"][str(rank)]).partition(":")[2].partition(TOTALS)[2]


def read_entry(
    state: Mapping[str, Any], rank: int, workers: int, reads: Callable[[int], bool] = lambda slot: True
) -> list[Slot]:
    """Return the states of the slots of a canonical rank, from a state that `check_undamaged` accepts.

    Args:
        workers: K.
        reads: whether a slot is read here; the state may lack the others.

    Raises:
        UsageError: the entry is damaged, or lacks a slot that is read here and was read before. Without its state,
            the slot would silently start from its beginning.
    """
    try:
        slots = decode(entry_of(state, rank), workers, len(state["sources"]))
    except (ValueError, TypeError, OverflowError) as error:
        raise damage_error(f"the entry of canonical rank {rank} cannot be decoded ({error})") from None
    if "pass" not in _order(state["order"], state["digest"]):  # slots of a pass have no state
        for worker in range(min(state["batch"], workers)):
            if slots[worker] is None and reads(rank * workers + worker):
                raise damage_error(f"slot {rank * workers + worker} is missing")
    return slots


def rank_state(state: Any, items: int) -> dict[str, Any]:
    """Return the state of one worker in the format of a rank's, with only the keys of workers checked.

    Args:
        state: what a worker's `state_dict` returned, perhaps loaded from JSON.
        items: items of one step for the rank.

    Raises:
        UsageError: it is not such a state, or is damaged.
    """
    if not isinstance(state, Mapping) or state.get("format") != WORKER_FORMAT:
        raise UsageError(
            "this is not a state of a pipeline in a DataLoader worker; load the state of a whole rank into the "
            "pipeline before you create the DataLoader, or into wdspec.loader"
        )
    for name in ("worker", "workers", "first"):
        if not _is_count(state.get(name)):
            raise damage_error(
                f"`{name}` is {str(state[name])[:60]!r}" if name in state else f"`{name}` is missing"
            )
    try:
        order, digest, samples, sources = json.loads(state["run"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise damage_error("`run` is missing or invalid") from None
    described = {"items": items, "order": order, "digest": digest, "samples": samples, "sources": sources}
    return {**state, "format": FORMAT, "epoch_batches": None, "shared": 1, **described}


def damage_error(fault: str) -> UsageError:
    """Return the error for a damaged state."""
    return UsageError(f"the state is damaged: {fault}; load an earlier checkpoint, or all of this one")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_text_of(read: Callable[[str], Any], write: Callable[[Any], str]) -> Callable[[Any], bool]:
    """Return the function that says whether a value is text, as `write` writes what `read` reads."""

    def is_right(value: Any) -> bool:
        try:
            return isinstance(value, str) and write(read(value)) == value
        except (TypeError, ValueError, AttributeError, RecursionError, UsageError):
            return False

    return is_right


_KINDS: dict[str, Callable[[Any], bool]] = {
    "batch": _is_count,
    "given": _is_count,
    "items": _is_count,
    "epoch_batches": lambda value: value is None or _is_count(value),
    "digest": _is_text,
    "samples": _is_text,
    "order": _is_text,
    "sources": _are_names,
    "shares": _is_text_of(shares_from_text, shares_as_text),
    "skip": _is_text_of(StepRanges.from_text, StepRanges.as_text),
    "past": _is_text_of(past_from_text, past_as_text),
    "epoch": lambda value: isinstance(value, list) and len(value) == 2 and all(map(_is_count, value)),
    "removed": _are_names,
    "shared": lambda value: _is_count(value) and value > 0,
    "ranks": lambda value: isinstance(value, Mapping) and len(value) > 0,
}
COMPANION = "companion"
"""The first word of the names of companions."""
_SECTIONS: tuple[list[str], ...] = ([], ["stage"], ["windows"], ["stage", "windows"])
"""The kinds of places after those of the sources."""
_OPTIONAL = ("skip", "past", "removed", "epoch")
"""Keys that older states do not have, or that only some states need."""


_MUST_AGREE: tuple[tuple[str, Callable[[Mapping[str, Any]], str], str], ...] = (
    (
        "the states are of different batches",
        lambda state: str(state["batch"]),
        "save on all ranks after the same batch",
    ),
    (
        "the states are of different positions in a step",
        lambda state: f"{state['given']} of {state['items']} items",
        "save on all ranks after the same number of items",
    ),
    (
        "different shares, as [global batch, shares], were set on the ranks",
        lambda state: str(state["shares"]),
        "set the same on all ranks, after the same batch",
    ),
    (
        "the ranks skip different steps",
        lambda state: str(skipped_steps(state) or "none"),
        "skip the same on all ranks, after the same batch",
    ),
    (
        "the states are of runs whose specs were changed differently",
        lambda state: digest({"past": state.get("past", ""), "epoch": state.get("epoch")}),
        "save the states of one run",
    ),
)
"""What must be the same in states to merge: the problem, the value as text, and the remedy."""


def merge_states(states: Iterable[Mapping[str, Any]]) -> State:
    """Merge the states of all ranks of a job into one, to load on every rank of any legal topology.

    Args:
        states: what `state_dict` returned on each rank after the same batch, perhaps loaded from JSON.

    Raises:
        UsageError: a state is damaged, the states are of different specs or positions, or a rank is missing.
    """
    parts = list(states)
    if not parts:
        raise UsageError("no states to merge")
    for part in parts:
        check_undamaged(part)
    first = parts[0]
    for part in parts[1:]:
        if part["digest"] != first["digest"]:
            raise UsageError(
                "the states are of different specs:\n  "
                + "\n  ".join(differences(json.loads(first["order"]), json.loads(part["order"])))
            )
        for problem, describe, remedy in _MUST_AGREE:
            if describe(part) != describe(first):
                raise UsageError(
                    f"{problem}: {describe(first)} (ranks {ranks_of(first)}) and {describe(part)} (ranks "
                    f"{ranks_of(part)}); {remedy}"
                )
    entries: dict[str, str] = {}
    for part in parts:
        for rank, entry in part["ranks"].items():
            if entries.setdefault(rank, entry) != entry:
                raise UsageError(
                    f"canonical rank {rank} is in two states, which differ; merge one state of each rank"
                )
    total = json.loads(first["order"])["elastic"]["ranks"]
    missing = [rank for rank in range(total) if str(rank) not in entries]
    if missing:
        text = str(missing)
        if len(missing) > 8:
            text = f"{', '.join(map(str, missing[:8]))}, … ({len(missing)} in all)"
        raise UsageError(f"canonical ranks {text} are missing; merge one state of each rank")
    # `removed` is only in the states of ranks that know what they have received.
    whole = {name: value for part in reversed(parts) for name, value in part.items()}
    version = max(part["version"] for part in parts)
    ranks = dict(sorted(entries.items(), key=lambda item: int(item[0])))
    return {**whole, "version": version, "ranks": ranks}
