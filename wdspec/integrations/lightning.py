"""Lightning: a data module that reads specs, and checkpoint files that appear only when they are complete."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from wdspec.api import SpecLike, loader
from wdspec.base.errors import UsageError
from wdspec.integrations.loaders import FromStart, WholeJob

if TYPE_CHECKING or "lightning" in sys.modules or "pytorch_lightning" not in sys.modules:
    from lightning.fabric.plugins import TorchCheckpointIO
    from lightning.pytorch import LightningDataModule
else:  # the older package name, whose Trainer accepts only its own data modules
    from lightning_fabric.plugins import TorchCheckpointIO
    from pytorch_lightning import LightningDataModule

_READ_IN = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("predict",)}
"""Stage of the Trainer → the specs that it reads."""


class SpecData(LightningDataModule):
    """A data module that reads specs. Checkpoints include the position in the training data, at any step.

    `setup` builds the loaders, after the Trainer has started its processes. Each evaluation reads the same batches.

    Args:
        train, val, test, predict: the spec for each stage: a path, which may end in `#split`, a dict or a loaded Spec.
            Each spec needs `epoch:`.
        arguments: passed to `wdspec.loader` for all of them, such as `num_workers`, `env` or `vars`.

    Raises:
        UsageError: the Trainer needs data for which no spec was passed.

    Example:
        >>> from wdspec.integrations.lightning import SpecData
        >>> data = SpecData("examples/specs/digits.yaml#train", "examples/specs/digits.yaml#val", num_workers=2)
        >>> # Trainer(devices=2, max_epochs=3).fit(model, datamodule=data)
    """

    def __init__(
        self,
        train: SpecLike | None = None,
        val: SpecLike | None = None,
        test: SpecLike | None = None,
        predict: SpecLike | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__()
        self._specs = {"train": train, "val": val, "test": test, "predict": predict}
        self._arguments = arguments
        self._loaders: dict[str, WholeJob | FromStart] = {}

    def setup(self, stage: str) -> None:
        """Build the loaders for a stage of the Trainer."""
        for name in _READ_IN[stage]:
            if (spec := self._specs[name]) is not None:
                built = loader(spec, **self._arguments)
                len(built)  # raises for endless streams: the Trainer would read beyond the saved state
                self._loaders[name] = WholeJob(built) if name == "train" else FromStart(built)

    def train_dataloader(self) -> WholeJob | FromStart:
        """Return the loader of `train`, whose state covers all ranks."""
        return self._find_loader("train")

    def val_dataloader(self) -> Any:
        """Return the loader of `val`; an empty list if there is no such spec."""
        return self._loaders.get("val", [])

    def test_dataloader(self) -> WholeJob | FromStart:
        """Return the loader of `test`."""
        return self._find_loader("test")

    def predict_dataloader(self) -> WholeJob | FromStart:
        """Return the loader of `predict`."""
        return self._find_loader("predict")

    def _find_loader(self, name: str) -> WholeJob | FromStart:
        if name not in self._loaders:
            raise UsageError(f"the Trainer needs `{name}` data; pass a spec: SpecData({name}=…)")
        return self._loaders[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the position of all ranks in the training data. The Trainer calls this."""
        train = self._loaders.get("train")
        return train.state_dict() if isinstance(train, WholeJob) else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume the training data. The Trainer calls this; on its own, it resumes loaders only within an epoch."""
        train = self._loaders.get("train")
        if isinstance(train, WholeJob):
            train.load_state_dict(state_dict)

    def teardown(self, stage: str) -> None:
        """Stop the workers of the loaders. The position is kept, for a checkpoint that is saved afterwards."""
        for each in self._loaders.values():
            each.loader.close()


class WholeFiles(TorchCheckpointIO):
    """Writes checkpoint files that appear only when complete. Use it as `Trainer(plugins=[WholeFiles()])`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Save a checkpoint; see Lightning. Object stores never show partial objects, so URLs are written directly."""
        part = str(path) if "://" in str(path) else f"{path}.part"
        super().save_checkpoint(checkpoint, part, storage_options)
        if part != str(path):
            os.replace(part, path)
