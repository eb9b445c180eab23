"""W375: a list of fields names each of them once."""

from __future__ import annotations

from collections import Counter

from wdspec.spec.compose.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W375",
    "a field that is named twice",
    "The second name adds nothing; perhaps another field was meant.",
    bad="fields: jpg jpg\ndataset:\n  - shards: a.tar\n",
    good="fields: jpg cls\ndataset:\n  - shards: a.tar\n",
)
def repeated_fields(composed: Composed) -> Findings:
    """Repetitions in `fields` and in a source's `extensions`; in a tuple they may be meant."""
    holders = [(composed.top, "fields", composed.spec.fields)]
    holders += [(leaf.node, "extensions", source.extensions) for leaf, source in composed.models]
    for node, key, entries in holders:
        twice = [entry for entry, count in Counter(entries or ()).items() if count > 1]
        if twice and key in node.entries:
            yield Finding(node.entries[key].value, f"`{key}` names `{twice[0]}` twice", "name it once")
