"""W107: an AIStore serves some shard."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import parts_of
from wdspec.urls.urls import AIS_PROVIDERS, scheme_of


@rule(
    "W107",
    "an AIStore that serves nothing",
    "A cluster serves `ais://` URLs, and those of other schemes only where `use_for` (or USE_AIS_FOR) names "
    "them. All else is read where it is, past the cluster.",
    bad="aistore: {endpoint: http://ais:51080}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def idle_clusters(composed: Composed) -> Findings:
    """`aistore:` of the top level without `use_for`, in a spec with shards of buckets and none of `ais://`."""
    cluster, node = composed.spec.aistore, composed.top.get("aistore")
    if cluster is None or node is None or cluster.use_for or composed.variant.has_schemes:
        return
    if composed.spec.rewrite or any(source.aistore or source.rewrite for _, source in composed.models):
        return
    schemes = {scheme_of(part.prefix + part.text) for _, _, parts in parts_of(composed) for part in parts}
    buckets = sorted(schemes & AIS_PROVIDERS.keys())
    if buckets and "ais" not in buckets:
        message = f"this AIStore serves `ais://` alone, and the shards are at `{buckets[0]}://`"
        yield Finding(node, message, f"add `use_for: [{', '.join(buckets)}]`, or set USE_AIS_FOR")
