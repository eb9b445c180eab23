"""Rules for where shards are: URLs, directories that others do not have, and AIStore clusters."""

from __future__ import annotations

import re

from wdspec.spec.build import Composition
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shard_patterns import parts_of, written_texts
from wdspec.spec.tree import MapNode
from wdspec.urls.urls import AIS_PROVIDERS, scheme_of, slip_in


@rule(
    "W105",
    "a URL that looks misspelt",
    "Its scheme is nearly one that is known, or one slash follows it where two belong. An opener or a rewrite"
    " rule of yours may know it all the same.",
    keys="shards",
    bad="dataset:\n  - shards: htps://host/a.tar\n",
    good="dataset:\n  - shards: https://host/a.tar\n",
)
def misspelt_schemes(composition: Composition) -> Findings:
    """Each slip once in a text."""
    for _, text, parts in parts_of(composition):
        for slip in dict.fromkeys(slip_in(part.text.removeprefix("@")) for part in parts):
            if slip is not None:
                yield Finding(text, slip.message, slip.hint)


_HOME = re.compile(r"(?://)?(?:/home/[^/]+/|/Users/[^/]+/|/root/|~[^/]*/|C:/Users/[^/]+/)")


@rule(
    "W321",
    "a path of one person",
    "Nobody else has `/home/name`, so the spec works in one place alone. A variable, or a rewrite rule of an "
    "environment, says where the data is elsewhere.",
    keys="shards",
    bad="dataset:\n  - shards: /home/ann/data/a.tar\n",
    good="dataset:\n  - shards: ${data:-data}/a.tar\n",
)
def home_paths(composition: Composition) -> Findings:
    """Shards below somebody's home directory."""
    for text, written in written_texts(composition):
        found = _HOME.match(written.removeprefix("@").removeprefix("file:"))
        if found is not None:
            hint = "write `${data}/…` and set it where the spec is used, or a path relative to the spec"
            yield Finding(text, f"`{found[0]}` is the home of one person", hint)


_TEMPORARY = re.compile(r"(?://)?(?:/tmp/|/var/tmp/|/dev/shm/)")


@rule(
    "W322",
    "data in a temporary directory",
    "What lies below `/tmp`, `/var/tmp` or `/dev/shm` is gone after a restart, and is not there on other "
    "machines.",
    keys="shards",
    bad="dataset:\n  - shards: /tmp/a.tar\n",
    good="dataset:\n  - shards: data/a.tar\n",
)
def temporary_paths(composition: Composition) -> Findings:
    """Shards below a directory that the system empties; not in specs that a program makes."""
    for text, written in written_texts(composition):
        found = _TEMPORARY.match(written.removeprefix("@").removeprefix("file:"))
        if found is not None and composition.variant.file is not None:
            yield Finding(
                text, f"`{found[0]}` is a temporary directory", "move the data to a place that stays"
            )


@rule(
    "W104",
    "an AIStore without an address",
    "The spec leaves it to AIS_ENDPOINT, which is not set here; reading the data where it is not is an error.",
    keys="aistore",
    bad="aistore: {use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def unaddressed_clusters(composition: Composition) -> Findings:
    """`aistore:` without `endpoint`, where neither the top level nor AIS_ENDPOINT has one."""
    if composition.variant.has_endpoint:
        return
    outer = composition.spec.aistore
    holders = [
        (composition.top, outer),
        *((leaf.node, source.aistore) for leaf, source in composition.models),
    ]
    for holder, cluster in holders:
        node = holder.get("aistore")
        if isinstance(node, MapNode) and cluster is not None and not cluster.endpoint:
            if holder is not composition.top and outer is not None and outer.endpoint:
                continue
            hint = "add `endpoint: http://host:51080`, or set AIS_ENDPOINT where the spec is used"
            yield Finding(node, "nothing says where this AIStore is", hint)


@rule(
    "W107",
    "an AIStore that serves nothing",
    "A cluster serves `ais://` URLs, and those of other schemes only where `use_for` (or USE_AIS_FOR) names "
    "them. All else is read where it is, past the cluster.",
    keys="aistore",
    bad="aistore: {endpoint: http://ais:51080}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def idle_clusters(composition: Composition) -> Findings:
    """`aistore:` of the top level without `use_for`, in a spec with shards of buckets and none of `ais://`."""
    cluster, node = composition.spec.aistore, composition.top.get("aistore")
    if cluster is None or node is None or cluster.use_for or composition.variant.has_schemes:
        return
    if composition.spec.rewrite or any(source.aistore or source.rewrite for _, source in composition.models):
        return
    schemes = {scheme_of(part.prefix + part.text) for _, _, parts in parts_of(composition) for part in parts}
    buckets = sorted(schemes & AIS_PROVIDERS.keys())
    if buckets and "ais" not in buckets:
        message = f"this AIStore serves `ais://` alone, and the shards are at `{buckets[0]}://`"
        yield Finding(node, message, f"add `use_for: [{', '.join(buckets)}]`, or set USE_AIS_FOR")


@rule(
    "E314",
    "an ETL whose cuts cannot be told",
    "When an ETL of AIStore dies in the middle of a shard, its answer ends as if it were whole, with an error"
    " text at the end. Only the end marker of a tar shows that, so it must be there, and be demanded.",
    keys="etl",
    bad="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
    "    tar: {end: lenient}\n    aistore: {etl: resize-224}\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
    "    aistore: {etl: resize-224}\n",
)
def etl_cuts(composition: Composition) -> Findings:
    """Sources behind an ETL that are no tar, or whose tar may end anywhere."""
    for leaf, source in composition.models:
        etl = composition.spec.etl_of(source)
        if etl is None:
            continue
        if source.tar.end == "lenient":
            message = f"a stream of the ETL `{etl.name}` that breaks off shows it only by the missing end of the tar"
            hint = "remove `tar: {end: lenient}` from this source"
            yield Finding(leaf.node.key_or_self("tar"), message, hint)
        if source.format not in ("auto", "tar"):
            message = (
                f"an ETL must give tar shards, but `format` is {source.format}: nothing there shows a cut"
            )
            yield Finding(leaf.node.key_or_self("format"), message, "let the ETL write tar, or remove `etl`")
