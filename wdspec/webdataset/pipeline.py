"""`DataPipeline`: a source and the stages after it, and how its stream is cut into epochs or repeated."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.replacements import METHODS
from wdspec.base.workers import WorkerCounters, end_with_parent
from wdspec.planning.topology import find_seat
from wdspec.webdataset import batching, decoding, filters, mapping, shuffling
from wdspec.webdataset.endless import EndlessSource
from wdspec.webdataset.splitting import worker_place
from wdspec.webdataset.stage import (
    PassContext,
    Stage,
    StageMaker,
    describe_type,
    start_pass,
)
from wdspec.webdataset.stage import PipelineStage as PipelineStage

P = ParamSpec("P")
D = TypeVar("D", bound="DataPipeline")
Pass = Callable[[int], Iterator[Any]]
"""Starts the pass of a number, from 0."""

Over = Literal["worker", "rank", "job"]
"""Which items an epoch counts: those of each worker, of all workers of a rank, or of all ranks."""


def _method(maker: Callable[P, Stage]) -> Callable[Concatenate[D, P], D]:
    """Return a method that adds a stage, so that the function and the method share one implementation."""

    def add(self: D, /, *args: P.args, **kwargs: P.kwargs) -> D:
        return self.compose(maker(*args, **kwargs))

    add.__name__, add.__doc__ = maker.__name__, maker.__doc__
    add.__qualname__ = f"DataPipeline.{add.__name__}"
    return add


class DataPipeline(IterableDataset[Any]):
    """A source and the stages after it, as an `IterableDataset`. `wdspec.compile` returns one, too.

    Each ``iter()`` starts a new pass. Its random numbers depend on the seeds and on the number of the pass, even in
    DataLoader workers that live for one epoch only. Methods return new pipelines and do not change this one.
    Pipelines pickle if the user functions in them do.

    Args:
        stages: first the source: a list of shards, another pipeline, a DataLoader, any list, or a function that
            returns an iterator; then functions from iterator to iterator, such as `wdspec.shuffle(100)` or a generator
            function. None is ignored, and lists of stages are flattened.

    Raises:
        UsageError: a stage is not callable, or the source is an iterator, which can be read only once.

    Example:
        >>> import wdspec as wds
        >>> pipeline = wds.DataPipeline(range(10), wds.batched(4, collation_fn=None))
        >>> list(pipeline)
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    def __init__(self, *stages: Any) -> None:
        super().__init__()
        self._stages = list(flatten_stages(stages))
        self._epochs: EpochCut | Repeated | None = None
        """How an iteration is made of passes over all stages; None for one pass."""
        self._passes = WorkerCounters()
        self._length: int | None = None

    @property
    def stages(self) -> tuple[Any, ...]:
        """The source and the functions from iterator to iterator."""
        return flatten_stages(self._stages)

    @property
    def pipeline(self) -> list[Any]:
        """The list of `stages`, under webdataset's name. Iterations that start later see what you change in it."""
        return self._stages

    def stage(self, i: int) -> Any:
        """Return the i-th of the `stages`."""
        return self.stages[i]

    def append(self, stage: Any) -> None:
        """Add a stage to this pipeline itself. Prefer `compose`, which returns a new one."""
        self._stages[:] = flatten_stages([*self._stages, stage])

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
        """Yield the items of one pass. The random numbers depend on its number, from 0."""
        stages = self.stages
        read = partial(run_stages, stages)
        if isinstance(self._epochs, EpochCut):
            return self._epochs.iterate(read, _is_endless(stages))
        return self._epochs.iterate(read, number) if self._epochs else read(number)

    @property
    def endless(self) -> bool:
        """Whether a pass is known to have no end."""
        return self._epochs.endless if self._epochs else _is_endless(self.stages)

    def __len__(self) -> int:
        """Return the length given to `with_length`, or else that of an epoch on this rank, if it is known.

        Raises:
            TypeError: the length is not known. `with_epoch(n)` alone is not enough, as each worker has n items.
        """
        if self._length is None:
            length = self._epochs.count_in_rank() if isinstance(self._epochs, EpochCut) else None
            if length is None:
                raise TypeError("the length of this pipeline is not known; set it with `with_length`")
            return length
        return self._length

    def compose(self: D, *stages: Any, **kwargs: Any) -> D:
        """Return this pipeline with further stages.

        Args:
            stages: functions from iterator to iterator; or a function (or class) that makes a stage, and its
                arguments: ``compose(wds.DBCache, "cache.db", 1000)``.
            kwargs: further arguments of a function that makes a stage.
        """
        first = stages[0] if stages else None
        if kwargs or not all(
            stage is None or callable(stage) or isinstance(stage, (list, tuple)) for stage in stages
        ):
            stages = (build_stage(first, *stages[1:], **kwargs),)
        elif len(stages) == 1 and isinstance(first, type):
            stages = (first(),)
        return self._with(*self.stages, *stages)

    pipe = compose

    def _with(self: D, *stages: Any) -> D:
        result = copy.copy(self)
        result._stages = list(flatten_stages(stages))
        if isinstance(self._epochs, EpochCut):
            # A stream that continues from one iteration to the next belongs to one pipeline only.
            result._epochs = self._epochs.fresh()
        result._passes = WorkerCounters()
        return result

    def with_epoch(self: D, nsamples: int = -1, nbatches: int = -1, over: Over = "worker") -> D:
        """Cut the stream into epochs of a number of items: batches if the pipeline makes batches, otherwise samples.

        Each iteration continues where the last one stopped, and starts another pass when one ends. As in webdataset,
        the number is that of the items at the end of the pipeline, even if you add stages later, and a later
        `with_epoch` or `repeat` replaces it.

        Args:
            over: `worker`: each DataLoader worker yields this number, as in webdataset. `rank`: all workers of a rank
                together yield it. `job`: all workers of all ranks together yield it. Choose a multiple of the number
                of ranks, so that all ranks have epochs of the same length.
        """
        result = self._with(*self.stages)
        result._epochs = EpochCut(max(nsamples, nbatches), over)
        return result

    def repeat(self: D, nepochs: int = -1, nbatches: int = -1) -> D:
        """Read several passes, or passes without end, as one; of at most `nbatches` items if that is given.

        In a DataLoader, each worker counts its own passes and items. A later `repeat` or `with_epoch` replaces this.
        """
        result = self._with(*self.stages)
        result._epochs = Repeated(nepochs if nepochs >= 0 else None, nbatches if nbatches >= 0 else None)
        return result

    def with_length(self: D, n: int, silent: bool = True) -> D:
        """Return this pipeline with a length of n. Its items stay the same."""
        result = self._with(*self.stages)
        result._length = n
        return result

    def close(self) -> None:
        """Close the stages that have a `close` method."""
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
    to_tuple = _method(mapping.to_tuple)
    rename = _method(mapping.rename)
    rename_keys = _method(mapping.rename_keys)
    batched = _method(batching.batched)
    unbatched = _method(batching.unbatched)
    listed = _method(batching.listed)
    unlisted = _method(batching.unlisted)
    slice = _method(filters.slice)
    info = _method(filters.info)
    log_keys = _method(filters.log_keys)
    associate = _method(mapping.associate)
    extract_keys = _method(mapping.extract_keys)
    xdecode = _method(mapping.xdecode)

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, and say what replaces a method of webdataset."""
        hint = METHODS.get(name)
        raise AttributeError(
            f"{type(self).__name__!r} has no attribute {name!r}{f'; use {hint}' if hint else ''}"
        )


def flatten_stages(stages: Iterable[Any]) -> tuple[Any, ...]:
    """Return stages as a tuple: without None, with lists of stages flattened, and with makers called."""
    row: list[Any] = []
    for entry in stages:
        if entry is None:
            continue
        if isinstance(entry, (list, tuple)) and _holds_stages(entry):
            row += flatten_stages(entry)
        else:
            row.append(entry() if _makes_stages(entry) else entry)
    for entry in row[1:]:
        if not callable(entry):
            raise UsageError(
                f"{describe_type(entry)} follows the first stage, but only the first one is a source; the others are "
                "functions from iterator to iterator"
            )
    if row and isinstance(row[0], Iterator):
        raise UsageError(
            f"{describe_type(row[0])} can be read only once, but a pipeline is read in each epoch; pass the function "
            "that makes it, or a list"
        )
    return tuple(row)


def _holds_stages(entries: Sequence[Any]) -> bool:
    """Whether a list contains stages and not items: whether any of its entries can only be a stage or a dataset.

    A list that contains just a list counts as that list, as in webdataset.
    """
    if len(entries) == 1 and isinstance(entries[0], list):
        return True
    return any(
        _holds_stages(entry)
        if isinstance(entry, (list, tuple))
        else callable(entry) or isinstance(entry, (IterableDataset, DataLoader))
        for entry in entries
    )


def run_stages(stages: tuple[Any, ...], number: int) -> Iterator[Any]:
    """Run one pass through all stages."""
    if not stages:
        raise UsageError("this pipeline has no stages; start with a source, such as SimpleShardList(urls)")
    items = start_pass(stages[0], number)
    endless = EndlessSource(items, getattr(stages[0], "size", None)) if _is_endless(stages) else None
    if endless is not None:
        items = endless.items
    for place, stage in enumerate(stages[1:], 1):
        run = partial(stage.run, context=PassContext(number, place)) if isinstance(stage, Stage) else stage
        if endless is not None and isinstance(stage, Stage) and stage.maker.collects_nothing:
            items = endless.watch(run, items, stage.maker.__name__)
        else:
            items = iter(run(items))
    return items


def _is_endless(stages: tuple[Any, ...]) -> bool:
    return bool(stages) and bool(getattr(stages[0], "endless", False))


def _makes_stages(function: Any) -> bool:
    return isinstance(function, StageMaker) or getattr(function, "makes_stage", False)


class Applied:
    """A function of an iterator and further arguments, with these arguments. It pickles if they do."""

    def __init__(self, function: Callable[..., Iterable[Any]], *args: Any, **kwargs: Any) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    def __call__(self, source: Iterator[Any]) -> Iterator[Any]:
        return iter(self.function(source, *self.args, **self.kwargs))

    def __repr__(self) -> str:
        return f"{getattr(self.function, '__name__', self.function)}{self.args or '()'}"


def build_stage(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Build the stage of a function, class or maker. The arguments of a function come after its iterator."""
    if isinstance(function, type) or _makes_stages(function):
        return function(*args, **kwargs)
    return Applied(function, *args, **kwargs) if args or kwargs else function


class EpochCut:
    """A stream cut into epochs of a fixed number of items: each iteration continues where the last one stopped.

    New worker processes find their place again by reading the current pass from its start (an endless pass over
    resampled shards starts again).

    Args:
        items: items in an epoch.
        over: which items to count: those of each DataLoader worker, of all workers of a rank, or of all ranks.

    Raises:
        ShardError: while iterating, if a whole pass is empty.
    """

    endless = False

    def __init__(self, items: int, over: Over = "worker") -> None:
        if items < 1:
            raise UsageError(f"an epoch has at least one item, not {items}")
        if over not in get_args(Over):
            raise UsageError(f"`over` is {over!r}; use `worker`, `rank` or `job`")
        self.items, self.over = items, over
        self._places = WorkerCounters(3)  # for each worker: pass, items read of it, epochs started
        self._stream: Iterator[Any] | None = None
        self._owner = 0
        """The process that opened the stream: a forked process must not read it."""

    def fresh(self) -> EpochCut:
        """Return the same cut, at its start."""
        return EpochCut(self.items, self.over)

    def count_in_rank(self) -> int | None:
        """Return the items of an epoch on this rank; None if that depends on the number of its workers."""
        if self.over == "job":
            seat = find_seat()
            return _share(self.items, seat.rank, seat.world_size)
        return self.items if self.over == "rank" else None

    def iterate(self, read: Pass, endless: bool) -> Iterator[Any]:
        """Yield the items of one epoch.

        Args:
            read: starts a pass.
            endless: whether a pass has no end.
        """
        left = self.items
        in_rank = self.count_in_rank()
        if in_rank is not None:
            left = _share(in_rank, *worker_place())
        places, at = self._places, self._places.slot()
        epoch = places[at + 2] = places[at + 2] + 1
        if self._stream is None or self._owner != os.getpid():
            if places[at + 1] and endless:
                places[at], places[at + 1] = places[at] + 1, 0
            self._stream, self._owner = read(places[at]), os.getpid()
            for _ in islice(self._stream, places[at + 1]):
                pass
        while left:
            got = 0
            for item in islice(self._stream, left):
                got += 1
                places[at + 1] += 1
                yield item
                if places[at + 2] != epoch:
                    raise UsageError(
                        "a newer iteration of this pipeline has started, so this one cannot continue"
                    )
            left -= got
            if left:
                if places[at + 1] == 0:
                    raise ShardError("a whole pass of the pipeline was empty, so the epoch cannot be filled")
                places[at], places[at + 1] = places[at] + 1, 0
                self._stream = read(places[at])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}


def _share(items: int, part: int, parts: int) -> int:
    return items // parts + (part < items % parts)


class Repeated:
    """Several passes in one, each with its own number.

    Args:
        times: number of passes; None for no end.
        items: number of items after which to stop; None for no limit.

    Raises:
        ShardError: while iterating without end, if a whole pass is empty.
    """

    def __init__(self, times: int | None = None, items: int | None = None) -> None:
        self.times, self.items = times, items

    @property
    def endless(self) -> bool:
        """Whether an iteration has no end."""
        return self.times is None and self.items is None

    def iterate(self, read: Pass, number: int) -> Iterator[Any]:
        """Yield the items of all passes of one iteration."""
        return islice(self._all(read, number), self.items)

    def _all(self, read: Pass, number: int) -> Iterator[Any]:
        for turn in range(self.times) if self.times is not None else count():
            empty = True
            for item in read(number * (self.times or 1) + turn):
                empty = False
                yield item
            if empty and self.times is None:
                raise ShardError("a whole pass of the pipeline was empty, so repeating it yields nothing")
