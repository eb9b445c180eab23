"""Random numbers for the user's functions, keyed by the sample, so that a resumed or moved run repeats them.

A sample's identity is (seed, source, slot, raw ordinal): its place in the canonical order, which is the same on
every topology. It never rides in the sample. The process that runs a user's function notes the sample
just before, in a thread-local, and only sources that have such functions pay for it (a tenth of a microsecond).

The global random generators of torch, numpy and `random`, lent to the user's functions sample by sample.

A function of `map` that draws from one of them would otherwise give other numbers in each worker and after each resume.
So a sample's own number seeds them before its functions run, and afterwards they stand where they stood: whatever the
training loop draws in the same process stays its own.

Seeding torch and numpy takes 3.5 µs a sample. Python's `random` would take 6 µs more (a Mersenne Twister of 624 words),
so it is only watched until something draws from it; then that one sample is taken again, and from there on it is
seeded, too.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wdspec.base.errors import UsageError
from wdspec.planning.keys import key64, random64

SampleAtWork = tuple[int, int, str]
"""(key of the slot's source, raw ordinal in it, `__url__`) of a sample that a user's function is working on."""


class _Current(threading.local):
    sample: SampleAtWork | None = None


current = _Current()
"""The sample that this thread is working on; set by `Transform` around the user's functions."""


def sample_rng(sample: Mapping[str, Any], name: str = "") -> np.random.Generator:
    """A random generator of the sample's own, for functions that a spec names in `map` or `select`.

    Its numbers depend on the spec's seed, the sample's source and its place in the order, and on nothing else:
    a run repeats them on any number of ranks and workers, and after a resume. The next time the same sample
    comes (in a later pass) they are others. Every call gives a fresh generator at the start of the same
    stream, whatever other functions have drawn; functions that should not see the same numbers give
    different names.

    Args:
        sample: the sample that the function was given, as it is or changed.
        name: names the stream; by default the one all functions share.

    Raises:
        UsageError: called elsewhere than in such a function, in a thread that the function started (make the
            generator first, and hand it over), or for a sample of another shard than the one at work.

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
    at_work = current.sample
    if at_work is None:
        raise UsageError(
            "sample_rng works inside the functions that `map` and `select` name, and in the thread that calls "
            "them; in threads of your own, make the generator before they start and hand it over"
        )
    key, ordinal, url = at_work
    if sample.get("__url__", url) != url:
        raise UsageError(
            f"sample_rng was asked for a sample of {sample['__url__']} while one of {url} is at work; ask for "
            "it in the call that was given the sample, and keep the generator's numbers, not the sample"
        )
    stream = key64("sample_rng", name) if name else 0
    return np.random.Generator(np.random.Philox(key=random64(key, ordinal) << 64 | stream))


_numpy_random: Any = np.random
_STATE = object.__basicsize__
"""Where CPython's generator begins within its object: an index, then 624 words."""
_POSITION = 624
"""Where numpy's has its index: behind the words."""
_OTHER = 0x9E3779B97F4A7C15


class GlobalGenerators:
    """Those of this process. A context manager: within it they are lent, behind it they stand as before.

    For the thread that runs the user's functions: another one that draws meanwhile draws from what is lent.
    """

    def __init__(self) -> None:
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
        self._python: tuple[Any, Any] | None = None
        """What `random` looked like when it was last saved, and its state then."""
        self._torch: Any = None
        self._numpy: _Numpy | None = None
        self._seen: Any = None

    def __enter__(self) -> GlobalGenerators:
        torch = sys.modules.get("torch")
        generator = None if torch is None else torch.default_generator
        self._torch = None if generator is None else (generator, generator.get_state())
        bits = _numpy_random.get_bit_generator()
        if self._numpy is None or self._numpy.bits is not bits:
            self._numpy = _Numpy(bits)
        self._numpy.save()
        look = None if self._watch is None else self._watch()
        if self._python is None or look is None or self._python[0] != look:
            self._python = look, random.getstate()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._torch is not None:
            generator, state = self._torch
            generator.set_state(state)
        assert self._numpy is not None, "it was entered"
        self._numpy.restore()
        assert self._python is not None, "it was entered"
        if self._watch is None or self._watch() != self._python[0]:
            random.setstate(self._python[1])

    def seed(self, number: int) -> None:
        """Seeds all of them for one sample by its own 64-bit number."""
        if self._torch is not None:
            self._torch[0].manual_seed(number)
        words = self._words
        words[0], words[1], words[2] = number, random64(number, 1), number ^ _OTHER
        self._bits.state = self._state
        _numpy_random.set_bit_generator(self._bits)  # which also forgets half a pair of normal numbers
        if self._seeds_random:
            random.seed(random64(number, 3))
        elif self._watch is not None:
            self._seen = self._watch()

    def seed_random_too(self) -> None:
        """From now on `random` is seeded always: for functions that cannot take a sample again."""
        self._seeds_random = True

    def strayed(self) -> bool:
        """Whether something has drawn from `random` though it was not seeded; from now on it is."""
        if self._seeds_random or self._watch is None or self._watch() == self._seen:
            return False
        self._seeds_random = True
        return True


class _Numpy:
    """The global generator of numpy, saved and put back. Its state takes 40 µs to get, so that is done where it moved.

    Beside the generator there may be half a pair of normal numbers: it goes without moving it, and comes by moving it.
    """

    def __init__(self, bits: Any) -> None:
        self.bits = bits
        self._memory: Any = None
        self._seen: tuple[int, int] | None = None
        self._saved: dict[str, Any] | None = None
        if type(bits) is np.random.MT19937:
            memory = (ctypes.c_uint32 * (_POSITION + 1)).from_address(bits.ctypes.state_address)
            state = bits.state["state"]
            if (memory[0], memory[_POSITION]) == (int(state["key"][0]), state["pos"]):
                self._memory = memory

    def save(self) -> None:
        memory = self._memory
        seen = None if memory is None else (memory[0], memory[_POSITION])
        if seen is None or seen != self._seen or self._saved is not None:
            state = np.random.get_state(legacy=False)
            assert isinstance(state, dict), "as it was asked for"
            self._seen = seen
            self._saved = state if state["has_gauss"] or seen is None else None

    def restore(self) -> None:
        _numpy_random.set_bit_generator(self.bits)
        if self._saved is not None:
            np.random.set_state(self._saved)


def _watcher() -> Callable[[], Any] | None:
    """What tells, in 0.2 µs, whether `random` stands elsewhere than before; None where that cannot be told."""
    if sys.implementation.name != "cpython":
        return None
    inner: Any = getattr(random, "_inst", None)
    if type(inner) is not random.Random:
        return None
    memory = ctypes.c_uint64.from_address(id(inner) + _STATE)

    def look() -> int:
        return memory.value

    # Believed only if it sees what Python says: the index is the last of the 625 numbers, the first word the first.
    for _ in range(2):
        kept = inner.getstate()
        before = look()
        inner.random()
        moved, after = inner.getstate(), look()
        inner.setstate(kept)
        for state, seen in ((kept, before), (moved, after)):
            if seen.to_bytes(8, sys.byteorder) != struct.pack("=II", state[1][-1], state[1][0]):
                return None
    return look
