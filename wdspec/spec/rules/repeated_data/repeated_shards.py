"""W303: a source names each of its shards once."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_sets import ShardSets
from wdspec.spec.rules.shard_texts import parts_of


@rule(
    "W303",
    "one shard twice",
    "A shard that stands twice in one source is read twice in each pass. To have it more often, give it a "
    "source of its own with a larger share.",
    bad="dataset:\n  - shards: ['a-{000..009}.tar', a-003.tar]\n",
    good="dataset:\n  - shards: ['a-{000..009}.tar', a-010.tar]\n",
)
def repeated_shards(composed: Composed) -> Findings:
    """The first shard of each text that the source has already, in this text or an earlier one."""
    sets: ShardSets[tuple[str, int]] = ShardSets()
    number = 0
    for leaf, text, parts in parts_of(composed):
        for part in parts:
            number += 1
            found = sets.add(part, (leaf.name, number))
            if found is not None and found[1][0] == leaf.name:
                yield Finding(text, f"{quoted(found[0])} stands twice in this source", "name it once")
                break
