"""`wdspec state`: what a saved state says, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from wdspec.cli.report import Block, Table, counted, number, print_json, show, table_of
from wdspec.cli.spec_options import form_option
from wdspec.cli.state_files import described, states_in


@click.command()
@click.argument("file", metavar="FILE")
@form_option
def state(file: str, form: str) -> None:
    """Show a saved state: epoch, batch, what each source has given, which topologies it can go on with.

    FILE is JSON, or a checkpoint that `torch.save` wrote, with a state anywhere in it. Nothing is unpickled but
    tensors and plain values.
    """
    told = [{"at": place, **described(each)} for place, each in states_in(file)]
    if form == "json":
        print_json(told)
        return
    for each in told:
        show(*_parts(f"{file}{each['at'] and ', ' + each['at']}", each))


def _parts(title: str, told: dict[str, Any]) -> Iterator[Block]:
    given, items = told["given_of_step"]
    skipped = sum(last - first + 1 for first, last in told["skipped"])
    epoch = "endless"
    if told["epoch_batches"]:
        epoch = f"{told['epoch']}, {told['epoch_batch']:,} of its {counted(told['epoch_batches'], 'batch', 'batches')}"
    held, all_ranks = told["ranks"], told["elastic"]["ranks"]
    has_all = held == list(range(all_ranks))
    usual = [ranks for ranks in told["legal_ranks"] if ranks <= 2 * all_ranks]
    more = f" (up to {told['legal_ranks'][-1]:,})" if usual != told["legal_ranks"] else ""
    goes_on = f"{_shown(usual)} ranks{more}, with {_shown(told['legal_workers'])} workers each"
    rows = [
        ("version", str(told["version"])),
        (
            "batch",
            f"{told['batch'] - skipped:,} global batches were given, {counted(told['samples'], 'sample')}",
        ),
        *([("skipped", f"{skipped:,} besides: {_steps(told['skipped'])}")] if skipped else []),
        *(
            [("to be skipped", f"{_steps(told['to_skip'])}, as the training loop said")]
            if told["to_skip"]
            else []
        ),
        *([("inside a step", f"{given} of a rank's {items} items of the next one, too")] if given else []),
        ("epoch", epoch),
        ("topology", f"{all_ranks} ranks x {told['elastic']['workers']} workers"),
        ("holds", "all canonical ranks" if has_all else f"canonical ranks {_shown(held)}"),
        ("goes on with", goes_on if has_all else f"{goes_on}, once the states of all ranks are merged"),
        *[
            ("shares set", f"from global batch {each['batch']:,} on: {_shares(each['shares'])}")
            for each in told["shares"]
        ],
        ("order", f"seed {told['seed']}, digest {told['digest']}"),
    ]
    yield Table((), rows, title=title)
    if told["is_pass"]:
        yield "Slots of a pass have no state of their own: where they stand follows from the batch."
        return
    columns = {
        "source": lambda each: each["source"],
        "share": lambda each: each["share"],
        "samples given, or left out>": lambda each: number(each["samples"]),
        "of a slot, least>": lambda each: number(each["least"]),
        "most>": lambda each: number(each["most"]),
        "slots that read it>": lambda each: number(each["slots"]),
    }
    yield table_of(told["sources"], columns, "what the sources have given")


def _steps(ranges: list[list[int]]) -> str:
    return ", ".join(f"{first:,} to {last:,}" if first < last else f"{first:,}" for first, last in ranges)


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {share:g}" for name, share in shares.items())


def _shown(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return shown if len(numbers) <= 12 else f"{shown}, … {numbers[-1]}"
