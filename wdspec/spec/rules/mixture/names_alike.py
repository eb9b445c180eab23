"""W345: the names of sources can be told apart."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W345",
    "names that differ in case alone",
    "Tables, logs and `--set` speak of sources by their names; `Cats` and `cats` are hard to tell apart.",
    bad="dataset:\n  - {name: Cats, shards: a.tar}\n  - {name: cats, shards: b.tar}\n",
    good="dataset:\n  - {name: cats-a, shards: a.tar}\n  - {name: cats-b, shards: b.tar}\n",
)
def names_alike(composed: Composed) -> Findings:
    """Names that are equal but for case, hyphens and underscores."""
    seen: dict[str, str] = {}
    for draft in composed.every_draft:
        plain = draft.name.casefold().replace("_", "-")
        other = seen.setdefault(plain, draft.name)
        if other != draft.name:
            message = f"`{draft.name}` is nearly the name of another source, `{other}`"
            yield Finding(draft.node.value_or_self("name"), message, "give them names that differ plainly")
