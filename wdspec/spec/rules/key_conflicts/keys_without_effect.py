"""W102: keys that do nothing beside others."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.schedule_steps import positive_names, steps_with_shares
from wdspec.spec.tree import MapNode


@rule(
    "W102",
    "a key without effect",
    "The key does nothing beside another one.",
    bad="mix: {by: equal}\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    good="mix: {by: equal}\ndataset:\n  - {shards: a.tar}\n",
)
def keys_without_effect(composed: Composed) -> Findings:
    """Sizes that no share goes by, sources that no step reads, reading in turn in a pass, how long threads stay."""
    for sources in composed.lists:
        kind = None if sources.scheduled else sources.share_kinds[0] if sources.drafts else None
        if sources.mix is None or not (sources.scheduled or kind):
            continue
        for key in ("by", "cap", "temperature"):
            if sources.mix.get(key) is None:
                continue
            if sources.scheduled:
                message, hint = f"`mix.{key}` has no effect beside `mix.schedule`", "remove it"
            else:
                message = f"`mix.{key}` has no effect where sources state their `{kind}`"
                hint = f"remove it, or remove `{kind}`"
            yield Finding(sources.mix.key(key), message, hint)
    steps = [positive_names(shares) for shares in steps_with_shares(composed)]
    read = set().union(*steps)
    for draft in composed.drafts if read else ():
        if draft.name not in read:
            message = f"no step of the schedule gives `{draft.name[:60]}` a share, so it is never read"
            yield Finding(draft.own, message, "name it in a step, or remove it")
    for leaf, source in composed.models if composed.is_pass else ():
        if source.interleave > 1:
            message = "`interleave` has no effect with `epoch: pass`, which reads shard after shard"
            yield Finding(leaf.node.key("interleave"), message, "remove it")
    loader = composed.top.get("loader")
    if composed.spec.loader.kind == "threads" and isinstance(loader, MapNode) and loader.get("persistent"):
        message = "`persistent` has no effect with `kind: threads`, whose readers always stay"
        yield Finding(loader.key("persistent"), message, "remove it")
