"""Advice on how a run reads a spec: its epoch, its slots, its windows and its memory."""

from __future__ import annotations

from math import ceil

from wdspec.advice.facts import Advice, Advices, HeldMemory
from wdspec.advice.measure import WindowFacts
from wdspec.base.amounts import join_names, pluralize, size
from wdspec.planning.passes import WindowedPass
from wdspec.planning.plan import Plan
from wdspec.planning.shares import shares_of_steps
from wdspec.shards.shards import Shards
from wdspec.spec.rules.batches import describe_short_epoch
from wdspec.spec.rules.rule import rule
from wdspec.spec.rules.shares import describe_fractions
from wdspec.spec.spec import Spec

LARGE_REST = 0.1
"""The part of a pass that the last batch may have before its loss is reported."""

LATE = 0.25
"""The part of the samples before a change of the shares by which it may be late before it is reported."""


@rule("W398", needs="spec windows")
def unfilled_batches(spec: Spec, windows: WindowFacts) -> Advices:
    """Windows that cost less than half of `max_cost`."""
    if windows.fill is not None and windows.batches < 2 and windows.fill < 0.5:
        most = "`max_cost`" if spec.batch is None else spec.batch.limit_name
        part = "less than 0.1%" if windows.fill < 0.001 else f"{windows.fill:.1%}"
        cost = f"a window of {windows.samples:,} samples costs {part} of {most}"
        hint = "raise `window`"
        if windows.fill:
            enough = ceil(windows.samples / windows.fill)
            hint += f", of which {enough:,} samples would fill one batch, or lower {most} if it is too large"
        yield Advice(f"{cost}, so batches are never full", hint)


@rule("W507", needs="spec samples")
def short_epochs(spec: Spec, samples: float) -> Advices:
    """Epochs that look like a number of epochs."""
    yield from (Advice(*text) for text in describe_short_epoch(spec, samples))


@rule("W511", needs="spec plan")
def rounded_epochs(spec: Spec, plan: Plan) -> Advices:
    """Epochs of samples that global batches do not divide, and passes that lose a large part to the last batch."""
    requested, epoch = spec.epoch.samples if spec.epoch is not None else None, plan.epoch_samples
    if requested and epoch and spec.limit is None and requested > epoch:
        size = plan.batching.global_size
        yield Advice(
            f"epoch: {requested} is not a multiple of the batch of {size:,}",
            f"an epoch is {epoch:,} samples, and the next epoch continues from there",
        )
    finite, size = plan.finite, plan.batching.global_size
    if finite is not None and epoch and spec.limit is None:
        rest = finite.samples - plan.timeline.length(0) * size
        if rest > LARGE_REST * finite.samples:
            others = ", other ones each time" if spec.reshuffles else ""
            yield Advice(
                f"each epoch leaves out {rest:,} of {finite.samples:,} samples ({rest / finite.samples:.0%}){others}: "
                f"`drop` drops what does not fill a global batch of {size:,}",
                "use smaller batches or fewer canonical ranks (`elastic`), or write `pass: pad`",
            )
    if isinstance(finite, WindowedPass) and (lost := 1 - finite.part_given) > LARGE_REST:
        others = ", other ones each time" if spec.reshuffles else ""
        yield Advice(
            f"each epoch leaves out about {lost:.0%} of the batches{others}: `drop` ends it when a slot has none left",
            "use fewer slots (`elastic`), or write `pass: pad`",
        )


@rule("W516", needs="spec plan shards")
def late_shares(spec: Spec, plan: Plan, shards: Shards) -> Advices:
    """Steps of a schedule that take effect much later than written, since slots finish their sections first."""
    section = plan.batching.global_size
    if spec.batch is None or not plan.batching.windowed:
        return
    key = "window" if spec.batch.group_by is None else "group_wait"
    for at, _ in shares_of_steps(spec, lambda source: len(shards.lists[source.name]), section):
        late = -at % section
        if late > LATE * at:
            yield Advice(
                f"the shares from sample {at:,} on take effect {late:,} samples later: each slot first finishes the "
                f"{plan.batching.per_slot:,} samples of its `{key}`",
                f"lower `{key}`, or write `at: {at + late}`",
            )


@rule("W527", needs="spec")
def shuffled_order(spec: Spec) -> Advices:
    """Sources with shards in order, and the default shuffle of samples."""
    for source in spec.sources:
        if source.order == "sequential" and "shuffle" not in source.model_fields_set and not spec.is_pass:
            message = (
                f"`order: sequential` of `{source.name}` is for shards: samples are shuffled in a buffer of "
            )
            message += f"{source.shuffle:,} (`shuffle`)"
            hint = f"write `shuffle: 0` to read them as they are stored, or else `shuffle: {source.shuffle}`"
            yield Advice(message, hint, source)


@rule("W532", needs="spec")
def fractions_among_percentages(spec: Spec) -> Advices:
    """Weights of at most 1 next to others, with which they would add up to 100 if they were percentages."""
    sources = {each.name: each for each in spec.sources}
    for name, _, message, hint in describe_fractions(spec):
        yield Advice(message, hint, sources.get(name))


@rule("W512", needs="spec plan")
def split_shards(spec: Spec, plan: Plan) -> Advices:
    """Sources whose shards are read in parts."""
    splits = {each.name: each.order.split for each in plan.sources}
    parts = [f"{each.name} in {splits[each.name]}" for each in spec.sources if splits.get(each.name, 1) > 1]
    if parts:
        yield Advice(
            f"fewer shards than the {plan.topology.slots:,} slots, so each shard is read in parts "
            f"({join_names(parts)}), and reading a part walks through the whole shard",
            "more and smaller shards read faster",
        )


@rule("W513", needs="memory")
def much_memory(memory: HeldMemory) -> Advices:
    """Shuffling and buffers that need more than a quarter of the machine's memory."""
    held = (memory.shuffled + memory.buffers) * memory.workers
    if memory.machine and held > memory.machine / 4:
        remedy = "`shuffle`" if memory.shuffled > memory.buffers else "`interleave`, or run more ranks"
        yield Advice(
            f"shuffling and buffers of {pluralize(memory.workers, 'worker')} hold {size(held)}, more than a quarter "
            f"of this machine's {size(memory.machine)}",
            f"lower {remedy}",
        )
