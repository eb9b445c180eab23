"""Train under Lightning; the Trainer's checkpoint includes the position of the data, so a killed job resumes exactly.

    python examples/frameworks/with_lightning.py --checkpoints runs/a --devices 2

Start it again, with any number of devices, to resume from the newest checkpoint in the folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402
from examples.frameworks.shared import StepLog, WholeJob  # noqa: E402
from examples.train import classifier  # noqa: E402


class SpecData(lightning.LightningDataModule):
    """The splits `train` and `val` of a spec; the position in `train` is saved and restored with the Trainer's
    checkpoints, at any step.

    The hooks here are what restores the data: the Trainer by itself asks a loader for its state too, but gives it
    back in mid-epoch only.
    """

    def __init__(self, spec: str, **loader: Any) -> None:
        super().__init__()
        self.spec = spec
        self.loader = loader

    def setup(self, stage: str) -> None:
        # Not earlier: ranks know their places only now.
        self.train = WholeJob(wdspec.loader(self.spec, split="train", **self.loader))
        self.val = wdspec.loader(self.spec, split="val", **self.loader)
        len(
            self.train
        )  # fails for an endless stream, with which the Trainer would read a batch ahead of the state

    def train_dataloader(self) -> WholeJob:
        return self.train

    def val_dataloader(self) -> wdspec.Loader:
        return self.val

    def state_dict(self) -> dict[str, Any]:
        return self.train.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.train.load_state_dict(state_dict)

    def teardown(self, stage: str) -> None:
        self.train.loader.close()
        self.val.close()


class Classifier(lightning.LightningModule):
    """The digits' classifier; notes the keys of every step."""

    def __init__(self, keys: Path | None) -> None:
        super().__init__()
        self.model = classifier()
        self.keys = keys

    def on_train_start(self) -> None:
        self.log_of_keys = StepLog(self.keys, self.global_rank)

    def training_step(self, batch: dict[str, Any], index: int) -> torch.Tensor:
        self.log_of_keys.write(self.global_step, batch)
        return cross_entropy(self.model(batch["image"]), batch["label"])

    def validation_step(self, batch: dict[str, Any], index: int) -> None:
        right = (self.model(batch["image"]).argmax(1) == batch["label"]).float().mean()
        self.log("accuracy", right, prog_bar=True, sync_dist=True, batch_size=len(batch["label"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 3e-3)


class WholeFiles(TorchCheckpointIO):
    """Checkpoints that appear under their names only when they are complete, whatever file system they are on."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        super().save_checkpoint(checkpoint, f"{path}.part", storage_options)
        os.replace(f"{path}.part", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/elastic.yaml"))
    parser.add_argument("--checkpoints", type=Path, required=True, help="a folder that all nodes see")
    parser.add_argument("--every", type=int, default=10, help="steps from checkpoint to checkpoint")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--devices", type=int, default=1, help="processes of this node")
    parser.add_argument("--workers", type=int, help="of each process (default: what the spec says)")
    parser.add_argument("--keys", type=Path, help="a folder for the keys of every step, to compare runs")
    options = parser.parse_args()

    lightning.seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.devices,
        strategy="ddp" if options.devices > 1 else "auto",
        max_epochs=options.epochs,
        use_distributed_sampler=False,  # the spec already gives every rank its part
        num_sanity_val_steps=0,  # would leave the first validation two batches short
        plugins=[WholeFiles()],
        callbacks=[
            ModelCheckpoint(
                options.checkpoints,
                "{step:08d}",
                every_n_train_steps=options.every,
                save_on_exception=True,  # including SIGTERM
            )
        ],
        logger=False,
        log_every_n_steps=10,
        enable_progress_bar=sys.stderr.isatty(),
    )
    found = sorted(options.checkpoints.glob("*.ckpt"))
    trainer.fit(
        Classifier(options.keys),
        datamodule=SpecData(options.spec, num_workers=options.workers),
        ckpt_path=found[-1] if found else None,
    )


if __name__ == "__main__":
    main()
