"""E207: keys that say the same thing in different ways, or against each other."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.language.options import Errors
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import MapNode


@rule("E207")
def exclusive_keys(composed: Composed) -> Findings:
    """Batches, epochs, error budgets and shares that are stated twice."""
    spec, top = composed.spec, composed.top
    if spec.batch is not None and spec.batch.size and spec.batch.global_size:
        message = "`size` counts for each rank and `global_size` over all; both together are too much"
        hint = "keep one; `size: null` removes an inherited one"
        yield Finding(top.entries["batch"].value.key_or_self("global_size"), message, hint)
    yield from _epoch(composed)
    if "errors" not in composed.bad:
        yield from _budgets(spec.errors, top)
    for leaf in composed.leaves:
        if "errors" not in leaf.bad:
            yield from _budgets(leaf.model.errors if leaf.model else spec.errors, leaf.node)
    yield from _shares(composed)
    if composed.mix is not None and composed.schedule is not None and spec.mix.draw == "round_robin":
        message = "`draw: round_robin` takes turns whatever the shares, so that they cannot change"
        yield Finding(composed.mix.key("schedule"), message, "remove one of the two")


def _epoch(composed: Composed) -> Findings:
    epoch = composed.spec.epoch
    if epoch is None:
        return
    node = composed.top.entries["epoch"].value
    if epoch.remainder is not None:
        for key in ("samples", "batches"):
            if getattr(epoch, key):
                message = f"an epoch is one pass or a number of {key}, not both"
                hint = f"keep one; `{key}: null` removes an inherited one"
                yield Finding(node.key_or_self(key), message, hint)
    elif epoch.samples and epoch.batches:
        message = "an epoch is a number of samples or a number of batches, not both"
        hint = "keep one; `samples: null` removes an inherited one"
        yield Finding(node.key_or_self("batches"), message, hint)


def _budgets(errors: Errors, holder: MapNode) -> Findings:
    """A budget for skips means nothing where nothing is skipped."""
    node = holder.get("errors")
    if errors.skip or not isinstance(node, MapNode):
        return
    for key in ("max_count", "max_rate"):
        if node.get(key) is not None:
            message = f"`{key}` is a budget for skips, but `skip` is false"
            yield Finding(node.key(key), message, "remove one")
            return


def _shares(composed: Composed) -> Findings:
    for sources in composed.lists:
        for draft in sources.drafts:
            stated = draft.stated_shares
            if sources.scheduled:
                for key in stated:
                    message = f"`mix.schedule` says the share of each source, and here is a `{key}` too"
                    yield Finding(draft.node.key(key), message, "remove one of the two")
            elif len(stated) > 1:
                message = f"a source states its share once, but here are `{stated[0]}` and `{stated[1]}`"
                yield Finding(draft.node.key(stated[1]), message, "keep one of them")
