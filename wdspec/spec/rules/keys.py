"""Rules for keys that need or exclude others, or have no effect next to them."""

from __future__ import annotations

import re

from wdspec.spec.build import Composition
from wdspec.spec.language.effects import NotInAPass, mark_of
from wdspec.spec.language.values import MASK
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shares import positive_names, steps_with_shares
from wdspec.spec.sources import every_draft
from wdspec.spec.spec import Spec
from wdspec.spec.tree import MapNode, Scalar, scalars


@rule(
    "E218",
    "an unknown version",
    "This release supports version 1 of the spec language.",
    keys="wdspec",
    bad="wdspec: 2\ndataset:\n  - shards: a.tar\n",
    good="wdspec: 1\ndataset:\n  - shards: a.tar\n",
)
def format_version(composition: Composition) -> Findings:
    """Any version except 1."""
    version = composition.spec.wdspec
    if version != 1:
        at = composition.top.entries["wdspec"].value
        yield Finding(
            at, f"version {version} of the spec language is unknown", "this release supports `wdspec: 1`"
        )


@rule("E206", keys="batch")
def batches_without_size(composition: Composition) -> Findings:
    """A batch without `size` and `global_size`."""
    batch = composition.spec.batch
    if batch is not None and not batch.size and not batch.global_size and not batch.has_windows:
        hint = "write `batch: 64` or `batch: {global_size: 512}`"
        yield Finding(composition.top.entries["batch"].value, "the batch has no size", hint)


@rule("E206", keys="epoch")
def epochs_without_length(composition: Composition) -> Findings:
    """An epoch without `samples` and `batches` that is not a pass."""
    epoch = composition.spec.epoch
    if epoch is not None and not (epoch.samples or epoch.batches or epoch.remainder):
        hint = "write `epoch: 100_000` or `epoch: {batches: 1000}`"
        yield Finding(composition.top.entries["epoch"].value, "the epoch has no length", hint)


@rule("E206", keys="unit")
def units_without_batch(composition: Composition) -> Findings:
    """`mix: {unit: batch}` without `batch`."""
    spec, mix = composition.spec, composition.mix
    has_none = spec.batch is None and "batch" not in composition.bad
    if mix is not None and spec.mix.unit == "batch" and has_none:
        message = "`unit: batch` draws a source for each batch, but there is no `batch`"
        yield Finding(mix.key("unit"), message, "add `batch: n`, or remove `unit`")


@rule("E206", keys="by")
def shares_without_sizes(composition: Composition) -> Findings:
    """Sources without the number of samples or bytes that sets their shares."""
    if composition.top.get("stats") is not None:
        return  # W108 reports what the file lacks; it may not exist where a spec is checked
    for sources in composition.lists:
        by = sources.mix.get("by") if sources.mix is not None and not sources.scheduled else None
        if not isinstance(by, Scalar) or by.value not in ("samples", "bytes"):
            continue
        for leaf in sources.leaves if sources.share_kinds[:1] == [None] else ():
            if leaf.node.get(by.value) is None:
                message = f"`mix.by: {by.value}` needs the number of {by.value} of each source"
                hint = f"run `wdspec stats SPEC` and add `stats: FILE`, or add `{by.value}: n`"
                yield Finding(leaf.node, message, hint)


@rule("E207", keys="global_size")
def batches_of_two_sizes(composition: Composition) -> Findings:
    """`size` and `global_size` in one batch."""
    batch = composition.spec.batch
    if batch is not None and batch.size and batch.global_size:
        message = (
            "`size` is the batch of one rank and `global_size` that of all ranks; a batch cannot have both"
        )
        hint = "keep one; `size: null` removes an inherited one"
        yield Finding(composition.top.entries["batch"].value.key_or_self("global_size"), message, hint)


@rule("E207", keys="samples batches")
def epochs_of_two_lengths(composition: Composition) -> Findings:
    """An epoch with two of `samples`, `batches` and `pass`."""
    epoch = composition.spec.epoch
    if epoch is None:
        return
    node = composition.top.entries["epoch"].value
    if epoch.remainder is not None:
        for key in ("samples", "batches"):
            if getattr(epoch, key):
                message = f"an epoch is either one pass or a number of {key}"
                hint = f"keep one; `{key}: null` removes an inherited one"
                yield Finding(node.key_or_self(key), message, hint)
    elif epoch.samples and epoch.batches:
        message = "an epoch is either a number of samples or a number of batches"
        hint = "keep one; `samples: null` removes an inherited one"
        yield Finding(node.key_or_self("batches"), message, hint)


@rule("E207", keys="max_count max_rate")
def budgets_without_skips(composition: Composition) -> Findings:
    """A budget for skips without skips."""
    spec = composition.spec
    holders = [(composition.top, composition.bad, spec.errors)]
    holders += [(leaf.node, leaf.bad, (leaf.model or spec).errors) for leaf in composition.leaves]
    for holder, bad, errors in holders:
        node = holder.get("errors")
        if isinstance(node, MapNode) and not errors.skip and "errors" not in bad:
            key = next((key for key in ("max_count", "max_rate") if node.get(key) is not None), None)
            if key is not None:
                message = f"`{key}` is a budget for skips, but `skip` is false"
                yield Finding(node.key(key), message, "remove one")


@rule("E207", keys="probability weight upsample")
def shares_stated_twice(composition: Composition) -> Findings:
    """Two share keys in one source, or one together with a schedule."""
    for sources in composition.lists:
        for draft in sources.drafts:
            stated = draft.stated_shares
            if sources.scheduled:
                for key in stated:
                    message = f"`mix.schedule` sets the share of each source, but this one also has a `{key}`"
                    yield Finding(draft.node.key(key), message, "remove one of the two")
            elif len(stated) > 1:
                message = f"a source states its share once, but this one has `{stated[0]}` and `{stated[1]}`"
                yield Finding(draft.node.key(stated[1]), message, "keep one of them")


@rule("E207", keys="schedule")
def scheduled_turns(composition: Composition) -> Findings:
    """A schedule of shares with `draw: round_robin`, which ignores shares."""
    mix = composition.mix
    if mix is not None and composition.schedule is not None and composition.spec.mix.draw == "round_robin":
        message = "`draw: round_robin` takes turns whatever the shares are, so a schedule has no effect"
        yield Finding(mix.key("schedule"), message, "remove one of the two")


_NOT_IN_A_PASS = tuple(name for name, field in Spec.model_fields.items() if mark_of(field, NotInAPass))


@rule(
    "E312",
    "a key that a pass cannot have",
    "`epoch: pass` returns every sample once, source after source, so it cannot have shares, `mix`, `skip`, or shards "
    "drawn with replacement. Padding in the last batch is marked in `__mask__`, which tuples must include.",
    keys="pass",
    bad="epoch: pass\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    good="epoch: pass\ndataset:\n  - {shards: a.tar}\n",
)
def against_a_pass(composition: Composition) -> Findings:
    """Shares, mixes, skipped steps and drawing with replacement; tuples that do not show padding."""
    spec, top = composition.spec, composition.top
    if not spec.is_pass or spec.epoch is None:
        return
    holders = [(top, _NOT_IN_A_PASS)]
    for draft in every_draft(composition.drafts):
        mix = ("mix",) if draft.children is not None else ()
        holders.append((draft.node, (*draft.stated_shares, *mix)))
    for holder, keys in holders:
        for key in keys:
            if holder.get(key) is not None:
                message = (
                    f"`{key}` is not allowed with `epoch: pass`, where every sample is read exactly once"
                )
                yield Finding(holder.key(key), message, f"remove it; `{key}: null` removes an inherited one")
    for leaf, source in composition.models:
        if source.order == "resampled":
            message = "`order: resampled` draws shards with replacement, but `epoch: pass` reads each once"
            hint = "leave it out, or write `order: shuffled`"
            yield Finding(leaf.node.entries["order"].value, message, hint)
    # Padding fills the last batch, and takes the place of dropped samples.
    may_pad = spec.epoch.remainder == "pad" or any(source.drops_samples for _, source in composition.models)
    if spec.to_tuple is not None and MASK not in spec.to_tuple and may_pad:
        message = "with `epoch: pass`, some tuples are padding, and only `__mask__` shows which ones"
        yield Finding(top.entries["to_tuple"].value, message, "add `__mask__` to `to_tuple`")


@rule(
    "W102",
    "a key without effect",
    "This key has no effect because of another key.",
    keys="by cap temperature",
    bad="mix: {by: equal}\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    good="mix: {by: equal}\ndataset:\n  - {shards: a.tar}\n",
)
def unused_sizes(composition: Composition) -> Findings:
    """Keys of `mix` about sizes, if shares do not depend on sizes."""
    for sources in composition.lists:
        kind = None if sources.scheduled else sources.share_kinds[0] if sources.drafts else None
        if sources.mix is None or not (sources.scheduled or kind):
            continue
        for key in ("by", "cap", "temperature"):
            if sources.mix.get(key) is None:
                continue
            message, hint = f"`mix.{key}` has no effect with `mix.schedule`", "remove it"
            if not sources.scheduled:
                message = f"`mix.{key}` has no effect if sources state their `{kind}`"
                hint = f"remove it, or remove `{kind}`"
            yield Finding(sources.mix.key(key), message, hint)


@rule("W102", keys="schedule")
def unscheduled_sources(composition: Composition) -> Findings:
    """Sources that no step of a schedule reads."""
    read = set().union(*map(positive_names, steps_with_shares(composition)))
    for draft in composition.drafts if read else ():
        if draft.name not in read:
            message = f"no step of the schedule has a share for `{draft.name[:60]}`, so it is never read"
            yield Finding(draft.own, message, "name it in a step, or remove it")


@rule("W102", keys="interleave")
def interleaved_passes(composition: Composition) -> Findings:
    """`interleave` in a pass."""
    for leaf, source in composition.models if composition.spec.is_pass else ():
        if source.interleave > 1:
            message = "`interleave` has no effect with `epoch: pass`, which reads shard by shard"
            yield Finding(leaf.node.key("interleave"), message, "remove it")


@rule("W102", keys="persistent")
def persistent_threads(composition: Composition) -> Findings:
    """`persistent` with threads."""
    loader = composition.top.get("loader")
    if composition.spec.loader.kind == "threads" and isinstance(loader, MapNode) and loader.get("persistent"):
        message = "`persistent` has no effect with `kind: threads`: threads always persist"
        yield Finding(loader.key("persistent"), message, "remove it")


_LED_BY_ZEROS = re.compile(r"[-+]?0[0-9_]+")


@rule(
    "W106",
    "a number with a leading zero",
    "In YAML 1.2, `017` is 17. In YAML 1.1, which many other programs use, it is the octal number 15.",
    bad="batch: 017\ndataset:\n  - shards: a.tar\n",
    good="batch: 17\ndataset:\n  - shards: a.tar\n",
)
def leading_zeros(composition: Composition) -> Findings:
    """Whole numbers that start with a zero."""
    for node in scalars(composition.top):
        if type(node.value) is int and node.text and _LED_BY_ZEROS.fullmatch(node.text):
            yield Finding(node, f"`{node.text}` is the number {node.value}", f"write `{node.value}`")
