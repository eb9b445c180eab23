"""Random conversations, and tokenizers trained for chat templates."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEMPLATES = Path(__file__).parent.parent / "steps" / "templates"
SPECIAL = {
    "qwen": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"],
    "llama": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>"],
    "gemma": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
    "phi": ["<s>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
    "deepseek": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"],
    "llava": ["<s>", "</s>", "<image>"],
}  # fmt: skip
TOKENS = {
    "qwen": {"eos_token": "<|im_end|>"},
    "llama": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "gemma": {"bos_token": "<bos>", "eos_token": "<eos>"},
    "phi": {"bos_token": "<s>", "eos_token": "<|endoftext|>"},
    "deepseek": {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
    "llava": {"bos_token": "<s>", "eos_token": "</s>"},
}
WORDS = [
    *(
        "Hello",
        "world",
        "the",
        "a",
        "cat",
        "sat",
        "on",
        "mat",
        "don't",
        "1234",
        "x=1;",
        "</p>",
        "{{ x }}",
        "{% if %}",
    ),
    *(
        "¿Qué",
        "naïve",
        "日本語",
        "привет",
        "🎉",
        "👩\u200d👩\u200d👧",
        "e\u0301",
        "\u200b",
        "ﬁ",
        "don’t",
        "<|",
        "|>",
    ),
    *("\n", "\n\n", "  ", "\t"),
]


def template(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text("utf-8")


def random_text(draw: random.Random) -> str:
    """A text of any length, sometimes empty, with odd characters, and spaces at its ends."""
    count = draw.choice([0, 1, 1, 2, 3, 5, 8, 13, 60])
    return draw.choice(["", " "]).join(draw.choice(WORDS) for _ in range(count))


def random_conversation(draw: random.Random, system: bool = True) -> list[dict[str, Any]]:
    """Questions and answers in turn, at least one of each."""
    first = [{"role": "system", "content": random_text(draw)}] if system and draw.random() < 0.4 else []
    turns = [
        {"role": role, "content": random_text(draw)}
        for _ in range(draw.choice([1, 1, 2, 3, 5]))
        for role in ("user", "assistant")
    ]
    return first + turns


@cache
def train(kind: str, family: str) -> str:
    """The JSON of a small tokenizer: byte-level BPE, BPE with bytes for unknown characters, Unigram or WordPiece."""
    draw = random.Random(0)
    corpus = [random_text(draw) for _ in range(300)]
    special = SPECIAL[family]
    if kind == "byte-level":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet,
                                      show_progress=False)  # fmt: skip
    elif kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=["<unk>", *special], unk_token="<unk>",
                                          show_progress=False)  # fmt: skip
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=300, special_tokens=["[UNK]", *special], show_progress=False
        )
    tokenizer.train_from_iterator(corpus, trainer)
    return str(tokenizer.to_str())


def write_tokenizer(folder: Path, family: str, kind: str = "byte-level") -> Path:
    """Write `tokenizer.json` and return its path."""
    path = folder / f"{family}-{kind}.json"
    path.write_text(train(kind, family), "utf-8")
    return path
