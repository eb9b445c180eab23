"""`WebDataset(urls, …)`: shards to samples in one call, with the methods of pipelines behind it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from wdspec.api import compile
from wdspec.base.errors import UsageError
from wdspec.base.redaction import redacted_urls
from wdspec.fluent.datapipeline import DataPipeline
from wdspec.fluent.error_handlers import ErrorHandler, reraise_exception
from wdspec.fluent.stages.shard_lists import ResampledShards, SimpleShardList, Urls
from wdspec.fluent.stages.shard_mix import MultiShardSample
from wdspec.fluent.stages.shard_reader import ShardReader
from wdspec.fluent.stages.splitting import single_node_only, split_by_worker
from wdspec.fluent.stages.tar_shards import Rename, Selection, read_tars
from wdspec.urls.urls import ShardUrl

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
        spec = _spec_in(urls)
        shards: MultiShardSample | ResampledShards | SimpleShardList
        splitters: tuple[Any, ...] = (nodesplitter, workersplitter)
        seed_given = seed is not None
        seed = int(os.environ.get("WDS_SEED") or 0) if seed is None else seed
        if isinstance(spec, Mapping) and "datasets" in spec and "dataset" not in spec:
            shards = MultiShardSample(spec, seed)
        elif spec is not None:
            _check_unset(
                shardshuffle=shardshuffle is not None,
                resampled=resampled or mode is not None,
                seed=seed_given,
                detshuffle=detshuffle,
                nodesplitter=nodesplitter is not single_node_only,
                workersplitter=workersplitter is not split_by_worker,
                cache_dir=cache_dir is not None,
                cache_size=cache_size != -1,
                handler=handler is not reraise_exception,
                select_files=select_files is not None,
                rename_files=rename_files is not None,
                empty_check=not empty_check,
                repeat=repeat,
                verbose=verbose,
            )
            super().__init__(compile(spec))
            self._length = length
            return
        elif resampled or mode == "resampled":
            shards, splitters = ResampledShards(cast(Urls, urls), seed=seed), ()
        else:
            shards = SimpleShardList(cast(Urls, urls), seed if shardshuffle or detshuffle else None)
        reader = ShardReader.here("auto", _listed(shards), cache_dir, cache_size if cache_size >= 0 else None)
        reader = replace(reader, may_be_empty=not empty_check)
        samples = read_tars(reader, handler, select_files, rename_files, empty_check)
        super().__init__(shards, *splitters, _logged if verbose else None, samples)
        if repeat:
            self._stages = self.repeat().stages
        self._length = length


def _listed(shards: MultiShardSample | ResampledShards | SimpleShardList) -> Sequence[ShardUrl]:
    return shards.urls if isinstance(shards, MultiShardSample) else shards.urls.shards


def _logged(source: Iterator[Any]) -> Iterator[Any]:
    """The shards, each logged before it is read."""
    for shard in source:
        logging.getLogger("wdspec").info("opening %s", redacted_urls(str(shard["url"])))
        yield shard


def _check_unset(**given: bool) -> None:
    """Raises UsageError for arguments beside a spec, which says all that they would say."""
    names = ", ".join(f"`{name}`" for name, is_given in given.items() if is_given)
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
