"""Loaders for frameworks: one saves the state of the whole job, one starts from the beginning each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wdspec.run.loader import Loader
from wdspec.run.ranks import gather_state
from wdspec.run.state import State


class WholeJob:
    """A loader whose state covers all ranks, for frameworks where rank 0 saves the state and all ranks load it.

    With Accelerate: ``accelerator.register_for_checkpointing(WholeJob(loader))``.

    Args:
        loader: the loader of this rank.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> State:
        """Return the merged state of all ranks. This is a collective: call it on every rank, after the same batch."""
        return gather_state(self.loader)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load this rank's part of a merged state, regardless of how many ranks saved it."""
        self.loader.load_state_dict(state)


class FromStart:
    """A loader for evaluation: every iteration yields the same batches, even if the previous one was stopped early.

    Args:
        loader: the loader of this rank, before its first batch.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._start = loader.state_dict()

    def __iter__(self) -> Iterator[Any]:
        self.loader.load_state_dict(self._start)
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)
