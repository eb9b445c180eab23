"""E310: under WDS_SECURE no user code, no programs, no exceptions."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.language.values import SECURE_REFUSES
from wdspec.spec.rules.decoder_names import decoder_names
from wdspec.spec.rules.function_places import user_functions
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import ListNode, MapNode, Node


@rule(
    "E310",
    "forbidden by WDS_SECURE",
    "With WDS_SECURE=1 no spec may run a program (`pipe:`) or user code (`map`, `select`, `stage`, `collate`, "
    "decoders), or `allow` more. Any value forbids, but empty, 0, false, no and off.",
)
def secure_mode_refusals(composed: Composed) -> Findings:
    """Functions, programs and `allow`, wherever the spec names them."""
    if not composed.variant.secure:
        return
    for holder in (composed.top, *(leaf.node for leaf in composed.leaves)):
        if holder.get("allow") is not None:
            yield _refused(holder.key("allow"), "`allow`")
        rewrite = holder.get("rewrite")
        for item in rewrite.items if isinstance(rewrite, ListNode) else ():
            yield from _programs(item.get("to") if isinstance(item, MapNode) else None)
    for at, what in user_functions(composed):
        yield _refused(at, what)
    output = composed.top.get("output")
    for place in (output.get("dir"), output.get("to")) if isinstance(output, MapNode) else (output,):
        yield from _programs(place)
    for leaf in composed.leaves:
        for at, name in decoder_names(leaf):
            if name in SECURE_REFUSES:
                yield _refused(at, f"the decoder `{name}`")
        shards = leaf.node.get("shards")
        for text in shards.items if isinstance(shards, ListNode) else (shards,):
            yield from _programs(text)


def _programs(node: Node | None) -> Findings:
    text = getattr(node, "value", None)
    if node is not None and isinstance(text, str) and "pipe:" in text.lower():
        yield _refused(node, "`pipe:`")


def _refused(at: Node, what: str) -> Finding:
    hint = "unset WDS_SECURE if you trust this spec"
    return Finding(at, f"{what} runs programs or user code, which WDS_SECURE=1 forbids", hint)
