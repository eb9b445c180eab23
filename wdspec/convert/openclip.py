"""OpenCLIP's and DataComp's command lines: `--train-data 'a::b' --train-data-upsampling-factors 1::10`."""

from __future__ import annotations

import re
import shlex
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number

_BARE = re.compile(r"[^\s:]\S*\.tar(?:\.\w+)?\S*", re.DOTALL)


def _recognises(given: Given) -> bool:
    is_text = given.value is None or isinstance(given.value, str)  # not JSON without blanks
    return "--train-data" in given.text or (is_text and bool(_BARE.fullmatch(given.text.strip())))


def _convert(given: Given, new: NewSpec) -> None:
    options, spec = _options(given.text), new.spec
    texts = (options.get("train-data") or given.text.strip()).split("::")
    factors = [number(each) for each in options.get("train-data-upsampling-factors", "").split("::") if each]
    if factors and len(factors) != len(texts):
        new.note(
            f"there are {len(texts)} sources, but {len(factors)} upsampling factors; none is used, write `upsample` "
            "yourself"
        )
        factors = []
    order = "resampled" if "dataset-resampled" in options else None
    train: dict[str, Any] = {
        "dataset": [
            new.source("", new.path(text), upsample=factor, order=order)
            for text, factor in zip(texts, factors or [None] * len(texts), strict=True)
        ]
    }
    if (seed := new.whole(options, "seed")) is not None:
        spec["seed"] = seed
    spec["defaults"] = {"rename": {"image": "jpg;png;jpeg;webp", "text": "txt"}, "missing": "skip"}
    new.note(
        "the preprocessing of images and texts in OpenCLIP is not converted: add it as `decode` and `map`"
    )
    if size := new.whole(options, "batch-size", 1):
        spec["batch"] = size
    if samples := new.whole(options, "train-num-samples", 1):
        train["epoch"] = {"samples": samples}
    if (workers := new.whole(options, "workers")) is not None:
        spec["loader"] = {"workers": workers}
    if options.get("val-data"):
        val = [new.source("val", new.path(text)) for text in options["val-data"].split("::")]
        spec["splits"] = {"train": train, "val": {"dataset": val, "epoch": "pass"}}
    else:
        spec.update(train)


def _options(text: str) -> dict[str, str]:
    """The options of a command line, which may be in a script."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    found: dict[str, str] = {}
    name = None
    try:
        for word in lexer:
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                found[name] = value
                name = None if equals else name
            elif name is not None:
                found[name], name = word, None
    except ValueError:  # a quote later in the script is not closed
        pass
    return found


DIALECT = Dialect("openclip", "a command line of OpenCLIP or DataComp", _recognises, _convert)
