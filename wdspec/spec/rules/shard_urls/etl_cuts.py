"""E314: ETLs of AIStore only where it shows that their answer was cut."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.effective import effective_etl
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "E314",
    "an ETL whose cuts cannot be told",
    "When an ETL of AIStore dies in the middle of a shard, its answer ends as if it were whole, with an error"
    " text at the end. Only the end marker of a tar shows that, so it must be there, and be demanded.",
    bad="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
    "    tar: {end: lenient}\n    aistore: {etl: resize-224}\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
    "    aistore: {etl: resize-224}\n",
)
def etl_cuts(composed: Composed) -> Findings:
    """Sources behind an ETL that are no tar, or whose tar may end anywhere."""
    for leaf, source in composed.models:
        etl = effective_etl(composed.spec, source)
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
