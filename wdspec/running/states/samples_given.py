"""What each source has given, by a state: counted for all slots of a source at once, as a job may have thousands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdspec.planning.delays import Delays
from wdspec.planning.stream_state import StreamState
from wdspec.running.states.slot_columns import decode_numbers
from wdspec.running.states.state_checks import damaged, entry_of, ranks_of, read_entry


def samples_given(state: Mapping[str, Any]) -> dict[str, NDArray[np.int64]]:
    """How many samples each source has given, or left out, in every slot that was read: name -> shape (slots,).

    Args:
        state: that `check_undamaged` has passed.

    Raises:
        UsageError: an entry is damaged.
    """
    order, names = json.loads(state["order"]), state["sources"]
    workers = order["elastic"]["workers"]
    slots: list[int] = []
    numbers = []
    rest: dict[str, list[int]] = {name: [] for name in names}
    delays = {name: Delays(order["seed"], name, said["shuffle"]) for name, said in order["sources"].items()}
    for rank in ranks_of(state):
        try:
            found = decode_numbers(entry_of(state, rank), workers, len(names))
        except (ValueError, TypeError, OverflowError) as error:
            raise damaged(f"canonical rank {rank} is not as it was written ({error})") from None
        if found is not None:
            is_read, own = found
            slots += (rank * workers + np.flatnonzero(is_read)).tolist()
            numbers.append(own)
            continue
        for worker, states in enumerate(read_entry(state, rank, workers, lambda slot: False)):
            for name, stream in zip(names, states or (), strict=False):
                if name in delays:
                    rest[name].append(stream.given(rank * workers + worker, delays[name]))
    columns = np.concatenate(numbers, axis=1) if numbers else np.zeros((len(names), 0, 5), dtype=np.int64)
    given = {}
    for name, column in zip(names, columns, strict=True):
        if name in delays:  # a stage stands behind the sources
            try:
                counts = StreamState.given_by(column, slots, delays[name])
            except ValueError as error:
                raise damaged(f"source {name!r} cannot stand where it says: {error}") from None
            given[name] = np.concatenate([counts, np.array(rest[name], dtype=np.int64)])
    return given
