"""What users of other tools write, and what it is called here: keys, decoders, and words for values."""

from __future__ import annotations

import re

KEYS = {
    "url": "shards",
    "urls": "shards",
    "path": "shards",
    "paths": "shards",
    "files": "shards",
    "datasets": "dataset",
    "sources": "dataset",
    "prob": "probability",
    "p": "probability",
    "ratio": "weight",
    "share": "weight",
    "batch_size": "batch",
    "batchsize": "batch",
    "num_workers": "loader.workers",
    "workers": "loader.workers",
    "pin_memory": "loader.pin_memory",
    "prefetch_factor": "loader.prefetch",
    "persistent_workers": "loader.persistent",
    "transform": "map",
    "transforms": "map",
    "preprocess": "map",
    "decoder": "decode",
    "decoders": "decode",
    "filter": "select",
    "variables": "vars",
    "envs": "environments",
    "resampled": "order: resampled",
    "shardshuffle": "order",
    "length": "epoch",
    "samples_per_epoch": "epoch",
    "handler": "errors",
    "tuple": "to_tuple",
    "ext": "extensions",
    "exts": "extensions",
    "columns": "extensions",
    "random_seed": "seed",
    "version": "wdspec",
    "cache_dir": "cache",
    "max_errors": "max_count",
    "max_size": "size",
    "regex": "from",
    "pattern": "from",
    "replacement": "to",
    "method": "draw",
    "strategy": "draw",
    "rank": "ranks",
    "arguments": "args",
    "kwargs": "args",
    "dir_path": "dir",
}
"""A key of another tool → the key that means it."""

KEYS_IN = {
    "Batch": {"batch_size": "size", "batchsize": "size", "n": "size"},
    "CacheOptions": {"path": "dir", "cache_size": "size"},
    "Epoch": {"steps": "batches", "length": "samples"},
}
"""The same where a key means another one in the map of a certain model."""

_A_SIZE = (
    "pictures are brought to a size as they are decoded: `decode: rgb8+resize=256+center_crop=224`, or "
    "`rgb8+random_resized_crop=224`; docs/transforms.md"
)
_A_TRANSFORM = (
    'a transform is a function in `map`: `map: {image: [{call: "torchvision.transforms.v2:RandomHorizontalFlip"}]}`; '
    "docs/transforms.md"
)
_OF_THE_USER = (
    "a tokenizer or processor is a function in `map`: `map: {txt: package.module:function}`; "
    "docs/transforms.md"
)
_TRAINING_LOOP = (
    "how many epochs there are is a matter of the training loop; `epoch` is the length of one, in samples"
)
_OF_A_RANK = "a job's ranks share the data out by themselves; nothing has to be said"
_WHOLE = "batches are always whole; `epoch: {pass: drop}` is a pass that leaves an incomplete one out"
_COLLATE = "it stands under `batch`: `batch: {size: 8, collate: pad}`; docs/batches.md"

ADVICE = {
    **dict.fromkeys(
        (
            "resize",
            "crop",
            "center_crop",
            "random_crop",
            "random_resized_crop",
            "image_size",
            "img_size",
            "size",
        ),
        _A_SIZE,
    ),
    **dict.fromkeys(
        (
            "normalize",
            "normalise",
            "augment",
            "augmentation",
            "augmentations",
            "flip",
            "horizontal_flip",
            "rotate",
        ),
        _A_TRANSFORM,
    ),
    **dict.fromkeys(("tokenizer", "tokenize", "tokenizers", "processor"), _OF_THE_USER),
    "cache_size": "write `cache: {dir: /data/cache, size: 500GB}`",
    "epochs": _TRAINING_LOOP,
    "num_epochs": _TRAINING_LOOP,
    "max_epochs": _TRAINING_LOOP,
    "steps": "write `epoch: {batches: 1000}`",
    "steps_per_epoch": "write `epoch: {batches: 1000}`",
    "drop_last": _WHOLE,
    "collate": _COLLATE,
    "collate_fn": _COLLATE,
    "nodesplitter": _OF_A_RANK,
    "workersplitter": _OF_A_RANK,
    "distributed": f"{_OF_A_RANK}; the largest job that is meant stands in `elastic: {{ranks: …}}`",
    "world_size": "write `elastic: {ranks: …}` for the largest job that is meant; the running one is found out",
}
"""A key that nothing here is called, and how what it stands for is said."""

_CHOSEN = {
    "env": "an environment is chosen by `--env {0}` or WDSPEC_ENV; `environments` describes them",
    "environment": "an environment is chosen by `--env {0}` or WDSPEC_ENV; `environments` describes them",
    "split": "a split is chosen by `--split {0}` or `spec.yaml#{0}`; `splits` describes them",
}


def advice_on(key: str, model: str, value: object) -> str:
    """What to do instead of writing an unknown key, beyond another name; nothing where that is not known.

    Args:
        key: in lower case, with underscores.
        model: name of the model in whose map it stands.
        value: what stands behind it.
    """
    if key in ("batch_size", "batch") and model == "LoaderOptions":
        return "`batch` stands at the top level: `batch: 32`"
    if model == "MixOptions" and isinstance(value, (int, float)):
        return "the share of a source stands in the source: `weight: 0.5`, or `probability`"
    if key in _CHOSEN and model == "Spec":
        return _CHOSEN[key].format(value if isinstance(value, str) else "NAME")
    return ADVICE.get(key, "")


_A_PICTURE = "pictures are decoded by `rgb8` (numpy), `torchrgb` (a float tensor) or `pil`"
DECODERS = {
    **dict.fromkeys(
        (
            "jpg",
            "jpeg",
            "png",
            "webp",
            "gif",
            "bmp",
            "tif",
            "tiff",
            "image",
            "images",
            "img",
            "cv2",
            "opencv",
        ),
        _A_PICTURE,
    ),
    **dict.fromkeys(
        ("torch", "tensor", "pt"), "`torchrgb` makes float tensors of pictures, `pth` reads torch files"
    ),
    **dict.fromkeys(("numpy", "np", "array"), "`rgb8` makes arrays of pictures, `npy` reads numpy files"),
    **dict.fromkeys(("int", "integer", "label"), "`cls` reads a whole number"),
    **dict.fromkeys(("str", "string", "utf8", "utf-8", "caption"), "`txt` reads text"),
    **dict.fromkeys(("none", "null", "off", "bytes", "binary"), "`raw` leaves fields as bytes"),
    **dict.fromkeys(
        ("default", "true", "yes", "on"), "`auto` decodes by extension, as if `decode` were left out"
    ),
}
"""What is taken for a decoder, and what to write."""

_SCALES = {"k": 3, "m": 6, "mio": 6, "million": 6, "g": 9, "b": 9, "bn": 9, "billion": 9}
_SCALED = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{1,7})")
_GROUPED = re.compile(r"[0-9]{1,3}(?:[,' .][0-9]{3})+")
_PERCENT = re.compile(r"([0-9]{1,6}(?:[.,][0-9]{1,6})?)\s*%")
_RATIO = re.compile(r"([0-9]{1,6})\s*/\s*([1-9][0-9]{0,5})")
_COMMA = re.compile(r"([0-9]{1,9}),([0-9]{1,9})")


def number_meant(value: object) -> str | None:
    """The number that a text means, as a spec writes it: `20_000` for `20k`, `0.5` for `50%`; None for other texts."""
    text = value.strip() if isinstance(value, str) else ""
    if _GROUPED.fullmatch(text):
        return f"{int(re.sub('[^0-9]', '', text)):_}"
    if match := _PERCENT.fullmatch(text):
        return f"{float(match[1].replace(',', '.')) / 100:g}"
    if match := _RATIO.fullmatch(text):
        return f"{int(match[1]) / int(match[2]):.4g}"
    if match := _COMMA.fullmatch(text):
        return f"{match[1]}.{match[2]}"
    match = _SCALED.fullmatch(text)
    if match and match[2].lower() in _SCALES:
        return f"{round(float(match[1]) * 10 ** _SCALES[match[2].lower()]):_}"
    return None
