"""The data of `python -m benchmarks`: texts, photographs, small arrays, sound, the same bytes each time."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.material import Fields, brace_pattern, facts, write_shards

FAR = "WDSPEC_BENCHMARK_FAR"
"""Environment variable: where shards are read from, if not from the folder."""
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
    """Crops of the photographs in scikit-learn, enlarged, as JPEGs of `width` x `height` pixels."""

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


class Sounds:
    """2 s of harmonics and noise, at 16 kHz, as flac."""

    def __init__(self, count: int) -> None:
        import numpy as np
        import soundfile

        times = np.arange(32_000) / 16_000
        self._files = []
        for number in range(count):
            rng = np.random.default_rng(number)
            tones = sum(np.sin(2 * np.pi * 110 * n * times + number) / n for n in range(1, 9))
            file = io.BytesIO()
            soundfile.write(file, 0.1 * tones + 0.01 * rng.standard_normal(32_000), 16_000, format="FLAC")
            self._files.append(file.getvalue())

    def __call__(self, rng: random.Random, index: int) -> Fields:
        return {"flac": rng.choice(self._files), "json": facts(index)}


class Collection(NamedTuple):
    """Shards of one kind of sample."""

    make: Callable[[int], Callable[[random.Random, int], Fields]]
    """How its samples are made; repeated from a smaller number if each takes long."""
    megabytes: float
    shards: int


COLLECTIONS = {
    "text": Collection(lambda count: text, 60, 12),
    "text-b": Collection(lambda count: text, 30, 6),
    "text-c": Collection(lambda count: text, 20, 4),
    "jpg40": Collection(lambda count: Photographs(500, 375, 85, count), 120, 24),
    "jpg400": Collection(lambda count: Photographs(1920, 1280, 90, count), 200, 10),
    "npy16": Collection(lambda count: arrays, 60, 12),
    "audio": Collection(Sounds, 40, 8),
}


def collections_of(data: str, kind: str) -> list[str]:
    """Those that a row reads."""
    return ["text", "text-b", "text-c"] if kind == "mix" else [data]


def make_data(folder: Path, size: float, names: Iterable[str]) -> None:
    """Write the collections that are missing; `size` is 1 for the table."""
    for name in names:
        if (folder / f"{name}.json").exists():
            continue
        make, megabytes, shards = COLLECTIONS[name]
        samples = write_shards(folder, name, make(24 if size >= 1 else 2), megabytes * size, shards)
        (folder / f"{name}.json").write_text(json.dumps(samples), encoding="utf-8")


def samples_in(folder: Path, name: str) -> int:
    """How many samples a collection has."""
    return int(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))


def repeated(folder: Path, name: str, times: int, *, of: str = "") -> Path:
    """A folder that has the shards of a collection `times` times, as links."""
    if times == 1 and not of:
        return folder
    made = folder / f"{name}-{times}-{of or 'times'}"
    if not made.exists():
        made.mkdir()
        files = [Path(path) for path in files_of(folder, name)]
        for number, path in enumerate(files * times):
            os.link(path, made / f"{name}-{number:06}.tar")
    return made


def shards_of(folder: Path, name: str, times: int = 1) -> str:
    """The URLs of a collection, as a brace pattern."""
    return brace_pattern(os.environ.get(FAR, folder), name, COLLECTIONS[name].shards * times)


def files_of(folder: Path, name: str) -> list[str]:
    """Its files one by one."""
    return [str(folder / f"{name}-{number:06}.tar") for number in range(COLLECTIONS[name].shards)]
