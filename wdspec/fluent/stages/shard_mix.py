"""Shards chosen anew in each pass from several collections: webdataset's dictionaries of `datasets`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from wdspec.base.errors import UsageError, did_you_mean
from wdspec.fluent.stages.shard_lists import list_urls, with_variables
from wdspec.planning.keys import key64, random64
from wdspec.planning.shard_order import Permutation
from wdspec.urls.urls import UrlSequence

_TOP = ("prefix", "buckets", "datasets")
_EACH = ("name", "buckets", "shards", "choose", "resample")


class MultiShardSample:
    """Shards of several collections, in one shuffled list a pass; all ranks and workers have the same, and split it.

    Args:
        spec: ``{"prefix": …, "buckets": …, "datasets": [{"shards": …, "choose": n}, …]}``. The URLs of a collection are
            its prefix, its bucket (its own or the common one) and its shards, one after the other. `choose: n` takes
            n shards a pass without repeats, `resample: n` n of them with repeats, neither takes all.
        seed: changes what is chosen.

    Raises:
        UsageError: an unknown key, no shards, or a number that cannot be.
    """

    endless = False

    def __init__(self, spec: Mapping[str, Any], seed: int = 0) -> None:
        _check_keys(spec, _TOP, "the specification")
        datasets = spec.get("datasets")
        if not isinstance(datasets, list) or not datasets:
            raise UsageError("`datasets` is a list of collections, each with its `shards`")
        self.seed = seed
        self.collections = [_Collection(spec, dataset, index) for index, dataset in enumerate(datasets)]

    @property
    def urls(self) -> list[Any]:
        """All shards that may be chosen."""
        return [url for collection in self.collections for url in collection.urls]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.iterate(0)

    def iterate(self, number: int) -> Iterator[dict[str, Any]]:
        """The shards of one pass."""
        chosen = [url for collection in self.collections for url in collection.choose(self.seed, number)]
        order = Permutation(key64(self.seed, "shards", number), len(chosen)) if chosen else ()
        for i in range(len(chosen)):
            yield {"url": chosen[order[i]]}

    def __repr__(self) -> str:
        return f"MultiShardSample({', '.join(collection.name for collection in self.collections)})"


class _Collection:
    """One entry of `datasets`."""

    def __init__(self, spec: Mapping[str, Any], dataset: Any, index: int) -> None:
        if not isinstance(dataset, Mapping):
            raise UsageError(f"entry {index} of `datasets` is a {type(dataset).__name__}, not a dictionary")
        bucket = dataset.get("buckets", spec.get("buckets", ""))
        if isinstance(bucket, list):
            if len(bucket) > 1:
                raise UsageError(f"{len(bucket)} buckets for one collection: write a collection for each")
            bucket = bucket[0] if bucket else ""
        self.name = str(dataset.get("name", f"@{bucket}" if bucket else f"#{index}"))
        _check_keys(dataset, _EACH, f"the collection {self.name}")
        if "shards" not in dataset:
            raise UsageError(f"the collection {self.name} has no `shards`")
        shards = dataset["shards"]
        prefix = os.path.expanduser(with_variables(str(spec.get("prefix", "")))) + (
            f"{bucket}/" if bucket else ""
        )
        texts = [shards] if isinstance(shards, str) else shards
        self.urls: UrlSequence = list_urls([prefix + text for text in texts])
        self.count, self.repeats = self._count(dataset)

    def _count(self, dataset: Mapping[str, Any]) -> tuple[int | None, bool]:
        given = [key for key in ("choose", "resample") if dataset.get(key) is not None]
        if len(given) == 2:
            raise UsageError(f"the collection {self.name} has both `choose` and `resample`; give one of them")
        if not given:
            return None, False
        count = dataset[given[0]]
        if type(count) is not int or count < 1:
            raise UsageError(
                f"`{given[0]}` of the collection {self.name} is a number of shards, not {count!r}"
            )
        if given[0] == "choose" and count > len(self.urls):
            raise UsageError(
                f"the collection {self.name} has {len(self.urls)} shards, so `choose: {count}` cannot take {count} "
                "without repeats; use `resample`"
            )
        return count, given[0] == "resample"

    def choose(self, seed: int, number: int) -> list[str]:
        """The URLs of one pass."""
        count = len(self.urls)
        key = key64(seed, "chosen", self.name, number)
        if self.count is None:
            return [url.text for url in self.urls]
        if self.repeats:
            return [self.urls[random64(key, i) * count >> 64].text for i in range(self.count)]
        order = Permutation(key, count)
        return [self.urls[order[i]].text for i in range(self.count)]


def _check_keys(mapping: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in mapping:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"known are {', '.join(known)}"
            raise UsageError(f"{where} has an unknown key `{key}`; {hint}")
