"""Exports the statistics of loaders as OpenTelemetry metrics, for Prometheus and all other exporters.

Metrics are exported by the training process. Workers already send their counts with the batches, so the cost of reading
stays the same. When an exporter collects, it calls our callbacks in its own thread. They read `loader.stats()` once for
all instruments.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from wdspec.base.errors import UsageError, install_command
from wdspec.base.process import Owner
from wdspec.run.loader import Loader
from wdspec.run.stats import RunStats, SourceStats

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

Value = tuple[float, Mapping[str, str]]
"""A number, and its attributes in addition to those of the loader."""


class _Instrument(NamedTuple):
    name: str
    kind: str
    """`counter` (never decreases) or `gauge`."""
    unit: str
    description: str
    read: Callable[[RunStats], Iterable[Value]]


def _of_run(read: Callable[[RunStats], float | None]) -> Callable[[RunStats], Iterable[Value]]:
    def values(stats: RunStats) -> Iterator[Value]:
        value = read(stats)
        if value is not None:
            yield value, {}

    return values


def _of_sources(read: Callable[[SourceStats], float | None]) -> Callable[[RunStats], Iterable[Value]]:
    def values(stats: RunStats) -> Iterator[Value]:
        for name, source in stats.sources.items():
            value = read(source)
            if value is not None:
                yield value, {"wdspec.source": name}

    return values


def _skips(stats: RunStats) -> Iterator[Value]:
    for name, source in stats.sources.items():
        for code, count in source.skipped.items():
            yield count, {"wdspec.source": name, "error.type": code}


def _drops(stats: RunStats) -> Iterator[Value]:
    for name, source in stats.sources.items():
        for cause, count in source.dropped.items():
            yield count, {"wdspec.source": name, "wdspec.cause": cause}


_INSTRUMENTS = (
    _Instrument(
        "wdspec.batches",
        "counter",
        "{batch}",
        "Steps that the training loop has received.",
        _of_run(lambda s: s.batches),
    ),
    _Instrument(
        "wdspec.time",
        "counter",
        "s",
        "Time since the training loop requested its first step.",
        _of_run(lambda s: s.seconds),
    ),
    _Instrument(
        "wdspec.wait.time",
        "counter",
        "s",
        "Time that the training loop has waited for data.",
        _of_run(lambda s: s.waited),
    ),
    _Instrument(
        "wdspec.batches.ahead",
        "gauge",
        "{batch}",
        "Steps requested from workers that the training loop has not received yet.",
        _of_run(lambda s: s.ahead),
    ),
    _Instrument(
        "wdspec.retries",
        "counter",
        "{request}",
        "Requests to stores that were repeated.",
        _of_run(lambda s: s.retries),
    ),
    _Instrument(
        "wdspec.samples",
        "counter",
        "{sample}",
        "Samples that readers have finished since this process started, perhaps ahead of the training loop.",
        _of_sources(lambda s: s.delivered),
    ),
    _Instrument(
        "wdspec.received",
        "counter",
        "{sample}",
        "Samples that the training loop has received since the run began, also before it was resumed.",
        _of_sources(lambda s: s.received),
    ),
    _Instrument(
        "wdspec.received.cost",
        "counter",
        "{cost}",
        "Cost of the samples that the training loop has received since the run began.",
        _of_sources(lambda s: s.received_cost),
    ),
    _Instrument(
        "wdspec.io",
        "counter",
        "By",
        "Bytes read from shards since this process started, after decompression.",
        _of_sources(lambda s: s.bytes),
    ),
    _Instrument(
        "wdspec.tokens",
        "counter",
        "{token}",
        "Tokens that the training loop has received since the run began, without padding.",
        _of_sources(lambda s: s.tokens),
    ),
    _Instrument(
        "wdspec.cost",
        "counter",
        "{cost}",
        "Cost of the samples that readers have finished since this process started, if batches are by cost.",
        _of_sources(lambda s: s.cost or None),
    ),
    _Instrument(
        "wdspec.passes",
        "counter",
        "{pass}",
        "Passes over the shards of a source.",
        _of_sources(lambda s: s.passes),
    ),
    _Instrument(
        "wdspec.shards",
        "counter",
        "{shard}",
        "Shards opened. Each part of a shard counts.",
        _of_sources(lambda s: s.shards),
    ),
    _Instrument(
        "wdspec.cache.hits",
        "counter",
        "{shard}",
        "Opened shards for which the cache had a complete copy.",
        _of_sources(lambda s: s.cache_hits),
    ),
    _Instrument(
        "wdspec.cache.evictions",
        "counter",
        "{shard}",
        "Cached copies deleted to make room.",
        _of_run(lambda s: s.cache_evictions),
    ),
    _Instrument(
        "wdspec.cache.bypasses",
        "counter",
        "{shard}",
        "Shards read from a store because no copy could be kept.",
        _of_run(lambda s: s.cache_bypasses),
    ),
    _Instrument(
        "wdspec.cache.used",
        "gauge",
        "By",
        "Bytes of all copies in the cache directories.",
        _of_run(lambda s: s.cache_used),
    ),
    _Instrument("wdspec.skips", "counter", "{error}", "Errors skipped.", _skips),
    _Instrument("wdspec.drops", "counter", "{sample}", "Samples that the spec drops.", _drops),
    _Instrument(
        "wdspec.lost",
        "counter",
        "{object}",
        "Objects of `fetch` that do not exist, where `missing` allows that.",
        _of_sources(lambda s: s.lost),
    ),
)


def observe(loader: Loader, *, name: str | None = None, meter_provider: MeterProvider | None = None) -> None:
    """Export the statistics of a loader as metrics, for as long as the loader exists.

    Call it once for each loader of the training process, before or after the first batch. All metrics have the
    attributes `wdspec.loader` and `wdspec.rank`. Metrics about a source also have `wdspec.source`.

    Args:
        loader: the loader.
        name: the value of `wdspec.loader`. Defaults to the name of the spec; without a name, to its split or `loader`.
        meter_provider: the provider to export to. Defaults to the global `MeterProvider`.

    Raises:
        UsageError: OpenTelemetry is not installed, `loader` is not a Loader, or another loader of this rank has the
            same name.

    Example:
        >>> import wdspec
        >>> from opentelemetry.sdk.metrics import MeterProvider
        >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        >>> from wdspec.integrations.opentelemetry import observe
        >>> reader = InMemoryMetricReader()
        >>> loader = wdspec.loader("examples/specs/digits.yaml", split="train")
        >>> observe(loader, meter_provider=MeterProvider([reader]))
        >>> batch = next(iter(loader))
        >>> scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
        >>> {metric.name: metric.data.data_points[0].value for metric in scope.metrics}["wdspec.batches"]
        1
    """
    if not isinstance(loader, Loader):
        raise UsageError(
            f"`observe` takes a loader from wdspec.loader(…), not {type(loader).__name__}: only such a loader sums up "
            "the counts of its workers"
        )
    try:
        from opentelemetry import metrics
    except ModuleNotFoundError:
        raise UsageError(
            f"metrics need OpenTelemetry, which is not installed: {install_command('wdspec[opentelemetry]')}"
        ) from None
    from wdspec import __version__

    provider = metrics.get_meter_provider() if meter_provider is None else meter_provider
    with _lock:
        observed = _observed.get(provider)
        if observed is None:
            observed = _observed[provider] = _Observed(provider.get_meter("wdspec", __version__))
        observed.add(loader, name or loader.run.spec.name or loader.run.spec.split or "loader")


@dataclass
class _One:
    """An observed loader and its latest stats."""

    loader: weakref.ref[Loader]
    name: str
    rank: int
    stats: RunStats | None = None
    unread: frozenset[str] = frozenset()
    """Instruments that have not read `stats` yet."""


class _Observed:
    """The loaders of one provider. OpenTelemetry creates an instrument only once, and cannot remove it."""

    def __init__(self, meter: Meter) -> None:
        self._loaders: list[_One] = []
        self._reading = threading.Lock()
        self._owner = Owner()
        for each in _INSTRUMENTS:
            create = getattr(meter, f"create_observable_{each.kind}")
            create(each.name, [self._callback(each)], each.unit, each.description)

    def add(self, loader: Loader, name: str) -> None:
        """Start exporting a loader."""
        rank = loader.run.seat.rank
        with self._reading:
            self._loaders = [each for each in self._loaders if each.loader() is not None]
            same = [each for each in self._loaders if (each.name, each.rank) == (name, rank)]
            if any(each.loader() is loader for each in same):
                return
            if same:
                raise UsageError(
                    f"another loader is observed as {name!r}; give each one a name: observe(loader, name=…)"
                )
            self._loaders.append(_One(weakref.ref(loader), name, rank))

    def _callback(self, instrument: _Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            found: list[Observation] = []
            if self._owner.is_other:  # a forked worker, in which exporters may have restarted their threads
                return found
            with self._reading:
                for each in self._loaders:
                    stats = _read_once(each, instrument.name)
                    own: dict[str, Any] = {"wdspec.loader": each.name, "wdspec.rank": each.rank}
                    for value, attributes in () if stats is None else instrument.read(stats):
                        found.append(Observation(value, own | dict(attributes)))
            return found

        return observe


def _read_once(one: _One, instrument: str) -> RunStats | None:
    """Return the stats of a loader, or None if the loader no longer exists.

    All instruments of one collection see the same stats. The next collection starts when an instrument asks again.
    """
    if instrument not in one.unread:
        loader = one.loader()
        one.stats = None if loader is None else loader.stats()
        one.unread = frozenset(each.name for each in _INSTRUMENTS)
    one.unread -= {instrument}
    return one.stats


_observed: weakref.WeakKeyDictionary[MeterProvider, _Observed] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
