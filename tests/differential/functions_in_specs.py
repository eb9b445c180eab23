"""Functions that the observed specs name, as `sample_functions`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

import wdspec

Sample = dict[str, Any]


def most(sample: Sample) -> bool:
    """Keep four fifths of the samples."""
    return sum(sample["__key__"].encode()) % 5 != 0


def few(sample: Sample) -> bool:
    """Keep a fifth of the samples."""
    return sum(sample["__key__"].encode()) % 5 == 0


def coin(sample: Sample) -> bool:
    """Keep half of the samples, at random."""
    return bool(wdspec.sample_rng(sample, "coin").random() < 0.5)


def jitter(sample: Sample) -> Sample:
    """Add a random number."""
    return {**sample, "noise": wdspec.sample_rng(sample).random()}


def named_draws(sample: Sample) -> Sample:
    """Add numbers from several streams."""
    drawn = [wdspec.sample_rng(sample, name).random() for name in ("", "crop", "flip")]
    return {**sample, "draws": np.array(drawn)}


def global_draws(sample: Sample) -> Sample:
    """Add numbers from the global generators."""
    drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
    return {**sample, "globals": np.array(drawn)}


def lengthen(value: list[int], by: int = 1) -> list[int]:
    """Return a longer list."""
    return [*value, *range(by)]


class Adder:
    """Adds a number to `cls`."""

    def __init__(self, n: int = 1) -> None:
        self.n = n

    def __call__(self, sample: Sample) -> Sample:
        if sample.get("cls") is None:
            return sample
        return {**sample, "cls": sample["cls"] + self.n}


def fails_on_some(sample: Sample) -> Sample:
    """Fail for one sample in ten."""
    if sample["__key__"].endswith("3"):
        raise ValueError("a key that ends in 3")
    return sample


def refuses_some(data: bytes) -> str:
    """Decode text, and refuse some."""
    if b"2" in data:
        raise wdspec.FieldError("there is a 2 in it")
    return data.decode()


def backwards(samples: Any) -> Any:
    """Reverse the samples."""
    yield from reversed(list(samples))


def pairs(samples: Any, size: int = 2) -> Any:
    """Make one sample of several."""
    held: list[Sample] = []
    for sample in samples:
        held.append(sample)
        if len(held) == size:
            yield {**held[0], "keys": " ".join(each["__key__"] for each in held)}
            held = []


def by_chance(samples: Any) -> Any:
    """Drop and repeat samples at random."""
    for sample in samples:
        for drawn in [random.random() for _ in range(random.randrange(3))]:
            yield {**sample, "drawn": drawn}


def joined(values: list[Any]) -> str:
    """Join the values of a field in a batch."""
    return "|".join(map(str, values))


def summed(samples: list[Sample], scale: float = 1.0) -> dict[str, Any]:
    """Collate a whole batch."""
    return {
        "keys": [each["__key__"] for each in samples],
        "total": scale * sum(len(each.get("txt") or "") for each in samples),
        "drawn": float(torch.rand(())),
    }
