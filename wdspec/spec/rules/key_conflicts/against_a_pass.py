"""E312: what `epoch: pass` leaves out of the language."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.language.values import MASK
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import MapNode


@rule(
    "E312",
    "against a pass",
    "`epoch: pass` gives every sample once, source after source: shares, `mix`, `skip` and drawing with "
    "replacement have no place in it. What fills up the last batch is marked in `__mask__`, which a tuple must not "
    "leave out.",
    bad="epoch: pass\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    good="epoch: pass\ndataset:\n  - {shards: a.tar}\n",
)
def against_a_pass(composed: Composed) -> Findings:
    """Shares, mixes, skipped steps and drawing with replacement; tuples in which padding looks like samples."""
    if not composed.is_pass:
        return
    holders = [composed.top]
    for draft in composed.every_draft:
        yield from (_refused(key, draft.node) for key in draft.stated_shares)
        holders += [draft.node] if draft.children is not None else []
    yield from (_refused(key, composed.top) for key in ("stage", "skip") if composed.top.get(key) is not None)
    yield from (_refused("mix", holder) for holder in holders if holder.get("mix") is not None)
    for leaf, source in composed.models:
        if source.order == "resampled":
            message = "`order: resampled` draws shards with replacement, but `epoch: pass` reads each once"
            hint = "leave it out, or write `order: shuffled`"
            yield Finding(leaf.node.entries["order"].value, message, hint)
    wanted = composed.spec.to_tuple
    if wanted is not None and MASK not in wanted and _may_pad(composed):
        message = "with `epoch: pass` some of the tuples are padding, and only `__mask__` tells which"
        yield Finding(composed.top.entries["to_tuple"].value, message, "add `__mask__` to `to_tuple`")


def _refused(key: str, node: MapNode) -> Finding:
    message = f"`{key}` has no place with `epoch: pass`: every sample comes once, source after source"
    return Finding(node.key(key), message, f"remove it; `{key}: null` removes an inherited one")


def _may_pad(composed: Composed) -> bool:
    """Whether the last batch may be filled up, or a padding stand for a sample that was dropped."""
    epoch = composed.spec.epoch
    return (epoch is not None and epoch.remainder == "pad") or any(
        source.select is not None or source.missing == "skip" or source.errors.skip
        for _, source in composed.models
    )
