"""E311: decoders that unpickle need `allow: [pickle]`."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.language.values import PICKLE_DECODERS
from wdspec.spec.rules.decoder_names import decoder_names
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "E311",
    "pickle is not allowed",
    "Unpickling can run code hidden in the data. It is off unless the spec says `allow: [pickle]`.",
    bad="dataset:\n  - {shards: a.tar, decode: {meta: pkl}}\n",
    good="allow: [pickle]  # wdspec: ignore=W373\ndataset:\n  - {shards: a.tar, decode: {meta: pkl}}\n",
)
def pickle_consent(composed: Composed) -> Findings:
    """Such decoders in a spec that does not allow them."""
    if "pickle" in composed.spec.allow or "allow" in composed.bad:
        return
    for leaf in composed.leaves:
        for at, name in decoder_names(leaf):
            if name in PICKLE_DECODERS:
                hint = "add `allow: [pickle]` at the top level if you trust whoever made the data"
                yield Finding(at, f"the decoder `{name}` can run code hidden in the data", hint)
