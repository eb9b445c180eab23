"""Rules for batches, epochs and shuffles whose numbers do not fit together."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.build import Composition, SourceList
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shard_patterns import parts_of
from wdspec.spec.sources import Draft
from wdspec.spec.tree import ListNode

FEW_SAMPLES = 1_000
FEW_BATCHES = 4


@rule(
    "E306",
    "an epoch shorter than a batch",
    "An epoch has a whole number of global batches, and at least one.",
    keys="epoch",
    bad="batch: 512\nepoch: 100\ndataset:\n  - shards: a.tar\n",
    good="batch: 512\nepoch: 512\ndataset:\n  - shards: a.tar\n",
)
def short_epochs(composition: Composition) -> Findings:
    """Epochs with fewer samples than a batch, and epochs counted in batches without `batch`."""
    spec = composition.spec
    epoch, least = spec.epoch, least_global_batch(composition)
    if epoch is None or spec.is_pass or (epoch.samples and epoch.batches):
        return
    node = composition.top.entries["epoch"].value
    if epoch.samples and least and epoch.samples < least:
        message = f"an epoch of {epoch.samples:,} samples is shorter than one global batch of {least:,}"
        hint = f"use at least {least} samples, or a smaller batch"
        yield Finding(node.value_or_self("samples"), message, hint)
    elif epoch.batches and not spec.batch:
        hint = "add `batch:`, or state the epoch in samples"
        yield Finding(node.key_or_self("batches"), "an epoch of batches needs a `batch`", hint)


@rule(
    "E307",
    "a batch that ranks cannot divide",
    "`global_size` is divided equally, so it must be a multiple of `elastic.ranks`.",
    keys="global_size",
    bad="batch: {global_size: 100}\nelastic: {ranks: 16}\ndataset:\n  - shards: a.tar\n",
    good="batch: {global_size: 112}\nelastic: {ranks: 16}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
)
def indivisible_batches(composition: Composition) -> Findings:
    """A `global_size` that is not a multiple of `elastic.ranks`."""
    batch, elastic = composition.spec.batch, composition.spec.elastic
    if batch is None or elastic is None or batch.size or not batch.global_size:
        return
    if batch.global_size % elastic.ranks:
        near = -(-batch.global_size // elastic.ranks) * elastic.ranks
        message = f"{elastic.ranks} ranks cannot divide {batch.global_size:,} samples equally"
        at = composition.top.entries["batch"].value.value_or_self("global_size")
        yield Finding(at, message, f"write `global_size: {near}`")


@rule(
    "W351",
    "an epoch that is rounded",
    "An epoch has a whole number of global batches. The remaining samples are left to the next epoch, so this one is "
    "shorter than the spec says.",
    keys="epoch",
    bad="batch: 64\nepoch: 10_000\ndataset:\n  - shards: a.tar\n",
    good="batch: 64\nepoch: 9_984\ndataset:\n  - shards: a.tar\n",
)
def rounded_epochs(composition: Composition) -> Findings:
    """Epochs of samples that are not a multiple of the batch."""
    epoch, each = composition.spec.epoch, least_global_batch(composition)
    if epoch is None or not epoch.samples or not each or epoch.samples < each or epoch.batches:
        return
    over = epoch.samples % each
    if over:
        kept = epoch.samples - over
        batches = f"{kept // each:,} batches" if kept > each else "one batch"
        message = f"an epoch of {epoch.samples:,} samples is {batches} of {each:,}, and {over:,} left over"
        hint = f"write `{kept}`, or `{{batches: {kept // each}}}`"
        yield Finding(composition.top.entries["epoch"].value.value_or_self("samples"), message, hint)


@rule(
    "W352",
    "an epoch of a few samples",
    "`epoch` is the length of an epoch in samples. The training loop decides how many epochs there are.",
    keys="epoch",
    bad="batch: 8\nepoch: 16\ndataset:\n  - shards: 'a-{000..099}.tar'\n",
    good="batch: 8\nepoch: 16_000\ndataset:\n  - shards: 'a-{000..099}.tar'\n",
)
def tiny_epochs(composition: Composition) -> Findings:
    """Epochs of less than four batches and a thousand samples, if there are more than four shards."""
    epoch, each = composition.spec.epoch, least_global_batch(composition)
    if epoch is None or not epoch.samples or not each or composition.spec.limit is not None:
        return
    shards = sum(
        1 if part.listed else len(part.braces) for _, _, parts in parts_of(composition) for part in parts
    )
    if each <= epoch.samples < min(FEW_SAMPLES, FEW_BATCHES * each) and shards > FEW_BATCHES:
        batches = epoch.samples // each
        length = f"{batches} batches" if batches > 1 else "one batch"
        message = f"an epoch of {epoch.samples:,} samples is only {length} long"
        hint = "write the samples of one epoch; the training loop counts epochs"
        yield Finding(composition.top.entries["epoch"].value, message, hint)


@rule(
    "W353",
    "several ranks without `elastic`",
    "`global_size` is for several ranks. Without `elastic`, the order of samples is that of the ranks and workers of "
    "the first run, and a state can only be resumed with the same numbers.",
    keys="global_size",
    bad="batch: {global_size: 512}\ndataset:\n  - shards: a.tar\n",
    good="batch: {global_size: 512}\nelastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..31}.tar'\n",
)
def missing_elastic(composition: Composition) -> Findings:
    """`batch.global_size` without `elastic`."""
    batch, elastic = composition.spec.batch, composition.spec.elastic
    if batch is not None and batch.global_size and elastic is None and "elastic" not in composition.bad:
        at = composition.top.entries["batch"].value.key_or_self("global_size")
        hint = "write `elastic: {ranks: …, workers: …}` for the largest job"
        yield Finding(at, "the order depends on how many ranks the first run has", hint)


@rule(
    "W354",
    "a shuffle smaller than a batch",
    "Samples that are next to each other in a shard stay within one batch of each other, so batches are hardly mixed.",
    keys="shuffle",
    bad="batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 100}\n",
    good="batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 2000}\n",
)
def small_shuffles(composition: Composition) -> Findings:
    """Written values of `shuffle` above 0 and below the batch of a rank."""
    batch = composition.spec.batch
    size = batch.size or 0 if batch is not None else 0
    for leaf, source in composition.models:
        if "shuffle" in leaf.node.entries and 0 < source.shuffle < size:
            message = f"a shuffle of {source.shuffle} samples mixes less than one batch of {size}"
            hint = "use several times the batch, or 0 to read in order"
            yield Finding(leaf.node.entries["shuffle"].value, message, hint)


MOST_SHUFFLED = 10_000_000


@rule(
    "W356",
    "a shuffle of very many samples",
    "A slot holds that many samples in memory, and needs as many numbers to order them, before the first batch. Shards "
    "come in another order in each pass, so a few thousand samples mix those that lie near each other; `interleave` "
    "mixes the samples of more shards.",
    keys="shuffle",
    bad="dataset:\n  - {shards: 'a-{000..999}.tar', shuffle: 1_000_000_000}\n",
    good="dataset:\n  - {shards: 'a-{000..999}.tar', shuffle: 10_000, interleave: 16}\n",
)
def large_shuffles(composition: Composition) -> Findings:
    """Values of `shuffle` above ten million."""
    for leaf, source in composition.models:
        if source.shuffle > MOST_SHUFFLED:
            message = f"a shuffle of {source.shuffle:,} samples fills the memory, and delays the first batch"
            hint = "use some thousands, and a larger `interleave`; `wdspec explain` shows the memory"
            yield Finding(leaf.node.value_or_self("shuffle"), message, hint)


@rule(
    "E317",
    "ranges that overlap",
    "Two ranges of `skip` have steps in common. One of them may be a mistake.",
    keys="skip",
    bad="skip: [1200..1260, 1250..1300]\ndataset:\n  - shards: a.tar\n",
    good="skip: 1200..1300\ndataset:\n  - shards: a.tar\n",
)
def repeated_skips(composition: Composition) -> Findings:
    """Ranges with a step that is also in another range."""
    if "skip" in composition.bad or len(composition.spec.skip) < 2:
        return
    node = composition.top.entries["skip"].value
    items = node.items if isinstance(node, ListNode) else (node,) * len(composition.spec.skip)
    ranges = sorted((steps.first, steps.last, number) for number, steps in enumerate(composition.spec.skip))
    end, before = -1, 0
    for first, last, number in ranges:
        if first <= end:
            message = f"step {first:,} is also in another range"
            yield Finding(items[max(number, before)], message, "join the two ranges, or remove one")
        if last > end:
            end, before = last, number


@rule(
    "W355",
    "an epoch that is skipped",
    "Epochs keep their numbers when steps are skipped. An epoch without remaining steps is an iteration without a "
    "batch, "
    "which a training loop may not expect. Steps are global batches, not samples, and are numbered across epochs.",
    keys="skip",
    bad="skip: 100..299\nepoch: {batches: 100}\nbatch: {global_size: 8}\nelastic: {ranks: 1}\n"
    "dataset:\n  - shards: a.tar\n",
    good="skip: 101..298\nepoch: {batches: 100}\nbatch: {global_size: 8}\nelastic: {ranks: 1}\n"
    "dataset:\n  - shards: a.tar\n",
)
def skipped_epochs(composition: Composition) -> Findings:
    """Ranges that contain a whole epoch, if the spec shows how many steps it has."""
    length = epoch_steps(composition)
    skipped = composition.spec.skipped_steps
    emptied = None if "skip" in composition.bad or not length else skipped.emptied(length)
    if length and emptied is not None:
        steps = f"{emptied * length:,} to {(emptied + 1) * length - 1:,}"
        message = f"all steps of epoch {emptied:,} are skipped ({steps})"
        hint = "keep some of them, or make sure that the training loop accepts an epoch without a batch"
        yield Finding(composition.top.entries["skip"].value, message, hint)


def least_global_batch(composition: Composition) -> int | None:
    """The least number of samples in a global batch (of one rank, if their number is unknown); None without `batch`."""
    batch, elastic = composition.spec.batch, composition.spec.elastic
    if batch is None:
        return None
    return batch.global_size or (batch.size or 0) * (elastic.ranks if elastic else 1) or None


def epoch_samples(composition: Composition) -> int | None:
    """The samples of an epoch over all ranks; None if it is endless, a pass, or depends on the number of ranks."""
    epoch, spec = composition.spec.epoch, composition.spec
    if epoch is None or spec.is_pass:
        return None
    if epoch.samples:
        return epoch.samples
    each = least_global_batch(composition)
    return epoch.batches * each if each and epoch.batches and _has_known_ranks(composition) else None


def epoch_steps(composition: Composition) -> int | None:
    """The global batches of an epoch; None if it is endless, a pass, or depends on the number of ranks."""
    epoch, samples, each = composition.spec.epoch, epoch_samples(composition), least_global_batch(composition)
    if epoch is not None and epoch.batches:
        return epoch.batches
    return samples // each if samples and each and _has_known_ranks(composition) else None


def _has_known_ranks(composition: Composition) -> bool:
    """Whether the size of a global batch does not depend on the number of ranks of a run."""
    batch = composition.spec.batch
    return composition.spec.elastic is not None or bool(batch and batch.global_size)


def known_shares(composition: Composition) -> Iterator[tuple[Draft, float]]:
    """The share of each source in the whole mix, as far as probabilities and weights alone decide it."""
    lists = {id(sources.drafts[0]): sources for sources in composition.lists if sources.drafts}
    top = next(iter(composition.lists), None)
    if top is not None and not composition.spec.is_pass:
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
