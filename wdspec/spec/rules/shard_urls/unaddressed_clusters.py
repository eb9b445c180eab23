"""W104: something says where an AIStore is."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import MapNode


@rule(
    "W104",
    "an AIStore without an address",
    "The spec leaves it to AIS_ENDPOINT, which is not set here; reading the data where it is not is an error.",
    bad="aistore: {use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def unaddressed_clusters(composed: Composed) -> Findings:
    """`aistore:` without `endpoint`, where neither the top level nor AIS_ENDPOINT has one."""
    if composed.variant.has_endpoint:
        return
    outer = composed.spec.aistore
    holders = [(composed.top, outer), *((leaf.node, source.aistore) for leaf, source in composed.models)]
    for holder, cluster in holders:
        node = holder.get("aistore")
        if isinstance(node, MapNode) and cluster is not None and not cluster.endpoint:
            if holder is not composed.top and outer is not None and outer.endpoint:
                continue
            hint = "add `endpoint: http://host:51080`, or set AIS_ENDPOINT where the spec is used"
            yield Finding(node, "nothing says where this AIStore is", hint)
