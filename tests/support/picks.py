"""Functions that specs in tests name."""

from concurrent.futures import ThreadPoolExecutor

import wdspec

NUMBER = 1


def most(sample):
    return sum(sample["__key__"].encode()) % 5 != 0


def few(sample):
    return sum(sample["__key__"].encode()) % 5 == 0


def none(sample):
    return False


def shout(sample):
    return {**sample, "txt": sample["txt"].upper()}


class Adder:
    def __init__(self, n):
        self.n = n

    def __call__(self, sample):
        return {**sample, "cls": sample["cls"] + self.n}


def fails_on_some(sample):
    if sample["__key__"].endswith("3"):
        raise KeyError("no")
    return sample


class Dumb:
    pass


def tag_length(sample):
    return {**sample, "n": len(sample["lang"])}


def gives_none(sample):
    return None


def fails(sample):
    return {**sample, "x": 1 / 0}


def jitter(sample):
    return {**sample, "noise": wdspec.sample_rng(sample).random()}


def jitter_by_name(sample):
    streams = [wdspec.sample_rng(sample, name) for name in ("", "", "crop", "flip")]
    return {**sample, "draws": [rng.random() for rng in streams]}


def coin(sample):
    return wdspec.sample_rng(sample, "coin").random() < 0.5


def rng_of_another_shard(sample):
    return {**sample, "noise": wdspec.sample_rng({**sample, "__url__": "elsewhere.tar"}).random()}


def rng_in_a_thread(sample):
    with ThreadPoolExecutor(1) as pool:
        return {**sample, "noise": pool.submit(wdspec.sample_rng, sample).result().random()}


def backwards(samples):
    yield from reversed(list(samples))
