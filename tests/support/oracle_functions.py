"""User functions of the oracle's specs. Each gives the same result whenever it gets the same sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import wdspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Sample = dict[str, Any]


def shout(text: str) -> str:
    """For `map` of a field: upper case."""
    return text.upper()


def add_size(sample: Sample) -> Sample:
    """For `map` of a whole sample: a field `size`, the length of its text."""
    return {**sample, "size": len(sample["txt"])}


def tell_companions(sample: Sample) -> Sample:
    """For `map` of a whole sample: adds the keys and random numbers of its companions to its text or tokens."""
    told = []
    for name in ("beside", "others"):
        found = sample.get(name)
        for each in found if isinstance(found, list) else [found]:
            told.append("-" if each is None else f"{each['__key__']} {each.get('noise', '')}")
    text = "|".join(told)
    if "tokens" in sample:
        tokens = sample["tokens"].copy()
        tokens[:1] = sum(text.encode()) % 97
        return {**sample, "tokens": tokens}
    name = "txt" if "txt" in sample else "text"
    return {**sample, name: f"{sample[name]}|{text}"}


def jitter(sample: Sample) -> Sample:
    """For `map` of a whole sample: a random field, the same for the same sample and pass."""
    return {**sample, "noise": wdspec.sample_rng(sample).random()}


def repeat_text(text: str, times: int) -> str:
    """For `map` of a field: the text several times."""
    return text * times


def add_number(sample: Sample, name: str) -> Sample:
    """For `map` of a whole sample: a field with a number that follows from the key."""
    return {**sample, name: sum(sample["__key__"].encode())}


class Counter:
    """For `map` of a whole sample: adds a field with a fixed number."""

    def __init__(self, step: int) -> None:
        self.step = step

    def count(self, sample: Sample, name: str) -> Sample:
        """Add the number."""
        return {**sample, name: self.step}


def tokenize(text: str) -> list[int]:
    """For `map` of a field: half as many numbers as the text has letters, and one more."""
    return [ord(each) for each in text[::2]] + [0]


def is_most(sample: Sample) -> bool:
    """For `select`: four of five samples, by their keys."""
    return sum(sample["__key__"].encode()) % 5 != 0


def is_rare(sample: Sample) -> bool:
    """For `select`: one of five samples, by their keys."""
    return sum(sample["__key__"].encode()) % 5 == 0


def is_heads(sample: Sample) -> bool:
    """For `select`: a coin that is thrown again for every pass."""
    return wdspec.sample_rng(sample, "coin").random() < 0.6


def cost(sample: Sample) -> int:
    """For `batch.cost`: the length of the text, and at least 4."""
    return max(4, len(sample["txt"]))


def mark(samples: Iterable[Sample]) -> Iterator[Sample]:
    """A stage that gives every sample at once, with a mark."""
    for sample in samples:
        yield {**sample, "seen": True}


def drop_short(samples: Iterable[Sample], least: int = 5) -> Iterator[Sample]:
    """A stage that leaves out samples with a short text."""
    for sample in samples:
        if len(sample["txt"]) >= least:
            yield sample


def double(samples: Iterable[Sample]) -> Iterator[Sample]:
    """A stage that gives samples with a long text twice."""
    for sample in samples:
        yield sample
        if len(sample["txt"]) > 20:
            yield {**sample, "txt": sample["txt"][:3]}


def by_length(samples: Iterable[Sample], hold: int = 8) -> Iterator[Sample]:
    """A stage that holds samples back and sorts them by the length of their text."""
    held: list[Sample] = []
    for sample in samples:
        held.append(sample)
        if len(held) == hold:
            yield from sorted(held, key=lambda each: len(each["txt"]))
            held = []
    yield from sorted(held, key=lambda each: len(each["txt"]))


def join_pairs(samples: Iterable[Sample]) -> Iterator[Sample]:
    """A stage that makes one sample of two."""
    held = None
    for sample in samples:
        if held is None:
            held = sample
            continue
        yield {**sample, "txt": held["txt"] + sample["txt"]}
        held = None
    if held is not None:
        yield held


def longest(values: list[str]) -> int:
    """For `batch.collate` of a field: the length of the longest text."""
    return max(map(len, values))


def by_key(samples: Iterable[Sample], hold: int = 8) -> Iterator[Sample]:
    """A stage that holds samples back and sorts them by their keys."""
    held: list[Sample] = []
    for sample in samples:
        held.append(sample)
        if len(held) == hold:
            yield from sorted(held, key=lambda each: each["__key__"])
            held = []
    yield from sorted(held, key=lambda each: each["__key__"])
