"""Datasets under the names that webdataset gives them: `WebDataset` for shards or a spec, and smaller ones.

All are pipelines: their methods add stages, see `DataPipeline`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from torch.utils.data import DataLoader

from wdspec.base.errors import UsageError
from wdspec.base.redaction import redacted_urls
from wdspec.webdataset.epochs import EpochCut
from wdspec.webdataset.handlers import ErrorHandler, reraise_exception
from wdspec.webdataset.pipeline import DataPipeline, build_stage
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


class WebDataset(DataPipeline):
    """The raw samples of shards: dicts of `__key__`, `__url__` and the bytes of each file by its suffix.

    Args:
        urls: a URL or several, with braces, `::`, globs, directories, `@file`s and `${NAME}` (the environment
            variable `WDS_NAME`). Or a spec, as a dict or a path that ends in `.yaml` or `.yml`: then the pipeline
            gives what `wdspec.compile` would, and takes no other arguments but `length`. Or a dict of `datasets` with
            `choose` and `resample`, see `MultiShardSample`.
        shardshuffle: whether the shards come in another order in each pass (any number but 0 does so too: all of them
            are shuffled, not a buffer). All ranks and workers agree on the order, and split it.
        resampled: draw shards with replacement, without end; ranks and workers draw for themselves.
        seed: changes what `shardshuffle` and `resampled` draw; by default `WDS_SEED`, else 0.
        nodesplitter: deals shards to ranks, such as `wdspec.split_by_node`; by default several ranks are an error.
        workersplitter: deals them to DataLoader workers.
        cache_dir: where copies of remote shards are kept while they are read, and read from then on; by default
            `WDS_CACHE`. Samples get `__local_path__`, where the copy of their shard is (or will be, once complete).
        cache_size: the most bytes that the copies may take; by default `WDS_CACHE_SIZE`, else no limit.
        handler: what to do about shards and samples that cannot be read whole.
        select_files: which members to keep, by name after renaming.
        rename_files: new name of each member, before grouping.
        empty_check: whether a pass without any sample is an error; not with a `handler` of your own.
        repeat: passes without end.
        length: what `len()` says.
        mode: `resampled` is `resampled=True`; None changes nothing.
        verbose: logs each shard when it is opened, to the logger `wdspec`.

    Raises:
        UrlError, ShardError: URLs that cannot be understood, or listed.
        SpecError: a spec with problems.

    Example:
        >>> import wdspec as wds
        >>> dataset = wds.WebDataset("examples/data/digits-a-{000000..000003}.tar.bz2", shardshuffle=True)
        >>> image, label = next(iter(dataset.shuffle(100).decode("rgb8").to_tuple("png", "cls")))
        >>> image.dtype
        dtype('uint8')
    """

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
        select_files: Selection | None = None,
        rename_files: Rename | None = None,
        empty_check: bool = True,
        verbose: bool = False,
        repeat: bool = False,
        length: int | None = None,
    ) -> None:
        if mode not in (None, "resampled"):
            raise UsageError(
                f"`mode` is `resampled` or left out, not {mode!r}; other orders are `shardshuffle`"
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
            super().__init__(compile_spec(spec))
            self._length = length
            return
        elif resampled:
            shards, splitters = ResampledShards(cast(Urls, urls), seed=seed), ()
        else:
            shards = SimpleShardList(cast(Urls, urls), seed if shardshuffle or detshuffle else None)
        listed = shards.urls if isinstance(shards, MultiShardSample) else shards.urls.shards
        reader = ShardReader.here("auto", listed, cache_dir, cache_size if cache_size >= 0 else None)
        reader = replace(reader, may_be_empty=not empty_check)
        samples = read_tars(reader, handler, select_files, rename_files, empty_check)
        super().__init__(shards, *splitters, _logged if verbose else None, samples)
        if repeat:
            self._stages = self.repeat().stages
        self._length = length


def _logged(source: Iterator[Any]) -> Iterator[Any]:
    """The shards, each logged before it is read."""
    for shard in source:
        logging.getLogger("wdspec").info("opening %s", redacted_urls(str(shard["url"])))
        yield shard


def _check_unset(arguments: Mapping[str, Any]) -> None:
    """Raises UsageError for arguments beside a spec, which says all that they would say."""
    defaults = {"handler": reraise_exception, **(WebDataset.__init__.__kwdefaults__ or {})}
    del defaults["length"]
    names = ", ".join(f"`{name}`" for name, usual in defaults.items() if arguments[name] != usual)
    if names:
        raise UsageError(
            f"{names} beside a spec would have no effect: the spec says how shards are read, shuffled, cached and "
            "skipped (`order`, `shuffle`, `seed`, `cache`, `errors`, `epoch`); write it there, or override it there "
            "by `wdspec.compile(spec, overrides=[…])`"
        )


def _spec_in(urls: Any) -> str | Mapping[str, Any] | None:
    """The spec, or the path of one; None for URLs of shards."""
    if isinstance(urls, Mapping):
        return urls
    if isinstance(urls, (str, os.PathLike)) and os.fspath(urls).partition("#")[0].endswith((".yaml", ".yml")):
        return os.fspath(urls)
    return None


class MockDataset:
    """One sample, `length` times a pass."""

    endless = False

    def __init__(self, sample: Any, length: int) -> None:
        self.sample, self.length = sample, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return (self.sample for _ in range(self.length))


class FluidWrapper(DataPipeline):
    """A dataset, or anything else that is read, with the methods of pipelines."""

    def __init__(self, initial: Any) -> None:
        super().__init__(initial)


class WebLoader(DataPipeline):
    """A torch DataLoader as a pipeline: its arguments are those of DataLoader, its methods those of pipelines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(DataLoader(*args, **kwargs))


class ResizedDataset(DataPipeline):
    """A dataset in epochs of `length` items, each going on where the last one stopped; `len()` says `nominal`."""

    def __init__(self, dataset: Any, length: int, nominal: int | None = None) -> None:
        super().__init__(EpochCut(dataset, length))
        self._length = length if nominal is None else nominal


class ShardList(DataPipeline):
    """The shards of this rank and worker: the first stage of pipelines in the style of 2021.

    Args:
        urls: see `SimpleShardList`.
        splitter: which of all URLs (a list) this process reads; by default its part among ranks and workers.
        shuffle: whether the shards come in another order in each pass.
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
    """A function from iterator to iterator with its arguments, to be called on datasets.

    ``Processor(add_noise, noise=0.02)(dataset)`` is the pipeline of `dataset` and that stage.
    """

    def __init__(self, function: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.stage = build_stage(function, *args, **kwargs)  # type: ignore[method-assign]  # of 2021, before the method

    def __call__(self, dataset: Any) -> DataPipeline:
        """The dataset with the stage behind it."""
        return DataPipeline(dataset, self.stage)

    def iterate(self, number: int) -> Iterator[Any]:
        """Raises a UsageError: there is nothing to process yet."""
        raise UsageError("a Processor is called on what it processes: Processor(f, …)(dataset)")


class FluidInterface:
    """Nothing: pipelines have the methods already, and classes that name this as a base need no change."""
