"""The `bucket_config` of Open-Sora: resolution → number of frames → (probability to keep a sample, batch size)."""

from __future__ import annotations

import ast
import re
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number
from wdspec.convert.python_code import Code, keyword, name_of, parse_code

_SIDES = {
    "144p": (256, 144),
    "240p": (426, 240),
    "360p": (640, 360),
    "480p": (854, 480),
    "720p": (1280, 720),
    "1080p": (1920, 1080),
}
_STEP = 16


def _parse(given: Given) -> Code | None:
    return parse_code(given.text, "bucket_config")


def _buckets(code: Code | None) -> dict[str, dict[int, Any]]:
    """Return resolution → number of frames → (probability, size), without those that keep nothing."""
    found = None if code is None else code.literal(code.assigned.get("bucket_config"))
    if not isinstance(found, dict):
        return {}
    return {
        str(name): {int(count): pair for count, pair in frames.items() if _keeps(pair)}
        for name, frames in found.items()
        if isinstance(frames, dict) and all(isinstance(count, int) for count in frames)
    }


def _keeps(pair: Any) -> bool:
    """Whether a bucket has a batch size, and a probability above 0."""
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[1], int):
        return False
    chance = pair[0][0] if isinstance(pair[0], (list, tuple)) and pair[0] else pair[0]
    return bool(number(chance)) and pair[1] > 0


def _convert(given: Given, new: NewSpec) -> None:
    code = _parse(given)
    assert code is not None, "it is recognised by its buckets"
    buckets = _buckets(code)
    images = [(name, *frames[1]) for name, frames in buckets.items() if 1 in frames]
    videos = [(count, pair[1]) for frames in buckets.values() for count, pair in frames.items() if count > 1]
    new.set_seed(code.literal(code.assigned.get("seed")))
    if (workers := number(code.literal(code.assigned.get("num_workers")))) is not None:
        new.spec["loader"] = {"workers": int(workers)}
    place = None
    if isinstance(dataset := code.assigned.get("dataset"), ast.Call) and name_of(dataset) == "dict":
        place = code.literal(keyword(dataset, "data_path"))
    new.note(
        f"the data is {f'`{place}`, ' if place else ''}a table of paths, given to the program as `--data-path`: write "
        "images with `wdspec create`, and correct `shards`"
    )
    new.spec["dataset"] = [new.source("images" if images else "videos", "unknown.tar")]
    if images:
        _convert_images(images, new)
    if videos:
        counts = sorted({count for count, _ in videos})
        frames = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        new.note(
            f"buckets of videos of {frames} frames are not converted: choose a number of frames by the decoder, and "
            "`batch: {size: …}` for it"
        )
        if not images:
            new.spec["batch"] = int(videos[0][1])
    if "_base_" in code.assigned:
        new.note("the files that `_base_` names are not read")


def _convert_images(images: list[tuple[str, Any, int]], new: NewSpec) -> None:
    """Convert the buckets of images: the resolution, the probability to keep a sample, and the batch size of each."""
    (name, chance, size), *others = images
    new.spec["defaults"] = {
        "rename": {"image": "jpg;jpeg;png;webp"},
        "decode": {"image": f"rgb8+bucket={_bucket(name)}+step={_STEP}"},
    }
    new.spec["batch"] = {"size": size, "group_by": "image.bucket"}
    if chance != 1:
        new.note(f"images of `{name}` were kept with probability {chance}: write `subset: {{part: …}}`")
    for other, _, count in others:
        new.note(
            f"images of `{other}` are not converted: write another source, with `bucket={_bucket(other)}`, and "
            f"`where` to choose large images; its batches had {count} images"
        )


def _bucket(name: str) -> str:
    """Return the option of a decoder for a resolution: `256px` is 256, and `360p` 640x360."""
    width, height = _SIDES.get(name, (0, 0))
    side = re.match(r"\d+", name)
    return f"{width}x{height}" if width else side[0] if side else "256"


DIALECT = Dialect(
    "opensora",
    "a `bucket_config` of Open-Sora",
    lambda given: any(_buckets(_parse(given)).values()),
    _convert,
)
