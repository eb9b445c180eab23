"""`wdspec bench`: how fast a spec reads here, where the time goes, and how many workers pay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from wdspec.base.errors import UsageError
from wdspec.base.progress import progress
from wdspec.cli.bench_trials import ENOUGH, Bench, bench_of, profiled, trial_count, worker_counts
from wdspec.cli.report import Block, Table, Warning, counted, show_report, to_json
from wdspec.cli.samples import user_errors
from wdspec.cli.spec_options import SpecChoice, choosing


@click.command()
@choosing
@click.option(
    "--seconds", type=click.FloatRange(0.1, 3600), default=3.0, show_default=True, help="Of each trial."
)
@click.option(
    "--workers",
    type=click.IntRange(0, 1024),
    multiple=True,
    help="Workers to try; repeatable (default: none, 1, 2, 4, … up to the cores, and the spec's).",
)
@click.option(
    "--compare", type=click.Choice(["webdataset"]), help="Also read the same files by this library."
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
    """Time a spec on this machine: samples and bytes a second, the time to the first batch, what reading, decoding,
    functions, batches and the hand-over from workers take, and how many workers pay.

    Every trial reads for some seconds in a process of its own. Nothing else should run meanwhile. It runs the functions
    that the spec names; WDS_SECURE=1 forbids them.
    """
    spec = choice.load()
    _check(compare, profile)
    tried = worker_counts(workers, spec.loader.workers)
    with user_errors(), progress("trials", trial_count(spec, tried, compare is not None)) as bar:
        found = bench_of(choice, spec, seconds, tried, webdataset=compare is not None, advance=bar.advance)
        if profile is not None:
            profiled(choice, seconds, profile)
    show_report(BenchReport(found, seconds), form)
    if profile is not None and form == "text":
        click.echo(f"{profile}: a profile of the loop without workers")


def _check(compare: str | None, profile: str | None) -> None:
    if compare is not None:
        try:
            import webdataset  # noqa: F401
        except ImportError:
            raise UsageError("--compare webdataset needs it: pip install webdataset") from None
    if profile is not None:
        if not profile.endswith((".html", ".json")):
            raise UsageError(f"--profile writes FILE.html or FILE.json, not {profile}")
        try:
            import pyinstrument  # noqa: F401
        except ImportError:
            raise UsageError("--profile needs pyinstrument: pip install 'wdspec[bench]'") from None


@dataclass(frozen=True)
class BenchReport:
    """The figures of a spec."""

    bench: Bench
    seconds: float
    """Of each trial."""

    def blocks(self) -> Iterator[Block]:
        """What is shown of them."""
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
            f"What the training loop gets ({counted(bench.cores, 'core')}, {self.seconds:g} s each):",
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
        """The same as values."""
        bench = self.bench
        return {
            "cores": bench.cores,
            "waiting_us": bench.waiting,
            "hand_over_us": bench.hand_over,
            "bytes_per_sample": bench.bytes_per_sample,
            "workers": [{"workers": count, **found.as_json()} for count, found in bench.loaders.items()],
            "parts": [{**to_json(each), "rate": bench.parts[each.part].rate} for each in bench.stages],
            "recommended_workers": bench.recommended,
            "one_thread": bench.one_thread,
            "webdataset": bench.webdataset,
        }


def _advice(bench: Bench) -> Iterator[Block]:
    best = bench.recommended
    rate = bench.loaders[best].rate
    yield f"waiting for disks or stores, in one process: {bench.waiting:,.1f} us a sample"
    if bench.hand_over is not None:
        yield f"hand-over from workers, in the process of the loop: {bench.hand_over:,.1f} us a sample"
    yield (
        f"recommended: loader: {{workers: {best}}}, {rate:,.0f} samples/s; more give at most {1 / ENOUGH - 1:.0%} more"
    )
    yield (
        f"headspace: reading alone, without decoding, would give about {bench.reading_limit:,.0f} samples/s over as "
        "many processes"
    )
    one = bench.one_thread
    if one is not None and one.rate > 1.2 * bench.loaders[0].rate:
        yield Warning(
            f"without workers, one thread of torch's gives {one.rate:,.0f} samples/s instead of "
            f"{bench.loaders[0].rate:,.0f}: call torch.set_num_threads(1), or use workers, where it is 1"
        )
    if bench.webdataset is not None:
        read = bench.parts["read"].rate
        yield (
            f"the same files, as bytes and shuffled, in one process: wdspec {read:,.0f} samples/s, webdataset "
            f"{bench.webdataset.rate:,.0f} ({read / bench.webdataset.rate:.1f} x)"
        )
    yield _about_pinning()


def _about_pinning() -> str:
    import torch

    if not torch.cuda.is_available():
        return "pin_memory: there is no GPU here to say whether it pays"
    return "pin_memory: `loader: {pin_memory: true}` pays where batches are tensors that go to the GPU"
