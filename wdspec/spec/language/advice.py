"""Hints: what users of other tools may mean by a key or a decoder, and what to write instead of a wrong value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wdspec.spec.language.values import is_callable_name, number_meant


def _by_word(table: Mapping[str, str]) -> dict[str, str]:
    """Make a table by single words, from one whose keys are several words."""
    return {word: said for words, said in table.items() for word in words.split()}


KEYS = _by_word(
    {
        "url urls path paths files": "shards",
        "datasets sources": "dataset",
        "prob p": "probability",
        "ratio share fraction": "weight",
        "batch_size batchsize": "batch",
        "num_workers workers": "loader.workers",
        "pin_memory pin": "loader.pin_memory",
        "prefetch_factor": "loader.prefetch",
        "persistent_workers": "loader.persistent",
        "transform transforms preprocess": "map",
        "decoder decoders": "decode",
        "filter query condition predicate": "where",
        "variables": "vars",
        "envs": "environments",
        "resampled": "order: resampled",
        "shardshuffle": "order",
        "length samples_per_epoch": "epoch",
        "handler": "errors",
        "tuple": "to_tuple",
        "ext exts columns": "extensions",
        "random_seed": "seed",
        "version": "wdspec",
        "cache_dir": "cache",
        "max_errors": "max_count",
        "max_size": "size",
        "regex pattern": "from",
        "replacement": "to",
        "method strategy": "draw",
        "rank": "ranks",
        "arguments kwargs": "args",
        "dir_path": "dir",
    }
)
"""Keys of other tools, and the keys that mean the same here."""

KEYS_IN = {
    "Batch": _by_word(
        {
            "batch_size batchsize n samples": "size",
            "padding pad": "collate",
            "max_duration batch_duration budget": "max_cost",
            "max_cuts": "max_size",
            "multiple batch_size_multiple required_batch_size_multiple": "size_multiple",
            "buffer buffer_size packing_buffer_size window_size pool": "window",
            "group bucket buckets bucket_by batch_group_criterion": "group_by",
            "align": "balance",
            "limit": "limits",
        }
    ),
    "BatchCall": _by_word({"size batch_size batchsize": "batch", "num_gpus gpu": "gpus", "function": "call"}),
    "Packing": _by_word(
        {
            "to max_length seq_length sequence_length seq_len max_seq_length": "length",
            "strategy how packing_strategy": "method",
            "multiple align": "pad_to_multiple_of",
            "positions": "position_ids",
            "lengths cu_seq_lens": "cu_seqlens",
            "segments doc_ids sequence_ids": "segment_ids",
        }
    ),
    "ScheduleStep": {"weights": "shares", "probabilities": "shares", "ratios": "shares", "mix": "shares"},
    "JoinOptions": {"by": "on", "key": "on", "left_on": "on", "name": "on"},
    "CacheOptions": {"path": "dir", "cache_size": "size"},
    "Epoch": {"steps": "batches", "length": "samples"},
    "LoaderOptions": {"type": "kind", "pin": "pin_memory"},
}
"""Keys that mean something else in the map of a certain model."""

_OF_OBJECTS = {
    "offset": "write the start and the end: `seconds: [offset, offset + duration]`",
    "duration": "write the start and the end: `seconds: [offset, offset + duration]`",
    "start": "write `seconds: [start, end]` for a time span, or `bytes: [start, stop]`",
    "end": "write `seconds: [start, end]` for a time span, or `bytes: [start, stop]`",
    "clip": "write `seconds: [start, end]`; the decoder takes a random part: `video+clip=2s`",
    "time": "write `seconds: [start, end]`",
    "from": "the field with the reference is `url`",
    "path": "the field with the reference is `url`",
    "prefix": "the directory where references start is `root`",
    "urls": "write the field with the list of references as `url`",
    "paths": "write the field with the list of references as `url`",
    "base": "the directory where references start is `root`",
    "host": "write `hosts: [cdn.example.org]`",
    "range": "write `bytes: [start, stop]`",
    "hash": "write `sha256: hash`",
    "decode": "write `decode` next to `fetch`: `decode: {image: rgb8}`",
}
"""Keys of an entry of `fetch` that do not exist."""
_TRAINING_LOOP = (
    "the training loop decides how many epochs there are; `epoch` is the length of one, in samples"
)
_OF_A_RANK = "remove it; the ranks of a job divide the data themselves"

ADVICE = _by_word(
    {
        "resize crop center_crop random_crop random_resized_crop image_size img_size size": (
            "images are resized when they are decoded: `decode: rgb8+resize=256+center_crop=224`, or "
            "`rgb8+random_resized_crop=224`; docs/transforms.md"
        ),
        "normalize normalise hflip horizontal_flip jitter color_jitter brightness contrast saturation hue mean std": (
            "images are flipped, recolored and normalized when they are decoded: "
            "`decode: torchrgb+hflip=0.5+brightness=0.4+normalize=imagenet`; other transforms are functions in `map`; "
            "beside boxes or masks, it is in the step `crop`; docs/transforms.md"
        ),
        "augment augmentation augmentations flip vflip vertical_flip rotate rotation blur grayscale": (
            "a transform is a function in `map`: `decode: torchrgb` and `map: {image: [{call: "
            '"torchvision.transforms.v2:RandomHorizontalFlip"}]}`; docs/transforms.md'
        ),
        "processor": (
            "a processor is a function in `map`: `map: {txt: package.module:function}`; a tokenizer is in "
            "`make`: `make: {ids: {tokenize: txt, file: tokenizer.json}}`; docs/steps.md"
        ),
        "resample sample_rate sampling_rate samplerate target_sr target_rate sr": (
            "audio is resampled when it is decoded: `decode: {wav: audio+rate=16000+mono}`; docs/decoders.md"
        ),
        "channels num_channels n_channels to_mono downmix": "write `decode: {wav: audio+mono}`; docs/decoders.md",
        "tempo speed_perturb speed_perturbation": "write `decode: {wav: audio+speed=0.9..1.1}`; docs/decoders.md",
        "volume gain_db volume_perturb": "write `decode: {wav: audio+gain=-6..6}`; docs/decoders.md",
        "offset duration segments": (
            "a step of `make` reads segments: `make: {audio: {segment: wav, offset: json.offset, duration: "
            "json.duration}}`; docs/steps.md"
        ),
        "noise musan snr background_noise": (
            "a step of `make` adds noise: `make: {audio: {add_noise: wav, noise: noise, snr: 5..20}}`; docs/steps.md"
        ),
        "rir reverb room_impulse": (
            "a step of `make` adds a room: `make: {audio: {convolve: wav, impulse: impulse}}`; docs/steps.md"
        ),
        "cache_size": "write `cache: {dir: /data/cache, size: 500GB}`",
        "epochs num_epochs": _TRAINING_LOOP,
        "max_samples max_examples num_samples take head n_samples": (
            "for a part of the samples, write `subset: 10%` in a source; for the first ones of a run, `limit: 1000` "
            "at the top level"
        ),
        "temperature": "it belongs in `mix`: `mix: {by: samples, temperature: 2}` makes shares more equal",
        "shares": (
            "write the share of a source in the source: `weight: 0.5`, or `probability`; shares that change in a run "
            "are `mix: {schedule: [{at: 100_000, shares: {web: 0.5, books: 0.5}}]}`"
        ),
        "balance": (
            "`mix: {by: equal}` gives sources equal shares; for equal classes, make each class a source, "
            "docs/cookbook/classes.md; `batch: {balance: …}` gives all ranks similar sums of an expression"
        ),
        "enabled disabled active": "`weight: 0` turns a source off",
        "owner owners contact ticket team maintainer metadata annotations": (
            "facts about data belong in `meta`, of a source or of the spec: `meta: {owner: vision, ticket: DATA-12}`"
        ),
        "min_version minimum_version required_version wdspec_version": "write `requires: wdspec >= 0.2`",
        "deprecated retired policy policies waivers rules": (
            "this belongs in a policy, a file of its own for `wdspec validate --policy`; docs/policies.md"
        ),
        "group_by_length length_grouped bucket_by_length buckets num_buckets": (
            "for batches of similar lengths, write `batch: {cost: ids.length, max_cost: 16384}`; docs/batches.md"
        ),
        "max_epochs max_repeats repeats": (
            "`max_passes: 4` in a source limits how often it is read; the training loop decides how many epochs there "
            "are"
        ),
        "seq_len seq_length max_seq_length sequence_length block_size max_length": (
            "for rows of this length, write `batch: {pack: {fields: ids, length: 2048}}`; to cut texts, `make: {ids: "
            "{tokenize: text, file: tok.json, truncate: 2048}}`; docs/steps.md"
        ),
        "streaming stream": "remove it; shards are always streamed",
        "sampling sampler": "shares and draws belong in `mix`, `weight` in a source; docs/spec.md",
        "steps steps_per_epoch": "write `epoch: {batches: 1000}`",
        "backend engine executor ray remote": (
            "to read on other machines, write `loader: {kind: ray, workers: 16}`; docs/scale.md"
        ),
        "drop_last": (
            "batches of an endless stream are always whole; `epoch: {pass: drop, reshuffle: true}` reads every sample "
            "once and leaves out an incomplete last batch"
        ),
        "collate collate_fn": "it belongs in `batch`: `batch: {size: 8, collate: pad}`; docs/batches.md",
        "nodesplitter workersplitter": _OF_A_RANK,
        "distributed": f"{_OF_A_RANK}; set the size of the largest job with `elastic: {{ranks: …}}`",
        "world_size": (
            "write `elastic: {ranks: …}` for the largest job; the size of the running one is detected"
        ),
    }
)
"""Keys that have no equivalent here, and what to write instead."""

EACH_ONCE = (
    "to read every sample once, write `epoch: {pass: drop, reshuffle: true}` for training, which has a new order each "
    "time, and `epoch: pass` for evaluation"
)
_ONCE = "all complete each entire epoch epochs everything exact full full_pass once one passes single whole"
ONCE = frozenset(_ONCE.split())
"""Words for an epoch that has every sample once."""

_CHOSEN = {
    "env": "choose an environment with `--env {0}` or WDSPEC_ENV; `environments` defines them",
    "environment": "choose an environment with `--env {0}` or WDSPEC_ENV; `environments` defines them",
    "split": "choose a split with `--split {0}` or `spec.yaml#{0}`; `splits` defines them",
}


def advice_on(key: str, model: str, value: object) -> str:
    """What to do instead of writing an unknown key, if there is more to say than another name.

    Args:
        key: in lower case, with underscores.
        model: the name of the model whose map has it.
        value: its value.
    """
    if model == "FetchedObject" and key in _OF_OBJECTS:
        return _OF_OBJECTS[key]
    if key in ("batch_size", "batch") and model == "LoaderOptions":
        return "`batch` belongs at the top level: `batch: 32`"
    if key in ("address", "ray_address", "cluster", "ray") and model == "LoaderOptions":
        return "write `kind: ray`; the address of the cluster is in the environment variable RAY_ADDRESS"
    if model == "MixOptions" and isinstance(value, (int, float)):
        return "write the share of a source in the source: `weight: 0.5`, or `probability`"
    if key in ("share", "ratio", "fraction") and (meant := number_meant(value)) and str(value).endswith("%"):
        return f"write `probability: {meant}`, or relative shares: `weight: {str(value).strip(' %')}`"
    if key == "take" and not isinstance(value, (int, float, str)):  # a list or a map
        return "to choose fields, write `extensions: jpg txt`; to name them, `rename: {text: body}`"
    if key == "filter" and isinstance(value, str) and is_callable_name(value):
        return "did you mean `select`?"
    if key == "cost" and model == "Spec":
        return "it belongs in `batch`: `batch: {cost: …, max_cost: …}`; `costs` names expressions"
    if model == "Batch" and key in ("packing", "sample_packing", "packed"):
        return "write `pack: {fields: ids, length: 2048}`, with the field of tokens and the length of a row"
    if model == "Batch" and key == "max_length":
        return "write `pack: {fields: ids, length: 2048}` for packed rows, or `cost` and `max_cost` for padded ones"
    if model == "Epoch" and key == "drop_last":
        return "`pass: drop` leaves out an incomplete last batch, and `pass: pad` fills it with copies"
    if key == "drop_last" and value is False:
        return (
            "batches of an endless stream are always whole; `epoch: {pass: pad, reshuffle: true}` reads every sample "
            "once and fills the last batch with copies, for which `__mask__` is false"
        )
    if model == "Epoch" and key in ONCE:
        return f"the training loop decides how many epochs there are; {EACH_ONCE}"
    if key in _CHOSEN and model == "Spec":
        return _CHOSEN[key].format(value if isinstance(value, str) else "NAME")
    if key == "size" and model not in ("Spec", "Source"):  # of something else than images
        return ""
    return ADVICE.get(key, "")


DECODERS = _by_word(
    {
        "jpg jpeg png webp gif bmp tif tiff image images img cv2 opencv": (
            "decode images with `rgb8` (numpy), `torchrgb` (a float tensor) or `pil`"
        ),
        "torch tensor pt": "`torchrgb` decodes images to float tensors, `pth` reads torch files",
        "numpy np array": "`rgb8` decodes images to arrays, `npy` reads numpy files",
        "int integer label": "`cls` reads a whole number",
        "str string utf8 utf-8 caption": "`txt` reads text",
        "none null off bytes binary": "`raw` leaves fields as bytes",
        "default true yes on": "`auto` decodes by extension, as if `decode` were left out",
    }
)
"""Words that are not decoders, and what to write instead."""

_SHARE = "write a number such as `0.5`; `0` turns the source off"
_AS_PART = "write a fraction, such as `0.5` for 50%"
_RULES = "write a list of rules: `rewrite: [{from: 'gs://', to: /mnt/}]`, or items `- {from: …, to: …}`"
_FORMS = {
    "shuffle": "write a number of samples, such as `1000`; `0` reads in order",
    "weight": _SHARE,
    "upsample": _SHARE,
    "probability": _AS_PART,
    "scaleprob": _AS_PART,
    "hflip": _AS_PART,
    "chance": _AS_PART,
    "truncate": "write the most tokens of a document, such as `512`; leave it out for all tokens",
    "max_rate": _AS_PART,
    "samples": "write a number of samples, such as `100_000`, or leave it out",
    "epoch.samples": "write the samples of one epoch, such as `100_000`, or `pass`; leave it out for an endless stream",
    "epoch.tokens": "write the tokens of one epoch across all ranks, such as `10e9`",
    "epoch.batches": "write a number of batches, such as `1000`",
    "seed": "write a number such as `17`; for a new one in each run use `--set seed=$RANDOM`",
    "limit": "write a number of samples, such as `1000`",
    "batch.size": "write a number of samples, such as `32`; leave it out for single samples",
    "batch.global_size": "write a number of samples, such as `512`",
    "interleave": "write a number of shards, such as `8`",
    "loader": "write `loader: {workers: 4}`",
    "loader.workers": "write a number of processes, such as `4`; `0` reads in the training process",
    "loader.prefetch": "write a number of batches, such as `2`",
    "mix": "write `mix: {draw: random}`; write the share of a source in the source: `weight: 0.5`",
    "elastic": "write `elastic: {ranks: 8}`, or `elastic: {ranks: 8, workers: 4}`",
    "tags": "write names and values: `tags: {origin: web}`",
    "rename": "write the new name first: `rename: {image: jpg}`",
    "rewrite": _RULES,
    "cache": "write `cache: {dir: /data/cache, size: 500GB}`, or only a directory",
    "args": "write names and values: `args: {size: 224}`",
    "wdspec": "write `wdspec: 1`, or leave it out",
    "tar": "write `tar: {end: lenient}`, or leave it out",
    "expect": "write `expect: {fields: {image: {type: uint8, shape: [224, 224, 3]}}}`",
    "expect.fields": "write names and types: `fields: {image: uint8, cls: {classes: 1000}}`",
    **dict.fromkeys(
        ("retry", "timeout", "connect_timeout", "read_timeout"), "write a duration, such as `30s` or `5m`"
    ),
    "cache.size": "write a number of bytes with a unit, such as `500GB`",
    "ranks": "write a number of ranks, such as `8`",
    "elastic.workers": "write a number of workers for each rank, such as `4`",
    "skip": "write steps, such as `1200..1260`",
    "errors.skip": "write `true`, or some of `shard`, `decode` and `map`",
    "at": "write the number of the first sample with these shares, counted over all ranks, such as `1_000_000`, or "
    "`{tokens: 10e9}`",
    "schedule": "write steps: `schedule: [{at: 0, shares: {a: 1}}, {at: 1_000_000, shares: {b: 1}}]`",
    "select": "write the name of a function: `select: package.module:function`",
    "shards": "write a list: `- first` and `- second`; for training and validation use `splits`",
    "extensions": "write `extensions: jpg txt`; change names with `rename: {image: jpg}`",
}
"""How to write the value of a key, by its name or by the last two names of its path."""
_WORDS: dict[tuple[str, Any], str] = {
    ("missing", "ignore"): "write `skip` to drop such samples, or `none`",
    ("order", "random"): "write `shuffled`, or `resampled` to draw shards with replacement",
    ("format", "webdataset"): "write `tar`, or leave it out",
    ("format", "wds"): "write `tar`, or leave it out",
    ("mix", "even"): "write `mix: {draw: even}`",
    ("mix", "random"): "write `mix: {draw: random}`",
    ("mix", "round_robin"): "write `mix: {draw: round_robin}`",
}
_WHOLE_NUMBERS = {"elastic": "elastic: {{ranks: {}}}", "loader": "loader: {{workers: {}}}"}


def first_sentence(text: str) -> str:
    """The first sentence of a description, without its full stop, to follow a colon."""
    sentence = text.partition(". ")[0].partition("; ")[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def describe_form(names: Sequence[str]) -> str:
    """How to write the value of a key; empty if that is obvious.

    Args:
        names: the path of keys.
    """
    return _FORMS.get(".".join(names[-2:])) or _FORMS.get(names[-1], "")


def remedy(path: Sequence[Any], given: object) -> str:
    """What to write instead of a wrong value; empty if unknown.

    Args:
        path: the keys and indexes that lead to it.
        given: the value.
    """
    names = [step for step in path if isinstance(step, str)] or [""]
    key = names[-1]
    if (word := _WORDS.get((key, given) if isinstance(given, str) else (key, None))) is not None:
        return word
    if key in _WHOLE_NUMBERS and isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return f"write `{_WHOLE_NUMBERS[key].format(given)}`"
    form = describe_form(names)
    meant = number_meant(given)
    if meant is not None and form and ("." not in meant or form in (_SHARE, _AS_PART)):
        return f"write `{meant}`"
    if form is _AS_PART and isinstance(given, (int, float)) and 1 < given <= 100:
        return f"write `{given / 100:g}` for {given:g}%"
    return form
