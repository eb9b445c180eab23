"""A lock in place of an earlier report: shards that are as it says are not looked at."""

from __future__ import annotations

from wdspec.checking.shards.shard_facts import ShardFacts
from wdspec.checking.shards.shard_look import ShardLook
from wdspec.shards.lock import Lock
from wdspec.stores.store import ObjectStat


class LockedShards:
    """What is known of the shards in a lock: that they were there, and nothing of what is in them.

    Args:
        lock: of the spec that is checked, perhaps as it was; shards and sources that it has not are looked at.
    """

    def __init__(self, lock: Lock) -> None:
        self._objects: dict[tuple[str, str], ObjectStat] = {
            (name, shard.text): found
            for name, source in lock.sources.items()
            for shard, found in zip(source.shards(""), source.objects, strict=True)
        }

    def known(self, look: ShardLook, reading: str) -> tuple[int | None, str] | None:
        """As `ReportFile.known`: the size and validator of a shard when it was locked."""
        found = None if look.is_other else self._objects.get((look.source, look.shard.text))
        return None if found is None or found.validator is None else (found.size, found.validator)

    def facts(self, look: ShardLook) -> ShardFacts:
        """Of one that is as it was: nothing."""
        facts = ShardFacts()
        facts.is_unchanged = True
        return facts
