"""W363: a cache has room for a pass."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import parts_of
from wdspec.urls.urls import scheme_of

LEAST_SHARD = 1_000_000
"""Bytes; shards are made of 100 MB to 1 GB."""


@rule(
    "W363",
    "a cache smaller than a pass",
    "A pass reads every shard once. A cache that cannot hold them all has thrown out each one before it is "
    "read again, so nothing is ever found in it. The size is in bytes, or in text such as `500GB`.",
    bad="cache: {dir: cache, size: 500}\ndataset:\n  - shards: 's3://b/a-{000..099}.tar'\n",
    good="cache: {dir: cache, size: 500GB}\ndataset:\n  - shards: 's3://b/a-{000..099}.tar'\n",
)
def small_caches(composed: Composed) -> Findings:
    """Caches of less than a megabyte for each remote shard of the spec."""
    cache = composed.spec.cache
    if cache is None or not cache.size:
        return
    remote = sum(
        1 if part.listed else len(part.braces)
        for _, _, parts in parts_of(composed)
        for part in parts
        if scheme_of(part.text) not in ("", "file", "pipe")
    )
    if cache.size < remote * LEAST_SHARD:
        message = f"{cache.size:,} bytes are {cache.size // remote:,} for each of {remote:,} shards"
        yield Finding(
            composed.top.entries["cache"].value.value_or_self("size"), message, "give it room for all of them"
        )
