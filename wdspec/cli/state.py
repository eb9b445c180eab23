"""`wdspec state`: what a saved state says, in words.

Saved states in files: found, checked, and told in numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import click

from wdspec.api import require_torch
from wdspec.base.errors import UsageError
from wdspec.cli.report import Block, Row, Table, counted, number, number_range, print_json, show, table_of
from wdspec.cli.spec_options import form_option
from wdspec.planning.topology import legal_workers, legal_world_sizes
from wdspec.run.state import FORMAT, check_undamaged, merge_states, ranks_of, skipped_steps
from wdspec.run.stats import samples_given
from wdspec.spec.language.steps import StepRanges


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
        show(*_blocks(f"{file}{each['at'] and ', ' + each['at']}", each))


def states_in(file: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The states anywhere in a file of JSON, or in a checkpoint that `torch.save` wrote, each with its place in it.

    Raises:
        UsageError: there is none, or the file cannot be read.
    """
    found = list(_states(_read(file), ""))
    if not found:
        raise UsageError(
            f"there is no state of wdspec in {file}; name the file that holds what `state_dict` or `gather_state` gave"
        )
    return found


def the_state_in(file: str) -> Mapping[str, Any]:
    """The one state of a run in a file: of several, such as each rank's, the merged one.

    Raises:
        UsageError: as `states_in`; or damaged states, or those of several runs.
    """
    found = [state for _, state in states_in(file)]
    for state in found:
        check_undamaged(state)
    return found[0] if len(found) == 1 else merge_states(found)


def described(saved: Mapping[str, Any]) -> dict[str, Any]:
    """What a state says, as JSON values.

    Raises:
        UsageError: it is damaged, or of another version.
    """
    check_undamaged(saved)
    order, ranks, batch = json.loads(saved["order"]), ranks_of(saved), saved["batch"]
    topology, per_slot = order["elastic"], order["batch"] or 1
    sources = {
        name: {
            "slots": len(counts),
            "samples": int(counts.sum()),
            "least": int(counts.min(initial=counts.max(initial=0))),
            "most": int(counts.max(initial=0)),
        }
        for name, counts in samples_given(saved).items()
    }
    set_since, skipped = json.loads(saved["shares"]), skipped_steps(saved)
    epoch, inside = divmod(batch, saved["epoch_batches"]) if saved["epoch_batches"] else (0, batch)
    return {
        "version": saved["version"],
        "batch": batch,
        "samples": (batch - skipped.within(0, batch).count) * topology["ranks"] * per_slot,
        "given_of_step": [saved["given"], saved["items"]],
        "epoch": epoch,
        "epoch_batch": inside,
        "epoch_batches": saved["epoch_batches"],
        "is_pass": "pass" in order,
        "elastic": topology,
        "ranks": ranks,
        "legal_ranks": legal_world_sizes(topology["ranks"], saved["shared"]),
        "legal_workers": [0, *legal_workers(topology["workers"])],
        "digest": saved["digest"],
        "seed": order["seed"],
        "shares": [{"batch": start, "shares": shares} for start, shares in set_since],
        "skipped": _ends(skipped.within(0, batch)),
        "to_skip": _ends(skipped.within(batch)),
        "sources": [
            {"source": name, "share": order["sources"][name]["share"], **counts}
            for name, counts in sources.items()
        ],
    }


def _ends(steps: StepRanges) -> list[list[int]]:
    """The first and the last step of each range."""
    return [[first, stop - 1] for first, stop in steps.ranges]


def _read(file: str) -> Any:
    if os.path.isdir(file):
        raise UsageError(
            f"{file} is a folder; of one that torch.distributed.checkpoint wrote, make a file first (which unpickles): "
            f"`python -m torch.distributed.checkpoint.format_utils dcp_to_torch {file} state.pt`"
        )
    try:
        with open(file, "rb") as opened:
            data = opened.read()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        if not data.startswith(b"PK"):
            raise UsageError(f"{file} is no JSON, and no checkpoint of torch: {error}") from None
    require_torch("reading a checkpoint of torch")
    import torch

    try:
        return torch.load(file, map_location="meta", weights_only=True, mmap=True)
    except Exception as error:  # of many kinds, and of many lines
        first = str(error).strip().split("\n")[0]
        raise UsageError(
            f"{file} cannot be read without unpickling what is no tensor or plain value ({first}); save the state in a "
            "file of its own, as JSON"
        ) from None


def _states(value: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The states anywhere in a checkpoint, each with its place."""
    if isinstance(value, Mapping):
        if value.get("format") == FORMAT:
            yield place, value
            return
        items = list(value.items())
    elif isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    else:
        return
    for name, each in items:
        yield from _states(each, f"{place}.{name}" if place else str(name))


def _blocks(title: str, told: dict[str, Any]) -> Iterator[Block]:
    yield Table((), list(_summary(told)), title)
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


def _summary(told: dict[str, Any]) -> Iterator[Row]:
    given, items = told["given_of_step"]
    skipped = sum(last - first + 1 for first, last in told["skipped"])
    held, all_ranks = told["ranks"], told["elastic"]["ranks"]
    has_all = held == list(range(all_ranks))
    usual = [ranks for ranks in told["legal_ranks"] if ranks <= 2 * all_ranks]
    more = f" (up to {told['legal_ranks'][-1]:,})" if usual != told["legal_ranks"] else ""
    goes_on = f"{_numbers(usual)} ranks{more}, with {_numbers(told['legal_workers'])} workers each"
    yield "version", str(told["version"])
    samples = counted(told["samples"], "sample")
    yield "batch", f"{told['batch'] - skipped:,} global batches were given, {samples}"
    if skipped:
        yield "skipped", f"{skipped:,} besides: {_steps(told['skipped'])}"
    if told["to_skip"]:
        yield "to be skipped", f"{_steps(told['to_skip'])}, as the training loop said"
    if given:
        yield "inside a step", f"{given} of a rank's {items} items of the next one, too"
    length = counted(told["epoch_batches"] or 0, "batch", "batches")
    inside = f"{told['epoch']}, {told['epoch_batch']:,} of its {length}"
    yield "epoch", inside if told["epoch_batches"] else "endless"
    yield "topology", f"{all_ranks} ranks x {told['elastic']['workers']} workers"
    yield "holds", "all canonical ranks" if has_all else f"canonical ranks {_numbers(held)}"
    yield "goes on with", goes_on if has_all else f"{goes_on}, once the states of all ranks are merged"
    for each in told["shares"]:
        shares = ", ".join(f"{name} {share:g}" for name, share in each["shares"].items())
        yield "shares set", f"from global batch {each['batch']:,} on: {shares}"
    yield "order", f"seed {told['seed']}, digest {told['digest']}"


def _steps(ranges: list[list[int]]) -> str:
    return ", ".join(number_range(first, last) for first, last in ranges)


def _numbers(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return shown if len(numbers) <= 12 else f"{shown}, … {numbers[-1]}"
