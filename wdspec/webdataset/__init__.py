"""All that users of webdataset know: pipelines in Python, made of stages, with the names and methods of webdataset.

In: URLs of shards, or anything that can be iterated; functions of the user's. Out: `DataPipeline`, an `IterableDataset`
of samples or batches. A spec enters at one place, `spec_pipeline`, which is a pipeline that reads a spec's plan.

Modules that webdataset has as well have its names here: `wdspec.filters` is `wdspec/webdataset/filters.py`. Read
`stage` first, which says what a stage is, then `pipeline`. Stages are in `mapping`, `batching`, `shuffling`,
`decoding` and `sample_cache`, and `filters` has them all; `shardlists`, `splitting` and `tariterators` go from URLs to
samples. A stage keeps no state from one pass to the next; what it draws at random is keyed by its seed, its index in
the pipeline and the number of the pass (`PassContext`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wdspec.webdataset.compat import WebDataset as WebDataset


def __getattr__(name: str) -> Any:
    """`WebDataset`, imported on first use: other modules here need no torch."""
    if name != "WebDataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from wdspec.webdataset.compat import WebDataset

    return WebDataset
