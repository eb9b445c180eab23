"""W373: pickles are a risk that somebody took."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W373",
    "pickles are allowed",
    "Unpickling can run code that is hidden in the data. Who reviews a spec has to trust whoever can write to"
    " its shards. `npy`, `npz`, `safetensors`, `json`, `msgpack` and `cbor` hold the same without that.",
    bad="allow: [pickle]\ndataset:\n  - {shards: a.tar, decode: {meta: pkl}}\n",
    good="dataset:\n  - {shards: a.tar, decode: {meta: npz}}\n",
)
def allowed_pickles(composed: Composed) -> Findings:
    """`allow: [pickle]`."""
    if "pickle" in composed.spec.allow:
        hint = "if that is meant, say so: `# wdspec: ignore=W373`"
        yield Finding(composed.top.entries["allow"].value, "data of this spec may run code", hint)
