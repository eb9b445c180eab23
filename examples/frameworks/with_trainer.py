"""Train with the Trainer of transformers; its checkpoints include the state of the data, so jobs resume exactly.

    torchrun --nproc-per-node 2 examples/frameworks/with_trainer.py --checkpoints runs/d

Start it again, with any number of processes, to resume from the newest complete checkpoint in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainerCallback, TrainingArguments

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402
from examples.frameworks.shared import StepLog  # noqa: E402
from examples.train import classifier  # noqa: E402

STATE = "wdspec.json"
"""Written into a checkpoint last, so that only complete ones have it."""


class SpecTrainer(Trainer):
    """A Trainer that uses a loader unchanged; by default it would batch and distribute the samples again."""

    def __init__(self, loader: wdspec.Loader, keys: Path | None, **arguments: Any) -> None:
        super().__init__(**arguments, callbacks=[SaveData(loader)])
        self.loader = loader
        self.log_of_keys = StepLog(keys, self.args.process_index)

    def get_train_dataloader(self) -> wdspec.Loader:
        return self.loader

    def training_step(self, model: Any, inputs: Any, *rest: Any) -> torch.Tensor:
        self.log_of_keys.write(self.state.global_step, inputs)
        return super().training_step(model, inputs, *rest)


class SaveData(TrainerCallback):
    """Adds the state of the data over all ranks to each checkpoint."""

    def __init__(self, loader: wdspec.Loader) -> None:
        self.loader = loader

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        data = wdspec.gather_state(self.loader)  # on all ranks
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            part = folder / f"{STATE}.part"
            part.write_text(json.dumps(data))
            os.replace(part, folder / STATE)


class DigitsModel(torch.nn.Module):
    """The digits' classifier, which also returns the loss, as the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = classifier()

    def forward(self, image: torch.Tensor, label: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        logits = self.classifier(image)
        return {"loss": cross_entropy(logits, label), "logits": logits}


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    whole = [path.parent for path in folder.glob(f"checkpoint-*/{STATE}")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/elastic.yaml"))
    parser.add_argument("--checkpoints", type=Path, required=True, help="a folder that all nodes see")
    parser.add_argument("--every", type=int, default=10, help="steps from checkpoint to checkpoint")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, help="of each process (default: what the spec says)")
    parser.add_argument("--keys", type=Path, help="a folder for the keys of every step, to compare runs")
    options = parser.parse_args()

    torch.set_num_threads(1)
    arguments = TrainingArguments(
        str(options.checkpoints),
        num_train_epochs=options.epochs,
        save_steps=options.every,
        save_total_limit=3,  # the newest may be incomplete when the job is killed
        ignore_data_skip=True,  # the loader resumes by itself
        learning_rate=3e-3,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )  # which initialises torch.distributed, so that the loader finds its rank
    found = newest_checkpoint(options.checkpoints)
    with wdspec.loader(options.spec, split="train", num_workers=options.workers) as loader:
        if found is not None:
            loader.load_state_dict(json.loads((found / STATE).read_text()))  # takes this rank's part
        trainer = SpecTrainer(loader, options.keys, model=DigitsModel(), args=arguments)
        trainer.train(resume_from_checkpoint=str(found) if found else None)


if __name__ == "__main__":
    main()
