"""The `mix:` of the top level: a schedule that fits its sources, and one source for each batch."""

from __future__ import annotations

from collections.abc import Sequence

from wdspec.spec.compose.source_list import Draft
from wdspec.spec.language.models import Spec
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import ListNode, MapNode, Node, Scalar
from wdspec.suggestions import did_you_mean


def check_mix(spec: Spec, mix: MapNode | None, drafts: Sequence[Draft], problems: Problems) -> None:
    """Checks what `unit`, `draw` and `schedule` need of each other, of `batch` and of the sources.

    Args:
        spec: with the values of the top level; its `dataset` is not looked at.
        mix: the `mix:` that it has.
        drafts: the sources of the top list.
    """
    if mix is None or (spec.epoch is not None and spec.epoch.remainder is not None):
        return  # a pass has no place for it at all
    if spec.mix.unit == "batch" and spec.batch is None:
        hint = "add `batch: n`, or remove `unit`"
        problems.add(
            "E206",
            mix.key("unit"),
            "`unit: batch` draws a source for each batch, but there is no `batch`",
            hint,
        )
    schedule = mix.get("schedule")
    if not isinstance(schedule, ListNode):
        return
    key = mix.key("schedule")
    if not schedule.items:
        problems.add("E214", key, "the schedule is empty", "fill it in, or leave the key out")
    if spec.mix.draw == "round_robin":
        message = "`draw: round_robin` takes turns whatever the shares, so that they cannot change"
        problems.add("E207", key, message, "remove one of the two")
    _check_order(schedule, problems)
    _check_names(schedule, drafts, problems)


def _check_order(schedule: ListNode, problems: Problems) -> None:
    before: int | None = None
    for item in schedule.items:
        node = item.get("at") if isinstance(item, MapNode) else None
        if not isinstance(node, Scalar) or not isinstance(node.value, int):
            return  # which is a problem already
        if before is None and node.value != 0:
            hint = "write `at: 0`: the first shares hold from the beginning"
            problems.add("E313", node, f"a schedule begins at 0, but this one begins at {node.value:,}", hint)
        elif before is not None and node.value <= before:
            message = f"the steps of a schedule ascend, but {node.value:,} comes after {before:,}"
            problems.add("E313", node, message, "put the steps in order")
        before = node.value


def _check_names(schedule: ListNode, drafts: Sequence[Draft], problems: Problems) -> None:
    names = [draft.name for draft in drafts]
    inner = {leaf.name: draft.name for draft in drafts if draft.children is not None for leaf in draft.leaves}
    read: set[str] = set()
    for item in schedule.items:
        shares = item.get("shares") if isinstance(item, MapNode) else None
        if not isinstance(shares, MapNode):
            continue
        for name, (key, _) in shares.entries.items():
            if name in inner and name not in names:
                message = f"`{name[:60]}` is inside the mix `{inner[name][:60]}`"
                hint = f"a schedule sets the shares of the top list: give `{inner[name][:60]}` one"
                problems.add("E105", key, message, hint)
            elif name not in names:
                hint = did_you_mean(name, names) or f"there are {', '.join(f'`{n}`' for n in names[:10])}"
                problems.add("E105", key, f"there is no source `{name[:60]}`", hint)
        positive = {name for name, entry in shares.entries.items() if not _is_zero(entry.value)}
        if not positive:
            problems.add(
                "E303", shares, "every share of this step is 0", "give at least one source a share above 0"
            )
        read |= positive
    for draft in drafts:
        if read and draft.name not in read:
            message = f"no step of the schedule gives `{draft.name[:60]}` a share, so it is never read"
            problems.add("W102", draft.own, message, "name it in a step, or remove it")


def _is_zero(node: Node) -> bool:
    return isinstance(node, Scalar) and (node.value is None or node.value == 0)
