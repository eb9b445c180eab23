"""Random numbers for user functions, keyed by the sample, so that they are the same after a resume and on any topology.

The identity of a sample is (seed, source, slot, raw ordinal): its place in the canonical order. It is not stored in the
sample. Before a user function runs, its sample is noted in a thread-local (0.1 µs, only for sources with such
functions), and `sample_rng` reads it there.

`GlobalGenerators` lends the global generators of torch, numpy and `random` to user functions. Otherwise a function of
`map` that draws from one of them would get different numbers in each worker and after each resume. The key of a sample
seeds them before its functions run. Afterwards their states are restored, so that the training loop in the same process
is not affected.

Seeding torch and numpy takes 3.5 µs per sample. Seeding Python's `random` would take 6 µs more (a Mersenne Twister of
624 words), so it is only watched until something draws from it. Then that sample is processed again, and `random` is
seeded from there on.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from wdspec.base.errors import UsageError
from wdspec.fields.samples import PASS
from wdspec.planning.keys import encode_text, key64, random64, uniform

SampleIdentity = tuple[int, str]
"""The 64-bit number and the `__url__` of the sample that a user function is processing."""


class _Current(threading.local):
    sample: SampleIdentity | None = None


current = _Current()
"""The sample that this thread is processing; `Transform` sets it around user functions."""


def numbers_of(seed: int, field: str, raw: Mapping[str, Any]) -> Callable[[int], float]:
    """Return the random numbers in [0, 1) for a field of `make`: the n-th one for n.

    They depend on the seed of the spec, the field, the key of the sample, and the pass and the copy that it is read in.
    """
    return partial(uniform, key64(seed, "make", field, encode_text(raw["__key__"]).hex(), raw.get(PASS, 0)))


def note_pass(samples: Iterable[Any], number: int) -> Iterator[Any]:
    """Yield raw samples that say for `numbers_of` in which pass, or as which copy, they are read."""
    for raw in samples:
        raw[PASS] = number
        yield raw


def sample_rng(sample: Mapping[str, Any], name: str = "") -> np.random.Generator:
    """Return a random generator for one sample, for functions that a spec names in `map` or `select`.

    Its numbers depend only on the seed of the spec, the source of the sample, and its place in the order. They are the
    same on any number of ranks and workers, and after a resume; in the next pass they differ. Every call returns a new
    generator at the start of the same stream. Functions that need independent numbers pass different names.

    Args:
        sample: the argument of the function, changed or not.
        name: the name of the stream; all functions share the default one.

    Raises:
        UsageError: called outside such a function, in a thread that the function started (create the generator first,
            and pass it to the thread), or for a sample of another shard.

    Example:
        >>> import wdspec
        >>> def jitter(sample):                                  # in a spec: `map: augment:jitter`
        ...     rng = wdspec.sample_rng(sample)
        ...     return {**sample, "angle": float(rng.uniform(-5, 5))}
        >>> wdspec.sample_rng({"__key__": "0001"})
        Traceback (most recent call last):
        ...
        wdspec.UsageError: sample_rng works inside the functions that `map` and `select` name, ...
    """
    identity = current.sample
    if identity is None:
        raise UsageError(
            "sample_rng works inside the functions that `map` and `select` name, and in the thread that calls them; "
            "for other threads, create the generator before they start and pass it to them"
        )
    number, url = identity
    if sample.get("__url__", url) != url:
        raise UsageError(
            f"sample_rng was called for a sample of {sample['__url__']} while a sample of {url} is processed; call it "
            "in the function that receives the sample, and keep the numbers, not the sample"
        )
    stream = key64("sample_rng", name) if name else 0
    return np.random.Generator(np.random.Philox(key=number << 64 | stream))


_numpy_random: Any = np.random
_STATE = object.__basicsize__
"""Offset of the generator in CPython's object: an index, then 624 words."""
_OTHER = 0x9E3779B97F4A7C15


class GlobalGenerators:
    """The global generators of this process. A context manager that lends them, and restores their states on exit.

    For the thread that runs user functions. Other threads that draw meanwhile draw from the lent generators.

    Args:
        turn: a lock to hold meanwhile, if several threads run user functions.
    """

    def __init__(self, turn: AbstractContextManager[object] | None = None) -> None:
        self._turn: AbstractContextManager[object] = turn or nullcontext()
        self._bits = np.random.SFC64(0)
        self._words = np.ones(4, np.uint64)
        self._state: Any = {
            "bit_generator": "SFC64",
            "state": {"state": self._words},
            "has_uint32": 0,
            "uinteger": 0,
        }
        self._watch = _watcher()
        self._seeds_random = self._watch is None
        self._python: Any = None
        self._torch: Any = None
        self._numpy: Any = None
        self._seen: Any = None

    def __enter__(self) -> GlobalGenerators:
        self._turn.__enter__()
        torch = sys.modules.get("torch")
        generator = None if torch is None else torch.default_generator
        self._torch = None if generator is None else (generator, generator.get_state())
        # What a training loop has pending, the second of a pair of normal numbers, does not show in the generators
        # themselves, and a loop that seeds them returns to the same state. So both states are always saved (70 µs).
        self._numpy = _numpy_random.get_bit_generator(), _numpy_random.get_state(legacy=False)
        self._python = random.getstate()
        if self._python[-1] is not None:
            random.setstate((*self._python[:-1], None))  # functions must not use the pending number
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self._torch is not None:
                generator, state = self._torch
                generator.set_state(state)
            bits, state = self._numpy
            _numpy_random.set_bit_generator(bits)
            if state["has_gauss"]:
                _numpy_random.set_state(state)
            random.setstate(self._python)
        finally:
            self._turn.__exit__(None, None, None)

    def seed(self, number: int) -> None:
        """Seed all generators for one sample with a 64-bit number."""
        if self._torch is not None:
            self._torch[0].manual_seed(number)
        words = self._words
        words[0], words[1], words[2] = number, random64(number, 1), number ^ _OTHER
        self._bits.state = self._state
        _numpy_random.set_bit_generator(self._bits)  # this also drops a cached normal number
        if self._seeds_random:
            random.seed(random64(number, 3))
        elif self._watch is not None:
            self._seen = self._watch()

    def seed_random_too(self) -> None:
        """Always seed `random` from now on, for functions that cannot process a sample again."""
        self._seeds_random = True

    def has_strayed(self) -> bool:
        """Whether something drew from `random` while it was not seeded, or imported torch; from now on it is seeded."""
        if self._torch is None and "torch" in sys.modules:
            torch = sys.modules["torch"]
            self._torch = torch.default_generator, torch.Generator().get_state()  # as it was imported
            return True
        if self._seeds_random or self._watch is None or self._watch() == self._seen:
            return False
        self._seeds_random = True
        return True


def _watcher() -> Callable[[], Any] | None:
    """Return a function that shows in 0.2 µs whether `random` has moved; None if that is not possible."""
    if sys.implementation.name != "cpython":
        return None
    inner: Any = getattr(random, "_inst", None)
    if type(inner) is not random.Random:
        return None
    memory = ctypes.c_uint64.from_address(id(inner) + _STATE)

    def look() -> int:
        return memory.value

    # Use it only if it agrees with Python: the index is the last of the 625 numbers, the first word the first.
    for _ in range(2):
        saved = inner.getstate()
        before = look()
        inner.random()
        moved, after = inner.getstate(), look()
        inner.setstate(saved)
        for state, seen in ((saved, before), (moved, after)):
            if seen.to_bytes(8, sys.byteorder) != struct.pack("=II", state[1][-1], state[1][0]):
                return None
    return look
