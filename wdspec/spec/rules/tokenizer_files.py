"""Rules for the tokenizers of `make`: texts and paddings that are not one of their tokens.

A local `tokenizer.json` is read as data. The libraries that use it are not imported.
"""

from __future__ import annotations

import json
import os
import re

from wdspec.spec.build import Composition
from wdspec.spec.files import MOST_DATA, read_from_disk
from wdspec.spec.language.making import Chat, MaskTokens, Tokenize
from wdspec.spec.problems import list_names
from wdspec.spec.rules.making import makes_of, paddings_of
from wdspec.spec.rules.rule import Finding, Findings, rule

_OPTIONS = ("eos", "mask_token", "image_token")
"""The options of steps that are the text of a token."""


@rule("E385", keys="make")
def absent_tokens(composition: Composition) -> Findings:
    """Texts that are not one token of a tokenizer that is on this machine."""
    for _, source, node in makes_of(composition):
        for name, recipe in source.make.items():
            path = next((each for each in recipe.files.values()), None)
            for option in _OPTIONS if path is not None and "://" not in path else ():
                text = getattr(recipe, option, None)
                is_added = option == "image_token"  # a word of the vocabulary is text
                special = None if text is None else _find_without(str(path), text, is_added)
                if special is None:
                    continue
                at = node.value_or_self(name)
                at = at.value_or_self(option) if hasattr(at, "value_or_self") else at
                known = (
                    f"one of its special tokens, such as {list_names(special, 8)}"
                    if special
                    else "one of its tokens"
                )
                message = f"`{text!s:.60}` is not one {'added ' * is_added}token of `{path}`"
                yield Finding(at, message, f"write {known}, or add it to the tokenizer")


@rule("W449", keys="make")
def paddings_above_all_ids(composition: Composition) -> Findings:
    """Token ids whose padding is written as a number above the ids of a tokenizer that is on this machine."""
    seen = set[int]()
    for _, source, _ in makes_of(composition, is_mixed=True):
        for name, recipe in source.make.items():
            if not isinstance(recipe, (Tokenize, Chat, MaskTokens)):
                continue
            for _, value, at in paddings_of(composition, [name]):
                ids = read_tokens(recipe.file) if value > 0 and id(at) not in seen else None
                if ids and value > max(ids.values()):
                    seen.add(id(at))
                    most, of_pad = max(ids.values()), [text for text in ids if _PAD.fullmatch(text)]
                    token = (
                        f"{ids[of_pad[0]]}, the id of `{of_pad[0]}`"
                        if of_pad
                        else "the id of a token, such as 0"
                    )
                    message = (
                        f"`{recipe.file}` has ids up to {most}, and the padding {value:g} of `{name}` is none"
                    )
                    yield Finding(at, message, f"write {token}")


_PAD = re.compile(r"[<\[]\W*pad\W*[>\]]", re.IGNORECASE)
"""Texts of tokens for padding."""


def _find_without(path: str, text: str, is_added: bool) -> list[str] | None:
    """Return the special tokens of a tokenizer that surely has no token of this text; None if it may have one.

    Args:
        path: of the `tokenizer.json`, or of the folder that has it.
        text: the text of a token.
        is_added: whether tokens of the vocabulary do not count.
    """
    data = _read(path)
    spellings = (json.dumps(text, ensure_ascii=each).encode("utf-8", "replace") for each in (True, False))
    key = rb'"content"\s*:\s*' if is_added else b""
    if data is None or any(re.search(key + re.escape(spelling), data) for spelling in spellings):
        return None  # most likely as a token, and `explain` knows
    found = _parse(data)
    is_known = found is None or text in (found[1] if is_added else found[0])
    return (
        None if found is None or is_known else [name for name, is_special in found[1].items() if is_special]
    )


def read_tokens(path: str) -> dict[str, int] | None:
    """Return the tokens of a tokenizer on this machine and their ids; None if they cannot be read."""
    data = None if "://" in path else _read(path)
    found = None if data is None else _parse(data)
    return None if found is None else found[0]


def _read(path: str) -> bytes | None:
    local = os.path.expanduser(path)
    local = os.path.join(local, "tokenizer.json") if os.path.isdir(local) else local
    try:
        return read_from_disk(local, True, MOST_DATA)
    except OSError:
        return None  # W440 says that it does not exist


def _parse(data: bytes) -> tuple[dict[str, int], dict[str, bool]] | None:
    """Return the ids of tokens, and whether added ones are special; None if it is no tokenizer, as reading says."""
    try:
        tokenizer = json.loads(data)
        vocabulary, added = tokenizer["model"]["vocab"], tokenizer["added_tokens"]
        if not isinstance(vocabulary, dict):  # a list of texts and scores
            vocabulary = {text: number for number, (text, _) in enumerate(vocabulary)}
        ids = {**vocabulary, **{each["content"]: each["id"] for each in added}}
        return ids, {each["content"]: bool(each.get("special")) for each in added}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
