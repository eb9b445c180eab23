"""Lists of shards, and who reads which."""

from __future__ import annotations

from typing import Any

from wdspec.fluent.foreign.directory_shards import DirectoryShardList as DirectoryShardList
from wdspec.fluent.foreign.expanded_urls import expand_source as expand_source
from wdspec.fluent.foreign.expanded_urls import expand_urls as expand_urls
from wdspec.fluent.foreign.expanded_urls import shardspec as shardspec
from wdspec.fluent.foreign.pipeline_stages import pipelinefilter as pipelinefilter
from wdspec.fluent.foreign.small_datasets import resampled as resampled
from wdspec.fluent.replacements import hint_for
from wdspec.fluent.stages.inspecting import non_empty as non_empty
from wdspec.fluent.stages.shard_lists import ResampledShards as ResampledShards
from wdspec.fluent.stages.shard_lists import SimpleShardList as SimpleShardList
from wdspec.fluent.stages.shard_mix import MultiShardSample as MultiShardSample
from wdspec.fluent.stages.splitting import single_node_only as single_node_only
from wdspec.fluent.stages.splitting import split_by_node as split_by_node
from wdspec.fluent.stages.splitting import split_by_worker as split_by_worker

ResampledShardList = ResampledShards


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("shardlists", name))
