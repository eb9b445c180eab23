"""torchtitan: a data loader for the config of its Trainer. Checkpoints include its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader

from wdspec.api import loader
from wdspec.base.errors import UsageError
from wdspec.run.state import State


class SpecDataLoader(BaseDataLoader):  # type: ignore[misc]  # torchtitan has no types
    """Yields the batches of a spec in the form that torchtitan's Trainer expects, epoch after epoch.

    Each batch is `({"input": tensor, …}, labels)`. To use it, set `dataloader=SpecDataLoader.Config(spec=…)` in the
    Trainer's config. The spec defines the batches, so the global size of `batch` must be `training.local_batch_size`
    times the number of ranks. Checkpoints have an entry for each canonical rank, so a run can resume with any number of
    ranks that the spec allows.

    Args:
        config: what to read.
        dp_world_size: number of data-parallel ranks.
        dp_rank: the data-parallel rank of this process.
        local_batch_size: samples per batch of one rank. If given, it must match the spec.
        others: other arguments that the Trainer passes. They are ignored: a spec has no `seq_len`,
            and its functions have their own tokenizer.

    Raises:
        SpecError: the spec has problems.
        UsageError: the batch size of the spec is not `local_batch_size`.
        WdspecError: shards cannot be listed, or the topology does not fit.

    Example:
        >>> from wdspec.integrations.torchtitan import SpecDataLoader
        >>> # Trainer.Config(dataloader=SpecDataLoader.Config(spec="train.yaml", input="tokens"), …)
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # type: ignore[misc]  # torchtitan has no types
        """What to read."""

        spec: str = ""
        """A path, which may end in `#split`."""
        num_workers: int | None = None
        """Worker processes; by default the spec's `loader.workers`."""
        input: str = "input"
        """The field for the model's input."""
        labels: str = "labels"
        """The field for the labels."""
        others: tuple[str, ...] = ()
        """Fields that the model takes as further arguments, such as `positions`."""

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        local_batch_size: int | None = None,
        **others: Any,
    ) -> None:
        self.config = config
        self.loader = loader(
            config.spec, num_workers=config.num_workers, rank=dp_rank, world_size=dp_world_size
        )
        batching = self.loader.plan.batching
        size = batching.per_slot if batching.accumulated else batching.global_size // dp_world_size
        if local_batch_size is not None and local_batch_size != size and not batching.windowed:
            raise UsageError(
                f"the spec has {size} samples per batch of a rank, but `training.local_batch_size` is "
                f"{local_batch_size}; write `batch: {{global_size: {local_batch_size * dp_world_size}}}` in the spec, "
                f"or set `training.local_batch_size` to {size}"
            )

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Yield batches without end: the Trainer stops after its last step."""
        names = ("input", self.config.input), *((name, name) for name in self.config.others)
        while True:
            for batch in self.loader:
                yield {name: batch[field] for name, field in names}, batch[self.config.labels]

    def state_dict(self) -> State:
        """Return the state of this rank; see `wdspec.Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint, which may come from another number of ranks."""
        if state_dict:
            self.loader.load_state_dict(state_dict)

    def close(self) -> None:
        """Stop the workers."""
        self.loader.close()
