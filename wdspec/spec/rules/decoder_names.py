"""The decoders that a source names, for the rules that look at them."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.draft import Draft
from wdspec.spec.tree import Node, locate


def decoder_names(leaf: Draft) -> Iterator[tuple[Node, str]]:
    """Every decoder that was written down, with its node."""
    decode = None if leaf.model is None else leaf.model.decode
    written = leaf.node.get("decode")
    if decode is None or written is None:
        return
    steps: list[tuple[int | str, str]] = [*enumerate(decode.names), *decode.fields.items()]
    yield from ((locate(written, (step,)), name) for step, name in steps)
