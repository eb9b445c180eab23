"""W376: what is read is also given."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.problems import listed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import MAGIC, right_sources, visible_fields


@rule(
    "W376",
    "a field that is read and dropped",
    "`extensions` asks for files that `fields` or `to_tuple` leave out again. They are read and decoded for "
    "nothing.",
    bad="to_tuple: jpg cls\ndataset:\n  - {shards: a.tar, extensions: jpg cls json}\n",
    good="to_tuple: jpg cls\ndataset:\n  - {shards: a.tar, extensions: jpg cls}\n",
)
def unused_fields(composed: Composed) -> Findings:
    """Fields of a source that nothing takes; where functions of the user's own see the sample, nothing is known."""
    kept = composed.spec.to_tuple or composed.spec.fields
    if not kept or composed.spec.map or any(MAGIC.intersection(entry) for entry in kept):
        return
    taken = {name for entry in kept for name in entry.split(";")}
    for leaf, source in right_sources(composed, "extensions", "rename"):
        fields = visible_fields(source)
        if fields is None or source.select is not None or source.missing == "skip":
            continue
        dropped = [name for name in fields if name not in taken and name not in source.tags]
        if dropped:
            message = f"{listed(dropped)} of `{leaf.name}` is read, and dropped by `fields` or `to_tuple`"
            yield Finding(leaf.node.value_or_self("extensions"), message, "leave it out of `extensions`")
