"""`wdspec dedup`: find samples that are repeated, and write lists to leave them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from wdspec.cli.output import Block, Table, Warning, pluralize, show_report, table_of
from wdspec.cli.samples import only_source
from wdspec.cli.spec_options import SpecChoice, choosing, choosing_engine
from wdspec.jobs.dedup import MOST_EXAMPLES, Repeats, SourceCounts, find_repeats
from wdspec.jobs.engine import Engine

_MOST_FAILED = 20


@click.command()
@choosing
@click.option(
    "--by",
    metavar="WHAT",
    default="content",
    show_default=True,
    help="What makes two samples equal: `key`; `content`, the bytes of all fields; `pixels` of the decoded images, "
    "whatever their formats; or the name of a field, such as `jpg`, for its bytes.",
)
@click.option(
    "--each-source", is_flag=True, help="Compare samples of one source only (default: of all sources)."
)
@click.option("--source", metavar="NAME", help="Compare only the samples of this source.")
@click.option("-o", "--output", metavar="FOLDER", help="Write lists of the repeated samples to this folder.")
@choosing_engine()
def dedup(
    choice: SpecChoice,
    form: str,
    by: str,
    each_source: bool,
    source: str | None,
    output: str | None,
    start_engine: Callable[[], Engine],
) -> int:
    """Find samples that are repeated. The first one stays: of the first source in the spec, its first shard, and there
    the first sample.

    Every shard is read once, and hashes are sorted on the local disk (`$TMPDIR`, about 150 bytes per sample), so memory
    does not grow with the data. Samples that the spec leaves out, for example by `where`, do not count.

    With -o, the folder gets a list for each source, for `exclude: "@FOLDER/NAME.txt"`, and `drop.tsv` for `wdspec
    process --drop`. A list has no key that a sample has that stays, as `exclude` would leave out both; `drop.tsv` has
    these samples, too.

    \b
    Examples:
      wdspec dedup train.yaml -o again
      wdspec dedup train.yaml --by pixels -o again --engine ray
      wdspec process train.yaml --drop again/drop.tsv --output clean/

    Exit code: 0, also if samples are repeated; 1 if a shard cannot be read, and no list is written; 2 for wrong usage.
    """
    spec = only_source(choice.load(), source)
    found = find_repeats(spec, start_engine(), by, each_source=each_source, folder=output)
    show_report(RepeatsReport(found), form)
    return int(bool(found.failed))


@dataclass(frozen=True)
class RepeatsReport:
    """The result of the job."""

    found: Repeats

    def blocks(self) -> Iterator[Block]:
        found = self.found
        columns: dict[str, Callable[[tuple[str, SourceCounts]], str]] = {
            "source": lambda row: row[0],
            "samples>": lambda row: f"{row[1].samples:,}",
            "repeated>": lambda row: f"{row[1].repeated:,}",
            "left>": lambda row: f"{row[1].samples - row[1].repeated:,}",
            "by exclude>": lambda row: f"{row[1].listed:,}",
        }
        if any(counts.not_compared for counts in found.sources.values()):
            columns["not compared>"] = lambda row: f"{row[1].not_compared:,}"
        yield table_of(found.sources.items(), columns)
        if found.examples:
            rows = [(each.shard, each.key, each.first_shard, each.first_key) for each in found.examples]
            title = f"the first {MOST_EXAMPLES} of them" if found.repeated > MOST_EXAMPLES else "these are"
            yield Table(("repeated in", "key", "first in", "key"), rows, title=title)
        for name, path in found.lists.items():
            count = found.sources[name].listed
            yield f'{path}: {pluralize(count, "key")} for `exclude: "@{path}"` in `{name}`'
        if found.drops is not None:
            yield f"{found.drops}: {pluralize(found.repeated, 'sample')} for `wdspec process --drop {found.drops}`"
        left = found.repeated - sum(counts.listed for counts in found.sources.values())
        if left:
            yield Warning(
                f"{pluralize(left, 'sample')} cannot be left out by `exclude`, as a sample that stays has the same "
                "key; `wdspec process --drop` writes shards without them"
            )
        if found.skipped:
            yield Warning(
                f"{pluralize(found.skipped, 'error')} skipped, as `errors` says; `wdspec check` lists them"
            )
        if found.failed:
            title = f"failed: {len(found.failed):,}, so there are no lists"
            yield Table(("shard", "cause"), found.failed[:_MOST_FAILED], title=title)

    def as_json(self) -> dict[str, Any]:
        found = self.found
        return {
            "by": found.by,
            "sources": found.sources,
            "repeated": found.repeated,
            "examples": found.examples,
            "skipped": found.skipped,
            "lists": found.lists,
            "drops": found.drops,
            "failed": [{"shard": shard, "cause": cause} for shard, cause in found.failed],
        }
