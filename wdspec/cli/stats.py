"""`wdspec stats`: samples, bytes and sizes of the shards of a spec, measured once, in a file beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from wdspec.base.progress import progress, with_progress
from wdspec.cli.report import Part, Table, Warning, counted, listed, number, print_json, show, size
from wdspec.cli.spec_options import EngineChoice, SpecChoice, choosing, choosing_engine
from wdspec.stores.outputs import save

if TYPE_CHECKING:
    from wdspec.jobs.stats import Fault, MeasureJob, Sizing, SizingTask
    from wdspec.spec.measurements import MeasuredShard, Measurements, Spread
    from wdspec.spec.spec import Spec

SUFFIX = ".stats.json"
MOST_SHOWN = 20
"""Shards that are named, of those that could not be measured or are not as measured."""


@click.command()
@choosing
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Where to write; by default what `stats:` in the spec names, else SPEC.stats.json beside it.",
)
@click.option(
    "--lengths",
    is_flag=True,
    help="Also read and decode all samples, for the lengths of texts and lists and the sides of images.",
)
@click.option("--update", is_flag=True, help="Read all shards again, not only those that changed.")
@click.option(
    "--check", is_flag=True, help="Write nothing and read nothing; end with 1 if shards are not as measured."
)
@choosing_engine
def stats(
    choice: SpecChoice,
    form: str,
    output: str | None,
    lengths: bool,
    update: bool,
    check: bool,
    workers: EngineChoice,
) -> int:
    """Measure the shards of a spec by their headers: samples and bytes of each shard, sizes of its fields.

    The file is for `stats: FILE` in the spec: shares by samples or bytes (`mix: {by: samples}`), `explain` and
    `epoch: pass` go by it then. Where there is a file already, only shards are read whose size, and ETag or time, are
    not as they were. Without --split each split has a file of its own. Exit code: 0, or 1 where shards could not be
    measured (the others are).
    """
    from wdspec.shards.lock import beside_spec, locked_splits

    if check and update:
        raise click.UsageError("--check reads nothing, and --update everything; give one of them")
    splits = locked_splits(choice.file, choice.split)
    if output is not None and len(splits) > 1:
        raise click.UsageError(f"each of {len(splits)} splits has a file of its own; choose one with --split")
    specs: dict[str, Spec] = {}
    for name in splits:
        spec = replace(choice, split=name).load()
        named = spec.stats and os.path.relpath(spec.stats)
        path = output or named or beside_spec(choice.file, name, SUFFIX)
        if path in specs:
            raise click.UsageError(
                f"the splits `{specs[path].split}` and `{name}` name one file with `stats:`, and each has one of its "
                "own; write `stats:` within each split"
            )
        specs[path] = spec
    documents, code = [], 0
    for path, spec in specs.items():
        done = _Measuring(path, spec, update, lengths)
        if not check:
            done.run(workers)
        code = max(code, done.code)
        if form == "json":
            documents.append(done.as_json())
        else:
            show(*done.parts())
    if form == "json":
        print_json({"files": documents})
    return code


class _Measuring:
    """One spec and its file."""

    def __init__(self, path: str, spec: Spec, update: bool, lengths: bool) -> None:
        from wdspec.jobs.stats import MeasureJob

        self.path = path
        before, self._text = _before(path, spec.split)
        self.job: MeasureJob = MeasureJob(spec, None if update else before, lengths=lengths, asking=_asking)
        self.unchanged = self.job.unchanged
        self.found: Measurements | None = None
        self.faults: list[Fault] = []

    def run(self, workers: EngineChoice) -> None:
        """Measures what is new or changed, and writes the file."""
        tasks = self.job.outdated.tasks
        with ExitStack() as stack:
            bar = stack.enter_context(
                progress(
                    "shards",
                    len(tasks),
                    drawn=bool(tasks),
                    samples=("{:,} samples", 0),
                    rate=("{}/s of files", "0 B"),
                )
            )
            begun, samples, total = time.monotonic(), 0, 0

            def tell(task: SizingTask, sizing: Sizing) -> None:
                nonlocal samples, total
                if sizing.shard is not None:
                    samples, total = samples + sizing.shard.samples, total + sizing.shard.bytes
                bar.advance(1, samples=samples, rate=size(total / max(1e-3, time.monotonic() - begun)))

            self.found, self.faults = self.job.run(workers.make(), kept=self._keep, told=tell)

    def _keep(self, measurements: Measurements) -> None:
        text = measurements.text
        if text != self._text:
            save(self.path, text)
            self._text = text

    @property
    def code(self) -> int:
        """1 where something is not measured."""
        outdated = self.job.outdated
        return int(bool(self.faults or (self.found is None and (outdated.tasks or outdated.gone))))

    def parts(self) -> Iterator[Part]:
        """What is to be said."""
        outdated = self.job.outdated
        if self.found is None:
            rows = [
                *((task.source, task.shard.text, "not as measured, or new") for task in outdated.tasks),
                *((source, url, "gone") for source, url in outdated.gone),
            ]
            if rows:
                yield Table(("source", "shard", "what"), rows)
            said = f"{counted(len(rows), 'shard')} not as measured" if rows else "as measured"
            yield f"{self.path}: {said}"
            return
        sources, shards = self.found.sources, self.found.shards
        yield Table(
            ("source", "shards>", "samples>", "damaged>", "bytes>", "a shard>"),
            [
                (
                    name,
                    f"{source.measured:,}",
                    f"{source.samples:,}",
                    f"{sum(len(shard.lost) for shard in shards[name].values()):,}",
                    size(source.bytes),
                    _range(shards[name].values()),
                )
                for name, source in sources.items()
            ],
        )
        yield _spreads("field", {name: source.fields for name, source in sources.items()}, size)
        if any(source.lengths for source in sources.values()):
            yield _spreads("length of", {name: source.lengths for name, source in sources.items()}, number)
        if self.faults:
            shown = [(fault.source, fault.shard, fault.why) for fault in self.faults[:MOST_SHOWN]]
            yield Table(("source", "shard", "why"), shown, title=f"not measured: {len(self.faults):,}")
        read = len(outdated.tasks) - len(self.faults)
        yield f"{self.path}: {counted(read, 'shard')} read, {self.unchanged:,} as they were"
        if self.faults:
            names = sorted({fault.source for fault in self.faults})
            yield Warning(
                f"the numbers of {listed(names)} are not used before all of its shards are measured"
            )

    def as_json(self) -> dict[str, Any]:
        """The same for programs: totals, and what was not measured."""
        from wdspec.spec.measurements import LEVELS

        outdated = self.job.outdated
        if self.found is None:
            return {
                "file": self.path,
                "outdated": [{"source": task.source, "shard": task.shard.text} for task in outdated.tasks],
                "gone": [{"source": source, "shard": url} for source, url in outdated.gone],
            }
        return {
            "file": self.path,
            "read": len(outdated.tasks) - len(self.faults),
            "unchanged": self.unchanged,
            "levels": LEVELS,
            "sources": {name: source.as_json() for name, source in self.found.sources.items()},
            "faults": [fault._asdict() for fault in self.faults],
        }


def _spreads(what: str, found: Mapping[str, Mapping[str, Spread]], shown: Callable[[float], str]) -> Table:
    return Table(
        ("source", what, "values>", "mean>", "least>", "5 %>", "50 %>", "95 %>", "greatest>"),
        [
            (
                source,
                field,
                f"{spread.count:,}",
                shown(spread.mean),
                *(shown(spread.quantiles[at]) for at in (0, 2, 4, 6, 8)),
            )
            for source, fields in found.items()
            for field, spread in fields.items()
        ],
    )


def _range(shards: Iterable[MeasuredShard]) -> str:
    """`900 to 1,000 samples`."""
    counts = [shard.samples for shard in shards]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f"{number(low)} samples" if low == high else f"{number(low)} to {number(high)} samples"


def _before(path: str, split: str | None) -> tuple[Measurements | None, bytes]:
    """What is there, as a value and as it stands; nothing for one that is damaged, which is to be written anew.

    Raises UsageError for what is another file.
    """
    from wdspec.base.errors import UsageError
    from wdspec.spec.files import MOST_BESIDE, read_from_disk, reason_of
    from wdspec.spec.measurements import Measurements

    try:
        text = read_from_disk(path, True, MOST_BESIDE)
    except FileNotFoundError:
        return None, b""
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {reason_of(error)}; give another name") from None
    try:
        found = Measurements.of_text(text)
    except UsageError:
        if text.strip() and b'"stats":' not in text[:100]:
            raise UsageError(f"`{path}` is no file of `wdspec stats`; give another name") from None
        return None, b""
    if found.split != split:
        raise UsageError(
            f"`{path}` is of the split `{found.split}`, and each split has a file of its own; write `stats:` within "
            "each split, or give another name with -o"
        )
    return found, text


def _asking(
    coming: Iterable[MeasuredShard | None], count: int, source: str
) -> Iterator[MeasuredShard | None]:
    return with_progress(coming, f"asking about {source}", total=count)
