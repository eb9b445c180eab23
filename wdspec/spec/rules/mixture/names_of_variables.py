"""W343: the name of a source does not change with where its shards are."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import ListNode, Scalar


@rule(
    "W343",
    "a source named by a variable",
    "The order of a source is keyed by its name, and without `name` that is made from the shards'. If a "
    "variable stands in it, another environment gives another order, and states do not fit.",
    bad="vars: {set: train}\ndataset:\n  - shards: 'data/${set}-{000..009}.tar'\n",
    good="vars: {set: train}\ndataset:\n  - name: train\n    shards: 'data/${set}-{000..009}.tar'\n",
)
def names_of_variables(composed: Composed) -> Findings:
    """Sources without a name of their own whose shards have a variable in the part that names them."""
    for leaf in composed.leaves:
        name, shards = leaf.node.get("name"), leaf.node.get("shards")
        text = shards.items[0] if isinstance(shards, ListNode) and shards.items else shards
        if not isinstance(name, Scalar) or not isinstance(text, Scalar) or not isinstance(text.value, str):
            continue
        derived = (name.line, name.column) == (leaf.node.line, leaf.node.column)
        begin = text.value.find(leaf.name)
        if derived and begin >= 0 and _has_variable(text, begin, begin + len(leaf.name)):
            message = (
                f"the name `{leaf.name}` comes from a variable, and the order of the source from its name"
            )
            yield Finding(text, message, "give the source a `name`")


def _has_variable(text: Scalar, begin: int, end: int) -> bool:
    """Whether a part of the value is not what stands in the file at its place."""
    if len(text.spans) == 1:
        return False
    bounds = [start for start, _ in text.spans] + [len(str(text.value))]
    kept = zip(text.spans, bounds[1:], strict=True)
    written = sum(max(0, min(end, stop) - max(begin, start)) for (start, _), stop in kept if stop > start)
    return written < end - begin or any(begin < start <= end for start, _ in text.spans[1:])
