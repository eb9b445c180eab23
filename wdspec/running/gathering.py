"""The state of the whole job, gathered from the ranks of torch.distributed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wdspec.errors import UsageError
from wdspec.processes.seat import initialised_distributed
from wdspec.running.cursor import Resumable
from wdspec.running.run_state import State, merge_states


def gather_state(loader_or_state: Resumable | Mapping[str, Any], group: Any = None) -> State:
    """The merged state of all ranks, on every rank: save it once, and load it on every rank of any legal topology.

    A collective: every rank of the group calls it, after the same batch. What goes wrong on one rank is raised
    on all of them, so nobody waits. Ranks that read the same part (peers in tensor or pipeline parallelism) count
    once. Where torch.distributed is not initialised, it is the state of this process alone.

    Args:
        loader_or_state: a `Loader`, a compiled spec, or what its `state_dict` returned.
        group: the process group; by default the whole job. With NCCL, the device of the rank must have been set.

    Raises:
        UsageError: the states are not those of all ranks after one and the same batch; see `merge_states`.

    Example:
        >>> import wdspec
        >>> with wdspec.loader("examples/specs/digits.yaml", split="train") as loader:
        ...     batch = next(iter(loader))
        ...     state = wdspec.gather_state(loader)
        >>> state["batch"], state["ranks"]
        (1, [0])
    """
    distributed = initialised_distributed()
    if distributed is None:
        return merge_states([_own_state(loader_or_state)])
    own: tuple[State | None, str]
    try:
        own = _own_state(loader_or_state), ""
    except Exception as error:  # the others are waiting, and are to hear of it
        own = None, f"{type(error).__name__}: {error}"
    gathered: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(gathered, own, group=group)
    failures = [
        f"rank {rank} of the group: {why}" for rank, (state, why) in enumerate(gathered) if state is None
    ]
    if failures:
        raise UsageError("a state could not be gathered:\n  " + "\n  ".join(failures))
    states = [state for state, _ in gathered]
    return merge_states(state for n, state in enumerate(states) if state not in states[:n])


def _own_state(loader_or_state: Resumable | Mapping[str, Any]) -> State:
    if isinstance(loader_or_state, Mapping):
        return dict(loader_or_state)
    return loader_or_state.state_dict()
