"""A model that `map_batches` of examples/specs/score.yaml names: it scores images, many at a time.

wdspec process examples/specs/score.yaml --output scores
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from examples.train import classifier

Sample = dict[str, Any]


class Score:
    """Adds the most likely class of grey 16 x 16 images, and its probability, as `score.json`.

    wdspec creates one in each process, and calls it with lists of samples.

    Args:
        weights: a file with the weights of the classifier; without one, they are random.
        least: drop images whose probability is below this.
    """

    def __init__(self, weights: str | None = None, least: float = 0.0) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = classifier().to(self.device).eval()
        if weights is not None:
            self.model.load_state_dict(torch.load(weights, map_location=self.device, weights_only=True))
        self.least = least

    @torch.inference_mode()
    def __call__(self, samples: list[Sample]) -> list[Sample | None]:
        images = torch.from_numpy(np.stack([sample["png"] for sample in samples]))
        logits = self.model(images[:, None].to(self.device).float() / 255)
        found = zip(samples, *(each.tolist() for each in logits.softmax(1).max(1)), strict=True)
        return [
            {**sample, "score.json": {"class": number, "probability": probability}}
            if probability >= self.least
            else None
            for sample, probability, number in found
        ]
