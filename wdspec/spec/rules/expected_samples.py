"""How many samples of each source an epoch holds, as far as the spec alone shows."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.draft import Composed, Draft, SourceList


def global_batch(composed: Composed) -> int | None:
    """The least samples of a global batch: of one rank, where nothing says how many there are; None without `batch`."""
    batch, elastic = composed.spec.batch, composed.spec.elastic
    if batch is None:
        return None
    return batch.global_size or (batch.size or 0) * (elastic.ranks if elastic else 1) or None


def epoch_samples(composed: Composed) -> int | None:
    """The samples of an epoch over all ranks; None where it is endless, a pass, or depends on the ranks."""
    epoch, spec = composed.spec.epoch, composed.spec
    if epoch is None or epoch.remainder is not None:
        return None
    if epoch.samples:
        return epoch.samples
    each = global_batch(composed)
    known = each is not None and (
        spec.elastic is not None or (spec.batch is not None and spec.batch.global_size)
    )
    return epoch.batches * each if known and each and epoch.batches else None


def epoch_steps(composed: Composed) -> int | None:
    """The global batches of an epoch; None where it is endless, a pass, or depends on the ranks."""
    epoch, samples, each = composed.spec.epoch, epoch_samples(composed), global_batch(composed)
    if epoch is not None and epoch.batches:
        return epoch.batches
    is_known = composed.spec.elastic is not None or bool(
        composed.spec.batch and composed.spec.batch.global_size
    )
    return samples // each if samples and each and is_known else None


def known_shares(composed: Composed) -> Iterator[tuple[Draft, float]]:
    """The share of the whole mix that each source has, where probabilities and weights alone decide it."""
    lists = {id(sources.drafts[0]): sources for sources in composed.lists if sources.drafts}
    top = next(iter(composed.lists), None)
    if top is not None and not composed.is_pass:
        yield from _shares(top, 1.0, lists)


def _shares(sources: SourceList, whole: float, lists: dict[int, SourceList]) -> Iterator[tuple[Draft, float]]:
    kinds = set(sources.share_kinds)
    kind = kinds.pop() if len(kinds) == 1 and not sources.scheduled else None
    numbers = sources.numbers(kind) if kind else ([1.0] if len(sources.drafts) == 1 else None)
    if not numbers or not sum(numbers):
        return
    for draft, number in zip(sources.drafts, numbers, strict=True):
        share = whole * number / sum(numbers)
        if draft.children:
            yield from _shares(lists[id(draft.children[0])], share, lists)
        else:
            yield draft, share
