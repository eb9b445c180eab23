"""`wdspec bench`: how fast this machine reads a spec, what takes the time, and how many workers help.

Each trial reads the spec, or does part of the work, for a few seconds in a new process, and counts samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context, get_start_method, set_start_method
from typing import Any, Literal

import click

from wdspec.base.errors import UsageError
from wdspec.base.process import cores
from wdspec.base.progress import progress
from wdspec.cli.output import Block, Table, Warning, pluralize, show_report, to_json
from wdspec.cli.samples import samples_of, user_errors, without_functions
from wdspec.cli.spec_options import SpecChoice, choosing, require_library
from wdspec.jobs.engine import KILLED
from wdspec.spec.spec import Spec

Part = Literal["read", "decode", "map", "batch", "loader", "webdataset"]
"""The last part of the work in a trial: reading files as bytes; decoding; user functions; batches; batches from
workers. `webdataset` reads the same files with webdataset."""
_ITEMS = 2
"""Minimum number of items to read."""
ENOUGH = 0.95
"""The fewest workers that reach this fraction of the best rate are recommended."""
_PARTS: tuple[Part, ...] = ("read", "decode", "map", "batch")


@click.command()
@choosing
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    default=3.0,
    show_default=True,
    help="Duration of each trial.",
)
@click.option(
    "--workers",
    type=click.IntRange(0, 1024),
    multiple=True,
    help="Number of workers to try. Repeatable (default: 0, 1, 2, 4, … up to the cores, and the spec's number).",
)
@click.option(
    "--compare", type=click.Choice(["webdataset"]), help="Also measure this library on the same files."
)
@click.option(
    "--profile", metavar="FILE", help="Also write a flame graph: FILE.html, or FILE.json for speedscope."
)
def bench(
    choice: SpecChoice,
    form: str,
    seconds: float,
    workers: tuple[int, ...],
    compare: str | None,
    profile: str | None,
) -> None:
    """Measure how fast this machine reads a spec: samples and bytes per second, the time to the first batch, the time
    for reading, decoding, user functions, batching and transfer from workers, and how many workers help.

    Each trial reads for a few seconds in a new process. Do not run anything else at the same time. Trials run the
    user functions of the spec; WDS_SECURE=1 forbids them.
    """
    spec = choice.load()
    _check_libraries(compare, profile)
    tried = worker_counts(workers, spec.loader.workers)
    with user_errors(), progress("trials", trial_count(spec, tried, compare is not None)) as bar:
        found = run_trials(choice, spec, seconds, tried, webdataset=compare is not None, advance=bar.advance)
        if profile is not None:
            run_in_process(Trial(choice, "loader", seconds, profile=profile))
    show_report(BenchReport(found, seconds), form)
    if profile is not None and form == "text":
        click.echo(f"{profile}: a profile of the loop without workers")


@dataclass(frozen=True)
class Trial:
    """What to measure."""

    choice: SpecChoice
    part: Part
    seconds: float
    workers: int = 0
    kind: str | None = None
    """What the workers are, as in `loader.kind`; None for the kind in the spec."""
    threads: int | None = None
    """Threads of torch in the reading process; None for torch's default."""
    profile: str | None = None
    """A file for the profile: an interactive page (.html), or a file for speedscope."""
    start_method: str = field(default_factory=get_start_method)
    """How workers start: a new process might have another default."""


@dataclass(frozen=True)
class Measured:
    """Counts from the first item to the last."""

    samples: int
    bytes: int
    """Bytes of the fields that are bytes."""
    wall: float
    """Seconds."""
    cpu: float
    """Processor seconds of this process and its workers, including their start and end."""
    first: float
    """Seconds from opening the spec to the first item."""
    own: float
    """Processor seconds of this process alone, from the first item to the last."""

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples / self.wall if self.wall else 0.0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate}


def run_in_process(trial: Trial) -> Measured:
    """Run a trial in a fresh process.

    Raises:
        WdspecError: what reading raises, or the process was killed.
        Exception: what user functions raise.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        try:
            return pool.submit(run, trial).result()
        except BrokenProcessPool:
            raise UsageError(f"a trial has no result: {KILLED}") from None


def run(trial: Trial) -> Measured:
    """Run a trial in this process, which must be fresh."""
    set_start_method(trial.start_method, force=True)
    if trial.threads is not None:
        import torch

        torch.set_num_threads(trial.threads)
    spec = trial.choice.load()
    if not spec.is_pass:
        spec = spec.model_copy(update={"epoch": None, "limit": None})
    if trial.part in ("batch", "loader"):
        import wdspec.run.loader  # noqa: F401  so that importing torch is not measured
    if trial.profile is None:
        return _time_trial(trial, spec)
    from pyinstrument import Profiler
    from pyinstrument.renderers import HTMLRenderer, SpeedscopeRenderer

    from wdspec.stores.outputs import save

    profiler = Profiler(interval=0.001)
    with profiler:
        found = _time_trial(trial, spec)
    renderer = HTMLRenderer() if trial.profile.endswith(".html") else SpeedscopeRenderer()
    save(trial.profile, profiler.output(renderer).encode())
    return found


def _time_trial(trial: Trial, spec: Spec) -> Measured:
    began, cpu = time.perf_counter(), _processor_time()
    items = _items(trial, spec)
    samples, size = next(items)
    first = begin = time.perf_counter()
    own = time.process_time()
    samples = size = number = 0
    for number, (count, length) in enumerate(items, 1):
        samples, size = samples + count, size + length
        if number >= _ITEMS and time.perf_counter() - begin >= trial.seconds:
            break
    end, own = time.perf_counter(), time.process_time() - own
    items.close()
    return Measured(samples, size, end - begin, _processor_time() - cpu, first - began, own)


def _processor_time() -> float:
    import resource  # not on Windows

    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _items(trial: Trial, spec: Spec) -> Any:
    if trial.part == "webdataset":
        return _of_webdataset(spec)
    if trial.part in ("batch", "loader"):
        if trial.kind is not None:
            spec = spec.model_copy(update={"loader": spec.loader.model_copy(update={"kind": trial.kind})})
        return _batches(spec, trial.workers)
    if trial.part == "read":
        return _samples(samples_of(spec), as_files=True)
    return _samples({"decode": without_functions, "map": samples_of}[trial.part](spec))


def _samples(spec: Spec, as_files: bool = False) -> Iterator[tuple[int, int]]:
    """For each sample 1, and its bytes; starts again at the end of a pass."""
    from wdspec.api import sample_reader

    while True:
        reader = sample_reader(spec, as_files=as_files)
        try:
            number = 0
            end = reader.plan.timeline.end(0)
            while end is None or number < end:
                for sample in reader.batch(number):
                    yield 1, sum(len(value) for value in sample.values() if isinstance(value, bytes))
                number += 1
        finally:
            reader.close()


def _batches(spec: Spec, workers: int) -> Iterator[tuple[int, int]]:
    """For each batch of rank 0 its samples, at most those of one slot; bytes are not counted."""
    from wdspec.api import loader
    from wdspec.read.packing import SIZE

    options: dict[str, Any] = {} if workers == spec.loader.workers else {"num_workers": workers}
    elastic = spec.elastic
    if elastic is not None and workers and elastic.workers % workers:
        spec = spec.model_copy(update={"elastic": None})  # rates do not depend on the order
    world = spec.elastic.ranks if spec.elastic else 1
    with loader(spec, rank=0, world_size=world, **options) as batches:
        batching = batches.plan.batching
        while True:
            for batch in batches:
                size = batching.per_slot
                if batching.windowed:
                    size = batch[SIZE] if isinstance(batch, dict) else len(batch[0])
                yield size, 0


def _of_webdataset(spec: Spec) -> Iterator[tuple[int, int]]:
    """The same shards through webdataset: the files of each sample as bytes, shuffled by its usual buffers."""
    import webdataset

    from wdspec.shards.shards import check_readable, list_shards

    check_readable(spec)
    shards = list_shards(spec)
    urls = [
        shards.storages[name].resolve(url).location for name, urls in shards.lists.items() for url in urls
    ]
    samples = webdataset.WebDataset(urls, resampled=True, shardshuffle=False).shuffle(1000)
    for sample in samples:
        yield 1, sum(len(value) for value in sample.values() if isinstance(value, bytes))


@dataclass(frozen=True)
class StageTime:
    """The time of one part of the work."""

    part: Part
    microseconds: float
    """Per sample, in one process."""
    of_all: float
    """Fraction of the total."""


@dataclass(frozen=True)
class Bench:
    """The measurements of a spec."""

    cores: int
    parts: dict[Part, Measured]
    """In one process, each including all earlier parts."""
    loaders: dict[int, Measured]
    """What the training loop gets, by number of workers."""
    other_kind: tuple[str, int, Measured] | None = None
    """If tried, the other kind of workers: threads if the spec has processes, else processes. Kind, number and rate."""
    one_thread: Measured | None = None
    """Without workers and with one thread of torch, if tried."""
    webdataset: Measured | None = None
    """The same files through webdataset."""

    @property
    def bytes_per_sample(self) -> float:
        """Bytes of the requested files."""
        read = self.parts["read"]
        return read.bytes / read.samples if read.samples else 0.0

    @property
    def stages(self) -> list[StageTime]:
        """The time that each part adds, in the order of the work; at least 0."""
        times = {part: 1e6 / found.rate for part, found in self.parts.items() if found.rate}
        added, before = {}, 0.0
        for part, took in times.items():
            added[part] = max(0.0, took - before)
            before = max(before, took)
        return [StageTime(part, took, took / before if before else 0.0) for part, took in added.items()]

    @property
    def recommended(self) -> int:
        """The smallest number of workers with nearly the best rate."""
        best = max(found.rate for found in self.loaders.values())
        return min(workers for workers, found in self.loaders.items() if found.rate >= ENOUGH * best)

    @property
    def waiting(self) -> float:
        """Microseconds per sample that reading alone waits for disks and stores, in one process."""
        read = self.parts["read"]
        return 1e6 * max(0.0, read.wall - read.own) / read.samples if read.samples else 0.0

    @property
    def hand_over(self) -> float | None:
        """Microseconds per sample that the process of the loop spends on getting batches from workers."""
        workers = max((count for count, found in self.loaders.items() if found.samples), default=0)
        return 1e6 * self.loaders[workers].own / self.loaders[workers].samples if workers else None

    @property
    def reading_limit(self) -> float:
        """Samples per second of reading alone, over the recommended number of processes, at most one per core."""
        return self.parts["read"].rate * max(1, min(self.recommended, self.cores))


def worker_counts(requested: tuple[int, ...], of_spec: int) -> list[int]:
    """The numbers of workers to try: those requested, else 0, 1, 2, 4, … up to the cores, and the spec's."""
    if requested:
        return sorted(set(requested))
    powers = (1 << exponent for exponent in range(cores().bit_length()))
    return sorted({0, of_spec, cores(), *powers})


def run_trials(
    choice: SpecChoice,
    spec: Spec,
    seconds: float,
    workers: list[int],
    *,
    webdataset: bool = False,
    advance: Callable[[], Any] = lambda: None,
) -> Bench:
    """Run all trials of a spec, one after another.

    Raises:
        WdspecError: what reading raises.
    """

    def measure(trial: Trial) -> Measured:
        found = run_in_process(trial)
        advance()
        return found

    parts = {part: measure(Trial(choice, part, seconds)) for part in parts_of(spec)}
    loaders = {count: measure(Trial(choice, "loader", seconds, count)) for count in workers}
    other_kind = None
    if tries_other_kind(spec, workers):
        kind = "threads" if spec.loader.kind == "processes" else "processes"
        count = max(loaders, key=lambda count: (count > 0, loaders[count].rate))
        other_kind = kind, count, measure(Trial(choice, "loader", seconds, count, kind))
    one_thread = None
    if tries_threads(spec, workers):
        one_thread = measure(Trial(choice, "loader", seconds, threads=1))
    other = measure(Trial(choice, "webdataset", seconds)) if webdataset else None
    return Bench(cores(), parts, loaders, other_kind, one_thread, other)


def parts_of(spec: Spec) -> list[Part]:
    """Return the parts of the work that apply to the spec."""
    functions = spec.functions
    has = {"map": bool(functions["map"] or functions["select"]), "batch": spec.batch is not None}
    return [part for part in _PARTS if has.get(part, True)]


def tries_other_kind(spec: Spec, workers: list[int]) -> bool:
    """Whether threads and processes are compared: user functions in Python would wait for each other in threads. Actors
    on other machines are always compared with processes."""
    return any(workers) and (spec.loader.kind == "ray" or "map" not in parts_of(spec))


def tries_threads(spec: Spec, workers: list[int]) -> bool:
    """Whether torch's threads may matter: user functions run in the process of the loop."""
    return "map" in parts_of(spec) and 0 in workers and cores() > 1


def trial_count(spec: Spec, workers: list[int], webdataset: bool) -> int:
    """Number of trials that `run_trials` runs."""
    others = tries_other_kind(spec, workers) + tries_threads(spec, workers) + webdataset
    return len(parts_of(spec)) + len(workers) + others


def _check_libraries(compare: str | None, profile: str | None) -> None:
    if compare is not None:
        require_library("webdataset", "--compare", "webdataset")
    if profile is not None:
        if not profile.endswith((".html", ".json")):
            raise UsageError(f"--profile writes FILE.html or FILE.json, not {profile}")
        require_library("pyinstrument", "--profile", "wdspec[bench]")


@dataclass(frozen=True)
class BenchReport:
    """The measurements of a spec."""

    bench: Bench
    seconds: float
    """Duration of each trial."""

    def blocks(self) -> Iterator[Block]:
        bench = self.bench
        best = max(each.rate for each in bench.loaders.values())
        yield Table(
            ("workers>", "samples/s>", "MB/s>", "per CPU-second>", "first batch>", "of the best>"),
            [
                (
                    str(workers),
                    f"{found.rate:,.0f}",
                    f"{found.rate * bench.bytes_per_sample / 1e6:,.1f}",
                    f"{found.samples / found.cpu:,.0f}" if found.cpu else "",
                    f"{found.first:.2f} s",
                    f"{found.rate / best:.0%}",
                )
                for workers, found in bench.loaders.items()
            ],
            f"What the training loop gets ({pluralize(bench.cores, 'core')}, {self.seconds:g} s each):",
        )
        yield Table(
            ("part", "us a sample>", "of all>", "samples/s so far>"),
            [
                (
                    each.part,
                    f"{each.microseconds:,.1f}",
                    f"{each.of_all:.0%}",
                    f"{bench.parts[each.part].rate:,.0f}",
                )
                for each in bench.stages
            ],
            "Where the time goes, in one process:",
        )
        yield from _advice(bench)

    def as_json(self) -> dict[str, Any]:
        bench = self.bench
        return {
            "cores": bench.cores,
            "waiting_us": bench.waiting,
            "hand_over_us": bench.hand_over,
            "bytes_per_sample": bench.bytes_per_sample,
            "workers": [{"workers": count, **found.as_json()} for count, found in bench.loaders.items()],
            "parts": [{**to_json(each), "rate": bench.parts[each.part].rate} for each in bench.stages],
            "recommended_workers": bench.recommended,
            "other_kind": bench.other_kind
            and (
                {"kind": bench.other_kind[0], "workers": bench.other_kind[1], **bench.other_kind[2].as_json()}
            ),
            "one_thread": bench.one_thread,
            "webdataset": bench.webdataset,
        }


def _advice(bench: Bench) -> Iterator[Block]:
    best, kind = bench.recommended, ""
    rate = bench.loaders[best].rate
    if bench.other_kind is not None:
        other, count, found = bench.other_kind
        yield f"with {count} {other} as workers: {found.rate:,.0f} samples/s"
        if ENOUGH * found.rate > rate:
            best, rate, kind = count, found.rate, f"kind: {other}, "
    yield f"waiting for disks or stores, in one process: {bench.waiting:,.1f} us a sample"
    if bench.hand_over is not None:
        yield f"transfer from workers, in the process of the loop: {bench.hand_over:,.1f} us a sample"
        yield _about_other_machines(
            best >= bench.cores, rate, 1e6 / bench.hand_over if bench.hand_over else None
        )
    yield (
        f"recommended: loader: {{{kind}workers: {best}}}, {rate:,.0f} samples/s; more workers add at most "
        f"{1 / ENOUGH - 1:.0%}"
    )
    yield (
        f"upper limit: reading without decoding reaches about {bench.reading_limit:,.0f} samples/s with the same "
        "number of processes"
    )
    one = bench.one_thread
    if one is not None and one.rate > 1.2 * bench.loaders[0].rate:
        yield Warning(
            f"without workers, one torch thread reaches {one.rate:,.0f} samples/s instead of "
            f"{bench.loaders[0].rate:,.0f}: call torch.set_num_threads(1), or use workers, which have one thread"
        )
    if bench.webdataset is not None:
        read = bench.parts["read"].rate
        yield (
            f"the same files, as bytes and shuffled, in one process: wdspec {read:,.0f} samples/s, webdataset "
            f"{bench.webdataset.rate:,.0f} ({read / bench.webdataset.rate:.1f} x)"
        )
    yield _about_pinning()


def _about_other_machines(uses_all_cores: bool, rate: float, most: float | None) -> str:
    """Say whether workers on other machines would help.

    Args:
        uses_all_cores: whether as many workers as cores are needed.
        rate: samples per second with workers of this machine.
        most: samples per second that the loop can receive, if known.
    """
    those = "workers on other machines (`loader: {kind: ray}`)"
    if not uses_all_cores:
        return f"{those} would not help: fewer workers than cores reach {rate:,.0f} samples/s"
    if most is None or most < 1.5 * rate:
        return f"{those} would hardly help: the loop cannot receive many more than {rate:,.0f} samples/s"
    return f"{those} would help if training needs more: the loop can receive up to {most:,.0f} samples/s"


def _about_pinning() -> str:
    import torch

    if not torch.cuda.is_available():
        return "pin_memory: not measured, since this machine has no GPU"
    return "pin_memory: `loader: {pin_memory: true}` helps if batches are tensors that are copied to the GPU"
