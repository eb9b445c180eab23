"""W301: a shard belongs to one source."""

from __future__ import annotations

from collections import defaultdict

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_sets import ShardSets
from wdspec.spec.rules.shard_texts import parts_of


@rule(
    "W301",
    "shards of two sources",
    "What stands in two sources comes more often than their shares say, and each source shuffles it on its "
    "own. One source with the sum of the shares says the same plainly.",
    bad="dataset:\n  - {name: a, shards: 'x-{000..009}.tar'}\n  - {name: b, shards: 'x-{005..020}.tar'}\n",
    good="dataset:\n  - {name: a, shards: 'x-{000..009}.tar'}\n  - {name: b, shards: 'x-{010..020}.tar'}\n",
)
def shards_of_two_sources(composed: Composed) -> Findings:
    """The first shard that a text shares with an earlier source."""
    stores: defaultdict[str, ShardSets[str]] = defaultdict(ShardSets)  # one URL may be there in several
    for leaf, text, parts in parts_of(composed):
        for part in parts:
            found = stores[repr(leaf.model and leaf.model.storage)].add(part, leaf.name)
            if found is not None and found[1] != leaf.name:
                shard, other = found
                message = f"{quoted(shard)} is also a shard of the source `{other}`"
                yield Finding(text, message, "give each shard to one source")
                break
