"""How the DataLoader that reads a dataset goes about it; a dataset is not told, so this looks at who calls it.

The iterator of a DataLoader is among the callers of whatever it starts: of `iter(dataset)` in its own process and in
forked workers, and of the pickling for others. So are the classes of Accelerate that share out among ranks what each of
them reads.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType

_OF_LOADERS = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader")
_OF_ACCELERATE = "accelerate.data_loader"
_SHARE_OUT = ("IterableDatasetShard", "DataLoaderDispatcher")


@dataclass(frozen=True)
class DataLoaderOptions:
    """What decides whether a DataLoader gives what the dataset promises."""

    in_order: bool = True
    """Whether batches of several workers come in the order of their turns."""
    batches: bool = False
    """Whether it makes batches of what the dataset gives."""
    is_there: bool = False
    """Whether there is a DataLoader at all."""
    shares_out: bool = False
    """Whether Accelerate gives each rank a part of what the dataset gives."""

    @classmethod
    def of_callers(cls) -> DataLoaderOptions:
        """As the callers of this function say; the defaults, where there is no DataLoader among them."""
        in_order, batches, is_there, shares_out = True, False, False, False
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            module = frame.f_globals.get("__name__")
            if module in _OF_LOADERS and hasattr(caller := frame.f_locals.get("self"), "_auto_collation"):
                is_there = True
                in_order = in_order and getattr(caller, "_in_order", True)
                batches = batches or caller._auto_collation  # type: ignore[union-attr]  # torch has no public way
            elif module == _OF_ACCELERATE:
                shares_out = shares_out or type(frame.f_locals.get("self")).__name__ in _SHARE_OUT
            frame = frame.f_back
        return cls(in_order, batches, is_there, shares_out)

    def __or__(self, other: DataLoaderOptions) -> DataLoaderOptions:
        """What both say together."""
        return DataLoaderOptions(
            self.in_order and other.in_order,
            self.batches or other.batches,
            self.is_there or other.is_there,
            self.shares_out or other.shares_out,
        )

    def refusal(self, is_batched: bool, world_size: int, workers: int) -> str | None:
        """Why a dataset cannot be read like this; None if it can.

        Args:
            is_batched: whether it gives batches.
            world_size: ranks that it is a part of the data for.
            workers: processes that read it for this rank; 0 is this one.
        """
        if self.shares_out and world_size > 1:
            return (
                f"Accelerate would share out what this rank reads, which already is one rank's part of {world_size}; "
                "do not prepare it: iterate wdspec.loader(spec) as it is, which a Trainer takes from "
                "`get_train_dataloader` (docs/training.md)"
            )
        if self.batches and is_batched:
            return (
                "the DataLoader would make batches of batches, since the spec has `batch`; give it batch_size=None, "
                "or use wdspec.loader(spec), which a Trainer takes from `get_train_dataloader` (docs/training.md)"
            )
        if not self.in_order and workers > 1:
            return (
                "in_order=False gives batches in whatever order the workers finish them; leave it out, or use "
                "wdspec.loader(spec, num_workers=…)"
            )
        return None
