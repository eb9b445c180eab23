"""What runs code: refused unless the spec allows it, and always where WDS_SECURE is set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wdspec.spec.compose.source_list import Draft, key_or_self
from wdspec.spec.language.options import Decode
from wdspec.spec.language.vocabulary import ALLOWABLE, PICKLE_DECODERS, SECURE_REFUSES
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import ListNode, MapNode, Node, Scalar, locate
from wdspec.suggestions import did_you_mean


def check_allow(top: MapNode, allow: Sequence[str], problems: Problems) -> None:
    """Only what is known can be allowed."""
    for index, word in enumerate(allow):
        if word not in ALLOWABLE:
            at = locate(top.entries["allow"].value, (index,))
            hint = did_you_mean(word, ALLOWABLE) or f"what can be allowed: {', '.join(sorted(ALLOWABLE))}"
            problems.add("E203", at, f"`{word[:60]}` is nothing that can be allowed", hint)


def check_pickle(draft: Draft, allow: Sequence[str], problems: Problems) -> None:
    """Decoders that unpickle need `allow: [pickle]`."""
    if draft.model is None or draft.model.decode is None or "pickle" in allow:
        return
    for path, how in decoders(draft.model.decode):
        if how in PICKLE_DECODERS:
            at = locate(draft.node.entries["decode"].value, path)
            hint = "add `allow: [pickle]` at the top level if you trust whoever made the data"
            problems.add("E311", at, f"the decoder `{how}` can run code hidden in the data", hint)


def check_secure(top: MapNode, leaves: Sequence[Draft], problems: Problems) -> None:
    """Under WDS_SECURE no user code, no shell, no exceptions."""
    for key in ("map", "allow"):
        if top.get(key) is not None:
            _refuse(top.key(key), f"`{key}`", problems)
    _refuse_pipes(top.get("rewrite"), problems)
    for draft in leaves:
        for key in ("map", "select"):
            if draft.node.get(key) is not None:
                _refuse(key_or_self(draft.node, key), f"`{key}`", problems)
        if draft.model is not None and draft.model.decode is not None:
            for path, how in decoders(draft.model.decode):
                if ":" in how or how in SECURE_REFUSES:
                    at = locate(draft.node.entries["decode"].value, path)
                    _refuse(at, f"the decoder `{how}`", problems)
        _refuse_pipes(draft.node.get("rewrite"), problems)
        shards = draft.node.get("shards")
        for item in shards.items if isinstance(shards, ListNode) else [shards]:
            if isinstance(item, Scalar) and isinstance(item.value, str) and "pipe:" in item.value:
                _refuse(item, "`pipe:`", problems)


def decoders(decode: Decode) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every decoder with the path to it."""
    for index, name in enumerate(decode.names):
        yield (index,), name
    for field, name in decode.fields.items():
        yield (field,), name


def _refuse_pipes(rules: Node | None, problems: Problems) -> None:
    for rule in rules.items if isinstance(rules, ListNode) else ():
        to = rule.get("to") if isinstance(rule, MapNode) else None
        if isinstance(to, Scalar) and isinstance(to.value, str) and "pipe:" in to.value:
            _refuse(to, "`pipe:`", problems)


def _refuse(at: Node, what: str, problems: Problems) -> None:
    hint = "unset WDS_SECURE if you trust this spec"
    problems.add("E310", at, f"{what} runs programs or user code, which WDS_SECURE=1 forbids", hint)
