"""Train with Hugging Face Accelerate; its states include the position of the data, so a killed job resumes exactly.

    accelerate launch --multi_gpu --num_processes 2 examples/frameworks/with_accelerate.py --checkpoints runs/b

Start it again, with any number of processes, to resume from the newest state in the folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402
from examples.frameworks.shared import StepLog  # noqa: E402
from examples.train import classifier  # noqa: E402
from wdspec.integrations.loaders import WholeJob  # noqa: E402


def save(accelerator: Accelerator, folder: Path, step: int) -> None:
    """Save a state as `<folder>/<step>`, a name that only complete states have, and delete the others."""
    part = folder / "part"
    if accelerator.is_main_process:
        shutil.rmtree(part, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(part))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        older = saved_states(folder)
        os.replace(part, folder / f"{step:08d}")
        for state in older:
            shutil.rmtree(state)


def saved_states(folder: Path) -> list[Path]:
    """The complete states, oldest first."""
    return sorted(path for path in folder.glob("*") if path.name.isdigit())


def train(
    spec: str, checkpoints: Path, every: int, epochs: int, keys: Path | None, workers: int | None
) -> None:
    """Train from the newest state, if there is one, to the end of the epochs."""
    accelerator = Accelerator(cpu=True)
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    log = StepLog(keys, accelerator.process_index)
    # Do not `prepare` it: the loader knows its rank, and gives each rank its part of every batch.
    with wdspec.loader(
        spec,
        split="train",
        num_workers=workers,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
    ) as loader:
        accelerator.register_for_checkpointing(WholeJob(loader))
        step, end = 0, epochs * len(loader)
        if found := saved_states(checkpoints):
            accelerator.load_state(str(found[-1]))
            step = int(found[-1].name)
            accelerator.print(f"resuming from step {step}")

        while step < end:
            for batch in loader:  # the rest of the epoch
                images, labels = (batch[name].to(accelerator.device) for name in ("image", "label"))
                loss = cross_entropy(model(images), labels)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                log.write(step, batch)
                step += 1
                if step % every == 0 or step == end:
                    save(accelerator, checkpoints, step)
        accelerator.print(f"done after step {step}")
    accelerator.end_training()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/elastic.yaml"))
    parser.add_argument("--checkpoints", type=Path, required=True, help="a folder that all nodes see")
    parser.add_argument("--every", type=int, default=10, help="steps from state to state")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, help="of each process (default: what the spec says)")
    parser.add_argument("--keys", type=Path, help="a folder for the keys of every step, to compare runs")
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    train(**vars(options))


if __name__ == "__main__":
    main()
