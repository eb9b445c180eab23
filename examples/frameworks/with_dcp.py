"""Train with `torch.distributed.checkpoint`: every rank saves its own part, of the model and of the data.

    torchrun --nproc-per-node 4 examples/frameworks/with_dcp.py --checkpoints runs/c

Start it again, with any number of processes, to resume from the newest checkpoint in the folder. The loader is
saved directly, with one entry per canonical rank, so each rank finds its part whatever the number of ranks was.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402
from examples.frameworks.shared import StepLog  # noqa: E402
from examples.train import classifier, report  # noqa: E402


class Training:
    """Model, optimizer and step, for `torch.distributed.checkpoint`, which saves loaders without help."""

    def __init__(self) -> None:
        self.model = DistributedDataParallel(classifier())
        self.optimizer = torch.optim.Adam(self.model.parameters(), 3e-3)
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        set_state_dict(self.model, self.optimizer, **parts)
        self.step = state["step"]


def save(folder: Path, step: int, parts: dict[str, Any]) -> None:
    """Save a checkpoint as `<folder>/<step>`, a name that only complete ones have, and delete the others."""
    part = folder / "part"
    if dist.get_rank() == 0:
        shutil.rmtree(part, ignore_errors=True)
    dist.barrier()
    dcp.save(parts, checkpoint_id=part)
    if dist.get_rank() == 0:
        older = saved_checkpoints(folder)
        os.replace(part, folder / f"{step:08d}")
        for checkpoint in older:
            shutil.rmtree(checkpoint)


def saved_checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints, oldest first."""
    return sorted(path for path in folder.glob("*") if path.name.isdigit())


def train(
    spec: str, checkpoints: Path, every: int, epochs: int, keys: Path | None, workers: int | None
) -> None:
    """Train from the newest checkpoint, if there is one, to the end of the epochs."""
    training, log = Training(), StepLog(keys, dist.get_rank())
    with wdspec.loader(spec, split="train", num_workers=workers) as loader:
        parts = {"training": training, "data": loader}
        if found := saved_checkpoints(checkpoints):
            dcp.load(parts, checkpoint_id=found[-1])
            report(f"resuming from step {training.step}")
        dist.barrier()  # no rank may delete the checkpoint while another reads it

        end = epochs * len(loader)
        while training.step < end:
            for batch in loader:  # the rest of the epoch
                loss = cross_entropy(training.model(batch["image"]), batch["label"])
                training.optimizer.zero_grad()
                loss.backward()
                training.optimizer.step()
                log.write(training.step, batch)
                training.step += 1
                if training.step % every == 0 or training.step == end:
                    save(checkpoints, training.step, parts)
        report(f"done after step {training.step}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/elastic.yaml"))
    parser.add_argument("--checkpoints", type=Path, required=True, help="a folder that all nodes see")
    parser.add_argument("--every", type=int, default=10, help="steps from checkpoint to checkpoint")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, help="of each process (default: what the spec says)")
    parser.add_argument("--keys", type=Path, help="a folder for the keys of every step, to compare runs")
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        train(**vars(options))
    finally:
        dist.destroy_process_group()
        time.sleep(0.2)  # gloo's threads drop their last tensors, which they cannot do while Python exits


if __name__ == "__main__":
    main()
