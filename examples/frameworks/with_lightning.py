"""Train under Lightning; the Trainer's checkpoint includes the position of the data, so a killed job resumes exactly.

    python examples/frameworks/with_lightning.py --checkpoints runs/a --devices 2

Start it again, with any number of devices, to resume from the newest checkpoint in the folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

from examples.frameworks.shared import StepLog  # noqa: E402
from examples.train import classifier  # noqa: E402
from wdspec.integrations.lightning import SpecData, WholeFiles  # noqa: E402


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
        datamodule=SpecData(f"{options.spec}#train", f"{options.spec}#val", num_workers=options.workers),
        ckpt_path=found[-1] if found else None,
    )


if __name__ == "__main__":
    main()
