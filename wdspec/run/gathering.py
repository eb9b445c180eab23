"""The state of the whole job, gathered from the ranks of torch.distributed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.planning.seat import initialised_distributed
from wdspec.run.resumable import Resumable
from wdspec.run.state import State, check_undamaged, merge_states


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
        >>> state["batch"], list(state["ranks"])
        (1, ['0'])
    """
    distributed = initialised_distributed()
    if distributed is None:
        return merge_states([_own_state(loader_or_state)])

    def gathered(value: Any) -> list[Any]:
        values: list[Any] = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(values, value, group=group)
        return values

    own: State = {}
    try:
        own = _own_state(loader_or_state)
        check_undamaged(own)
        # The description of the order is long, and on all ranks alike.
        sent = {name: value for name, value in own.items() if name != "order"}, ""
    except Exception as error:  # the others are waiting, and are to hear of it
        sent = {}, f"{type(error).__name__}: {error}"
    states, failures = zip(*gathered(sent), strict=True)
    if any(failures):
        told = (f"rank {rank} of the group: {why}" for rank, why in enumerate(failures) if why)
        raise UsageError("a state could not be gathered:\n  " + "\n  ".join(told))
    alike = all(state["digest"] == own["digest"] for state in states)
    orders = [own["order"]] * len(states) if alike else gathered(own["order"])
    return merge_states({**state, "order": order} for state, order in zip(states, orders, strict=True))


def _own_state(loader_or_state: Resumable | Mapping[str, Any]) -> State:
    if isinstance(loader_or_state, Mapping):
        return dict(loader_or_state)
    return loader_or_state.state_dict()
