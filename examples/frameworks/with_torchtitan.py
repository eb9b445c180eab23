"""Train with torchtitan's components; checkpoints include the position of the data, so a killed job resumes exactly.

    torchrun --nproc-per-node 2 examples/frameworks/with_torchtitan.py --checkpoints runs/f

Start it again, with any number of processes, to resume from the newest checkpoint in the folder. torchtitan's Trainer
needs GPUs, so this builds the data loader, the optimizer and the checkpoints as the Trainer does, and has its own loop.
With the Trainer, set `dataloader=SpecDataLoader.Config(spec=…)` in its config.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.optimizer import (
    LRSchedulersContainer,
    OptimizersContainer,
    ParamGroupConfig,
)

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

from examples.frameworks.shared import StepLog  # noqa: E402
from examples.train import classifier, report  # noqa: E402
from wdspec.integrations.torchtitan import SpecDataLoader  # noqa: E402


class TrainState:
    """What torchtitan's Trainer saves of itself: the step."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = int(state["step"])


def average_gradients(model: nn.Module) -> None:
    """Average the gradients over all ranks; torchtitan uses FSDP."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def train(
    spec: str, checkpoints: Path, every: int, steps: int, keys: Path | None, workers: int | None
) -> None:
    """Train from the newest checkpoint, if there is one, to the last step."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model, state, log = classifier(), TrainState(), StepLog(keys, rank)
    adam = ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 3e-3})
    optimizers = OptimizersContainer.Config(param_groups=[adam]).build(model_parts=[model])
    schedule = LRSchedulersContainer.Config(warmup_steps=2)
    dataloader = SpecDataLoader.Config(
        spec=f"{spec}#train", num_workers=workers, input="image", labels="label", others=("__key__",)
    ).build(dp_world_size=ranks, dp_rank=rank)
    checkpointer = CheckpointManager.Config(enable=True, folder=str(checkpoints), interval=every).build(
        dataloader=dataloader,
        model_parts=[model],
        optimizers=optimizers,
        lr_schedulers=(schedulers := schedule.build(optimizers=optimizers, training_steps=steps)),
        states={"train_state": state},
        sd_adapter=None,
    )
    if checkpointer.load(step=-1):
        report(f"resuming from step {state.step}")
    batches = iter(dataloader)
    while state.step < steps:
        inputs, labels = next(batches)
        loss = cross_entropy(model(inputs["input"]), labels)
        optimizers.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizers.step()
        schedulers.step()
        log.write(state.step, inputs)
        state.step += 1
        checkpointer.save(state.step, last_step=state.step == steps)
    report(f"done after step {state.step}")
    checkpointer.close()
    dataloader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/elastic.yaml"))
    parser.add_argument("--checkpoints", type=Path, required=True, help="a folder that all nodes see")
    parser.add_argument("--every", type=int, default=10, help="steps from checkpoint to checkpoint")
    parser.add_argument("--steps", type=int, default=50)
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


if __name__ == "__main__":
    main()
