"""Batches and epochs: stated once, and able to hold each other."""

from __future__ import annotations

from wdspec.spec.language.models import Batch, Elastic, Epoch, Errors
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, Node


def check_batch(batch: Batch | None, elastic: Elastic | None, top: MapNode, problems: Problems) -> None:
    """One of `size` and `global_size`, the latter divisible by the ranks it is for."""
    if batch is None:
        return
    node = top.entries["batch"].value
    if batch.size and batch.global_size:
        message = "`size` counts for each rank and `global_size` over all; both together are too much"
        hint = "keep one; `size: null` removes an inherited one"
        problems.add("E207", _key(node, "global_size"), message, hint)
    elif not batch.size and not batch.global_size:
        problems.add(
            "E206", node, "the batch has no size", "write `batch: 64` or `batch: {global_size: 512}`"
        )
    elif elastic and batch.global_size and batch.global_size % elastic.ranks:
        near = -(-batch.global_size // elastic.ranks) * elastic.ranks
        message = f"{batch.global_size:,} samples cannot be shared equally by {elastic.ranks} ranks"
        problems.add("E307", _value(node, "global_size"), message, f"write `global_size: {near}`")


def check_epoch(
    epoch: Epoch | None, batch: Batch | None, elastic: Elastic | None, top: MapNode, problems: Problems
) -> None:
    """One of `samples`, `batches` and `pass`, and not less than one global batch."""
    if epoch is None:
        return
    node = top.entries["epoch"].value
    if epoch.remainder is not None:
        for key in ("samples", "batches"):
            if getattr(epoch, key):
                message = f"an epoch is one pass or a number of {key}, not both"
                problems.add(
                    "E207", _key(node, key), message, f"keep one; `{key}: null` removes an inherited one"
                )
        return
    if epoch.samples and epoch.batches:
        message = "an epoch is a number of samples or a number of batches, not both"
        hint = "keep one; `samples: null` removes an inherited one"
        problems.add("E207", _key(node, "batches"), message, hint)
    elif not epoch.samples and not epoch.batches:
        problems.add(
            "E206", node, "the epoch has no length", "write `epoch: 100_000` or `epoch: {batches: 1000}`"
        )
    elif epoch.samples and batch:
        least = batch.global_size or (batch.size or 0) * (elastic.ranks if elastic else 1)
        if epoch.samples < least:
            message = f"an epoch of {epoch.samples:,} samples is shorter than one global batch of {least:,}"
            hint = f"give it at least {least}, or make the batch smaller"
            problems.add("E306", _value(node, "samples"), message, hint)
    elif epoch.batches and not batch:
        hint = "add `batch:`, or count the epoch in samples"
        problems.add("E306", _key(node, "batches"), "an epoch of batches needs a `batch`", hint)


def check_errors(errors: Errors | None, holder: MapNode, problems: Problems) -> None:
    """A budget for skips means nothing where nothing is skipped."""
    node = holder.get("errors")
    if errors is None or errors.skip or not isinstance(node, MapNode):
        return
    for key in ("max_count", "max_rate"):
        if node.get(key) is not None:
            problems.add(
                "E207", node.key(key), f"`{key}` is a budget for skips, but `skip` is false", "remove one"
            )
            return


def _key(node: Node, key: str) -> Node:
    return node.key(key) if isinstance(node, MapNode) and key in node.entries else node


def _value(node: Node, key: str) -> Node:
    return node.entries[key].value if isinstance(node, MapNode) and key in node.entries else node
