"""Token ids from JSON Lines: `make` with `tokenize`, and a loop over the fastest call of `tokenizers` for single texts.

    .venv/bin/python benchmarks/tokenizing.py     # a minute

Both read the same documents with log-normal lengths (a mean of 300 words) in one process without threads, parse each
line, and give int64 arrays. They take turns in 15 pairs; processor time is measured. The ratio is that of documents a
second: of wdspec to the loop, with its quartiles over the pairs.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import wdspec

PAIRS, DOCUMENTS, BATCH = 15, 2_000, 20
END = "<|endoftext|>"


def write_material(folder: Path) -> None:
    """Write documents of made-up words, and a byte-level BPE that is trained on them."""
    draw = random.Random(0)
    words = ["".join(draw.choices("eeeaaoiunrtslcdmph", k=draw.randint(2, 10))) for _ in range(5_000)]
    texts = [" ".join(draw.choices(words, k=1 + int(draw.lognormvariate(5.2, 1)))) for _ in range(DOCUMENTS)]
    lines = [json.dumps({"__key__": f"{n:06}", "text": text}) for n, text in enumerate(texts)]
    (folder / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=8_000, special_tokens=[END], show_progress=False)
    tokenizer.train_from_iterator(texts[:500], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


@functools.cache
def load(path: str) -> Any:
    """Load a tokenizer once, as wdspec does: one that has seen many words is slower than a new one."""
    tokenizer = Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True
    return tokenizer


def by_loop(folder: Path) -> int:
    """Read all documents in a loop; return the number of tokens."""
    tokenizer = load(str(folder / "tokenizer.json"))
    end, count = tokenizer.token_to_id(END), 0
    with open(folder / "a.jsonl", "rb") as file:
        for line in file:
            encoding = tokenizer.encode_batch_fast([json.loads(line)["text"]])[0]
            count += len(np.array([*encoding.ids, end], np.int64))
    return count


def by_wdspec(folder: Path) -> int:
    """The same with a loader of batches."""
    make = {"ids": {"tokenize": "text", "file": str(folder / "tokenizer.json"), "eos": END}}
    source = {"shards": str(folder / "a.jsonl"), "order": "sequential", "shuffle": 0, "make": make}
    batch = {"size": BATCH, "ragged": "list"}
    with wdspec.loader({"dataset": [source], "batch": batch}, num_workers=0) as loader:
        return sum(len(ids) for each in islice(loader, DOCUMENTS // BATCH) for ids in each["ids"])


def main() -> None:
    """Print both speeds and their ratio."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    contenders: tuple[Callable[[Path], int], ...] = (by_loop, by_wdspec)
    seconds: dict[str, list[float]] = {each.__name__: [] for each in contenders}
    with tempfile.TemporaryDirectory() as name:
        write_material(Path(name))
        counts = {each(Path(name)) for each in contenders}  # also a first turn, which is not measured
        assert len(counts) == 1, "both have the same tokens"
        for pair in range(PAIRS):
            for each in contenders if pair % 2 else contenders[::-1]:
                start = time.process_time()
                each(Path(name))
                seconds[each.__name__].append(time.process_time() - start)
    for each, taken in seconds.items():
        print(f"{each:<10} {counts.copy().pop() / statistics.median(taken):12,.0f} tokens a second")
    ratios = [loop / ours for loop, ours in zip(*seconds.values(), strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"ratio      {middle:12.2f}   ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
