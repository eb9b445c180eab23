"""`wdspec report`: what a run has read, added up over the records of its ranks and starts."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from wdspec.base.errors import UsageError
from wdspec.cli.output import show_report
from wdspec.cli.report_facts import add_records, age
from wdspec.cli.spec_options import format_option
from wdspec.run.record import read_record


@click.command()
@click.argument("files", metavar="RECORD...", nargs=-1, required=True)
@format_option(
    "text",
    "json",
    "summary",
    "spdx",
    "openlineage",
    help="Output format: `summary` is a draft of the public summary of training content (EU AI Act), as Markdown; "
    "`spdx` an SPDX 3 document; `openlineage` has one event in each line.",
)
@click.option("--model", metavar="NAME", help="Name of the trained model, for `summary` and `spdx`.")
def report(files: tuple[str, ...], form: str, model: str | None) -> None:
    """Add up the records of a run, and show what its ranks have received of each source.

    A RECORD is a file that `wdspec.log_run` wrote: one with the state of all ranks, or one of each rank. If a run was
    started several times, name the records of all starts. Records of other runs are an error. `wdspec diff` compares
    two runs.
    """
    records = {file: _read(file) for file in files}
    found = add_records(records)
    if form in ("text", "json"):
        show_report(found, form)
        return
    newest = max(records.values(), key=age)
    if form == "openlineage":
        from wdspec.cli.report_events import events_of  # most reports are tables

        for event in events_of(found, [*records.values()]):
            click.echo(json.dumps(event, ensure_ascii=False))
    elif form == "spdx":
        from wdspec.cli.report_spdx import spdx_of

        click.echo(json.dumps(spdx_of(found, newest, model), indent=1, ensure_ascii=False))
    else:
        from wdspec.cli.report_summary import summary_of

        click.echo(summary_of(found, newest, model), nl=False)


def _read(file: str) -> dict[str, Any]:
    record = read_record(file)
    if record is None and not os.path.exists(file):
        raise UsageError("no such file; name a file that `wdspec.log_run` wrote", file=file)
    if record is None:
        raise UsageError(
            "this is no record of a run; name a file that `wdspec.log_run` wrote (`wdspec state` shows saved states)",
            file=file,
        )
    return record
