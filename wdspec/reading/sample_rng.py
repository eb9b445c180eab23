"""Random numbers for the user's functions, keyed by the sample, so that a resumed or moved run repeats them.

A sample's identity is (seed, source, slot, raw ordinal): its place in the canonical order, which is the same on
every topology. It never rides in the sample. The process that runs a user's function notes the sample
just before, in a thread-local, and only sources that have such functions pay for it (a tenth of a microsecond).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from wdspec.errors import UsageError
from wdspec.planning.keys import key64, random64

SampleAtWork = tuple[int, int, str]
"""(key of the slot's source, raw ordinal in it, `__url__`) of a sample that a user's function is working on."""


class _Current(threading.local):
    sample: SampleAtWork | None = None


current = _Current()
"""The sample that this thread is working on; set by `Transform` around the user's functions."""


def slot_key(seed: int, source: str, slot: int) -> int:
    """The key of all that is random in the samples of one source in one slot: `scale`, and `sample_rng`."""
    return key64(seed, "transform", source, slot)


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
        wdspec.errors.UsageError: sample_rng works inside the functions that `map` and `select` name, ...
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
