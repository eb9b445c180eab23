"""Rules for keys next to others that are no rows of `presence`, and for the text of values."""

from __future__ import annotations

import re

from wdspec.spec.build import Composition
from wdspec.spec.language.values import MASK
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shares import positive_names, steps_with_shares
from wdspec.spec.tree import Scalar, scalars


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
    """Tuples that do not show padding; the keys that a pass cannot have are rows."""
    spec, top = composition.spec, composition.top
    if not spec.is_pass or spec.epoch is None:
        return
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
    """Keys of `mix` about sizes, if sources state their shares."""
    for sources in composition.lists:
        kind = sources.share_kinds[0] if sources.drafts and not sources.scheduled else None
        for key in ("by", "cap", "temperature") if kind and sources.mix is not None else ():
            if sources.mix is not None and sources.mix.get(key) is not None:
                message = f"`mix.{key}` has no effect if sources state their `{kind}`"
                yield Finding(sources.mix.key(key), message, f"remove it, or remove `{kind}`")


@rule("E207", keys="schedule")
def shares_next_to_a_schedule(composition: Composition) -> Findings:
    """Shares of sources together with a schedule."""
    for sources in composition.lists:
        for draft in sources.drafts if sources.scheduled else ():
            for key in draft.stated_shares:
                message = f"`mix.schedule` sets the share of each source, but this one also has a `{key}`"
                yield Finding(draft.node.key(key), message, "remove one of the two")


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
