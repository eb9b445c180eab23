"""Rules for the places of shards: misspelled URLs, directories that others do not have, and AIStore clusters."""

from __future__ import annotations

import re

from wdspec.spec.build import Composition
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shard_patterns import parts_of, written_texts
from wdspec.spec.tree import MapNode
from wdspec.urls.urls import AIS_PROVIDERS, scheme_of, slip_in


@rule(
    "W105",
    "a URL that looks misspelled",
    "Its scheme is similar to a known one, or is followed by one slash instead of two. It may still be correct if "
    "you have an opener or a rewrite rule for it.",
    keys="shards",
    bad="dataset:\n  - shards: htps://host/a.tar\n",
    good="dataset:\n  - shards: https://host/a.tar\n",
)
def misspelt_schemes(composition: Composition) -> Findings:
    """Misspelled schemes, each once per text."""
    for _, text, parts in parts_of(composition):
        for slip in dict.fromkeys(slip_in(part.text.removeprefix("@")) for part in parts):
            if slip is not None:
                yield Finding(text, slip.message, slip.hint)


_HOME = re.compile(r"(?://)?(?:/home/[^/]+/|/Users/[^/]+/|/root/|~[^/]*/|C:/Users/[^/]+/)")


@rule(
    "W321",
    "a path in a home directory",
    "Other people do not have `/home/name`, so the spec works in one place only. Use a variable, or a rewrite rule of "
    "an environment, to say where the data is in other places.",
    keys="shards",
    bad="dataset:\n  - shards: /home/ann/data/a.tar\n",
    good="dataset:\n  - shards: ${data:-data}/a.tar\n",
)
def home_paths(composition: Composition) -> Findings:
    """Shards in a home directory."""
    for text, written in written_texts(composition):
        found = _HOME.match(written.removeprefix("@").removeprefix("file:"))
        if found is not None:
            hint = "write `${data}/…` and set the variable, or use a path relative to the spec"
            yield Finding(text, f"`{found[0]}` is a home directory", hint)


_TEMPORARY = re.compile(r"(?://)?(?:/tmp/|/var/tmp/|/dev/shm/)")


@rule(
    "W322",
    "data in a temporary directory",
    "Files in `/tmp`, `/var/tmp` or `/dev/shm` are gone after a restart, and do not exist on other machines.",
    keys="shards",
    bad="dataset:\n  - shards: /tmp/a.tar\n",
    good="dataset:\n  - shards: data/a.tar\n",
)
def temporary_paths(composition: Composition) -> Findings:
    """Shards in a directory that the system deletes, except in specs that are not files."""
    for text, written in written_texts(composition):
        found = _TEMPORARY.match(written.removeprefix("@").removeprefix("file:"))
        if found is not None and composition.variant.file is not None:
            yield Finding(
                text, f"`{found[0]}` is a temporary directory", "move the data to a permanent place"
            )


@rule(
    "W104",
    "an AIStore without an address",
    "The spec relies on AIS_ENDPOINT, which is not set here. Reading the data without it is an error.",
    keys="aistore shards",
    bad="aistore: {use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def unaddressed_clusters(composition: Composition) -> Findings:
    """`aistore:` and `ais://` without an endpoint, if neither the top level nor AIS_ENDPOINT has one."""
    outer = composition.spec.aistore
    if composition.variant.has_endpoint or (outer is not None and outer.endpoint):
        return
    hint = "add `endpoint: http://host:51080`, or set AIS_ENDPOINT"
    holders = [
        (composition.top, outer),
        *((leaf.node, source.aistore) for leaf, source in composition.models),
    ]
    for holder, cluster in holders:
        node = holder.get("aistore")
        if isinstance(node, MapNode) and cluster is not None and not cluster.endpoint:
            yield Finding(node, "this AIStore has no endpoint", hint)
    seen = set()
    for leaf, text, parts in parts_of(composition):
        source = leaf.model
        if source is None or outer or source.aistore or composition.spec.rewrite or source.rewrite:
            continue
        if id(text) not in seen:
            seen.add(id(text))
            if any(scheme_of(part.text) == "ais" for part in parts):
                hint = "set AIS_ENDPOINT, or add `aistore: {endpoint: http://host:51080}`"
                yield Finding(text, "no endpoint of AIStore is set, which reads `ais://`", hint)


@rule(
    "W107",
    "an AIStore that serves nothing",
    "A cluster serves `ais://` URLs, and URLs of other schemes only if `use_for` (or USE_AIS_FOR) names them. All "
    "other shards are read directly from their store.",
    keys="aistore",
    bad="aistore: {endpoint: http://ais:51080}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def idle_clusters(composition: Composition) -> Findings:
    """A top-level `aistore:` without `use_for`, if there are shards in buckets and none in `ais://`."""
    cluster, node = composition.spec.aistore, composition.top.get("aistore")
    if cluster is None or node is None or cluster.use_for or composition.variant.has_schemes:
        return
    if composition.spec.rewrite or any(source.aistore or source.rewrite for _, source in composition.models):
        return
    schemes = {scheme_of(part.text) for _, _, parts in parts_of(composition) for part in parts}
    buckets = sorted(schemes & AIS_PROVIDERS.keys())
    if buckets and "ais" not in buckets:
        message = f"this AIStore serves only `ais://`, but the shards are in `{buckets[0]}://`"
        yield Finding(node, message, f"add `use_for: [{', '.join(buckets)}]`, or set USE_AIS_FOR")


@rule(
    "E314",
    "an ETL whose errors cannot be detected",
    "If an ETL of AIStore fails in the middle of a shard, its response ends normally, with an error text at the end. "
    "Only the end marker of a tar shows that, so the shards must be tars, and the marker must be required.",
    keys="etl",
    bad="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
    "    tar: {end: lenient}\n    aistore: {etl: resize-224}\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
    "    aistore: {etl: resize-224}\n",
)
def etl_cuts(composition: Composition) -> Findings:
    """Sources with an ETL that are not tars, or whose tars need no end marker."""
    for leaf, source in composition.models:
        etl = composition.spec.etl_of(source)
        if etl is None:
            continue
        if source.tar.end == "lenient":
            message = f"if the ETL `{etl.name}` fails, only the missing end marker of the tar shows it"
            hint = "remove `tar: {end: lenient}` from this source"
            yield Finding(leaf.node.key_or_self("tar"), message, hint)
        if source.format not in ("auto", "tar"):
            message = (
                f"an ETL must give tar shards, but `format` is {source.format}: nothing there shows a cut"
            )
            yield Finding(leaf.node.key_or_self("format"), message, "let the ETL write tar, or remove `etl`")
