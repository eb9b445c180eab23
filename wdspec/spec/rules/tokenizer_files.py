"""A rule for the tokenizers of `make`: texts that are not one of their tokens.

A local `tokenizer.json` is read as data. The libraries that use it are not imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from wdspec.spec.build import Composition
from wdspec.spec.files import MOST_DATA, read_from_disk
from wdspec.spec.problems import list_names
from wdspec.spec.rules.making import makes_of
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
                special = None if text is None else _find_without(str(path), text)
                if special is None:
                    continue
                at = node.value_or_self(name)
                at = at.value_or_self(option) if hasattr(at, "value_or_self") else at
                known = (
                    f"one of its special tokens, such as {list_names(special, 8)}"
                    if special
                    else "one of its tokens"
                )
                message = f"`{text!s:.60}` is not one token of `{path}`"
                yield Finding(at, message, f"write {known}, or add it to the tokenizer")


def _find_without(path: str, text: str) -> list[str] | None:
    """Return the special tokens of a tokenizer that surely has no token of this text; None if it may have one.

    Args:
        path: of the `tokenizer.json`, or of the folder that has it.
        text: the text of a token.
    """
    local = os.path.expanduser(path)
    local = os.path.join(local, "tokenizer.json") if os.path.isdir(local) else local
    try:
        data = read_from_disk(local, True, MOST_DATA)
    except OSError:
        return None  # W440 says that it does not exist
    if any(json.dumps(text, ensure_ascii=each).encode("utf-8", "replace") in data for each in (True, False)):
        return None  # most likely as a token, and `explain` knows
    try:
        tokenizer = json.loads(data)
        added = tokenizer["added_tokens"]
        tokens = {*_texts_of(tokenizer["model"]["vocab"]), *(each["content"] for each in added)}
        return None if text in tokens else [each["content"] for each in added if each.get("special")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # not a tokenizer, which is said where it is read


def _texts_of(vocabulary: Any) -> Iterator[str]:
    """The texts in the vocabulary of a model: of a map to ids, or of a list of texts and scores."""
    if isinstance(vocabulary, dict):
        yield from vocabulary
    else:
        yield from (text for text, _ in vocabulary)
