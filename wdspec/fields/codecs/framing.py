"""`resize`, `center_crop`, `random_resized_crop`, `bucket`: choosing a part of an image, and its size.

The arithmetic is that of torchvision (transforms.v2). `random_resized_crop` draws from the random numbers of the
sample, which are the same for all of its images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image

from wdspec.base.errors import UsageError
from wdspec.fields.codecs.resizing import Fit
from wdspec.fields.scale import Numbers
from wdspec.spec.language.decoder_options import Sides, option_values

_FIRST = 8
"""The first number of a sample for crops; the numbers before are for `scale` and clips."""
_TRIES = 10
_FILTERS = {
    name.lower(): Image.Resampling[name] for name in ("NEAREST", "BILINEAR", "BICUBIC", "LANCZOS", "BOX")
}

Size = tuple[int, int]
"""Width and height."""


@dataclass(frozen=True)
class Framing:
    """The options of an image decoder for size and part."""

    resize: Sides | None = None
    center_crop: Sides | None = None
    random_resized_crop: Sides | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    """The share of the area of the image that `random_resized_crop` takes."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """The ratio of width to height of this part."""
    interpolation: str = "bilinear"
    antialias: bool = True
    resizer: str = "torch"
    bucket: Sides | None = None
    """A size whose area no bucket exceeds."""
    step: int = 64
    """The sides of buckets are multiples of it."""

    @classmethod
    def of(cls, decoder: str) -> Framing | None:
        """Return the options in the name of a decoder; None if there are none."""
        options = {
            option: value
            for option, value in option_values(decoder).items()
            if option in cls.__dataclass_fields__
        }
        return cls(**options) if options else None

    @property
    def is_fixed(self) -> bool:
        """Whether all images get the same size."""
        return isinstance(self.resize, tuple) or bool(self.center_crop or self.random_resized_crop)

    def fits(self, size: Size, numbers: Numbers | None) -> list[Fit]:
        """Return the steps for an image of a size (width, height).

        Raises:
            UsageError: there are no random numbers.
        """
        how = (_FILTERS[self.interpolation], self.antialias, self.resizer)
        if self.random_resized_crop is not None:
            if numbers is None:
                raise UsageError(
                    "`random_resized_crop` needs random numbers, which only samples of a spec have; otherwise use "
                    "`resize` and `center_crop`, or a transform of a library"
                )
            height, width = _both(self.random_resized_crop)
            crop = random_crop(size, self.scale, self.ratio, numbers)
            return [Fit((width, height), crop, None, *how)]
        resized = size if self.resize is None else _resize(size, self.resize)
        sides = self.center_crop
        if self.bucket is not None:
            width, height = self.bucket_of(size)
            scale = max(width / size[0], height / size[1])
            resized = max(width, round(size[0] * scale)), max(height, round(size[1] * scale))
            sides = height, width
        if sides is None:
            return [] if resized == size else [Fit(resized, None, None, *how)]
        crop = central_crop(resized, sides)
        wanted = (crop[2] - crop[0], crop[3] - crop[1])
        inside = crop[0] >= 0 and crop[1] >= 0 and crop[2] <= resized[0] and crop[3] <= resized[1]
        if resized == size:
            return [] if wanted == size else [Fit(wanted, crop)]
        if not inside:
            return [Fit(resized, None, None, *how), Fit(wanted, crop)]
        # Compute only the part of the resized image that is kept.
        across, down = size[0] / resized[0], size[1] / resized[1]
        part = (
            crop[0] * across,
            crop[1] * down,
            min(crop[2] * across, size[0]),
            min(crop[3] * down, size[1]),
        )
        return [Fit(wanted, None, part, *how)]

    def bucket_of(self, size: Size) -> Size:
        """Return (width, height) of the bucket whose aspect ratio is nearest to that of an image."""
        assert self.bucket is not None, "the decoder has buckets"
        height, width = _both(self.bucket)
        ratio = self.ratio if self.ratio != Framing.ratio else (0.5, 2.0)
        return nearest_bucket(size[0] / size[1], list_buckets(width * height, self.step, ratio))


@lru_cache(maxsize=64)
def list_buckets(area: int, step: int, ratio: tuple[float, float]) -> tuple[Size, ...]:
    """Return all buckets (width, height): for each width the largest height within the area, and the reverse.

    These are the buckets of NovelAI's aspect ratio bucketing, as trainers of diffusion models use them.

    Args:
        area: the most pixels of a bucket.
        step: sides are multiples of it.
        ratio: the least and largest ratio of width to height.
    """
    found = set()
    for long in range(step, int(math.sqrt(area * max(ratio[1], 1 / ratio[0]))) + step, step):
        short = area // long // step * step
        found |= {(long, short), (short, long)} if short else set()
    kept = [size for size in found if ratio[0] <= size[0] / size[1] <= ratio[1]]
    largest: dict[float, Size] = {}
    for size in sorted(kept):
        largest[size[0] / size[1]] = size
    return tuple(sorted(largest.values()))


@lru_cache(maxsize=65536)
def nearest_bucket(aspect: float, buckets: tuple[Size, ...]) -> Size:
    """Return the bucket whose aspect ratio is nearest, by the ratio of the two; of equal ones the narrower."""
    return min(buckets, key=lambda size: abs(math.log(size[0] / size[1] / aspect)))


def random_crop(
    size: Size, scale: tuple[float, float], ratio: tuple[float, float], numbers: Numbers
) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom as torchvision's `RandomResizedCrop`, for an image of a size (width, height)."""
    wide, high = size
    low, top = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(_TRIES):
        first = _FIRST + 4 * attempt
        area = wide * high * (scale[0] + numbers(first) * (scale[1] - scale[0]))
        aspect = math.exp(low + numbers(first + 1) * (top - low))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < width <= wide and 0 < height <= high:
            above = int(numbers(first + 2) * (high - height + 1))
            left = int(numbers(first + 3) * (wide - width + 1))
            return left, above, left + width, above + height
    width, height = wide, high
    if wide / high < ratio[0]:
        height = max(1, round(wide / ratio[0]))
    elif wide / high > ratio[1]:
        width = max(1, round(high * ratio[1]))
    left, above = (wide - width) // 2, (high - height) // 2
    return left, above, left + width, above + height


def central_crop(size: Size, sides: Sides) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom as torchvision's `CenterCrop`; outside the image if that is smaller."""
    height, width = _both(sides)
    left, top = (_margin(have, want) for have, want in zip(size, (width, height), strict=True))
    return left, top, left + width, top + height


def _margin(have: int, want: int) -> int:
    return -((want - have) // 2) if have < want else round((have - want) / 2)


def _resize(size: Size, sides: Sides) -> Size:
    """Return width and height as torchvision's `Resize`: a single size is that of the shorter side."""
    if not isinstance(sides, int):
        return sides[1], sides[0]
    short, long = sorted(size)
    longer = max(1, int(sides * long / short))
    return (sides, longer) if size[0] <= size[1] else (longer, sides)


def _both(sides: Sides) -> tuple[int, int]:
    """Return height and width of a crop."""
    return (sides, sides) if isinstance(sides, int) else sides
