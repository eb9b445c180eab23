"""Lists of shards: what pipelines begin with. Each yields dicts ``{"url": …}``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import eq
from typing import Any, overload

from wdspec.base.errors import UrlError, UsageError
from wdspec.fluent.stages.splitting import worker_place
from wdspec.planning.keys import key64, random64
from wdspec.planning.shard_order import Permutation
from wdspec.planning.topology import find_seat
from wdspec.shards.listing import list_shards
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl, UrlSequence, scheme_of

Urls = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A URL, or several: with braces, `::`, globs, directories, `@file`s and `${NAME}`, as in a spec's `shards`."""

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def list_urls(urls: Urls) -> UrlSequence:
    """The shards that URLs stand for, listed now; braces stay arithmetic.

    Raises:
        UrlError: no URL, one that cannot be understood, or a `${NAME}` whose variable `WDS_NAME` is not set.
        ShardError: a directory, glob or `@file` that gives nothing.
    """
    if not isinstance(urls, (str, os.PathLike)) and not hasattr(urls, "__iter__"):
        raise UsageError(f"shards are given as a URL or a list of URLs, not as {type(urls).__name__}")
    texts = [os.fspath(url) for url in ([urls] if isinstance(urls, (str, os.PathLike)) else urls)]
    environment = Environment.read()
    return list_shards(
        [with_variables(text) for text in texts], environment.directory, Storage.of(environment)
    )


def with_variables(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """A URL with ``${NAME}`` replaced by the environment variable ``WDS_NAME``.

    In `pipe:` URLs what is not set is left to the shell.

    Raises:
        UrlError: the variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        name = f"WDS_{match.group(1)}"
        if name in environ:
            return environ[name]
        if scheme_of(text) == "pipe":
            return match.group(0)
        raise UrlError(
            f"`{match.group(0)}` stands for the environment variable {name}, which is not set", url=text
        )

    for _ in range(10):
        replaced = _VARIABLE.sub(value, text)
        if replaced == text:
            break
        text = replaced
    return text


class ShardText(str):
    """A shard as a text, which knows where a relative path starts, as `ShardUrl` does."""

    base: str

    @classmethod
    def of(cls, shard: ShardUrl) -> ShardText:
        """The text of a shard."""
        made = cls(shard.text)
        made.base = shard.base
        return made

    @property
    def text(self) -> str:
        """The text alone."""
        return str(self)


class ShardTexts(Sequence[str]):
    """Listed shards as texts: what users see of a list, equal to any list of the same texts; braces stay arithmetic."""

    def __init__(self, shards: UrlSequence) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards)

    @overload
    def __getitem__(self, index: int) -> ShardText: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> ShardText | list[str]:
        if isinstance(index, slice):
            return [ShardText.of(shard) for shard in self.shards[index]]
        return ShardText.of(self.shards[index])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ShardTexts):
            return self.shards == other.shards
        return isinstance(other, (list, tuple)) and len(other) == len(self) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(self.shards)

    def __repr__(self) -> str:
        return repr(self.shards)


class SimpleShardList:
    """Every shard once a pass.

    Args:
        urls: see `Urls`; listed now, in the parent.
        seed: shuffles them, anew in each pass and alike on all ranks and workers; None keeps their order.

    Raises:
        UrlError, ShardError: as `list_urls` says.
    """

    endless = False

    def __init__(self, urls: Urls, seed: int | None = None) -> None:
        self.urls = ShardTexts(list_urls(urls))
        self.seed = seed

    def __len__(self) -> int:
        return len(self.urls)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.iterate(0)

    def iterate(self, number: int) -> Iterator[dict[str, Any]]:
        """The shards of one pass."""
        if self.seed is None:
            for url in self.urls.shards:
                yield {"url": url.text}
            return
        order = Permutation(key64(self.seed, "shards", number), len(self.urls))
        for i in range(len(self.urls)):
            yield {"url": self.urls[order[i]].text}

    def __repr__(self) -> str:
        return f"SimpleShardList({self.urls!r}, seed={self.seed})"


class ResampledShards:
    """Shards drawn with replacement, others for every rank, worker and pass: neither needs splitting.

    Args:
        urls: see `Urls`.
        nshards: shards a pass; endless by default.
        seed: the draws repeat with it.
        worker_seed: a function that gives the number by which processes differ, called in each; by default rank and
            worker.
        deterministic: draws repeat either way.
        max_urls: only the first so many URLs; webdataset takes a million.
        empty_check: a list always has a URL.

    Raises:
        UrlError, ShardError: as `list_urls` says.
    """

    def __init__(
        self,
        urls: Urls,
        nshards: int = sys.maxsize,
        seed: int = 0,
        worker_seed: Callable[[], int] | None = None,
        deterministic: bool = False,
        max_urls: int = sys.maxsize,
        empty_check: bool = True,
    ) -> None:
        self.urls = ShardTexts(list_urls(urls))
        self.nshards, self.seed = nshards, seed
        self.worker_seed, self.deterministic, self.max_urls = worker_seed, deterministic, max_urls
        self.epoch = -1
        """Passes begun by iterating this list alone, less one."""

    @property
    def endless(self) -> bool:
        """Whether a pass has no end."""
        return self.nshards == sys.maxsize

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.epoch += 1
        return self.iterate(self.epoch)

    def iterate(self, number: int) -> Iterator[dict[str, Any]]:
        """The shards of one pass of this rank and worker."""
        seat, (worker, _) = find_seat(), worker_place()
        place = (seat.rank, worker) if self.worker_seed is None else (int(self.worker_seed()),)
        key = key64(self.seed, "resampled", *place, number)
        count = min(len(self.urls), self.max_urls)
        for i in range(self.nshards):
            yield {"url": self.urls[random64(key, i) * count >> 64].text}

    def __repr__(self) -> str:
        return f"ResampledShards({self.urls!r}, seed={self.seed})"


class ChosenShards:
    """A part of a list, chosen by the user's `splitter`: list of URLs → list of URLs, called in each process."""

    endless = False

    def __init__(self, urls: Urls, splitter: Callable[[list[str]], Sequence[str]]) -> None:
        self.urls, self.splitter = list_urls(urls), splitter

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for url in self.splitter([url.text for url in self.urls]):
            yield {"url": url}
