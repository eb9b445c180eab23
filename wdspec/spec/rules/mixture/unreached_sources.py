"""W341: every source has its turn in an epoch."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.expected_samples import epoch_samples, known_shares
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W341",
    "a source that an epoch hardly reaches",
    "Its share of an epoch is less than one sample, so most epochs have none of it.",
    bad="epoch: 1000\ndataset:\n  - {name: a, shards: a.tar, weight: 10000}\n  - {name: b, shards: b.tar, weight: 1}\n",
    good="epoch: 1000\ndataset:\n  - {name: a, shards: a.tar, weight: 99}\n  - {name: b, shards: b.tar, weight: 1}\n",
)
def unreached_sources(composed: Composed) -> Findings:
    """Sources with a share above 0 that comes to less than one sample."""
    samples = epoch_samples(composed)
    for draft, share in known_shares(composed) if samples else ():
        if 0 < share * (samples or 0) < 1:
            key = (draft.stated_shares or ["name"])[0]
            message = f"`{draft.name}` gets {share * (samples or 0):.2g} samples of an epoch of {samples:,}"
            yield Finding(
                draft.node.key_or_self(key), message, "give it more, a longer epoch, or 0 to switch it off"
            )
