"""What the scripts in this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wdspec


class WholeJob:
    """A loader whose state covers all ranks, for frameworks where rank 0 saves and all ranks load.

    `state_dict` is a collective call: all ranks make it, after the same batch.
    """

    def __init__(self, loader: wdspec.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """The merged state, the same on every rank."""
        return wdspec.gather_state(self.loader)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load this rank's part of a merged state, saved by any number of ranks."""
        self.loader.load_state_dict(state)


class StepLog:
    """Appends the keys of every step to `<folder>/<rank>.txt`, to compare the data of runs; off without a folder."""

    def __init__(self, folder: Path | None, rank: int) -> None:
        self.file = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.file = (folder / f"{rank}.txt").open("ab", buffering=0)

    def write(self, step: int, batch: dict[str, Any]) -> None:
        """Note the keys of the batch that step `step` (from 0) trained on; the line is written at once."""
        if self.file is not None:
            self.file.write(f"{step} {' '.join(batch['__key__'])}\n".encode())
