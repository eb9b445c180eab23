"""Rules for batches, epochs and shuffles: numbers that do not fit each other."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.build import Composition, SourceList
from wdspec.spec.language.steps import steps_in
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shard_patterns import parts_of
from wdspec.spec.sources import Draft
from wdspec.spec.tree import ListNode


@rule(
    "E306",
    "an epoch shorter than a batch",
    "An epoch is a whole number of global batches, and at least one.",
    keys="epoch",
    bad="batch: 512\nepoch: 100\ndataset:\n  - shards: a.tar\n",
    good="batch: 512\nepoch: 512\ndataset:\n  - shards: a.tar\n",
)
def short_epochs(composition: Composition) -> Findings:
    """Epochs of fewer samples, and epochs counted in batches where there are none."""
    epoch, batch, elastic = composition.spec.epoch, composition.spec.batch, composition.spec.elastic
    if epoch is None or epoch.remainder is not None or (epoch.samples and epoch.batches):
        return
    node = composition.top.entries["epoch"].value
    if epoch.samples and batch:
        least = batch.global_size or (batch.size or 0) * (elastic.ranks if elastic else 1)
        if epoch.samples < least:
            message = f"an epoch of {epoch.samples:,} samples is shorter than one global batch of {least:,}"
            hint = f"give it at least {least}, or make the batch smaller"
            yield Finding(node.value_or_self("samples"), message, hint)
    elif epoch.batches and not batch:
        hint = "add `batch:`, or count the epoch in samples"
        yield Finding(node.key_or_self("batches"), "an epoch of batches needs a `batch`", hint)


@rule(
    "E307",
    "a batch that ranks cannot share",
    "`global_size` is dealt out equally, so `elastic.ranks` must divide it.",
    keys="global_size",
    bad="batch: {global_size: 100}\nelastic: {ranks: 16}\ndataset:\n  - shards: a.tar\n",
    good="batch: {global_size: 112}\nelastic: {ranks: 16}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
)
def indivisible_batches(composition: Composition) -> Findings:
    """A `global_size` that `elastic.ranks` does not divide."""
    batch, elastic = composition.spec.batch, composition.spec.elastic
    if batch is None or elastic is None or batch.size or not batch.global_size:
        return
    if batch.global_size % elastic.ranks:
        near = -(-batch.global_size // elastic.ranks) * elastic.ranks
        message = f"{batch.global_size:,} samples cannot be shared equally by {elastic.ranks} ranks"
        at = composition.top.entries["batch"].value.value_or_self("global_size")
        yield Finding(at, message, f"write `global_size: {near}`")


def global_batch(composition: Composition) -> int | None:
    """The least samples of a global batch: of one rank, where nothing says how many there are; None without `batch`."""
    batch, elastic = composition.spec.batch, composition.spec.elastic
    if batch is None:
        return None
    return batch.global_size or (batch.size or 0) * (elastic.ranks if elastic else 1) or None


def epoch_samples(composition: Composition) -> int | None:
    """The samples of an epoch over all ranks; None where it is endless, a pass, or depends on the ranks."""
    epoch, spec = composition.spec.epoch, composition.spec
    if epoch is None or epoch.remainder is not None:
        return None
    if epoch.samples:
        return epoch.samples
    each = global_batch(composition)
    known = each is not None and (
        spec.elastic is not None or (spec.batch is not None and spec.batch.global_size)
    )
    return epoch.batches * each if known and each and epoch.batches else None


def epoch_steps(composition: Composition) -> int | None:
    """The global batches of an epoch; None where it is endless, a pass, or depends on the ranks."""
    epoch, samples, each = composition.spec.epoch, epoch_samples(composition), global_batch(composition)
    if epoch is not None and epoch.batches:
        return epoch.batches
    is_known = composition.spec.elastic is not None or bool(
        composition.spec.batch and composition.spec.batch.global_size
    )
    return samples // each if samples and each and is_known else None


def known_shares(composition: Composition) -> Iterator[tuple[Draft, float]]:
    """The share of the whole mix that each source has, where probabilities and weights alone decide it."""
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


@rule(
    "W351",
    "an epoch that is rounded",
    "An epoch is a whole number of global batches; what is over is left to the next one, so the epoch is "
    "shorter than the spec says.",
    keys="epoch",
    bad="batch: 64\nepoch: 10_000\ndataset:\n  - shards: a.tar\n",
    good="batch: 64\nepoch: 9_984\ndataset:\n  - shards: a.tar\n",
)
def rounded_epochs(composition: Composition) -> Findings:
    """Epochs of samples that the batch does not divide."""
    epoch, each = composition.spec.epoch, global_batch(composition)
    if epoch is None or not epoch.samples or not each or epoch.samples < each or epoch.batches:
        return
    over = epoch.samples % each
    if over:
        kept = epoch.samples - over
        batches = f"{kept // each:,} batches" if kept > each else "one batch"
        parts = f"{batches} of {each:,}, and {over:,} {'is' if over == 1 else 'are'} over"
        message = f"an epoch of {epoch.samples:,} samples is {parts}"
        hint = f"write `{kept}`, or `{{batches: {kept // each}}}`"
        yield Finding(composition.top.entries["epoch"].value.value_or_self("samples"), message, hint)


FEW_SAMPLES = 1_000
FEW_BATCHES = 4


@rule(
    "W352",
    "an epoch of a few samples",
    "`epoch` says how many samples an epoch has. How many epochs there are is a matter of the training loop.",
    keys="epoch",
    bad="batch: 8\nepoch: 16\ndataset:\n  - shards: 'a-{000..099}.tar'\n",
    good="batch: 8\nepoch: 16_000\ndataset:\n  - shards: 'a-{000..099}.tar'\n",
)
def tiny_epochs(composition: Composition) -> Findings:
    """Epochs of less than four batches and a thousand samples, in specs with more shards than that many batches."""
    epoch, each = composition.spec.epoch, global_batch(composition)
    if epoch is None or not epoch.samples or not each or composition.spec.limit is not None:
        return
    if each <= epoch.samples < min(FEW_SAMPLES, FEW_BATCHES * each) and _shards(composition) > FEW_BATCHES:
        batches = epoch.samples // each
        length = f"{batches} batches" if batches > 1 else "one batch"
        message = f"an epoch of {epoch.samples:,} samples, {length}, ends very soon"
        yield Finding(
            composition.top.entries["epoch"].value,
            message,
            "give the samples of one epoch; the training loop counts epochs",
        )


def _shards(composition: Composition) -> int:
    return sum(
        1 if part.listed else len(part.braces) for _, _, parts in parts_of(composition) for part in parts
    )


@rule(
    "W353",
    "several ranks without `elastic`",
    "`global_size` is for several ranks. Without `elastic` the order is that of the first run's ranks and "
    "workers, and a state goes on with no other numbers.",
    keys="global_size",
    bad="batch: {global_size: 512}\ndataset:\n  - shards: a.tar\n",
    good="batch: {global_size: 512}\nelastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..31}.tar'\n",
)
def missing_elastic(composition: Composition) -> Findings:
    """`batch.global_size` in a spec without `elastic`."""
    batch = composition.spec.batch
    if (
        batch is not None
        and batch.global_size
        and composition.spec.elastic is None
        and "elastic" not in composition.bad
    ):
        at = composition.top.entries["batch"].value.key_or_self("global_size")
        hint = "write `elastic: {ranks: …, workers: …}`, of the largest job that is meant"
        yield Finding(at, "the order depends on how many ranks the first run has", hint)


@rule(
    "W354",
    "a shuffle smaller than a batch",
    "Neighbours in a shard stay within one batch of each other, so batches are hardly mixed.",
    keys="shuffle",
    bad="batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 100}\n",
    good="batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 2000}\n",
)
def small_shuffles(composition: Composition) -> Findings:
    """Shuffles that somebody wrote, above 0 and below the batch of a rank."""
    batch = composition.spec.batch
    for leaf, source in composition.models if batch is not None and batch.size else ():
        if batch is not None and "shuffle" in leaf.node.entries and 0 < source.shuffle < (batch.size or 0):
            message = f"a shuffle of {source.shuffle} samples mixes less than one batch of {batch.size}"
            hint = "give it several times the batch, or 0 to read in order"
            yield Finding(leaf.node.entries["shuffle"].value, message, hint)


@rule(
    "E317",
    "ranges that overlap",
    "Two ranges of `skip` that overlap say of some steps twice that they are left out: one of them may be a slip.",
    keys="skip",
    bad="skip: [1200..1260, 1250..1300]\ndataset:\n  - shards: a.tar\n",
    good="skip: 1200..1300\ndataset:\n  - shards: a.tar\n",
)
def repeated_skips(composition: Composition) -> Findings:
    """Ranges with a step that is in one before them."""
    if "skip" in composition.bad or len(composition.spec.skip) < 2:
        return
    node = composition.top.entries["skip"].value
    items = node.items if isinstance(node, ListNode) else (node,) * len(composition.spec.skip)
    stated = sorted((steps.first, steps.last, number) for number, steps in enumerate(composition.spec.skip))
    end, before = -1, 0
    for first, last, number in stated:
        if first <= end:
            message = f"step {first:,} is skipped already, by another of these ranges"
            yield Finding(items[max(number, before)], message, "join the two, or take it out")
        if last > end:
            end, before = last, number


@rule(
    "W355",
    "an epoch that is skipped",
    "Epochs keep their places when steps are skipped, so one of which nothing is left is an iteration without a "
    "batch, which a training loop may not expect. Steps are global batches, not samples, and count on over epochs.",
    keys="skip",
    bad="skip: 100..299\nepoch: {batches: 100}\nbatch: {global_size: 8}\nelastic: {ranks: 1}\n"
    "dataset:\n  - shards: a.tar\n",
    good="skip: 101..298\nepoch: {batches: 100}\nbatch: {global_size: 8}\nelastic: {ranks: 1}\n"
    "dataset:\n  - shards: a.tar\n",
)
def skipped_epochs(composition: Composition) -> Findings:
    """Ranges that hold a whole epoch, where the spec shows how many steps that has."""
    length = epoch_steps(composition)
    emptied = (
        None if "skip" in composition.bad or not length else steps_in(composition.spec.skip).emptied(length)
    )
    if length and emptied is not None:
        steps = f"{emptied * length:,} to {(emptied + 1) * length - 1:,}"
        message = f"nothing is left of epoch {emptied:,}, which is the steps {steps}"
        hint = "leave some of them, or be sure that the loop gets along with an epoch without a batch"
        yield Finding(composition.top.entries["skip"].value, message, hint)
