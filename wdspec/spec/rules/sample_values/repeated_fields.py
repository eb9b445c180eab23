"""W375: a list of fields names each of them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import locate


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
        named = [*(entries or ()), *(f"{entry};" for entry in entries or () if _repeats(entry.split(";")))]
        twice = [entry for entry, count in Counter(named).items() if count > 1 or entry.endswith(";")]
        if twice and key in node.entries:
            seen = twice[0].rstrip(";").split(";")
            yield Finding(node.entries[key].value, f"`{key}` names `{seen[-1]}` twice", "name it once")
    for leaf, source in composed.models:
        for new, olds in source.rename.items():
            if _repeats(olds) and "rename" in leaf.node.entries:
                at = locate(leaf.node.entries["rename"].value, (new,))
                yield Finding(at, f"`{';'.join(olds)}` names a field twice", "name each alternative once")


def _repeats(names: Sequence[str]) -> bool:
    return len(set(names)) < len(names)
