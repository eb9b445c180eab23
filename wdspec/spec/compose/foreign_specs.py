"""Specs of other tools, recognised by their keys."""

from __future__ import annotations

from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import ListNode, MapNode

_OURS = ("dataset", "splits", "extends", "defaults", "wdspec")
_WEBDATASET = ("choose", "resample", "perepoch", "buckets")
_OLDER = (
    "resampled",
    "subsample",
    "epoch_shuffle",
    "chunksize",
    "nworkers",
    "split_by_worker",
    "split_by_node",
)


def foreign(top: MapNode, problems: Problems) -> bool:
    """Whether the file is a spec of another tool; if so that is noted, and nothing else need be checked."""
    found = _recognised(top)
    if found is None:
        return False
    key, dialect = found
    hint = "write it anew: a list of sources under `dataset:`, each with its `shards:`"
    problems.add("E402", top.key(key), f"this looks like {dialect}, which wdspec does not read yet", hint)
    return True


def _recognised(top: MapNode) -> tuple[str, str] | None:
    for key in ("__module__", "__class__"):
        if key in top.entries:
            return key, "an Energon metadataset"
    if any(key in top.entries for key in _OURS):
        return None
    if "datasets" not in top.entries and "buckets" not in top.entries:
        return None
    listed = top.get("datasets")
    keys = {
        k
        for item in (listed.items if isinstance(listed, ListNode) else ())
        if isinstance(item, MapNode)
        for k in item.entries
    }
    key = "datasets" if "datasets" in top.entries else "buckets"
    if keys.intersection(_OLDER):
        return key, "an older `.ds.yml` of webdataset"
    if keys.intersection(_WEBDATASET) or "prefix" in top.entries or "buckets" in top.entries:
        return key, "webdataset's dialect of `prefix`, `buckets` and `datasets`"
    return None
