"""Pipelines in Python, made of stages, with the names and methods of webdataset.

In: URLs of shards, or anything iterable, and user functions. Out: `DataPipeline`, an `IterableDataset` of samples or
batches. Specs enter in one place: `spec_pipeline` is a pipeline that reads the plan of a spec.

Modules that webdataset also has keep its names: `wdspec.filters` is `wdspec/webdataset/filters.py`. Read `stage` first,
then `pipeline`. The stages are in `mapping`, `batching`, `shuffling`, `decoding` and `sample_cache`, and `filters`
lists them all; `shardlists`, `splitting` and `tariterators` turn URLs into samples. A stage keeps no state between
passes. Its random numbers are keyed by its seed, its index in the pipeline and the number of the pass (`PassContext`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wdspec.webdataset.compat import WebDataset as WebDataset


def __getattr__(name: str) -> Any:
    """Import `WebDataset` on first use, as some other modules here work without torch."""
    if name != "WebDataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from wdspec.webdataset.compat import WebDataset

    return WebDataset
