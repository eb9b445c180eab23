"""Datasets with the names that webdataset gives them: `WebDataset`, for shards or a spec, and smaller ones.

All of them are pipelines with methods that add stages; see `DataPipeline`.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, cast

from torch.utils.data import DataLoader

from wdspec.base.errors import UsageError
from wdspec.base.redaction import redacted_urls
from wdspec.base.replacements import ARGUMENTS
from wdspec.planning.topology import find_seat
from wdspec.spec.files import is_spec_file
from wdspec.spec.load import load
from wdspec.webdataset.handlers import ErrorHandler, reraise_exception
from wdspec.webdataset.pipeline import DataPipeline, EpochCut, Repeated, build_stage
from wdspec.webdataset.shardlists import (
    ChosenShards,
    MultiShardSample,
    ResampledShards,
    SimpleShardList,
    Urls,
)
from wdspec.webdataset.shuffling import shuffle as shuffled
from wdspec.webdataset.spec_pipeline import compile_spec
from wdspec.webdataset.splitting import single_node_only, split_by_node, split_by_worker
from wdspec.webdataset.tariterators import Rename, Selection, ShardReader, read_tars

Splitter = Callable[[Iterable[Any]], Iterator[Any]]


P = ParamSpec("P")


def with_hints(function: Callable[P, None]) -> Callable[P, None]:
    """Let a function say what replaces an argument that it once had in webdataset."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        for name in kwargs:
            if name in ARGUMENTS:
                raise TypeError(f"WebDataset has no argument {name!r}; use {ARGUMENTS[name]}")
        return function(*args, **kwargs)

    return call


class WebDataset(DataPipeline):
    """The raw samples of shards: dicts of `__key__`, `__url__` and the bytes of each file by its suffix.

    Args:
        urls: one or more URLs, with braces, `::`, globs, directories, `@file`s and `${NAME}` (the environment
            variable `WDS_NAME`). Or a spec, as a dict or a path that ends in `.yaml` or `.json`: the pipeline is then
            the one that `wdspec.compile` returns, and `length` is the only other argument. Or a dict of `datasets`
            with `choose` and `resample`; see `MultiShardSample`.
        shardshuffle: whether to shuffle the shards in each pass. Any number except 0 means the same, as all shards are
            shuffled, without a buffer. All ranks and workers have the same order, and split it.
        resampled: draw shards with replacement, without end, independently in each rank and worker.
        seed: for `shardshuffle` and `resampled`; by default `WDS_SEED`, or else 0.
        nodesplitter: splits shards among ranks, such as `wdspec.split_by_node`; by default, several ranks are an error.
        workersplitter: splits shards among DataLoader workers.
        cache_dir: a directory for copies of remote shards, which later passes read; by default `WDS_CACHE`. Samples
            get `__local_path__`, the path of the copy (which may not be complete yet).
        cache_size: maximum total size of the copies in bytes; by default `WDS_CACHE_SIZE`, or else unlimited.
        url_to_name: maps a URL to the name of a file in `cache_dir`, for copies that you or webdataset have put there.
            wdspec names its own copies differently, one for each URL.
        handler: what to do about shards and samples that cannot be read completely.
        select_files: which members to keep, by name after renaming.
        rename_files: the new name of each member, before grouping.
        empty_check: whether a pass without samples is an error; ignored if you pass a `handler`.
        lenient_end: whether a tar without an end marker, or with too many zeros after it, causes only a warning.
        may_be_empty: whether shards may have no members; also if `empty_check` is False.
        repeat: whether to repeat passes without end.
        length: the result of `len()`.
        mode: `resampled` means `resampled=True`; None means nothing.
        verbose: whether to log each shard that is opened, to the logger `wdspec`.

    Raises:
        UrlError, ShardError: URLs are invalid or cannot be listed.
        SpecError: the spec has problems.

    Example:
        >>> import wdspec as wds
        >>> dataset = wds.WebDataset("examples/data/digits-a-{000000..000003}.tar.bz2", shardshuffle=True)
        >>> image, label = next(iter(dataset.shuffle(100).decode("rgb8").to_tuple("png", "cls")))
        >>> image.dtype
        dtype('uint8')
    """

    @with_hints
    def __init__(
        self,
        urls: Urls | Mapping[str, Any],
        handler: ErrorHandler = reraise_exception,
        mode: str | None = None,
        *,
        shardshuffle: bool | int | None = None,
        resampled: bool = False,
        seed: int | None = None,
        detshuffle: bool = False,
        nodesplitter: Splitter | None = single_node_only,
        workersplitter: Splitter | None = split_by_worker,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int = -1,
        url_to_name: Callable[[str], str] | None = None,
        select_files: Selection | None = None,
        rename_files: Rename | None = None,
        empty_check: bool = True,
        lenient_end: bool = False,
        may_be_empty: bool = False,
        verbose: bool = False,
        repeat: bool = False,
        length: int | None = None,
    ) -> None:
        if mode not in (None, "resampled"):
            raise UsageError(
                f"`mode` is {mode!r}; use `resampled` or leave it out, and use `shardshuffle` for other orders"
            )
        resampled = resampled or mode == "resampled"
        arguments = dict(locals())
        seed = int(os.environ.get("WDS_SEED") or 0) if seed is None else seed
        spec = _spec_in(urls)
        shards: MultiShardSample | ResampledShards | SimpleShardList
        splitters: tuple[Any, ...] = (nodesplitter, workersplitter)
        if isinstance(spec, Mapping) and "datasets" in spec and "dataset" not in spec:
            shards = MultiShardSample(spec, seed)
        elif spec is not None:
            _check_unset(arguments)
            super().__init__(compile_spec(load(spec), find_seat()))
            self._length = length
            return
        elif resampled:
            shards, splitters = ResampledShards(cast(Urls, urls), seed=seed), ()
        else:
            shards = SimpleShardList(cast(Urls, urls), seed if shardshuffle or detshuffle else None)
        listed = shards.urls if isinstance(shards, MultiShardSample) else shards.urls.shards
        reader = ShardReader.here(
            "auto", listed, cache_dir, cache_size if cache_size >= 0 else None, url_to_name
        )
        reader = replace(reader, may_be_empty=may_be_empty or not empty_check, lenient_end=lenient_end)
        samples = read_tars(reader, handler, select_files, rename_files, empty_check)
        super().__init__(shards, *splitters, _log_shards if verbose else None, samples)
        if repeat:
            self._epochs = Repeated()
        self._length = length


def _log_shards(source: Iterator[Any]) -> Iterator[Any]:
    """Log each shard before it is read."""
    for shard in source:
        logging.getLogger("wdspec").info("opening %s", redacted_urls(str(shard["url"])))
        yield shard


def _check_unset(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for arguments that have no effect together with a spec."""
    defaults = {name: each.default for name, each in inspect.signature(WebDataset).parameters.items()}
    del defaults["urls"], defaults["length"]
    names = ", ".join(f"`{name}`" for name, usual in defaults.items() if arguments[name] != usual)
    if names:
        raise UsageError(
            f"{names} would have no effect with a spec, which says itself how shards are read, shuffled, cached and "
            "skipped (`order`, `shuffle`, `seed`, `cache`, `errors`, `epoch`); change the spec, or override its values "
            "with `wdspec.compile(spec, overrides=[…])`"
        )


def _spec_in(urls: Any) -> str | Mapping[str, Any] | None:
    """Return a spec or its path; None for URLs of shards."""
    if isinstance(urls, Mapping):
        return urls
    if isinstance(urls, (str, os.PathLike)) and is_spec_file(os.fspath(urls)):
        return os.fspath(urls)
    return None


class MockDataset:
    """One sample, `length` times per pass."""

    endless = False

    def __init__(self, sample: Any, length: int) -> None:
        self.sample, self.length = sample, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return (self.sample for _ in range(self.length))


class FluidWrapper(DataPipeline):
    """A dataset, or any other source, with the methods of pipelines."""

    def __init__(self, initial: Any) -> None:
        super().__init__(initial)


class WebLoader(DataPipeline):
    """A DataLoader, with the arguments of torch's DataLoader and the methods of pipelines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(DataLoader(*args, **kwargs))


class ResizedDataset(DataPipeline):
    """A dataset in epochs of `length` items in each worker; `len()` returns `nominal`.

    Each epoch continues where the last one stopped.
    """

    def __init__(self, dataset: Any, length: int, nominal: int | None = None) -> None:
        super().__init__(dataset)
        self._epochs = EpochCut(length)
        self._length = length if nominal is None else nominal


class ShardList(DataPipeline):
    """The shards of this rank and worker: the source of pipelines in the style of 2021.

    Args:
        urls: see `SimpleShardList`.
        splitter: all URLs (a list) → those of this process; by default its part among ranks and workers.
        shuffle: whether to shuffle the shards in each pass.
    """

    def __init__(
        self,
        urls: Urls,
        splitter: Callable[[list[str]], Sequence[str]] | None = None,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        if splitter is None:
            super().__init__(SimpleShardList(urls, seed if shuffle else None), split_by_node, split_by_worker)
        else:
            super().__init__(ChosenShards(urls, splitter), shuffled(10_000) if shuffle else None)


class Processor(DataPipeline):
    """A function from iterator to iterator with its arguments. Call it on datasets.

    ``Processor(add_noise, noise=0.02)(dataset)`` is the pipeline of `dataset` and this stage.
    """

    def __init__(self, function: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.stage = build_stage(function, *args, **kwargs)  # type: ignore[method-assign]  # older than the method

    def __call__(self, dataset: Any) -> DataPipeline:
        """Return the dataset followed by the stage."""
        return DataPipeline(dataset, self.stage)

    def iterate(self, number: int) -> Iterator[Any]:
        """Raise UsageError: there is no dataset yet."""
        raise UsageError("a Processor has no items itself; call it on a dataset: Processor(f, …)(dataset)")


class FluidInterface:
    """An empty base class: pipelines have the methods already, and your classes with this base work unchanged."""
