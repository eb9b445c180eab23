"""W342: an epoch does not repeat a source very often."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.expected_samples import epoch_samples, known_shares
from wdspec.spec.rules.lint_rule import Finding, Findings, rule

MOST = 20


@rule(
    "W342",
    "very many passes over a source",
    "By the samples that it declares, an epoch reads the source over and over. Small sources with large "
    "shares are learnt by heart.",
    bad="epoch: 100_000\ndataset:\n  - {name: a, shards: a.tar, weight: 1, samples: 50}\n"
    "  - {name: b, shards: b.tar, weight: 1}\n",
    good="epoch: 100_000\ndataset:\n  - {name: a, shards: a.tar, weight: 1, samples: 50_000}\n"
    "  - {name: b, shards: b.tar, weight: 1}\n",
)
def many_passes(composed: Composed) -> Findings:
    """Sources of which an epoch takes more than twenty times their samples."""
    epoch = epoch_samples(composed)
    for draft, share in known_shares(composed) if epoch else ():
        held = draft.model.samples if draft.model is not None else None
        if held and share * (epoch or 0) > MOST * held:
            passes = share * (epoch or 0) / held
            message = f"an epoch takes {passes:,.0f} passes over the {held:,} samples of `{draft.name}`"
            yield Finding(
                draft.node.value_or_self("samples"), message, "give it a smaller share, or correct `samples`"
            )
