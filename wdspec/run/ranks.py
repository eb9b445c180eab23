"""Comparing ranks: do all see the same shards, shares and skipped steps? And gathering their states.

A collective would hang if one rank builds a loader and another does not. So ranks write notes to the key-value store of
torch.distributed, and read those that are there already, without waiting:

    first rank to arrive:   write full notes ─▶ read the notes of ranks that arrived meanwhile
    every other rank:       full notes there? compare, done.
                            else write notes ─▶ look again

Each of two ranks writes its notes before it looks for the other's, so if they differ, at least one of them finds out.
It raises, and the launcher ends the job.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, Protocol

from wdspec.base.errors import UsageError, warn_user
from wdspec.planning.digest import EXPAND_UP_TO, differences, digest
from wdspec.planning.topology import initialised_distributed
from wdspec.run.run import Run
from wdspec.run.state import State, check_undamaged, merge_states
from wdspec.spec.language.steps import StepRanges
from wdspec.urls.urls import ShardUrl, UrlSequence

_comparisons: Counter[str] = Counter()
"""Name -> number of comparisons by this process."""


class Stateful(Protocol):
    """A loader or a compiled spec."""

    def state_dict(self) -> State: ...


def check_ranks_agree(run: Run) -> None:
    """Compare the order and the shards with those of ranks that arrived before.

    Does nothing unless torch.distributed is initialized and there are several ranks.

    Raises:
        UsageError: another rank differs; names the first source and shard, or the option, that differs.
    """
    shards = {source.name: _texts(source.shards) for source in run.plan.sources}
    skipped = {"skip": str(run.spec.skipped_steps)} if run.spec.skip else {}
    _compare_ranks(run, "", {**json.loads(run.order_text), **skipped}, shards)


def check_shares_agree(run: Run, start: int, shares: Mapping[str, float]) -> None:
    """Compare shares set at run time, and the first batch with them, with those of ranks that arrived before.

    Does nothing unless torch.distributed is initialized. A rank that sets none is found when states are merged.

    Raises:
        UsageError: another rank has set other shares, or after another batch.
    """
    _compare_ranks(run, "shares", {"from global batch": start, "shares": dict(shares)}, {})


def check_skips_agree(run: Run, batch: int, steps: StepRanges) -> None:
    """Compare steps that the training loop skips, and the current batch, with those of ranks that arrived before.

    Does nothing unless torch.distributed is initialized. A rank that skips none is found when states are merged.

    Raises:
        UsageError: another rank skips other steps, or called after another batch.
    """
    _compare_ranks(run, "steps to skip", {"before global batch": batch, "skip": str(steps)}, {})


def _compare_ranks(run: Run, what: str, order: dict[str, Any], shards: dict[str, list[str]]) -> None:
    distributed = initialised_distributed()
    seat, spec = run.seat, run.spec
    if seat.world_size == 1 or distributed is None:
        return
    # Paths may differ between machines. Ranks may also build loaders of other files or splits.
    name = f"{PurePath(spec.file or '').name}#{spec.split or ''}/{seat.world_size}{what}"
    number = _comparisons[name]
    _comparisons[name] += 1
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    try:
        store = distributed.distributed_c10d._get_default_store()
        compare(store, f"wdspec/{name}/{number}", rank, world_size, order, shards)
    except (AttributeError, RuntimeError) as error:
        # There is no such store, or the job is ending.
        warn_user(f"could not compare the {what or 'shards'} of the ranks: {error}")


def compare(
    store: Any,
    key: str,
    rank: int,
    world_size: int,
    order: dict[str, Any],
    shards: dict[str, list[str]],
) -> None:
    """Compare this rank with those whose notes are there; never wait for one.

    Args:
        store: a `torch.distributed.Store`; its `get` would wait for a missing key.
        key: the same on all ranks, and unique to this comparison.
        rank, world_size: as in torch.distributed.
        order: what the order depends on (`planning.digest.describe_order`), through JSON.
        shards: the shards of each source, as texts.

    Raises:
        UsageError: another rank differs.
    """
    own = digest(order)
    notes = zlib.compress(json.dumps([rank, order, shards]).encode())

    def write_notes(place: str) -> None:
        store.set(f"{place}/notes", notes)
        store.set(f"{place}/digest", own)

    first = f"{key}/first"
    if store.add(f"{key}/came", 1) == 1:
        write_notes(first)
        others = [f"{key}/{n}" for n in range(world_size) if n != rank]
    else:
        if not store.check([f"{first}/digest"]):
            write_notes(f"{key}/{rank}")
        others = [first]
    for other in others:
        if store.check([f"{other}/digest"]) and store.get(f"{other}/digest").decode() != own:
            theirs = json.loads(zlib.decompress(store.get(f"{other}/notes")))
            raise UsageError(_describe_difference(rank, order, shards, *theirs))


def _describe_difference(
    rank: int,
    order: dict[str, Any],
    shards: dict[str, list[str]],
    other: int,
    other_order: dict[str, Any],
    other_shards: dict[str, list[str]],
) -> str:
    remedy = (
        "all ranks must load the same spec and see the same files; if a glob or a directory differs between "
        "machines, list the shards, or share the directory"
    )
    for name, own in shards.items():
        theirs = other_shards.get(name, own)
        for number, (mine, its) in enumerate(zip_longest(own, theirs)):
            if mine != its:
                return (
                    f"the ranks see different shards: in source {name!r}, shard {number} is {mine or 'missing'} on "
                    f"rank {rank} and {its or 'missing'} on rank {other} ({len(own)} and {len(theirs)} in all); "
                    f"{remedy}"
                )
    lines = "\n  ".join(differences(other_order, order))
    if "from global batch" in order:
        return (
            f"rank {rank} ('now') sets other shares than rank {other} ('was'):\n  {lines}\nset the same shares on all "
            "ranks, after the same batch"
        )
    if "before global batch" in order:
        return (
            f"rank {rank} ('now') skips other steps than rank {other} ('was'):\n  {lines}\nskip the same steps on all "
            "ranks, after the same batch"
        )
    return f"rank {rank} ('now') has another spec than rank {other} ('was'):\n  {lines}\n{remedy}"


def _texts(shards: Sequence[ShardUrl]) -> list[str]:
    """Return the shards as written; for a list too long to send, the patterns it was written with."""
    if isinstance(shards, UrlSequence) and len(shards) > EXPAND_UP_TO:
        return [str(getattr(run.texts, "pattern", run.texts)) for run in shards.parts]
    return [shard.text for shard in shards]


def loss_scale(count: Any, group: Any = None) -> float:
    """Return the factor for the sum of this rank's losses, so that gradients are those of the mean over all tokens.

    Ranks hold different numbers of tokens with packing and batches by cost, so the mean of their mean losses is not the
    mean over tokens. DistributedDataParallel averages gradients over ranks: the factor is the number of ranks, divided
    by the tokens of all ranks. This is a collective with one all-reduce. If torch.distributed is not initialized, it is
    1 divided by the tokens of this process.

    Args:
        count: what the loss is summed over on this rank, such as the tokens that have a label; a number, or a tensor
            with one element, on the device of the rank with NCCL.
        group: the data-parallel process group; by default all ranks.

    Raises:
        UsageError: no rank has anything to sum over.

    Example:
        >>> import torch, wdspec
        >>> losses, labels = torch.tensor([0.5, 1.5, 9.0]), torch.tensor([4, 2, -100])
        >>> counted = labels != -100
        >>> float(losses[counted].sum() * wdspec.loss_scale(counted.sum()))
        1.0
    """
    import torch

    total = torch.as_tensor(count).detach().double().reshape(())
    ranks, distributed = 1, initialised_distributed()
    if distributed is not None:
        total, ranks = total.clone(), distributed.get_world_size(group)
        distributed.all_reduce(total, group=group)
    if not total > 0:
        raise UsageError(
            "there are no tokens on any rank, so there is no mean loss; check the labels of the batch"
        )
    return ranks / float(total)


def gather_state(loader_or_state: Stateful | Mapping[str, Any], group: Any = None) -> State:
    """Return the merged state of all ranks, on every rank: save it once, and load it on every rank.

    The state resumes on any topology that divides the canonical one. This is a collective: every rank of the group must
    call it, after the same batch. An error on one rank is raised on all of them, so no rank waits. Ranks that read the
    same part (peers in tensor or pipeline parallelism) count once. If torch.distributed is not initialized, the state
    is that of this process alone.

    Args:
        loader_or_state: a `Loader`, a compiled spec, or what its `state_dict` returned.
        group: the process group; by default all ranks. With NCCL, set the device of the rank before.

    Raises:
        UsageError: the states are not from all ranks after the same batch; see `merge_states`.

    Example:
        >>> import wdspec
        >>> with wdspec.loader("examples/specs/digits.yaml", split="train") as loader:
        ...     batch = next(iter(loader))
        ...     state = wdspec.gather_state(loader)
        >>> state["batch"], list(state["ranks"])
        (1, ['0'])
    """
    distributed = initialised_distributed()
    if distributed is None:
        return merge_states([_own_state(loader_or_state)])

    def gather(value: Any) -> list[Any]:
        values: list[Any] = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(values, value, group=group)
        return values

    own: State = {}
    try:
        own = _own_state(loader_or_state)
        check_undamaged(own)
        # The description of the order is long, and usually the same on all ranks.
        message = {name: value for name, value in own.items() if name != "order"}, ""
    except Exception as error:  # send it to the other ranks, which are waiting
        message = {}, f"{type(error).__name__}: {error}"
    states, failures = zip(*gather(message), strict=True)
    if any(failures):
        lines = [f"rank {rank} of the group: {why}" for rank, why in enumerate(failures) if why]
        raise UsageError("the states could not be gathered:\n  " + "\n  ".join(lines))
    is_same = all(state["digest"] == own["digest"] for state in states)
    orders = [own["order"]] * len(states) if is_same else gather(own["order"])
    return merge_states({**state, "order": order} for state, order in zip(states, orders, strict=True))


def _own_state(loader_or_state: Stateful | Mapping[str, Any]) -> State:
    if isinstance(loader_or_state, Mapping):
        return dict(loader_or_state)
    return loader_or_state.state_dict()
