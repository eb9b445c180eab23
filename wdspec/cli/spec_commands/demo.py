"""`wdspec demo`: a small project to play with, written, checked, explained and read."""

from __future__ import annotations

import importlib.util
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import click

from wdspec.base.progress import is_terminal, progress
from wdspec.cli.explain.explain_report import parts_of
from wdspec.cli.explain.explanation import Explanation
from wdspec.cli.explain.survey_spec import explain_spec
from wdspec.cli.reports.line_reports import summary
from wdspec.cli.support.demo_project import SPEC, write_project
from wdspec.cli.support.first_samples import first_samples
from wdspec.cli.support.tables import Row, Table, number, percent, show, size
from wdspec.spec.load import check, load
from wdspec.stores.outputs import save

SUMMARY = "Write a small spec with shards, and read an epoch of it."
MARK = ".wdspec-demo"
"""A file that says that `wdspec demo` made the folder."""

_NEXT = """\
What to try next:
  wdspec head {spec}
  wdspec resolve {spec}
  wdspec explain {spec} --ranks 2 --workers 4
  wdspec explain {spec} --set 'epoch={{batches: 100}}'

Train from it:
  import wdspec
  with wdspec.loader({spec!r}, num_workers=2) as loader:
      for batch in loader: print(batch["image"].shape, batch["label"])"""


@click.command()
@click.argument("folder", default="wdspec-demo")
@click.option("--force", is_flag=True, help="Write into the folder whatever is in it.")
def demo(folder: str, force: bool) -> None:
    """Write a small spec with shards into FOLDER (./wdspec-demo), check and explain it, and read an epoch.

    Everything is drawn here; nothing is downloaded.
    """
    if not force:
        _refuse_what_is_not_ours(folder)
    os.environ.pop("WDSPEC_ENV", None)  # meant for another spec
    os.makedirs(folder, exist_ok=True)
    save(os.path.join(folder, MARK), b"`wdspec demo` made this folder, and may write it anew.\n")
    shards, samples, written = write_project(folder)
    file = os.path.join(folder, "spec.yaml")
    show(f"wrote {folder}: spec.yaml and {shards} shards with {samples:,} samples, {size(written)}")

    show("", f"$ wdspec validate {file}", summary(1, Counter(problem.severity for problem in check(file)[1])))
    show("", f"$ wdspec explain {file}")
    explanation = explain_spec(load(file), ranks=None, workers=None, slots=1)
    show(*parts_of(explanation))

    has_torch = importlib.util.find_spec("torch") is not None
    show("", "reading an epoch" + ("" if has_torch else ", unbatched, since torch is not installed"))
    total = explanation.plan.epoch_samples or 0
    drawn: Counter[str] = Counter()
    if has_torch:
        import torch  # noqa: F401  # so that the clock measures reading alone
    began = time.perf_counter()
    for names in _with_progress(_batches(file) if has_torch else _singles(file, total), total):
        drawn.update(names)
    seconds = time.perf_counter() - began
    click.echo()
    show(
        _realised(explanation, drawn),
        f"{drawn.total():,} samples in {seconds:.2g} s: {number(drawn.total() / seconds)} samples/s",
    )
    show("", _NEXT.format(spec=file))
    if not has_torch:
        show("", "Batches need torch: pip install 'wdspec[torch]'")


def _refuse_what_is_not_ours(folder: str) -> None:
    if not os.path.exists(folder):
        return
    if not os.path.isdir(folder):
        raise click.UsageError(f"{folder} is a file; name a folder")
    if not os.listdir(folder):
        return
    if not os.path.exists(os.path.join(folder, MARK)):
        raise click.UsageError(
            f"{folder} is not empty, and `wdspec demo` did not make it; name another folder, or use --force"
        )
    file = os.path.join(folder, "spec.yaml")
    if os.path.exists(file):
        with open(file, encoding="utf-8", errors="replace") as spec:
            if spec.read() != SPEC:
                raise click.UsageError(
                    f"{file} has been edited; name another folder, or overwrite it with --force"
                )


def _batches(file: str) -> Iterator[list[str]]:
    """The sources of the samples of each batch."""
    from wdspec.api import loader

    with loader(file, rank=0, world_size=1) as batches:
        for batch in batches:
            yield batch["__source__"]


def _singles(file: str, count: int) -> Iterator[list[str]]:
    for sample in first_samples(load(file), count):
        yield [sample["__source__"]]


def _with_progress(pieces: Iterable[list[str]], total: int) -> Iterator[list[str]]:
    """A bar on a terminal, a line each quarter elsewhere."""
    if is_terminal():
        with progress("samples", total) as bar:
            for piece in pieces:
                yield piece
                bar.advance(len(piece))
        return
    done = quarters = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        if done * 4 // total > quarters:
            quarters = done * 4 // total
            click.echo(f"  {done:,} of {total:,} samples")


def _realised(explanation: Explanation, drawn: Counter[str]) -> Table:
    """The shares asked for beside those that came."""
    rows: list[Row] = []
    for source in explanation.plan.sources:
        asked, came = float(source.share), drawn[source.name] / drawn.total()
        difference = drawn[source.name] - asked * drawn.total()
        rows.append(
            (source.name, percent(asked), percent(came), f"{drawn[source.name]:,}", f"{difference:+.1f}")
        )
    return Table(("source", "asked>", "realised>", "samples>", "difference>"), rows)
