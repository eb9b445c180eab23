"""What `epoch: pass` leaves out of the language, and the defaults it changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wdspec.spec.compose.source_list import SHARE_KEYS, Draft
from wdspec.spec.language.models import Spec
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, Node, locate

MASK = "__mask__"


def settle_pass(spec: Spec, top: MapNode, drafts: Sequence[Draft], problems: Problems) -> None:
    """Checks a spec with `epoch: pass` and gives its sources their other defaults.

    Every sample comes once, so there is nothing to share out: shares and `mix` are refused. The padding must be
    told from the samples, so a tuple needs the mask. Without a pass there is no mask.
    """
    if spec.epoch is None or spec.epoch.remainder is None:
        _refuse_mask(spec, top, problems)
        return
    leaves = [leaf for draft in drafts for leaf in draft.leaves]
    for draft in _everyone(drafts):
        for key in SHARE_KEYS:
            if draft.node.get(key) is not None:
                _refuse(key, draft.node, problems)
    for node in (top, *(draft.node for draft in _everyone(drafts) if draft.children is not None)):
        if node.get("mix") is not None:
            _refuse("mix", node, problems)
    for leaf in leaves:
        _settle(leaf, problems)
    if spec.to_tuple is not None and MASK not in spec.to_tuple and _may_pad(spec, leaves):
        message = "with `epoch: pass` some of the tuples are padding, and only `__mask__` tells which"
        hint = "add `__mask__` to `to_tuple`"
        problems.add("E312", top.entries["to_tuple"].value, message, hint)


def _refuse(key: str, node: MapNode, problems: Problems) -> None:
    message = f"`{key}` has no place with `epoch: pass`: every sample comes once, source after source"
    problems.add("E312", node.key(key), message, f"remove it; `{key}: null` removes an inherited one")


def _settle(leaf: Draft, problems: Problems) -> None:
    model = leaf.model
    if model is None:
        return
    if model.order == "resampled":
        message = "`order: resampled` draws shards with replacement, but `epoch: pass` reads each once"
        hint = "leave it out, or write `order: shuffled`"
        problems.add("E312", leaf.node.entries["order"].value, message, hint)
    if model.interleave > 1:
        message = "`interleave` has no effect with `epoch: pass`, which reads shard after shard"
        problems.add("W102", leaf.node.key("interleave"), message, "remove it")
    changes: dict[str, Any] = {"order": "sequential", "shuffle": 0}
    stated = [key for key in changes if leaf.node.get(key) is not None]
    leaf.model = model.model_copy(update={key: changes[key] for key in changes if key not in stated})


def _may_pad(spec: Spec, leaves: Sequence[Draft]) -> bool:
    """Whether the last batch may be filled up, or a sample drop out of its place."""
    models = [leaf.model for leaf in leaves if leaf.model is not None]
    assert spec.epoch is not None
    return spec.epoch.remainder == "pad" or any(
        model.select is not None or model.missing == "skip" or model.errors.skip for model in models
    )


def _refuse_mask(spec: Spec, top: MapNode, problems: Problems) -> None:
    for key in ("fields", "to_tuple"):
        for index, entry in enumerate(getattr(spec, key) or ()):
            if entry == MASK:
                at: Node = locate(top.entries[key].value, (index,))
                hint = "remove it; all samples are real here"
                problems.add("E308", at, "only samples of `epoch: pass` have the field `__mask__`", hint)


def _everyone(drafts: Sequence[Draft]) -> Iterator[Draft]:
    for draft in drafts:
        yield draft
        yield from _everyone(draft.children or ())
