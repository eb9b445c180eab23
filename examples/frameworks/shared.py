"""What the scripts in this folder share."""

from __future__ import annotations

from pathlib import Path
from typing import Any


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
