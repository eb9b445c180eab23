"""E305: samples of one batch have the same fields."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.problems import listed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import is_image, right_sources, visible_fields
from wdspec.spec.tree import Node


@rule(
    "E305",
    "a batch of unlike samples",
    "A batch stacks field by field, so all samples need the same fields. Without `batch` they may differ.",
    bad="batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg, decode: rgb8}\n"
    "  - {shards: b.tar, extensions: nrm.jpg, decode: rgb8}\n",
    good="batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg, decode: rgb8}\n"
    "  - {shards: b.tar, extensions: nrm.jpg, decode: rgb8, rename: {jpg: nrm.jpg}}\n",
)
def unlike_batches(composed: Composed) -> Findings:
    """The first source with other fields than the first one; none where `map`, `fields` or `to_tuple` even it out."""
    spec = composed.spec
    batched = spec.batch is not None and spec.mix.unit != "batch"
    if not batched or spec.fields or spec.to_tuple or composed.top.get("map") is not None:
        return
    found = (
        (leaf, visible_fields(source)) for leaf, source in right_sources(composed, "extensions", "rename")
    )
    known = [(leaf, fields) for leaf, fields in found if fields is not None]
    for draft, fields in known[1:]:
        first, others = known[0]
        if set(fields) == set(others):
            continue
        message = f"`{draft.name}` gives {listed(fields, 8)}, but `{first.name}` gives {listed(others, 8)}"
        images = [next(filter(is_image, names), None) for names in (others, fields)]
        if images[0] and images[1] and images[0] != images[1]:
            hint = f"write `rename: {{image: {images[0]}}}` in `{first.name}` and `rename: {{image: {images[1]}}}` here"
        else:
            hint = "give them the same fields with `extensions`, `rename` or the top level's `fields`"
        stated = [draft.own.key(key) for key in ("extensions", "rename") if key in draft.own.entries]
        at: Node = stated[0] if stated else draft.node
        yield Finding(at, f"a batch cannot hold samples with unlike fields: {message}", hint)
        return
