"""Epoch lengths: a cut of the endless stream into equal runs of global batches."""

from __future__ import annotations

from dataclasses import dataclass

from wdspec.errors import UsageError
from wdspec.spec.language.models import Spec
from wdspec.spec.language.value_types import MOST_SAMPLES


@dataclass(frozen=True)
class Batching:
    """How samples are gathered into global steps, the same on every rank."""

    per_slot: int
    """b: samples one slot gives to one global batch; 1 without `batch`."""
    global_size: int
    """G = N·b: samples of one global batch over all canonical ranks."""
    batched: bool
    """False: the pipeline yields samples, one a canonical rank and step."""
    accumulated: bool = False
    """Whether a rank gets the samples of each of its canonical ranks by themselves."""

    @property
    def shared(self) -> int:
        """b where ranks may share what a slot gives to a batch, 1 where each item is of one canonical rank."""
        return self.per_slot if self.batched and not self.accumulated else 1


def batching(spec: Spec, ranks: int) -> Batching:
    """The batching of spec over N canonical ranks.

    Raises:
        UsageError: `batch.global_size` is not divisible by N; the message lists divisors near by.
    """
    if spec.batch is None:
        return Batching(1, ranks, batched=False)
    if spec.batch.size is not None:
        return Batching(spec.batch.size, spec.batch.size * ranks, True, spec.batch.accumulate)
    size = spec.batch.global_size
    assert size is not None, "the spec room checks that one of the two is given"
    each, rest = divmod(size, ranks)
    if rest:
        below, above = each * ranks, (each + 1) * ranks
        near = f"{below} or {above}" if below else str(above)
        raise UsageError(f"batch.global_size {size} cannot be shared evenly by {ranks} ranks; use {near}")
    if each > MOST_SAMPLES:
        raise UsageError(
            f"batch.global_size {size:,} has each of {ranks:,} ranks hold {each:,} samples at once; the limit is "
            f"{MOST_SAMPLES:,}"
        )
    return Batching(each, size, True, spec.batch.accumulate)


def epoch_batches(spec: Spec, batching: Batching) -> int | None:
    """E, the global batches of an epoch: ⌊samples / G⌋, or as given; None for an endless stream.

    `limit` caps it.

    Raises:
        UsageError: the epoch is shorter than one global batch, or would end by `limit` inside one.
    """
    length: int | None = None
    if spec.epoch is not None:
        if spec.epoch.batches is not None:
            length = spec.epoch.batches
        elif spec.epoch.samples is not None:
            length = spec.epoch.samples // batching.global_size
            if not length:
                raise UsageError(
                    f"an epoch of {spec.epoch.samples} samples is shorter than one global batch of "
                    f"{batching.global_size}; raise `epoch` or lower `batch`"
                )
    if spec.limit is None or (length is not None and length * batching.global_size <= spec.limit):
        return length
    cap, rest = divmod(spec.limit, batching.global_size)
    if rest:
        near = [str(whole * batching.global_size) for whole in (cap, cap + 1) if whole]
        raise UsageError(
            f"`limit: {spec.limit}` would end inside a global batch of {batching.global_size} samples, and all "
            f"batches are whole; use {' or '.join(near)}, or `epoch: pass`, which pads the last batch"
        )
    return cap
