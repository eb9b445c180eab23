"""E206: what a batch, an epoch and a mix cannot do without."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import Scalar


@rule("E206")
def missing_values(composed: Composed) -> Findings:
    """Sizes, lengths and counts that nothing gives."""
    spec, top = composed.spec, composed.top
    if spec.batch is not None and not spec.batch.size and not spec.batch.global_size:
        hint = "write `batch: 64` or `batch: {global_size: 512}`"
        yield Finding(top.entries["batch"].value, "the batch has no size", hint)
    epoch = spec.epoch
    if epoch is not None and not (epoch.samples or epoch.batches or epoch.remainder):
        hint = "write `epoch: 100_000` or `epoch: {batches: 1000}`"
        yield Finding(top.entries["epoch"].value, "the epoch has no length", hint)
    if composed.mix is not None and spec.mix.unit == "batch" and spec.batch is None:
        message = "`unit: batch` draws a source for each batch, but there is no `batch`"
        yield Finding(composed.mix.key("unit"), message, "add `batch: n`, or remove `unit`")
    for sources in composed.lists:
        by = sources.mix.get("by") if sources.mix is not None and not sources.scheduled else None
        if not isinstance(by, Scalar) or by.value not in ("samples", "bytes"):
            continue
        if top.get("stats") is not None or sources.share_kinds[:1] != [None]:
            continue  # W104 says what the file lacks, which need not be where a spec is checked
        for draft in sources.drafts:
            for leaf in draft.leaves:
                if leaf.node.get(by.value) is None:
                    message = f"`mix.by: {by.value}` needs the number of {by.value} of each source"
                    hint = (
                        f"name a file that `wdspec stats SPEC` writes, `stats: FILE`, or add `{by.value}: n`"
                    )
                    yield Finding(leaf.node, message, hint)
