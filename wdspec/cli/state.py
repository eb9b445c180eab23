"""`wdspec state`: the contents of a saved state. Also finds states in files for other commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import click

from wdspec.api import require_torch
from wdspec.base.amounts import percent
from wdspec.base.errors import UsageError
from wdspec.base.files import open_regular
from wdspec.cli.output import Block, Row, Table, number, number_range, pluralize, print_json, show, table_of
from wdspec.cli.spec_options import form_option
from wdspec.planning.topology import legal_workers, legal_world_sizes
from wdspec.read.counts import Amount
from wdspec.run.received import add_up, received_in
from wdspec.run.record import read_record
from wdspec.run.state import FORMAT, check_undamaged, merge_states, ranks_of, skipped_steps
from wdspec.run.stats import describe_ranks, samples_given
from wdspec.spec.language.steps import StepRanges

LONGEST_FRACTION = 7
"""Longer fractions are shown as a percentage."""


@click.command()
@click.argument("file", metavar="FILE")
@form_option
def state(file: str, form: str) -> None:
    """Show a saved state: epoch, batch, what was received of each source, and the topologies that can resume from it.

    The counts are of the canonical ranks that the state holds: of all ranks in a merged state (`gather_state`).

    FILE is JSON or a checkpoint of `torch.save`, and may contain the state at any depth. Only tensors and plain values
    are unpickled.
    """
    states = [{"at": place, **describe_state(each)} for place, each in find_states(file)]
    if form == "json":
        print_json(states)
        return
    for each in states:
        show(*_blocks(f"{file}{each['at'] and ', ' + each['at']}", each))


def find_states(file: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Find the states in a file of JSON, or in a checkpoint that `torch.save` wrote, each with its place in it.

    Raises:
        UsageError: the file has no state, or cannot be read.
    """
    found = list(_find_states(_read(file), ""))
    if not found:
        if read_record(file) is not None:
            raise UsageError(f"this is the record of a run: use `wdspec report {file}`", file=file)
        raise UsageError(
            f"{file} contains no state of wdspec; name a file with the result of `state_dict` or `gather_state`"
        )
    return found


def read_state(file: str) -> Mapping[str, Any]:
    """Read the state of a run from a file; several states, such as those of all ranks, are merged.

    Raises:
        UsageError: as for `find_states`; or damaged states, or states of several runs.
    """
    found = [state for _, state in find_states(file)]
    for state in found:
        check_undamaged(state)
    return found[0] if len(found) == 1 else merge_states(found)


def describe_state(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a state as JSON values.

    Raises:
        UsageError: it is damaged, or of another version.
    """
    check_undamaged(saved)
    order, ranks, batch = json.loads(saved["order"]), ranks_of(saved), saved["batch"]
    topology = order["elastic"]
    received = add_up(list(received_in(saved).values()))
    sources = {
        name: {
            "slots": len(counts),
            **(_UNKNOWN if received is None else received.get(name, _NOTHING))._asdict(),
            "least": int(counts.min(initial=counts.max(initial=0))),
            "most": int(counts.max(initial=0)),
        }
        for name, counts in samples_given(saved).items()
    }
    skipped = skipped_steps(saved)
    removed = {name: {"slots": 0, "least": 0, "most": 0} for name in saved.get("removed", ())}
    sources |= {
        name: {**each, **(received or {}).get(name, _UNKNOWN)._asdict()} for name, each in removed.items()
    }
    epoch, inside = divmod(batch, saved["epoch_batches"]) if saved["epoch_batches"] else (0, batch)
    if "epoch" in saved:
        epoch, first = saved["epoch"]
        inside = batch - first
    return {
        "version": saved["version"],
        "batch": batch,
        "samples": None if received is None else sum(each.samples or 0 for each in received.values()),
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
        "shares": [{"batch": start, "shares": shares} for start, shares in json.loads(saved["shares"])],
        "skipped": _ends(skipped.within(0, batch)),
        "to_skip": _ends(skipped.within(batch)),
        "sources": [
            {"source": name, "share": order["sources"].get(name, {"share": "removed"})["share"], **counts}
            for name, counts in sources.items()
        ],
        "shares_change": "schedule" in order,
    }


_NOTHING, _UNKNOWN = Amount(0, None, None), Amount(None, None, None)


def _ends(steps: StepRanges) -> list[list[int]]:
    """The first and the last step of each range."""
    return [[first, stop - 1] for first, stop in steps.ranges]


def _read(file: str) -> Any:
    if os.path.isdir(file):
        raise UsageError(
            f"{file} is a folder; convert a folder of torch.distributed.checkpoint to a file first (which unpickles): "
            f"`python -m torch.distributed.checkpoint.format_utils dcp_to_torch {file} state.pt`"
        )
    try:
        with open_regular(file, descriptors=True) as opened:
            data = opened.read()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        if not data.startswith(b"PK"):
            raise UsageError(f"{file} is neither JSON nor a checkpoint of torch: {error}") from None
    require_torch("reading a checkpoint of torch")
    import torch

    try:
        return torch.load(file, map_location="meta", weights_only=True, mmap=True)
    except Exception as error:  # of many kinds, and of many lines
        first = str(error).strip().split("\n")[0]
        raise UsageError(
            f"{file} cannot be read without unpickling more than tensors and plain values ({first}); save the state in "
            "a separate file, as JSON"
        ) from None


def _find_states(value: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The states in a checkpoint, each with its place."""
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
        yield from _find_states(each, f"{place}.{name}" if place else str(name))


def _blocks(title: str, state: dict[str, Any]) -> Iterator[Block]:
    yield Table((), list(_summary(state)), title)
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "source": lambda each: each["source"],
        "largest share" if state["shares_change"] else "share": lambda each: _share(each["share"]),
        "samples received>": partial(_amount, "samples"),
    }
    for key in ("cost", "tokens"):
        if any(each[key] is not None for each in state["sources"]):
            columns[f"{key}>"] = partial(_amount, key)
    if not state["is_pass"]:
        columns |= {
            "read or dropped in a slot, least>": lambda each: number(each["least"]),
            "most>": lambda each: number(each["most"]),
            "slots that read it>": lambda each: number(each["slots"]),
        }
    yield table_of(state["sources"], columns, "sources")
    if state["is_pass"]:
        yield "Slots of a pass have no state: their positions follow from the batch."


def _share(text: str) -> str:
    """Format a share of a state, an exact fraction: `2/3`, or `73.25%` if it is long. Other texts are kept."""
    return percent(float(Fraction(text))) if len(text) > LONGEST_FRACTION and "/" in text else text


def _amount(key: str, source: dict[str, Any]) -> str:
    return "unknown" if source[key] is None else number(source[key])


def _summary(state: dict[str, Any]) -> Iterator[Row]:
    given, items = state["given_of_step"]
    skipped = sum(last - first + 1 for first, last in state["skipped"])
    held, all_ranks = state["ranks"], state["elastic"]["ranks"]
    has_all = held == list(range(all_ranks))
    usual = [ranks for ranks in state["legal_ranks"] if ranks <= 2 * all_ranks]
    more = f" (up to {state['legal_ranks'][-1]:,})" if usual != state["legal_ranks"] else ""
    ranks, workers = pluralize(all_ranks, "rank"), pluralize(state["elastic"]["workers"], "worker")
    once = "" if has_all else ", once the states of all ranks are merged"
    yield "resumes on", f"{ranks} x {workers}{once}"
    yield (
        "with elastic",
        f"on {_numbers(usual)} ranks{more}, with {_numbers(state['legal_workers'])} workers each, if "
        f"the spec has `elastic: {{ranks: {all_ranks}, workers: {state['elastic']['workers']}}}`",
    )
    yield "version", str(state["version"])
    samples = "" if state["samples"] is None else f", {pluralize(state['samples'], 'sample')}"
    of_ranks = "" if has_all or not samples else f" by canonical ranks {describe_ranks(held, all_ranks)}"
    yield "batch", f"{state['batch'] - skipped:,} global batches yielded{samples}{of_ranks}"
    if skipped:
        yield "skipped", f"{skipped:,} more: {_steps(state['skipped'])}"
    if state["to_skip"]:
        yield "to be skipped", f"{_steps(state['to_skip'])}, as set by the training loop"
    if given:
        yield "inside a step", f"and {given} of a rank's {items} items of the next one"
    length = pluralize(state["epoch_batches"] or 0, "batch", "batches")
    inside = f"{state['epoch']}, {state['epoch_batch']:,} of its {length}"
    if not state["epoch_batches"] and state["epoch"]:  # the epoch starts here, and is not planned
        inside = f"{state['epoch']}, at its start"
    yield "epoch", inside if state["epoch_batches"] or state["epoch"] else "endless"
    yield "holds", "all canonical ranks" if has_all else f"canonical ranks {_numbers(held)}"
    for each in state["shares"]:
        shares = ", ".join(f"{name} {share:g}" for name, share in each["shares"].items())
        yield "shares set", f"from global batch {each['batch']:,}: {shares}"
    yield "order", f"seed {state['seed']}, digest {state['digest']}"


def _steps(ranges: list[list[int]]) -> str:
    return ", ".join(number_range(first, last) for first, last in ranges)


def _numbers(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return shown if len(numbers) <= 12 else f"{shown}, … {numbers[-1]}"
