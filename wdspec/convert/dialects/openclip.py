"""OpenCLIP's and DataComp's command lines: `--train-data 'a::b' --train-data-upsampling-factors 1::10`."""

from __future__ import annotations

import re
import shlex
from typing import Any

from wdspec.convert.dialect import Dialect
from wdspec.convert.given import Given, number
from wdspec.convert.new_spec import NewSpec

_BARE = re.compile(r"[^\s:]\S*\.tar(?:\.\w+)?\S*", re.DOTALL)


def _recognises(given: Given) -> bool:
    return "--train-data" in given.text or bool(_BARE.fullmatch(given.text.strip()))


def _convert(given: Given, new: NewSpec) -> None:
    options = _options(given.text)
    names = {"train": options.get("train-data") or given.text.strip(), "val": options.get("val-data", "")}
    factors = [number(each) for each in options.get("train-data-upsampling-factors", "").split("::") if each]
    order = "resampled" if "dataset-resampled" in options else None
    texts = names["train"].split("::")
    if factors and len(factors) != len(texts):
        new.note(
            f"there are {len(texts)} sources, but {len(factors)} upsampling factors; none is taken, write `upsample` "
            "yourself"
        )
        factors = []
    train = [
        new.source("", new.path(text), upsample=factors[i] if factors else None, order=order)
        for i, text in enumerate(texts)
    ]
    spec = new.spec
    if (seed := new.whole(options, "seed")) is not None:
        spec["seed"] = seed
    spec["defaults"] = {"rename": {"image": "jpg;png;jpeg;webp", "text": "txt"}, "missing": "skip"}
    new.note("what OpenCLIP does with images and texts is its preprocessing: add it as `decode` and `map`")
    if size := new.whole(options, "batch-size", 1):
        spec["batch"] = size
    epoch: dict[str, Any] = {}
    if samples := new.whole(options, "train-num-samples", 1):
        epoch = {"epoch": {"samples": samples}}
    if (workers := new.whole(options, "workers")) is not None:
        spec["loader"] = {"workers": workers}
    if not names["val"]:
        spec.update(dataset=train, **epoch)
        return
    val = [new.source("val", new.path(text)) for text in names["val"].split("::")]
    spec["splits"] = {"train": {"dataset": train, **epoch}, "val": {"dataset": val, "epoch": "pass"}}


def _options(text: str) -> dict[str, str]:
    """The options of a command line, or of one in a script."""
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
    except ValueError:  # a quote that is not closed, later in the script
        pass
    return found


DIALECT = Dialect("openclip", "a command line of OpenCLIP or DataComp", _recognises, _convert)
