"""Pipelines in Python: a source and stages, chained by hand or by methods."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from wdspec.base.errors import UsageError
from wdspec.base.workers import WorkerCounters, end_with_parent
from wdspec.fluent.epoch_cuts import EpochCut, Repeated
from wdspec.fluent.mixing import RoundRobinMix, WeightedMix
from wdspec.fluent.replacements import METHODS
from wdspec.fluent.stage import Stage
from wdspec.fluent.stage_chain import flattened, made, run
from wdspec.fluent.stages import batching, mapping, shuffling
from wdspec.fluent.stages import decode_stage as decoding
from wdspec.fluent.stages import field_patterns as patterns
from wdspec.fluent.stages import inspecting as watching
from wdspec.fluent.stages import renaming as naming
from wdspec.fluent.stages.shard_lists import ChosenShards, SimpleShardList, Urls
from wdspec.fluent.stages.splitting import split_by_node, split_by_worker

P = ParamSpec("P")
D = TypeVar("D", bound="DataPipeline")


def _method(maker: Callable[P, Stage]) -> Callable[Concatenate[D, P], D]:
    """The method that adds a stage: one implementation under both faces."""

    def add(self: D, /, *args: P.args, **kwargs: P.kwargs) -> D:
        return self.compose(maker(*args, **kwargs))

    add.__name__, add.__doc__ = maker.__name__, maker.__doc__
    add.__qualname__ = f"DataPipeline.{add.__name__}"
    return add


class DataPipeline(IterableDataset[Any]):
    """A source and the stages behind it, as an `IterableDataset`; `wdspec.compile` returns one too.

    Each ``iter()`` is a new pass: what is drawn at random in it depends on the seeds and on its number, also in
    DataLoader workers that live for one epoch only. Methods return new pipelines and leave this one as it is.
    Pipelines pickle if the user's functions in them do.

    Args:
        stages: first what is read: a list of shards, another pipeline, a DataLoader, any list, or a function that
            returns an iterator; then functions from iterator to iterator, such as `wdspec.shuffle(100)` or a generator
            function. None is left out; lists of stages are opened.

    Raises:
        UsageError: something that is no stage, or an iterator that can be read only once.

    Example:
        >>> import wdspec as wds
        >>> pipeline = wds.DataPipeline(range(10), wds.batched(4, collation_fn=None))
        >>> list(pipeline)
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    def __init__(self, *stages: Any) -> None:
        super().__init__()
        self._stages = flattened(stages)
        self._passes = WorkerCounters()
        self._length: int | None = None

    @property
    def stages(self) -> tuple[Any, ...]:
        """What is read, and the functions from iterator to iterator behind it."""
        return self._stages

    @property
    def pipeline(self) -> tuple[Any, ...]:
        """`stages`, as webdataset calls them. They are changed by `append`, not in place."""
        return self.stages

    def stage(self, i: int) -> Any:
        """The i-th of them."""
        return self.stages[i]

    def append(self, stage: Any) -> None:
        """Adds a stage to this very pipeline; `compose` makes another one, and is the better choice."""
        self._stages = self._with(*self.stages, stage).stages

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            end_with_parent()
        at = self._passes.slot()
        number = self._passes[at]
        self._passes[at] = number + 1
        return self.iterate(number)

    def iterate(self, number: int) -> Iterator[Any]:
        """The items of one pass; its number, from 0, keys what is drawn at random."""
        return run(self.stages, number)

    @property
    def endless(self) -> bool:
        """Whether a pass has no end, as far as is known."""
        return bool(self.stages) and bool(getattr(self.stages[0], "endless", False))

    def __len__(self) -> int:
        """The length given to `with_length`, last; else the items of `with_epoch`, if no stage is behind it.

        Raises:
            TypeError: neither is known.
        """
        if self._length is None:
            if (
                len(self.stages) == 1
                and isinstance(self.stages[0], EpochCut)
                and not self.stages[0].per_worker
            ):
                return self.stages[0].items
            raise TypeError("this pipeline has no length; say one with `with_epoch` or `with_length`")
        return self._length

    def compose(self: D, *stages: Any, **kwargs: Any) -> D:
        """This pipeline with further stages behind it.

        Args:
            stages: functions from iterator to iterator; or one that makes a stage, and its arguments:
                ``compose(wds.DBCache, "cache.db", 1000)``.
            kwargs: further arguments for such a one.
        """
        first = stages[0] if stages else None
        if kwargs or not all(
            stage is None or callable(stage) or isinstance(stage, (list, tuple)) for stage in stages
        ):
            stages = (made(first, *stages[1:], **kwargs),)
        elif len(stages) == 1 and isinstance(first, type):
            stages = (first(),)
        return self._with(*self.stages, *stages)

    pipe = compose

    def _with(self: D, *stages: Any) -> D:
        result = copy.copy(self)
        first, *following = flattened(stages)
        # A stream that goes on from one iteration to the next does so for one pipeline only.
        result._stages = (first.fresh() if isinstance(first, EpochCut) else first, *following)
        result._passes = WorkerCounters()
        return result

    def with_epoch(self: D, nsamples: int = -1, nbatches: int = -1, per_worker: bool | None = None) -> D:
        """Epochs of so many items, counted here: samples before `batched`, batches after it.

        Each iteration goes on where the last one stopped, and begins another pass where one ends.

        Args:
            per_worker: True: each DataLoader worker gives so many, as webdataset has it, so that a number that was
                divided by `num_workers` is right. False: all of them together do. Left out it is False, and a warning
                says so once where there are several workers.
        """
        result = self._with(EpochCut(self, max(nsamples, nbatches), per_worker))
        result._length = None
        return result

    def repeat(self: D, nepochs: int = -1, nbatches: int = -1) -> D:
        """So many passes as one, or passes without end; at most `nbatches` items if that is given."""
        return self._with(
            Repeated(self, nepochs if nepochs >= 0 else None, nbatches if nbatches >= 0 else None)
        )

    def with_length(self: D, n: int, silent: bool = True) -> D:
        """The same items, and `len()` says n."""
        result = self._with(*self.stages)
        result._length = n
        return result

    def close(self) -> None:
        """Closes the stages that can be closed."""
        for stage in self.stages:
            close = getattr(stage, "close", None)
            if callable(close):
                close()

    def __repr__(self) -> str:
        shown = (getattr(stage, "__name__", None) or repr(stage) for stage in self.stages)
        return f"{type(self).__name__}({', '.join(shown)})"

    shuffle = _method(shuffling.shuffle)
    detshuffle = _method(shuffling.detshuffle)
    rsample = _method(shuffling.rsample)
    decode = _method(decoding.decode)
    map = _method(mapping.map)
    map_dict = _method(mapping.map_dict)
    map_tuple = _method(mapping.map_tuple)
    select = _method(mapping.select)
    to_tuple = _method(naming.to_tuple)
    rename = _method(naming.rename)
    rename_keys = _method(naming.rename_keys)
    batched = _method(batching.batched)
    unbatched = _method(batching.unbatched)
    listed = _method(batching.listed)
    unlisted = _method(batching.unlisted)
    slice = _method(watching.slice)
    info = _method(watching.info)
    log_keys = _method(watching.log_keys)
    associate = _method(mapping.associate)
    extract_keys = _method(patterns.extract_keys)
    xdecode = _method(patterns.xdecode)

    def __getattr__(self, name: str) -> Any:
        """For names that are not there: says what webdataset's methods are called here."""
        hint = METHODS.get(name)
        raise AttributeError(
            f"{type(self).__name__!r} has no attribute {name!r}{f'; use {hint}' if hint else ''}"
        )


class WebLoader(DataPipeline):
    """A torch DataLoader as a pipeline: its arguments are those of DataLoader, its methods those of pipelines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(DataLoader(*args, **kwargs))


class RandomMix(DataPipeline):
    """Items of several pipelines, each with its share, evenly spread; for arguments and errors see `WeightedMix`.

    Example:
        >>> import wdspec as wds
        >>> list(wds.RandomMix([["a"] * 6, ["b"] * 2], [3, 1], longest=True)).count("b")
        2
    """

    def __init__(
        self,
        datasets: Sequence[Any],
        probs: Sequence[float] | None = None,
        longest: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(WeightedMix(datasets, probs, longest, seed))


class RoundRobin(DataPipeline):
    """Items of several pipelines in turn, up to the first end; with `longest` up to the last one."""

    def __init__(self, datasets: Sequence[Any], longest: bool = False) -> None:
        super().__init__(RoundRobinMix(datasets, longest))


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
            super().__init__(ChosenShards(urls, splitter), shuffling.shuffle(10_000) if shuffle else None)


class Processor(DataPipeline):
    """A function from iterator to iterator with its arguments, to be called on datasets.

    ``Processor(add_noise, noise=0.02)(dataset)`` is the pipeline of `dataset` and that stage.
    """

    def __init__(self, function: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.stage = made(function, *args, **kwargs)  # type: ignore[method-assign]  # of 2021, before the method

    def __call__(self, dataset: Any) -> DataPipeline:
        """The dataset with the stage behind it."""
        return DataPipeline(dataset, self.stage)

    def iterate(self, number: int) -> Iterator[Any]:
        """Raises a UsageError: there is nothing to process yet."""
        raise UsageError("a Processor is called on what it processes: Processor(f, …)(dataset)")
