"""`mask_tokens`: token ids → the same with some masked, and the labels of these, as BERT is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.base.errors import FieldError, SpecError
from wdspec.steps.tokenize import load_tokenizer

IGNORED = -100
"""The label of a token that is not chosen, as torch's `cross_entropy` ignores it."""
MASKED, RANDOM = 0.8, 0.1
"""Of the chosen tokens, the shares that become the mask token, and a random token. The others stay."""
_USUAL = ("[MASK]", "<mask>")
_DRAWS = 3
"""Random numbers per token: whether it is chosen, what becomes of it, and which random token."""
Numbers = Callable[[int], float]
"""0, 1, 2, … → the random numbers of a sample, in [0, 1)."""
Ids = npt.NDArray[np.int32]


class MaskedTokens(NamedTuple):
    """Tokens for masked language modelling."""

    ids: Ids
    labels: Ids
    """The ids of the chosen tokens as they were, and -100 elsewhere."""


def make_mask_tokens(
    *, file: str, probability: float = 0.15, mask_token: str | None = None
) -> Callable[[Any, Numbers], MaskedTokens]:
    """Return a function that masks tokens.

    Args:
        file: a `tokenizer.json`, a folder that has one, or `hf://owner/name@revision`.
        probability: that a token is chosen. Special tokens never are.
        mask_token: the text of the mask token; by default, `[MASK]` or `<mask>`.

    Returns:
        (ids, numbers) → `MaskedTokens`, both of the shape of the ids, (length,). 80 % of the chosen tokens become the
        mask token, 10 % any token of the vocabulary, and 10 % stay. Number 0 of the sample decides it. It raises
        FieldError for what are no ids of this tokenizer.

    Raises:
        SpecError: the file is not a tokenizer, or has no mask token.
        UsageError: `tokenizers` is not installed.
    """
    tokenizer = load_tokenizer(file)
    texts = _USUAL if mask_token is None else (mask_token,)
    mask = next((found for text in texts if (found := tokenizer.token_to_id(text)) is not None), None)
    added = tokenizer.get_added_tokens_decoder()
    if mask is None:
        special = ", ".join(f"`{each.content}`" for each in added.values() if each.special) or "none"
        raise SpecError(
            f"`mask_tokens` needs a mask token, and {file} has no {' or '.join(f'`{text}`' for text in texts)}; write "
            f"`mask_token` with the text of one, or add it to the tokenizer. Its special tokens are {special}"
        )
    known = np.unique([*tokenizer.get_vocab(with_added_tokens=True).values()]).astype(
        np.int32
    )  # may have gaps
    is_known, is_special = np.zeros((2, 1 + known[-1]), np.bool_)
    is_known[known] = True
    is_special[[mask, *(number for number, each in added.items() if each.special)]] = True

    def mask_tokens(ids: Any, numbers: Numbers) -> MaskedTokens:
        found = np.asarray(ids)
        if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
            raise FieldError(
                "`mask_tokens` needs token ids, a list of whole numbers; name a field that `tokenize` makes"
            )
        is_right = (found >= 0) & (found < len(is_known))
        is_right[is_right] = is_known[found[is_right].astype(np.int64)]
        if not is_right.all():
            wrong = found[~is_right][0]
            raise FieldError(
                f"there is no token {wrong} in {file}; write the tokenizer that made the ids as `file`"
            )
        found = found.astype(np.int32)
        # The raw numbers of this generator are the same in all versions of NumPy; those of `Generator` may change.
        raw = np.random.Philox(key=int(numbers(0) * 2**53)).random_raw(_DRAWS * len(found))
        chance, kind, other = (raw >> np.uint64(11)).reshape(_DRAWS, -1) * 2.0**-53
        is_chosen = (chance < probability) & ~is_special[found]
        drawn = known[(other * len(known)).astype(np.int64)]
        replaced = np.where(kind < MASKED, mask, np.where(kind < MASKED + RANDOM, drawn, found))
        return MaskedTokens(
            np.where(is_chosen, replaced, found).astype(np.int32),
            np.where(is_chosen, found, IGNORED).astype(np.int32),
        )

    return mask_tokens
