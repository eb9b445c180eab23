"""Train with Ray Train; its checkpoints include the position of the data, so a killed job resumes exactly.

    python examples/frameworks/with_ray.py --checkpoints runs/e --processes 2

Start it again, with any number of processes, to resume from the newest checkpoint in the folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import ray.train
import torch
import torch.distributed as dist
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402


def train(options: dict[str, Any]) -> None:
    """Train from the checkpoint, if there is one, to the end of the epochs; runs in each of Ray's workers."""
    sys.path.append(str(ROOT))  # Ray's workers are new processes
    os.chdir(options["folder"])
    from examples.frameworks.shared import StepLog
    from examples.train import classifier

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(classifier())
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    checkpoint, log = Path(options["checkpoint"]), StepLog(options["keys"], dist.get_rank())
    with wdspec.loader(options["spec"], split="train", num_workers=options["workers"]) as loader:
        step, end = 0, options["epochs"] * len(loader)
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["data"])  # takes this rank's part
            step = saved["step"]
        dist.barrier()  # rank 0 must not replace the checkpoint while another rank reads it
        while step < end:
            for batch in loader:  # the rest of the epoch
                loss = cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                log.write(step, batch)
                step += 1
                if step % options["every"] == 0 or step == end:
                    parts = {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "data": wdspec.gather_state(loader),  # on all ranks, for all ranks
                        "step": step,
                    }
                    if dist.get_rank() == 0:
                        part = checkpoint.with_name(f"{checkpoint.name}.part")
                        torch.save(parts, part)
                        os.replace(part, checkpoint)
                    ray.train.report({"loss": loss.item(), "step": step})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/elastic.yaml"))
    parser.add_argument("--checkpoints", type=Path, required=True, help="a folder that all nodes see")
    parser.add_argument("--every", type=int, default=10, help="steps from checkpoint to checkpoint")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--workers", type=int, help="of each process (default: what the spec says)")
    parser.add_argument("--keys", type=Path, help="a folder for the keys of every step, to compare runs")
    options = parser.parse_args()

    folder = options.checkpoints.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    config = {**vars(options), "checkpoint": str(folder / "run.pt"), "folder": os.getcwd()}
    trainer = TorchTrainer(
        train,
        train_loop_config=config,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=options.processes),
        run_config=RunConfig(storage_path=str(folder / "ray"), failure_config=FailureConfig(max_failures=3)),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
