"""Options of decoders: `rgb8+random_resized_crop=224`, `video+clip=2s`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

MOST_SIDE = 8192
"""The longest side that images can be resized to, in pixels."""
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box")
RESIZERS = ("torch", "pillow")
DEVICES = ("cuda", "cpu")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:/[0-9]+(?:\.[0-9]+)?)?"

Sides = int | tuple[int, int]
"""One side, or (height, width)."""


def _bad(text: str, wanted: str) -> NoReturn:
    raise ValueError(f"{text!r} is not {wanted}")


def _sides(text: str) -> Sides:
    """`224`, or `240x320`: height and width."""
    wanted = f"a side such as `224`, or height and width such as `240x320`, of 1 to {MOST_SIDE} pixels"
    if not re.fullmatch(r"[0-9]{1,6}(x[0-9]{1,6})?", text):
        _bad(text, wanted)
    sides = tuple(map(int, text.split("x")))
    if not all(1 <= side <= MOST_SIDE for side in sides):
        _bad(text, wanted)
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _number(text: str) -> float:
    above, _, below = text.partition("/")
    return float(above) / float(below or 1) if float(below or 1) else 0.0


def _range(text: str) -> tuple[float, float]:
    """`0.35..1` or `3/4..4/3`."""
    wanted = "a range above 0 such as `0.35..1` or `3/4..4/3`"
    found = re.fullmatch(rf"({_NUMBER})\.\.({_NUMBER})", text)
    if not found:
        _bad(text, wanted)
    low, high = _number(found[1]), _number(found[2])
    return (low, high) if 0 < low <= high else _bad(text, wanted)


def _part(text: str) -> tuple[float, float]:
    """A range of fractions."""
    low, high = _range(text)
    return (low, high) if high <= 1 else _bad(text, "a range of parts of the image, such as `0.35..1`")


def _count(text: str) -> int:
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,5}", text) else _bad(text, "a number such as `8`")


def _rate(text: str) -> float:
    number = _number(text) if re.fullmatch(_NUMBER, text) else 0
    return number if 0 < number <= 1000 else _bad(text, "frames a second, such as `2` or `0.5`")


def _seconds(text: str) -> float:
    found = re.fullmatch(rf"({_NUMBER})s?", text)
    number = _number(found[1]) if found else 0
    return number if 0 < number < 1e6 else _bad(text, "a length such as `2s`")


def _hertz(text: str) -> int:
    wanted = "a sample rate in Hz, such as `16000`"
    return int(text) if re.fullmatch(r"[1-9][0-9]{2,6}", text) else _bad(text, wanted)


def read_span(text: str, wanted: str) -> tuple[float, float]:
    """Read `-6..6`, or `3` for 3 to 3. Raises ValueError with what is wanted."""
    number = r"-?[0-9]+(?:\.[0-9]+)?"
    found = re.fullmatch(rf"({number})(?:\.\.({number}))?", text)
    if not found:
        _bad(text, wanted)
    low = float(found[1])
    high = low if found[2] is None else float(found[2])
    return (low, high) if low <= high else _bad(text, f"{wanted}; the smaller number comes first")


def _speed(text: str) -> tuple[float, float]:
    wanted = "a range of factors from 0.1 to 10, such as `0.9..1.1`, or one"
    low, high = read_span(text, wanted)
    return (low, high) if low >= 0.1 and high <= 10 else _bad(text, wanted)


def _decibels(text: str) -> tuple[float, float]:
    wanted = "a range of decibels from -100 to 100, such as `-6..6`, or one"
    low, high = read_span(text, wanted)
    return (low, high) if low >= -100 and high <= 100 else _bad(text, wanted)


def _one_of(*names: str) -> Callable[[str], str]:
    return lambda text: text if text in names else _bad(text, f"one of {', '.join(names)}")


def _boolean(text: str) -> bool:
    return text == "true" if text in ("true", "false") else _bad(text, "`true` or `false`")


def _probability(text: str) -> float:
    number = _number(text) if re.fullmatch(_NUMBER, text) else 0
    return number if 0 < number <= 1 else _bad(text, "a probability such as `0.5`")


def _factors(text: str) -> tuple[float, float]:
    """`0.4` for 0.6 to 1.4, or a range."""
    wanted = "how far a factor may be from 1, such as `0.4`, or its range, such as `0.6..1.4`"
    if ".." in text:
        return _range(text)
    if not re.fullmatch(_NUMBER, text) or not _number(text):
        _bad(text, wanted)
    return max(0.0, 1 - _number(text)), 1 + _number(text)


def _turns(text: str) -> tuple[float, float]:
    """`0.1` for -0.1 to 0.1 of a turn."""
    number = _number(text) if re.fullmatch(_NUMBER, text) else 0
    return (-number, number) if 0 < number <= 0.5 else _bad(text, "a part of a turn up to 0.5, such as `0.1`")


def _normalization(text: str) -> Normalization:
    """`imagenet`, or means and deviations: `0.5..0.5`, `0.5/0.4/0.3..0.2/0.2/0.1`."""
    if text in NORMALIZATIONS:
        return NORMALIZATIONS[text]
    number = r"[0-9]+(?:\.[0-9]+)?"
    parts = f"{number}(?:/{number}/{number})?"
    wanted = f"{', '.join(f'`{name}`' for name in NORMALIZATIONS)}, or means and deviations: `0.5/0.5/0.5..0.2/0.2/0.2`"
    found = re.fullmatch(rf"({parts})\.\.({parts})", text)
    if not found:
        _bad(text, wanted)
    means, deviations = (tuple(map(float, part.split("/"))) for part in found.groups())
    return (
        (means, deviations) if min(deviations) > 0 and len(means) == len(deviations) else _bad(text, wanted)
    )


Normalization = tuple[tuple[float, ...], tuple[float, ...]]
"""Means, and the deviations to divide by, for each channel or for all."""
NORMALIZATIONS: Mapping[str, Normalization] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}

FRAMING: Mapping[str, Callable[[str], Any]] = {
    "resize": _sides,
    "center_crop": _sides,
    "random_resized_crop": _sides,
    "scale": _part,
    "ratio": _range,
    "interpolation": _one_of(*INTERPOLATIONS),
    "antialias": _boolean,
    "resizer": _one_of(*RESIZERS),
    "bucket": _sides,
    "step": _count,
}
"""Options that resize images, with the functions that read their values; all but the last three are torchvision's."""
REDUCING: Mapping[str, Callable[[str], Any]] = {"dct_scaling": _boolean}
"""Whether JPEGs are decoded at a smaller size if they will be resized."""
COLORING: Mapping[str, Callable[[str], Any]] = {
    "brightness": _factors,
    "contrast": _factors,
    "saturation": _factors,
    "hue": _turns,
}
"""Options that change colours, which are torchvision's."""
FINISHING: Mapping[str, Callable[[str], Any]] = {
    "hflip": _probability,
    **COLORING,
    "normalize": _normalization,
    "device": _one_of(*DEVICES),
}
"""What happens to images after they are resized."""
CLIPPING: Mapping[str, Callable[[str], Any]] = {"frames": _count, "fps": _rate, "clip": _seconds}
"""Which frames of a video are taken."""
SOUNDING: Mapping[str, Callable[[str], Any]] = {"rate": _hertz, "speed": _speed, "gain": _decibels}
"""What happens to audio, besides `mono` and `clip`."""
VALUED = {**FRAMING, **REDUCING, **FINISHING, **CLIPPING, **SOUNDING}
"""Options that need a value; all others have none."""
GEOMETRY = frozenset(
    {"resize", "center_crop", "random_resized_crop", "scale", "ratio", "bucket", "step", "hflip", "upright"}
)
"""Options that move the pixels of an image, or set where to."""
DRAWING = frozenset({"random_resized_crop", "hflip", *COLORING, "clip", "speed", "gain"})
"""Options with random numbers, which depend on the sample's place in the order."""


def option_values(name: str) -> dict[str, Any]:
    """The values of the options in a decoder's name.

    Raises:
        ValueError: an option has no value, or one that it does not accept, or excludes another option.
    """
    if ":" in name:
        return {}
    base, *options = name.split("+")
    values: dict[str, Any] = {}
    for each in options:
        option, has_value, text = each.partition("=")
        if option in values:
            raise ValueError(f"the option `{option}` is given twice; leave one out")
        if option in VALUED and has_value:
            try:
                values[option] = VALUED[option](text)
            except ValueError as error:
                raise ValueError(f"`{option}`: {error}") from None
        elif has_value:
            raise ValueError(f"the option `{option}` takes no value")
        elif option in VALUED:
            raise ValueError(f"the option `{option}` needs a value: `{option}={_EXAMPLES[option]}`")
    _check_together(values)
    _check_flags(options, values)
    if "device" in values:
        _check_device(base, options, values)
    _check_channels(base, values)
    return values


def show_option(option: str) -> str:
    """An option as it is written, with an example of a value."""
    return f"{option}={_EXAMPLES[option]}" if option in _EXAMPLES else option


_FLOATS = {"rgb": 3, "torchrgb": 3, "torch": 3, "l": 1, "torchl": 1}
"""Decoders of floats without alpha → their channels."""
_GREYS = frozenset({"l8", "l16", "l", "torchl8", "torchl", "pill"})
_EXAMPLES = {
    "resize": "256",
    "center_crop": "224",
    "random_resized_crop": "224",
    "scale": "0.35..1",
    "ratio": "3/4..4/3",
    "interpolation": "bicubic",
    "antialias": "false",
    "resizer": "pillow",
    "bucket": "1024",
    "step": "64",
    "dct_scaling": "false",
    "hflip": "0.5",
    "brightness": "0.4",
    "contrast": "0.4",
    "saturation": "0.4",
    "hue": "0.1",
    "normalize": "imagenet",
    "device": "cuda",
    "frames": "8",
    "fps": "2",
    "clip": "2s",
    "rate": "16000",
    "speed": "0.9..1.1",
    "gain": "-6..6",
}


def _check_flags(options: Sequence[str], values: Mapping[str, Any]) -> None:
    """Refuse options without a value that do not go with those that have one."""
    if "bucket" in values and "upright" in options:
        raise ValueError(
            "`bucket` goes by the size in the header of a file; turn images when you write the shards"
        )
    if "roi_decoding" in options:
        if "random_resized_crop" not in values and ("center_crop" not in values or "resize" in values):
            raise ValueError("`roi_decoding` needs `random_resized_crop`, or `center_crop` without `resize`")
        if "pillow" in options:
            raise ValueError("`pillow` cannot decode a part of an image; remove it, or `roi_decoding`")


def _check_channels(base: str, values: Mapping[str, Any]) -> None:
    """Refuse what the channels of a decoder's images do not have."""
    for option in ("saturation", "hue"):
        if option in values and base in _GREYS:
            raise ValueError(f"`{option}` changes colours, which `{base}` does not have")
    if "normalize" in values:
        channels = _FLOATS.get(base)
        if channels is None or len(values["normalize"][0]) not in (1, channels):
            raise ValueError(
                "`normalize` needs floats with as many channels: `rgb`, `torchrgb`, `l`, `torchl`"
            )


def _check_device(base: str, options: Sequence[str], values: Mapping[str, Any]) -> None:
    """Refuse what is not decoded in the training process."""
    if base not in (*_FLOATS, "l8", "rgb8", "torchl8", "torchrgb8"):
        raise ValueError(
            "`device` needs arrays or tensors of 8 bits or floats, without alpha: `rgb8`, `torchrgb`"
        )
    if not (
        values.keys() & {"random_resized_crop", "center_crop"} or isinstance(values.get("resize"), tuple)
    ):
        raise ValueError("`device` needs images of one size: `random_resized_crop=224`, or `resize=224x224`")
    others = [*COLORING, "upright", "pillow", "roi_decoding", "bucket", "resizer"]
    for option in others:
        if option in values or option in options:
            raise ValueError(f"`device` does not have `{option}`; remove one of them")
    if values.get("interpolation", "bilinear") not in ("bilinear", "bicubic") or not values.get(
        "antialias", True
    ):
        raise ValueError("`device` resizes by bilinear or bicubic, with antialiasing")


_SIZING = (
    ("random_resized_crop", "resize", "center_crop"),
    ("bucket", "resize", "center_crop", "random_resized_crop"),
)
"""Options that set the size of images, each with those that it excludes."""


def _check_together(values: Mapping[str, Any]) -> None:
    """Refuse options with values that exclude each other, or that need another one."""
    for one, *others in _SIZING:
        for other in others if one in values else ():
            if other in values:
                raise ValueError(f"`{one}` and `{other}` both set the size of images")
    if "step" in values and "bucket" not in values:
        raise ValueError("`step` is that of the sides of a `bucket`, which is missing: `bucket=1024+step=64`")
    written = list(values)
    if {"resize", "center_crop"} <= values.keys() and written.index("center_crop") < written.index("resize"):
        raise ValueError(
            "images are resized before they are cropped, not after; write `resize` first, or use "
            "`random_resized_crop`, or a function in `map`"
        )
    for option in ("scale", "ratio"):
        has_bucket = option == "ratio" and "bucket" in values
        if option in values and "random_resized_crop" not in values and not has_bucket:
            raise ValueError(
                f"`{option}` needs `random_resized_crop=224`; to rescale images, use the key `scale:`"
            )
    for option in ("interpolation", "antialias"):
        if option in values and not {"random_resized_crop", "resize", "bucket"} & values.keys():
            raise ValueError(f"`{option}` needs `resize` or `random_resized_crop`")
    if values.get("antialias") is False and values.get("interpolation") in ("lanczos", "box"):
        raise ValueError("`antialias=false` works only with nearest, bilinear and bicubic")
    if "frames" in values and "fps" in values:
        raise ValueError("`frames` and `fps` both set the number of frames; leave one out")
