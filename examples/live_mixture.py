"""Give larger shares to the sources with the larger loss, while training.

    python examples/live_mixture.py --checkpoint run.pt
    torchrun --nproc-per-node 2 examples/live_mixture.py --checkpoint run.pt

Every --every steps each source gets a share that grows with its mean loss since the last time, over all ranks. The
state of the data includes the shares, so a run resumes exactly, with any number of processes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402
from examples.frameworks.shared import StepLog  # noqa: E402
from examples.train import classifier, report  # noqa: E402


class SourceLosses:
    """The mean loss of each source over all ranks."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = list(sources)
        self.sums = torch.zeros(2, len(self.sources), dtype=torch.float64)

    def add(self, sources: Sequence[str], losses: torch.Tensor) -> None:
        """Add the losses of a batch, one per sample."""
        places = torch.tensor([self.sources.index(source) for source in sources])
        self.sums[0].index_add_(0, places, losses.detach().double())
        self.sums[1].index_add_(0, places, torch.ones(len(places), dtype=torch.float64))

    def means(self) -> dict[str, float]:
        """Return the means over all ranks, the same on each, and start again; a collective call."""
        if dist.is_initialized():
            dist.all_reduce(self.sums)
        total, count = self.sums
        self.sums = torch.zeros_like(self.sums)
        return dict(zip(self.sources, (total / count.clamp(min=1)).tolist(), strict=True))


def shares_by_loss(losses: Mapping[str, float], least: float = 0.5) -> dict[str, float]:
    """A share for each source: `least` is divided equally, so that every source gets some, and the rest by loss."""
    total = sum(losses.values()) or 1.0
    return {name: least / len(losses) + (1 - least) * loss / total for name, loss in losses.items()}


def train(
    spec: str, checkpoint: Path, every: int, steps: int, keys: Path | None, workers: int | None
) -> None:
    """Train from the checkpoint, if there is one, up to `steps` steps in all."""
    bare = classifier()  # the model to save, so that a single process can load it too
    model = DistributedDataParallel(bare) if dist.is_initialized() else bare
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    log = StepLog(keys, dist.get_rank() if dist.is_initialized() else 0)
    with wdspec.loader(spec, split="train", num_workers=workers) as loader:
        losses, step = SourceLosses(list(loader.shares)), 0
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            bare.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["data"])  # with the shares that were set
            step = saved["step"]
        while step < steps:
            for batch in loader:
                each = cross_entropy(model(batch["image"]), batch["label"], reduction="none")
                optimizer.zero_grad()
                each.mean().backward()
                optimizer.step()
                losses.add(batch["__source__"], each)
                log.write(step, batch)
                step += 1
                if step % every == 0:
                    means = losses.means()
                    loader.set_shares(shares_by_loss(means))  # from the next step, the same on all ranks
                    shown = (
                        f"{name} {means[name]:.2f} -> {share:.0%}" for name, share in loader.shares.items()
                    )
                    report(f"step {step}: {', '.join(shown)}")
                    parts = {
                        "model": bare.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "data": wdspec.gather_state(loader),
                        "step": step,
                    }
                    if not dist.is_initialized() or dist.get_rank() == 0:
                        torch.save(parts, f"{checkpoint}.part")
                        os.replace(f"{checkpoint}.part", checkpoint)
                if step == steps:
                    break


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/elastic.yaml"))
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--every", type=int, default=6, help="steps from one change of shares to the next")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--workers", type=int, help="of each process (default: what the spec says)")
    parser.add_argument("--keys", type=Path, help="a folder for the keys of every step, to compare runs")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    distributed = dist.is_torchelastic_launched()
    if distributed:
        dist.init_process_group("gloo")
    try:
        train(**vars(options))
    finally:
        if distributed:
            dist.destroy_process_group()
            time.sleep(0.2)  # gloo's threads drop their last tensors, which they cannot do while Python exits


if __name__ == "__main__":
    main()
