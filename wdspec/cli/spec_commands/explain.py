"""`wdspec explain`: what a spec means, on the topology that reads it."""

from __future__ import annotations

import click

from wdspec.cli.explain.explain_report import parts_of
from wdspec.cli.explain.explanation import (
    as_json,
)
from wdspec.cli.explain.survey_spec import explain_spec
from wdspec.cli.support.json_output import print_json
from wdspec.cli.support.spec_options import SpecChoice, choosing, topology_options
from wdspec.cli.support.tables import (
    show,
)

SUMMARY = "Show what a spec means: shares, passes, who reads what."


@click.command()
@choosing
@topology_options
@click.option("--slots", type=click.IntRange(min=0), help="Slots whose first shards are shown.")
def explain(choice: SpecChoice, form: str, ranks: int | None, workers: int | None, slots: int | None) -> int:
    """Show what a spec means: shares, shards, samples and passes per epoch, batches, who reads what.

    Lists globs, directories and @files, and reads the headers of the first shard of each source if it is local, to
    estimate (~) how many samples there are, and looks whether local shards exist. Opens nothing else and runs no code
    of yours, but for the command of an `@pipe:` list, which WDS_SECURE=1 forbids. Exit code: 1 if local shards are
    missing.
    """
    explanation = explain_spec(choice.load(), ranks, workers, slots)
    if form == "json":
        print_json(as_json(explanation))
    else:
        show(*parts_of(explanation))
    return 1 if explanation.lacks_shards else 0
