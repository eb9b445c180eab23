"""`DataPipeline`: a source and the stages after it, chained by hand or by methods, and how a pass runs through them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from wdspec.base.errors import UsageError
from wdspec.base.parent_watch import end_with_parent
from wdspec.base.replacements import METHODS
from wdspec.base.worker_counters import WorkerCounters
from wdspec.webdataset import batching, decoding, filters, mapping, shuffling
from wdspec.webdataset.epochs import EpochCut, Repeated
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
        self._stages = flatten_stages(stages)
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
        return run_stages(self.stages, number)

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
            stages = (build_stage(first, *stages[1:], **kwargs),)
        elif len(stages) == 1 and isinstance(first, type):
            stages = (first(),)
        return self._with(*self.stages, *stages)

    pipe = compose

    def _with(self: D, *stages: Any) -> D:
        result = copy.copy(self)
        first, *following = flatten_stages(stages)
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
        """For names that are not there: says what webdataset's methods are called here."""
        hint = METHODS.get(name)
        raise AttributeError(
            f"{type(self).__name__!r} has no attribute {name!r}{f'; use {hint}' if hint else ''}"
        )


def flatten_stages(stages: Iterable[Any]) -> tuple[Any, ...]:
    """Stages in a row: None left out, lists of stages opened, makers without their parentheses called."""
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
                f"{describe_type(entry)} stands behind the first stage, where a function from iterator to iterator "
                "belongs; only the first one is what is read"
            )
    if row and isinstance(row[0], Iterator):
        raise UsageError(
            f"{describe_type(row[0])} can be read only once, and a pipeline is read again each epoch; give the "
            "function that makes it, or a list"
        )
    return tuple(row)


def _holds_stages(entries: Sequence[Any]) -> bool:
    """Whether a list is one of stages, and not one of items to read: some of it can only be a stage, or a dataset.

    A list of nothing but one list is taken for that list, as webdataset has it.
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
    """One pass through all stages."""
    if not stages:
        raise UsageError(
            "this pipeline has no stages; begin with what is read, such as SimpleShardList(urls)"
        )
    items = start_pass(stages[0], number)
    for place, stage in enumerate(stages[1:], 1):
        items = (
            stage.run(items, PassContext(number, place)) if isinstance(stage, Stage) else iter(stage(items))
        )
    return items


def _makes_stages(function: Any) -> bool:
    return isinstance(function, StageMaker) or getattr(function, "makes_stage", False)


class Applied:
    """A function of an iterator and further arguments, with these; pickles if they do."""

    def __init__(self, function: Callable[..., Iterable[Any]], *args: Any, **kwargs: Any) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    def __call__(self, source: Iterator[Any]) -> Iterator[Any]:
        return iter(self.function(source, *self.args, **self.kwargs))

    def __repr__(self) -> str:
        return f"{getattr(self.function, '__name__', self.function)}{self.args or '()'}"


def build_stage(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The stage of a function (or class, or maker) and its arguments, which come behind the iterator it takes."""
    if isinstance(function, type) or _makes_stages(function):
        return function(*args, **kwargs)
    return Applied(function, *args, **kwargs) if args or kwargs else function
