"""`mask_tokens`: compared with counts of plain Python, and with the collator of transformers on the same tokenizer."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

import wdspec
from wdspec.base.errors import FieldError, SpecError
from wdspec.planning.keys import key64, uniform
from wdspec.steps import make_mask_tokens

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{number}" for number in range(45)]
MASK = SPECIAL.index("[MASK]")
LENGTH = 40_000


def numbers_of(at: int) -> Any:
    """The random numbers of a sample."""
    return partial(uniform, key64("mask", at))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate([*SPECIAL, *WORDS])}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(SPECIAL)
    path = str(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")
    tokenizer.save(path)
    return path


def text_of(length: int) -> Any:
    """Ids of words, with a special token at every tenth place."""
    ids = np.random.default_rng(0).integers(len(SPECIAL), len(SPECIAL) + len(WORDS), length)
    ids[::10] = np.arange(len(ids[::10])) % len(SPECIAL)
    return ids


def shares(ids: Any, masked: Any, labels: Any) -> dict[str, float]:
    """Count word by word what became of the tokens that are no special tokens: the share of each."""
    found: Counter[str] = Counter()
    for before, after, label in zip(ids.tolist(), masked.tolist(), labels.tolist(), strict=True):
        if before < len(SPECIAL):
            assert (after, label) == (before, -100)
        elif label == -100:
            assert after == before
            found["left"] += 1
        else:
            assert label == before
            found["mask" if after == MASK else "same" if after == before else "other"] += 1
    return {name: count / sum(found.values()) for name, count in found.items()}


def is_near(one: dict[str, float], other: dict[str, float], count: int) -> bool:
    """Whether shares are within four standard errors of those expected."""
    errors = {name: 4 * (share * (1 - share) / count) ** 0.5 for name, share in other.items()}
    return all(abs(one.get(name, 0) - share) <= errors[name] for name, share in other.items())


def expected(probability: float) -> dict[str, float]:
    """A random token is any of the vocabulary, so that it is the mask or the same token once in its size."""
    size = len(SPECIAL) + len(WORDS)
    return {
        "left": 1 - probability,
        "mask": probability * (0.8 + 0.1 / size),
        "same": probability * (0.1 + 0.1 / size),
        "other": probability * 0.1 * (size - 2) / size,
    }


@pytest.mark.parametrize("probability", [0.15, 0.4, 1.0])
def test_tokens_are_masked_replaced_and_kept_in_the_shares_of_bert(probability: float, file: str) -> None:
    ids, step = text_of(LENGTH), make_mask_tokens(file=file, probability=probability)
    found = shares(ids, *step(ids, numbers_of(0)))
    assert is_near(found, expected(probability), LENGTH * 9 // 10)


def test_the_shares_are_those_of_the_collator_of_transformers(file: str) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=file, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip
    torch.manual_seed(0)
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    ids = text_of(LENGTH)
    masked, labels = collator.torch_mask_tokens(torch.tensor(ids)[None].clone())
    assert is_near(shares(ids, masked[0], labels[0]), expected(0.15), LENGTH * 9 // 10)


def test_random_tokens_are_all_of_the_vocabulary(file: str) -> None:
    ids, step = text_of(LENGTH), make_mask_tokens(file=file, probability=1.0)
    masked, labels = step(ids, numbers_of(0))
    assert {*masked[labels != -100].tolist()} == {*range(len(SPECIAL) + len(WORDS))}


def test_nothing_is_chosen_of_special_tokens_and_of_no_tokens(file: str) -> None:
    step = make_mask_tokens(file=file, probability=1.0)
    for ids in ([2, 0, 3], []):
        masked, labels = step(ids, numbers_of(0))
        assert (masked.tolist(), labels.tolist()) == (ids, [-100] * len(ids))


@pytest.mark.parametrize("ids", ["text", [0.5], [[7, 8]], None])
def test_what_are_no_ids_is_an_error(ids: Any, file: str) -> None:
    with pytest.raises(FieldError, match="needs token ids"):
        make_mask_tokens(file=file)(ids, numbers_of(0))


@pytest.mark.parametrize("wrong", [50, -1])
def test_ids_of_another_tokenizer_are_an_error(wrong: int, file: str) -> None:
    with pytest.raises(
        FieldError, match=f"there is no token {wrong} in .*tokenizer.json; write the tokenizer"
    ):
        make_mask_tokens(file=file)([7, wrong], numbers_of(0))


def test_a_tokenizer_without_mask_token_is_an_error_that_lists_what_it_has(file: str) -> None:
    with pytest.raises(SpecError, match=r"has no `<m>`; write `mask_token`.*are `\[PAD\]`, "):
        make_mask_tokens(file=file, mask_token="<m>")


def test_a_spec_masks_anew_in_each_pass_and_alike_on_all_topologies(file: str, tmp_path: Path) -> None:
    rows = [{"__key__": str(at), "text": " ".join(WORDS[at:] + WORDS[:at])} for at in range(8)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make = {
        "ids": {"tokenize": "text", "file": file},
        "input_ids": {"mask_tokens": "ids", "file": file, "labels": "labels"},
    }
    batch = {
        "size": 8,
        "collate": {"input_ids": {"pad": {"mask": "mask"}}, "labels": {"pad": {"value": -100}}},
    }
    spec: dict[str, Any] = {"dataset": [{"shards": str(tmp_path / "a.jsonl"), "make": make}], "batch": batch}

    def read(workers: int) -> list[dict[str, list[int]]]:
        epoch = {"pass": "drop", "reshuffle": True}
        with wdspec.loader({**spec, "epoch": epoch}, num_workers=workers) as loader:
            batches = [each for _ in range(2) for each in loader]
        return [dict(zip(each["__key__"], each["input_ids"].tolist(), strict=True)) for each in batches]

    first, second = read(0)
    assert first.keys() == second.keys()
    assert all(first[key] != second[key] for key in first)
    assert read(1) == [first, second]


def test_labels_that_would_be_filled_with_a_token_are_an_error(file: str) -> None:
    make = {"input_ids": {"mask_tokens": "ids", "file": file, "labels": "labels"}}
    batch = {"size": 2, "collate": {"input_ids": "pad", "labels": "pad"}}
    with pytest.raises(SpecError, match=r"(?s)E378.*write `labels: \{pad: \{value: -100\}\}`"):
        wdspec.load({"dataset": [{"shards": "a.jsonl", "make": make}], "batch": batch})


GAPS = [0, 1, 2, 3, 4, 7, 8, 19, 300, 65_000, 99_999]
"""The ids of a vocabulary from which others were removed."""


@pytest.fixture(scope="module")
def gapped(tmp_path_factory: pytest.TempPathFactory) -> str:
    texts = [*SPECIAL, *WORDS[: len(GAPS) - len(SPECIAL)]]
    tokenizer = Tokenizer(models.WordLevel(dict(zip(texts, GAPS, strict=True)), unk_token="[UNK]"))
    tokenizer.add_special_tokens(SPECIAL)
    path = str(tmp_path_factory.mktemp("gapped") / "tokenizer.json")
    tokenizer.save(path)
    return path


def test_random_tokens_are_those_that_a_vocabulary_with_gaps_has(gapped: str) -> None:
    ids = np.resize(GAPS[len(SPECIAL) :], LENGTH)
    masked, labels = make_mask_tokens(file=gapped, probability=1.0)(ids, numbers_of(3))
    assert labels.tolist() == ids.tolist()
    raw = np.random.Philox(key=int(numbers_of(3)(0) * 2**53)).random_raw(3 * LENGTH).tolist()
    kinds, others = ([(each >> 11) / 2**53 for each in raw[n * LENGTH :][:LENGTH]] for n in (1, 2))
    for before, after, kind, other in zip(ids.tolist(), masked.tolist(), kinds, others, strict=True):
        drawn = GAPS[int(other * len(GAPS))]
        assert after == (MASK if kind < 0.8 else drawn if kind < 0.9 else before)
    counts = Counter(after for after, kind in zip(masked.tolist(), kinds, strict=True) if 0.8 <= kind < 0.9)
    assert set(counts) == set(GAPS)


@pytest.mark.parametrize("wrong", [5, 6, 301, 100_000, -1, 2**32 + 7])
def test_ids_in_the_gaps_of_a_vocabulary_are_no_tokens(gapped: str, wrong: int) -> None:
    with pytest.raises(FieldError, match=f"there is no token {wrong} in "):
        make_mask_tokens(file=gapped)([7, 8, wrong], numbers_of(0))
