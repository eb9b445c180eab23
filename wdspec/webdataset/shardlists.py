"""Lists of shards: what pipelines begin with. Each yields dicts ``{"url": …}``.

`SimpleShardList` gives each shard once a pass, `ResampledShards` draws them, `MultiShardSample` chooses among several
collections, and `DirectoryShardList` reads a directory while others fill it.
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
from typing import Any, overload

from wdspec.base.errors import UrlError, UsageError, did_you_mean
from wdspec.planning.keys import key64, random64
from wdspec.planning.seat import find_seat
from wdspec.planning.shard_order import Permutation
from wdspec.shards.listing import list_shards
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.braces import Braces
from wdspec.urls.urls import UrlSequence, scheme_of
from wdspec.webdataset.shuffling import resampled as resampled
from wdspec.webdataset.splitting import single_node_only as single_node_only
from wdspec.webdataset.splitting import split_by_node as split_by_node
from wdspec.webdataset.splitting import split_by_worker as split_by_worker
from wdspec.webdataset.splitting import worker_place
from wdspec.webdataset.stage import pipelinefilter as pipelinefilter

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


class ShardTexts(Sequence[str]):
    """Listed shards as texts: what users see of a list, equal to any list of the same texts; braces stay arithmetic."""

    def __init__(self, shards: UrlSequence) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [shard.text for shard in self.shards[index]]
        return self.shards[index].text

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
            for shard in self.urls.shards:
                yield {"url": shard.text}
            return
        order = Permutation(key64(self.seed, "shards", number), len(self.urls))
        for i in range(len(self.urls)):
            yield {"url": self.urls[order[i]]}

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
            yield {"url": self.urls[random64(key, i) * count >> 64]}

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


_TAKEN = re.compile(r"(.*)\._(\d+)_", re.DOTALL)


class DirectoryShardList:
    """The shards of a directory, one after the other, as long as some come; no order is promised, and no resume.

    While a shard is read its name has the end `._PID_`, so that several processes share a directory. What was not read
    to its end gets its name back, also from a process that has ended, and is taken up again.

    Args:
        path: the directory.
        pattern: glob of the names of shards; braces hold alternatives.
        poll: seconds to wait for more; None ends where there are none.
        timeout: seconds after which no more are waited for.
        mode: what becomes of a shard that was read: `resample` gives it back, `unlink` deletes it, `keep` renames it to
            `._done_`.
        select: `random`, or the `oldest` first.
        fate: taken for the sake of webdataset's signature, where it has no meaning either.

    Raises:
        UsageError: there is no such directory, or another word for `mode` or `select`.
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
            raise UsageError(f"there is no directory {path}")
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
            except GeneratorExit:  # whoever reads has stopped within it
                _rename(taken, chosen)
                raise
            self._let_go(taken, chosen)
            last = time.monotonic()

    def cleanup_files_without_processes(self) -> None:
        """Gives back what processes left that have ended: nobody has read it to its end."""
        for name in glob.glob(self.path + "*._*_"):
            match = _TAKEN.fullmatch(name)
            if match and not _lives(int(match[2])):
                _rename(name, match[1])

    def _let_go(self, taken: str, name: str) -> None:
        """What becomes of a shard that was read."""
        if self.mode == "unlink":
            with suppress(FileNotFoundError):
                os.unlink(taken)
        else:
            _rename(taken, f"{name}._done_" if self.mode == "keep" else name)


def _rename(old: str, new: str) -> None:
    with suppress(FileNotFoundError):  # another process has been faster
        os.rename(old, new)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def non_empty(source: Iterable[Any]) -> Iterator[Any]:
    """Passes everything on; a stream without any item is an error.

    Raises:
        UsageError: nothing came.
    """
    came = False
    for item in source:
        came = True
        yield item
    if not came:
        raise UsageError("a pipeline stage got no items at all, and `non_empty` says that it must")


def expand_urls(urls: Urls) -> list[str]:
    """The texts that URLs stand for: braces and `::` expanded, globs and directories listed. Raises as `list_urls`."""
    return list_urls(urls).texts()


def expand_source(source: Any, max_urls: int = 10**9) -> list[str]:
    """The first so many URLs of a text, a list, an iterable, or a function that gives one of these."""
    made = source() if callable(source) else source
    if isinstance(made, (str, os.PathLike)):
        return expand_urls(made)[:max_urls]
    if not isinstance(made, Iterable):
        raise UsageError(f"shards are given as a URL, a list or a function, not as {type(made).__name__}")
    return [os.fspath(url) for _, url in zip(range(max_urls), made, strict=False)]


def shardspec(spec: str) -> SimpleShardList | MultiShardSample:
    """The shards of a YAML file with `datasets`, or those that a URL stands for."""
    if not str(spec).endswith((".yaml", ".yml")):
        return SimpleShardList(spec)
    import yaml

    with open(spec, encoding="utf-8") as file:
        return MultiShardSample(yaml.safe_load(file))


ResampledShardList = ResampledShards
