"""The data of `python -m benchmarks`: texts, photographs, small arrays, the same bytes each time."""

from __future__ import annotations

import io
import random
from pathlib import Path

from benchmarks.material import Fields, brace_pattern, facts, write_shards

SHARDS = 8
MEGABYTES = {"text": 60.0, "text-b": 30.0, "text-c": 20.0, "jpg40": 120.0, "jpg400": 200.0, "npy16": 60.0}
_WORDS = (Path(__file__).parents[1] / "docs" / "order.md").read_text(encoding="utf-8").split()
WORDS = [word for word in _WORDS if word.isascii()]


def text(rng: random.Random, index: int) -> Fields:
    """0.7 KB of English and a short json."""
    return {"txt": " ".join(rng.choices(WORDS, k=110)).encode(), "json": facts(index)}


def arrays(rng: random.Random, index: int) -> Fields:
    """16 arrays of 64 floats."""
    import numpy as np

    fields = {}
    for number in range(16):
        file = io.BytesIO()
        np.save(file, np.arange(64, dtype=np.float32) + index + number)
        fields[f"f{number:02}.npy"] = file.getvalue()
    return fields


class Photographs:
    """Cuts of the photographs that scikit-learn ships, enlarged, as JPEGs of about so many pixels a side."""

    def __init__(self, width: int, height: int, quality: int, count: int) -> None:
        from PIL import Image
        from sklearn.datasets import load_sample_images

        images = [Image.fromarray(image) for image in load_sample_images().images]
        rng = random.Random(width)
        self._files = []
        for number in range(count):
            image = images[number % 2]
            left, top = rng.randrange(image.width // 3), rng.randrange(image.height // 3)
            cut = image.crop((left, top, left + image.width * 2 // 3, top + image.height * 2 // 3))
            file = io.BytesIO()
            cut.resize((width, height), Image.Resampling.LANCZOS).save(file, "JPEG", quality=quality)
            self._files.append(file.getvalue())

    def __call__(self, rng: random.Random, index: int) -> Fields:
        return {"jpg": rng.choice(self._files), "cls": str(index % 1000).encode(), "json": facts(index)}


def make_data(folder: Path, size: float) -> None:
    """Writes all collections; `size` is 1 for the table."""
    pictures = 24 if size >= 1 else 2
    kinds = {
        "text": text,
        "text-b": text,
        "text-c": text,
        "jpg40": Photographs(500, 375, 85, pictures),
        "jpg400": Photographs(1920, 1280, 90, pictures),
        "npy16": arrays,
    }
    for name, make in kinds.items():
        write_shards(folder, name, make, MEGABYTES[name] * size, SHARDS)


def shards_of(folder: Path, name: str) -> str:
    """The URLs of a collection, as a brace pattern."""
    return brace_pattern(folder, name, SHARDS)


def files_of(folder: Path, name: str) -> list[str]:
    """The same one by one."""
    return [str(folder / f"{name}-{number:06}.tar") for number in range(SHARDS)]
