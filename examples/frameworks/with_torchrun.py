"""Train under torchrun; a job that was killed, stopped or resized resumes exactly.

    torchrun --nproc-per-node 2 examples/frameworks/with_torchrun.py --checkpoint run.pt

Start it again, with any number of processes, to resume from run.pt, which holds model, optimizer and the state of the
data of all ranks. It is written every --every steps and on SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402
from examples.frameworks.shared import StepLog  # noqa: E402
from examples.train import classifier, report  # noqa: E402


class Terminated:
    """Remembers a SIGTERM, so that the loop can end between two steps."""

    def __init__(self) -> None:
        self.here = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, *_: Any) -> None:
        self.here = True

    def anywhere(self) -> bool:
        """Whether any rank received a SIGTERM: signals arrive in different steps, but all must save after the same."""
        vote = torch.tensor(int(self.here))
        dist.all_reduce(vote, dist.ReduceOp.MAX)
        return bool(vote)


def write_whole(path: Path, parts: dict[str, Any]) -> None:
    """Write a checkpoint atomically: `path` is always complete, the old one or the new one."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        torch.save(parts, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def train(
    spec: str, checkpoint: Path, every: int, epochs: int, keys: Path | None, workers: int | None
) -> None:
    """Train from the checkpoint, if there is one, to the end of the epochs or to a SIGTERM."""
    terminated = Terminated()
    model = DistributedDataParallel(classifier())
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    log = StepLog(keys, dist.get_rank())
    with wdspec.loader(spec, split="train", num_workers=workers) as loader:
        step, end = 0, epochs * len(loader)
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["data"])  # takes this rank's part
            step = saved["step"]
            report(f"resuming from step {step}")

        while step < end:
            for batch in loader:  # the rest of the epoch
                loss = cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                log.write(step, batch)
                step += 1

                stop = terminated.anywhere()
                if stop or step % every == 0 or step == end:
                    parts = {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "data": wdspec.gather_state(loader),  # on all ranks, for all ranks
                        "step": step,
                    }
                    if dist.get_rank() == 0:
                        write_whole(checkpoint, parts)
                if stop:
                    report(f"stopped after step {step}")
                    return
        report(f"done after step {step}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/elastic.yaml"))
    parser.add_argument("--checkpoint", type=Path, required=True, help="a file that all nodes see")
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
