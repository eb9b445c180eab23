"""Tokenizers that are trained on a few made-up words, of three kinds, and texts of many kinds."""

from __future__ import annotations

import functools
import random

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

END = "<|endoftext|>"
ODD = [
    "ß",
    "İ",
    "👩‍👩‍👧",
    "e\u0301",
    "\u200b",
    "日本語",
    "\u202e",
    "\ufeff",
    "\x00",
    "\r\n",
    "\t",
    "ﷺ",
    "𝔘",
    "¿",
]


def words(count: int = 400, seed: int = 0) -> list[str]:
    """Made-up words, the same for each seed."""
    draw = random.Random(seed)
    letters = "eeeaaoiunrtslcdmph"
    return ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(count)]


def texts(count: int, seed: int = 1) -> list[str]:
    """Texts to tokenize: empty, short, very long, with odd Unicode and with special tokens."""
    draw, known, found = (
        random.Random(seed),
        words(),
        ["", " ", "\n\n", END, f"a{END}b{END}", "[CLS] [SEP] </s> <unk>"],
    )
    while len(found) < count:
        kind = draw.random()
        length = 20_000 if kind > 0.9995 else int(draw.lognormvariate(3, 1))
        parts = draw.choices(known, k=length)
        if kind < 0.3:
            parts = [
                each if draw.random() > 0.2 else draw.choice([*ODD, END, "[SEP]", "</s>", "12,345.6"])
                for each in parts
            ]
        if kind < 0.05:
            parts = [
                chr(draw.choice([draw.randrange(32, 0xD800), draw.randrange(0xE000, 0x10FFFF)]))
                for _ in range(30)
            ]
        found.append(draw.choice(["", " ", "\n"]).join(parts) if kind < 0.1 else " ".join(parts))
    return found[:count]


@functools.cache
def _trained(kind: str) -> str:
    sentences = [" ".join(random.Random(n).choices(words(), k=12)) for n in range(100)]
    if kind == "bpe":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=600, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    else:
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=300, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
        )
    made.train_from_iterator(sentences, trainer)
    if kind == "wordpiece":
        pieces = [("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))]
        made.post_processor = processors.TemplateProcessing(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", pieces
        )
    if kind == "unigram":
        made.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B:1 </s>:1", [("</s>", 1)])
    return str(made.to_str())


KINDS = {"bpe": END, "wordpiece": "[SEP]", "unigram": "</s>"}
"""Kind of a tokenizer → a token that ends a document."""


def trained(kind: str) -> Tokenizer:
    """A tokenizer of a kind: byte-level BPE, which adds nothing; WordPiece, `[CLS] a [SEP]`; Unigram, `a </s>`."""
    return Tokenizer.from_str(_trained(kind))
