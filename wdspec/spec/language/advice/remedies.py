"""What to write instead of a wrong value, by the key it stands under."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wdspec.spec.language.advice.foreign_words import number_meant

_SHARE = "write a number such as `0.5`; `0` switches the source off"
_PERCENT = "write a part of 1, such as `0.5` for 50 %"
_RULES = "write a list of rules: `rewrite: [{from: 'gs://', to: /mnt/}]`, or below it `- {from: …, to: …}`"
_FORMS = {
    "shuffle": "write a number of samples, such as `1000`; `0` reads in order",
    "weight": _SHARE,
    "upsample": _SHARE,
    "probability": _PERCENT,
    "scaleprob": _PERCENT,
    "max_rate": _PERCENT,
    "samples": "write a number of samples, such as `100_000`, or leave it out",
    "epoch.samples": "write the samples of one epoch, such as `100_000`, or `pass`; leave it out for an endless stream",
    "epoch.batches": "write a number of batches, such as `1000`",
    "seed": "write a number such as `17`; for another one in each run `--set seed=$RANDOM`",
    "limit": "write a number of samples, such as `1000`",
    "batch.size": "write a number of samples, such as `32`; leave it out for single samples",
    "batch.global_size": "write a number of samples, such as `512`",
    "interleave": "write a number of shards, such as `8`",
    "loader": "write `loader: {workers: 4}`",
    "loader.workers": "write a number of processes, such as `4`; `0` reads in the training process",
    "loader.prefetch": "write a number of batches, such as `2`",
    "mix": "write `mix: {draw: random}`; the share of a source stands in the source: `weight: 0.5`",
    "elastic": "write `elastic: {ranks: 8}`, or `elastic: {ranks: 8, workers: 4}`",
    "tags": "write names and values: `tags: {origin: web}`",
    "rename": "write the new name first: `rename: {image: jpg}`",
    "rewrite": _RULES,
    "cache": "write `cache: {dir: /data/cache, size: 500GB}`, or a directory alone",
    "args": "write names and values: `args: {size: 224}`",
    "wdspec": "write `wdspec: 1`, or leave it out",
    "shards": "write a list: `- first` and `- second`; what belongs to training and validation are `splits`",
    "extensions": "write `extensions: jpg txt`; other names are given by `rename: {image: jpg}`",
}
"""Key, or the last two keys → how its values are written."""
_WORDS: dict[tuple[str, Any], str] = {
    ("missing", "ignore"): "write `skip` to drop such samples, or `none`",
    ("order", "random"): "write `shuffled`, or `resampled` to draw shards with replacement",
    ("format", "parquet"): "write `tar`; `wdspec create` makes tar shards of tables",
    ("format", "webdataset"): "write `tar`, or leave it out",
    ("format", "wds"): "write `tar`, or leave it out",
    ("mix", "even"): "write `mix: {draw: even}`",
    ("mix", "random"): "write `mix: {draw: random}`",
    ("mix", "round_robin"): "write `mix: {draw: round_robin}`",
}
_WHOLE_NUMBERS = {"elastic": "elastic: {{ranks: {}}}", "loader": "loader: {{workers: {}}}"}


def written_as(names: Sequence[str]) -> str:
    """How the value of a key is written; nothing where that goes without saying.

    Args:
        names: the keys that lead to it.
    """
    return _FORMS.get(".".join(names[-2:])) or _FORMS.get(names[-1], "")


def remedy(path: Sequence[Any], given: object) -> str:
    """What to write where a value is wrong, if that is known.

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
    form = written_as(names)
    meant = number_meant(given)
    if meant is not None and form:
        return f"write `{meant}`"
    if form is _PERCENT and isinstance(given, (int, float)) and 1 < given <= 100:
        return f"write `{given / 100:g}` for {given:g} %"
    return form
