"""Train a small classifier on the digits that examples/specs/digits.yaml describes.

    python examples/train.py
    torchrun --nproc-per-node 2 examples/train.py

The spec says what to read, how to mix it, and how long an epoch is; this file has only the model and the loop. With
several processes, each gets its part of every batch, and gradients are averaged (with gloo, so it runs anywhere).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # the spec's `map` names examples.transforms

import wdspec  # noqa: E402


def classifier() -> nn.Module:
    """Three convolutions on 16 x 16 grey pictures, ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def from_every_rank(value: Any) -> list[Any]:
    """Collect the value of every rank, in the order of ranks."""
    if not dist.is_initialized():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def train(model: nn.Module, spec: str, epochs: int, rate: float, workers: dict[str, int]) -> None:
    """Run the epochs of the split `train`; rank 0 reports each."""
    optimizer = torch.optim.Adam(model.parameters(), rate)
    with wdspec.loader(spec, split="train", **workers) as loader:
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * len(loader))
        for epoch in range(epochs):
            start, batches, samples = time.perf_counter(), 0, 0
            for batch in loader:
                loss = cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                batches += 1
                samples += len(batch["label"])
            seconds = time.perf_counter() - start

            counts = from_every_rank(batches)
            assert set(counts) == {len(loader)}, f"batches by rank {counts}, expected {len(loader)}"
            total = sum(from_every_rank(samples))
            report(
                f"epoch {epoch + 1:2d}: {batches} batches on each of {len(counts)} ranks, "
                f"loss {loss.item():.3f}, {total / seconds:,.0f} samples/s"
            )


@torch.no_grad()
def evaluate(model: nn.Module, spec: str, workers: dict[str, int]) -> None:
    """Count right answers on the split `val`, of which each rank sees a part."""
    right, keys = 0, []
    with wdspec.loader(spec, split="val", **workers) as loader:
        for batch in loader:
            right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
            keys += batch["__key__"]
    seen = [key for part in from_every_rank(keys) for key in part]
    assert len(seen) == len(set(seen)), "a held-out picture was counted twice"
    correct = sum(from_every_rank(right))
    report(f"held-out accuracy {correct / len(seen):.1%} ({correct} of {len(seen)})")


def report(line: str) -> None:
    """Print on rank 0 only."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default=str(ROOT / "examples/specs/digits.yaml"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument(
        "--workers", type=int, help="worker processes of each rank (default: what the spec says)"
    )
    options = parser.parse_args()
    workers = {} if options.workers is None else {"num_workers": options.workers}

    torch.manual_seed(0)
    torch.set_num_threads(1)  # a model this small gains nothing from more, and the workers need the cores
    model: nn.Module = classifier()
    distributed = dist.is_torchelastic_launched()
    if distributed:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    try:
        start = time.perf_counter()
        train(model, options.spec, options.epochs, options.rate, workers)
        evaluate(model, options.spec, workers)
        report(f"{time.perf_counter() - start:.1f} s in all")
    finally:
        if distributed:
            dist.destroy_process_group()
            time.sleep(0.2)  # gloo's threads drop their last tensors, which they cannot do while Python exits


if __name__ == "__main__":
    main()
