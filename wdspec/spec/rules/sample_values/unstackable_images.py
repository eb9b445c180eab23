"""W371: pictures in a batch become a tensor."""

from __future__ import annotations

from wdspec.spec.compose.draft import Composed
from wdspec.spec.language.models import Source
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import is_image, right_sources
from wdspec.spec.tree.nodes import Node


@rule(
    "W371",
    "pictures that do not stack",
    "A batch stacks arrays and tensors of one shape. Pictures of PIL, and pictures that nothing decodes, stay"
    " a list.",
    bad="batch: 8\ndataset:\n  - {shards: a.tar, extensions: jpg cls, decode: pil}\n",
    good="batch: 8\ndataset:\n  - {shards: a.tar, extensions: jpg cls, decode: rgb8}\n",
)
def unstackable_images(composed: Composed) -> Findings:
    """Sources of a batch that decode pictures to `pil`, or ask for them and leave them encoded."""
    spec = composed.spec
    if spec.batch is None or spec.map:
        return
    for leaf, source in right_sources(composed, "extensions", "decode", "scale"):
        if source.map:
            continue
        written = leaf.node.get("decode")
        if written is not None and _gives_pil(source):
            hint = "decode to an array (`rgb8`) or a tensor (`torchrgb`), or make one in `map`"
            yield Finding(written, "pictures of `pil` stay a list in a batch", hint)
        elif (field := _encoded(source)) is not None:
            at: Node = leaf.node.value_or_self("extensions")
            hint = "add `decode: rgb8`, or make a tensor of it in `map`"
            yield Finding(at, f"nothing decodes `{field}`: the batch holds a list of bytes", hint)


def _gives_pil(source: Source) -> bool:
    decode = source.decode
    return decode is not None and any(
        name.partition("+")[0] == "pil" for name in (*decode.names, *decode.fields.values())
    )


def _encoded(source: Source) -> str | None:
    """A picture that `extensions` asks for by name, in a source that decodes and rescales nothing."""
    if (
        (source.decode is not None and (source.decode.names or source.decode.fields))
        or source.scale is not None
        or source.extensions is None
    ):
        return None
    return next(
        (entry for entry in source.extensions for name in entry.split(";")[:1] if is_image(name)), None
    )
