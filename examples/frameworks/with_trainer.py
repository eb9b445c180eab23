"""Train with the Trainer of transformers; its checkpoints include the state of the data, so jobs resume exactly.

    torchrun --nproc-per-node 2 examples/frameworks/with_trainer.py --checkpoints runs/d

Start it again, with any number of processes, to resume from the newest complete checkpoint in the folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import TrainingArguments

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402
from examples.frameworks.shared import StepLog  # noqa: E402
from examples.train import classifier  # noqa: E402
from wdspec.integrations.transformers import SpecTrainer, newest_checkpoint  # noqa: E402


class LoggingTrainer(SpecTrainer):
    """Notes the keys of every step."""

    def __init__(self, keys: Path | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.log_of_keys = StepLog(keys, self.args.process_index)

    def training_step(self, model: Any, inputs: Any, *rest: Any) -> torch.Tensor:
        self.log_of_keys.write(self.state.global_step, inputs)
        return super().training_step(model, inputs, *rest)


class DigitsModel(torch.nn.Module):
    """The digits' classifier, which also returns the loss, as the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = classifier()

    def forward(self, image: torch.Tensor, label: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        logits = self.classifier(image)
        return {"loss": cross_entropy(logits, label), "logits": logits}


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
        learning_rate=3e-3,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )  # which initialises torch.distributed, so that the loader finds its rank
    with wdspec.loader(options.spec, split="train", num_workers=options.workers) as loader:
        trainer = LoggingTrainer(options.keys, model=DigitsModel(), args=arguments, train_dataset=loader)
        trainer.train(resume_from_checkpoint=newest_checkpoint(options.checkpoints))


if __name__ == "__main__":
    main()
