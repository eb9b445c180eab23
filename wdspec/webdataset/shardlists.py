"""Lists of shards, the sources of pipelines. They yield dicts ``{"url": …}``.

`SimpleShardList` yields each shard once per pass, `ResampledShards` draws them at random, `MultiShardSample` chooses
from several collections, and `DirectoryShardList` reads a directory while other processes fill it.
"""

from __future__ import annotations

import glob
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import eq
from typing import Any

from wdspec.base.errors import UrlError, UsageError, did_you_mean
from wdspec.planning.keys import key64, random64
from wdspec.planning.order import Permutation
from wdspec.planning.topology import find_seat
from wdspec.shards.listing import list_texts
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.braces import Braces, ComputedSequence
from wdspec.urls.urls import ShardUrl, UrlSequence, is_command, pattern_of_path
from wdspec.webdataset.shuffling import resampled as resampled
from wdspec.webdataset.splitting import single_node_only as single_node_only
from wdspec.webdataset.splitting import split_by_node as split_by_node
from wdspec.webdataset.splitting import split_by_worker as split_by_worker
from wdspec.webdataset.splitting import worker_place
from wdspec.webdataset.stage import pipelinefilter as pipelinefilter

Urls = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Paths, and URLs with braces, `::`, globs, directories, `@file`s and `${NAME}`, as in `shards` of a spec."""

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def list_urls(urls: Urls) -> UrlSequence:
    """List the shards of URLs. Braces are not expanded but computed. A `pathlib.Path` is the path of one file.

    Raises:
        UrlError: there is no URL, one is invalid, or the variable `WDS_NAME` of a `${NAME}` is not set.
        ShardError: a directory, glob or `@file` has no shards.
    """
    if not isinstance(urls, (str, os.PathLike)) and not hasattr(urls, "__iter__"):
        raise UsageError(f"shards are a URL or a list of URLs, not {type(urls).__name__}")
    texts = [
        with_variables(url) if isinstance(url, str) else pattern_of_path(url)
        for url in ([urls] if isinstance(urls, (str, os.PathLike)) else urls)
    ]
    environment = Environment.read()
    return list_texts(texts, environment.directory, Storage.of(environment))


def with_variables(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Replace each ``${NAME}`` in a URL with the environment variable ``WDS_NAME``.

    In `pipe:` URLs, variables that are not set are left to the shell.

    Raises:
        UrlError: the variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        name = f"WDS_{match.group(1)}"
        if name in environ:
            return environ[name]
        if is_command(text):
            return match.group(0)
        raise UrlError(
            f"`{match.group(0)}` refers to the environment variable {name}, which is not set", url=text
        )

    for _ in range(10):
        replaced = _VARIABLE.sub(value, text)
        if replaced == text:
            break
        text = replaced
    return text


class ShardText(str):
    """The URL of a shard that also knows the directory of relative paths, as `ShardUrl` does."""

    base: str

    @classmethod
    def of(cls, shard: ShardUrl) -> ShardText:
        """Return the text of a shard."""
        text = cls(shard.text)
        text.base = shard.base
        return text

    @property
    def text(self) -> str:
        """The URL alone."""
        return str(self)


class ShardTexts(ComputedSequence[ShardText]):
    """The URLs of listed shards, equal to a list of the same strings. Braces are not expanded but computed."""

    def __init__(self, shards: UrlSequence) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards)

    def item(self, index: int) -> ShardText:
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
    """Each shard once per pass.

    Args:
        urls: see `Urls`; listed now, in the parent process.
        seed: shuffles the shards, differently in each pass, but the same in all processes; None keeps their order.

    Raises:
        UrlError, ShardError: see `list_urls`.
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
        """Yield the shards of one pass."""
        if self.seed is None:
            for shard in self.urls.shards:
                yield {"url": shard.text}
            return
        order = Permutation(key64(self.seed, "shards", number), len(self.urls))
        for i in range(len(self.urls)):
            yield {"url": self.urls.shards[order[i]].text}

    def __repr__(self) -> str:
        return f"SimpleShardList({self.urls!r}, seed={self.seed})"


class ResampledShards:
    """Shards drawn with replacement, independently in each rank, worker and pass, so that they need no splitting.

    Args:
        urls: see `Urls`.
        nshards: shards per pass; by default a pass has no end.
        seed: the same seed gives the same draws.
        worker_seed: a function that returns a number for each process, by which their draws differ; by default they
            differ by rank and worker.
        deterministic: ignored, as draws are always reproducible.
        max_urls: draw from the first URLs only; webdataset's default is a million.
        empty_check: ignored, as a list is never empty.

    Raises:
        UrlError, ShardError: see `list_urls`.
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
        """The number of the current pass, for iterating this list alone."""

    @property
    def endless(self) -> bool:
        """Whether a pass has no end."""
        return self.nshards == sys.maxsize

    @property
    def size(self) -> int:
        """The number of different shards."""
        return min(len(self.urls), self.max_urls)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.epoch += 1
        return self.iterate(self.epoch)

    def iterate(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the shards of one pass of this rank and worker."""
        seat, (worker, _) = find_seat(), worker_place()
        place = (seat.rank, worker) if self.worker_seed is None else (int(self.worker_seed()),)
        key = key64(self.seed, "resampled", *place, number)
        for i in range(self.nshards):
            yield {"url": self.urls.shards[random64(key, i) * self.size >> 64].text}

    def __repr__(self) -> str:
        return f"ResampledShards({self.urls!r}, seed={self.seed})"


class ChosenShards:
    """The part of a list that the function `splitter` (list of URLs → list of URLs) chooses in each process."""

    endless = False

    def __init__(self, urls: Urls, splitter: Callable[[list[str]], Sequence[str]]) -> None:
        self.urls, self.splitter = list_urls(urls), splitter

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for url in self.splitter([url.text for url in self.urls]):
            yield {"url": url}


_TOP = ("prefix", "buckets", "datasets")
_EACH = ("name", "buckets", "shards", "choose", "resample")


class MultiShardSample:
    """Shards of several collections, in one shuffled list per pass, which all ranks and workers share and split.

    Args:
        spec: ``{"prefix": …, "buckets": …, "datasets": [{"shards": …, "choose": n}, …]}``, or the path of a
            YAML file with it. The URLs of a collection
            consist of the prefix, the bucket (of the collection, or the common one) and the shards. `choose: n` takes
            n shards per pass without repeats, `resample: n` takes n with repeats; without either, all are taken.
        seed: changes which shards are chosen.

    Raises:
        UsageError: a key is unknown, there are no shards, or a number is invalid.
    """

    endless = False

    def __init__(self, spec: Mapping[str, Any] | str | os.PathLike[str], seed: int = 0) -> None:
        if isinstance(spec, (str, os.PathLike)):
            import yaml

            with open(spec, encoding="utf-8") as file:
                spec = yaml.safe_load(file)
        if not isinstance(spec, Mapping):
            raise UsageError(
                f"the specification is a {type(spec).__name__}; it must be a dictionary with `datasets`"
            )
        _check_keys(spec, _TOP, "the specification")
        datasets = spec.get("datasets")
        if not isinstance(datasets, list) or not datasets:
            raise UsageError("`datasets` must be a list of collections, each with `shards`")
        self.seed = seed
        self.collections = [_Collection(spec, dataset, index) for index, dataset in enumerate(datasets)]

    @property
    def urls(self) -> list[Any]:
        """All shards that can be chosen."""
        return [url for collection in self.collections for url in collection.urls]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.iterate(0)

    def iterate(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the shards of one pass."""
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
                raise UsageError(
                    f"a collection has {len(bucket)} buckets; write a collection for each bucket"
                )
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
        keys = [key for key in ("choose", "resample") if dataset.get(key) is not None]
        if len(keys) == 2:
            raise UsageError(f"the collection {self.name} has both `choose` and `resample`; use one of them")
        if not keys:
            return None, False
        count = dataset[keys[0]]
        if type(count) is not int or count < 1:
            raise UsageError(
                f"`{keys[0]}` of the collection {self.name} must be a number of shards, not {count!r}"
            )
        if keys[0] == "choose" and count > len(self.urls):
            raise UsageError(
                f"the collection {self.name} has {len(self.urls)} shards, so `choose: {count}` cannot take {count} "
                "without repeats; use `resample`"
            )
        return count, keys[0] == "resample"

    def choose(self, seed: int, number: int) -> list[str]:
        """Choose the URLs of one pass."""
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


_TAKEN = re.compile(r"(.*)\._(\d+)_", re.DOTALL)


class DirectoryShardList:
    """The shards of a directory, as long as new ones appear. Their order is not defined, and reading cannot be resumed.

    While a shard is read, its name ends with `._PID_`, so that several processes can share a directory. A shard that
    was not read to its end gets its name back, even if its process has ended, and will be read again.

    Args:
        path: the directory.
        pattern: a glob for the names of shards; braces contain alternatives.
        poll: seconds to wait for more shards; None ends the list if there are none.
        timeout: seconds to wait for more shards in total.
        mode: what to do with a shard that was read: `resample` puts it back, `unlink` deletes it, `keep` renames it to
            `._done_`.
        select: `random`, or the `oldest` first.
        fate: ignored, as by webdataset.

    Raises:
        UsageError: the directory does not exist, or `mode` or `select` is invalid.
    """

    endless = True

    def __init__(
        self,
        path: str,
        pattern: str = "*.{tar,tgz,tar.tgz}",
        poll: float | None = 1,
        timeout: float = 1e12,
        mode: str = "resample",
        select: str = "random",
        fate: Any = None,
    ) -> None:
        if not os.path.isdir(path):
            raise UsageError(f"the directory {path} does not exist")
        for name, value, known in (
            ("mode", mode, ("resample", "unlink", "keep")),
            ("select", select, ("random", "oldest")),
        ):
            if value not in known:
                raise UsageError(f"`{name}` is {' or '.join(known)}, not {value!r}")
        self.path = os.path.join(path, "")
        self.patterns = list(Braces(pattern))
        self.poll, self.timeout, self.mode, self.select = poll, timeout, mode, select

    def __iter__(self) -> Iterator[dict[str, Any]]:
        last = time.monotonic()
        while time.monotonic() - last < self.timeout:
            self.cleanup_files_without_processes()
            found = [name for pattern in self.patterns for name in sorted(glob.glob(self.path + pattern))]
            if not found:
                if self.poll is None:
                    return
                time.sleep(self.poll)
                continue
            try:
                chosen = min(found, key=os.path.getmtime) if self.select == "oldest" else random.choice(found)
                taken = f"{chosen}._{os.getpid()}_"
                os.rename(chosen, taken)
            except FileNotFoundError:  # another process was faster
                continue
            try:
                yield {"url": taken}
            except GeneratorExit:  # the reader stopped within the shard
                _rename(taken, chosen)
                raise
            self._release(taken, chosen)
            last = time.monotonic()

    def cleanup_files_without_processes(self) -> None:
        """Put back the shards of processes that ended before they had read them to the end."""
        for name in glob.glob(self.path + "*._*_"):
            match = _TAKEN.fullmatch(name)
            if match and not _lives(int(match[2])):
                _rename(name, match[1])

    def _release(self, taken: str, name: str) -> None:
        """Do what `mode` says with a shard that was read."""
        if self.mode == "unlink":
            with suppress(FileNotFoundError):
                os.unlink(taken)
        else:
            _rename(taken, f"{name}._done_" if self.mode == "keep" else name)


def _rename(old: str, new: str) -> None:
    with suppress(FileNotFoundError):  # another process was faster
        os.rename(old, new)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def non_empty(source: Iterable[Any]) -> Iterator[Any]:
    """Yield all items, and raise an error if there are none.

    Raises:
        UsageError: the stream is empty.
    """
    empty = True
    for item in source:
        empty = False
        yield item
    if empty:
        raise UsageError("a pipeline stage got no items, which `non_empty` does not allow")


def expand_urls(urls: Urls) -> list[str]:
    """Expand braces and `::`, list globs and directories, and return the URLs. Raises what `list_urls` raises."""
    return list_urls(urls).texts()


def shardspec(spec: str) -> SimpleShardList | MultiShardSample:
    """Return the shards of a YAML file with `datasets`, or of a URL."""
    if not str(spec).endswith((".yaml", ".yml")):
        return SimpleShardList(spec)
    return MultiShardSample(spec)
