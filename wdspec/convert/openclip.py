"""OpenCLIP's and DataComp's command lines: `--train-data 'a::b' --train-data-upsampling-factors 1::10`."""

from __future__ import annotations

import re
import shlex
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.convert.dialect import Dialect, Given, NewSpec, number

_NAFLEX = (128, 256, 576, 784, 1024)
"""The sequence lengths of NaFlex by default."""
_SEVERAL = ("naflex-seq-lens", "naflex-seq-len-probs", "naflex-patch-sizes", "naflex-patch-size-probs")
"""Options with several values."""
_NOT_SAID = {
    "length-bucketing": "write `batch: {cost: text.length, max_cost: …}`, which sorts samples by their cost",
    "naflex-max-text-tokens": "add the tokens of texts to `batch.cost`",
    "naflex-num-train-image-tokens": "write `epoch: {batches: …}`, these tokens divided by those of all ranks",
    "text-pad-multiple": "write `batch: {collate: {tokens: {pad: {multiple: …}}}}` for the tokens that `map` makes",
}
_RESHARDER = re.compile(r"resharder\.py\s+([^\n]*)")
_SHORT = re.compile(r"(-[ios]|--(?:input-dir|output-dir|subset-file))[ =]+(\S+)")


def _recognises(given: Given) -> bool:
    is_text = given.value is None or isinstance(given.value, str)  # not JSON without blanks
    return (
        "--train-data" in given.text
        or _resharding(given.text) is not None
        or (is_text and _is_bare(given.text.strip()))
    )


def _is_bare(text: str) -> bool:
    """Whether a text is a list of shards without anything else."""
    return ".tar" in text[1:] and text[0] != ":" and len(text.split(maxsplit=1)) == 1


def _convert(given: Given, new: NewSpec) -> None:
    options, spec = _options(given.text), new.spec
    selected = _resharding(given.text)
    texts = (options.get("train-data") or given.text.strip()).split("::")
    if selected is not None and "train-data" not in options:
        texts = [f"{selected['o'].rstrip('/')}/"]
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
            _source(text, selected, new, upsample=factor, order=order)
            for text, factor in zip(texts, factors or [None] * len(texts), strict=True)
        ]
    }
    if (seed := new.whole(options, "seed")) is not None:
        spec["seed"] = seed
    spec["defaults"] = {"rename": {"image": "jpg;png;jpeg;webp", "text": "txt"}, "missing": "skip"}
    new.note(
        "the preprocessing of images and texts in OpenCLIP is not converted: add it as `decode` and `map`"
    )
    size = new.whole(options, "batch-size", 1)
    batch = _naflex(options, new) if "use-naflex" in options else size
    samples = new.whole(options, "train-num-samples", 1)
    if batch:
        train["batch"] = batch
    if samples and isinstance(batch, dict):
        new.note(
            f"an epoch had {samples} samples; a batch now has any number, so write `epoch: {{batches: …}}`"
        )
    elif samples:
        train["epoch"] = {"samples": samples}
    new.note_keys({key: value or True for key, value in options.items()}, _NOT_SAID)
    if (workers := new.whole(options, "workers")) is not None:
        spec["loader"] = {"workers": workers}
    val = None
    if options.get("val-data"):
        tested = [new.source("val", new.path(text)) for text in options["val-data"].split("::")]
        val = {"dataset": tested, **({"batch": size} if size else {})}
    new.set_splits(train, val)


def _source(text: str, selected: dict[str, str] | None, new: NewSpec, **keys: Any) -> dict[str, Any]:
    """Make a source. Shards that DataComp's resharder writes are those that it reads, with its list of uids."""
    if selected is None or not f"{text.rstrip('/')}/".startswith(f"{selected['o'].rstrip('/')}/"):
        return new.source("", new.path(text), **keys)
    source = new.source("", f"{new.path(selected['i']).rstrip('/')}/", **keys)
    source |= {"keys": f"@{new.path(selected['s'])}", "keys_of": "json.uid"}
    new.note(
        f"{source['name']}: the samples whose uids are in the subset file are chosen while they are read, so that its "
        "shards need not be written"
    )
    return source


def _resharding(text: str) -> dict[str, str] | None:
    """The directories and the subset file of DataComp's `resharder.py`; None if it is not called."""
    found = _RESHARDER.search(text.replace("\\\n", " "))
    if found is None:
        return None
    options = dict(_SHORT.findall(found[1]))
    names = {"i": "input-dir", "o": "output-dir", "s": "subset-file"}
    values = {short: options.get(f"-{short}") or options.get(f"--{name}") for short, name in names.items()}
    return (
        {name: value.strip("\"'") for name, value in values.items() if value}
        if all(values.values())
        else None
    )


def _naflex(options: dict[str, str], new: NewSpec) -> dict[str, Any] | int:
    """Batches of a number of patches: samples if all images have one number, otherwise by cost."""
    lengths = sorted(_whole(options, "naflex-seq-lens")) or list(_NAFLEX)
    sizes = _whole(options, "naflex-patch-sizes") or [16]
    most = new.whole(options, "naflex-max-tokens-per-batch", 1) or 16384
    multiple = new.whole(options, "naflex-batch-divisor", 1) or 8
    if len(lengths) == 1:
        return max(1, most // lengths[0] // multiple * multiple)
    new.note(
        f"each batch had one of {len(lengths)} sequence lengths and {len(sizes)} patch sizes, drawn at random; now an "
        f"image costs its patches of {sizes[0]} pixels, and at most {lengths[-1]}: do the same in `map`"
    )
    side = f"ceil(image.width / {sizes[0]}) * ceil(image.height / {sizes[0]})"
    return {"cost": f"min({lengths[-1]}, {side})", "max_cost": most, "size_multiple": multiple}


def _whole(options: dict[str, str], key: str) -> list[int]:
    found = (number(each) for each in options.get(key, "").split())
    return [int(each) for each in found if each is not None and each >= 1]


_LONGEST = 256 * 1024
"""Characters of a command line. Linux has no arguments of more than 128 KiB."""


def _options(text: str) -> dict[str, str]:
    """The options of a command line, which may be in a script. Raises UsageError for one that is too long."""
    if len(text) > _LONGEST:
        raise UsageError(
            f"a command line of more than {_LONGEST:,} characters; convert one with fewer shards, and add the others "
            "to the spec, or a list of them (`@shards.txt`)"
        )
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
            elif name in _SEVERAL:
                found[name] = f"{found[name]} {word}".strip()
            elif name is not None:
                found[name], name = word, None
    except ValueError:  # a quote later in the script is not closed
        pass
    return found


DIALECT = Dialect("openclip", "a command line of OpenCLIP or DataComp", _recognises, _convert)
