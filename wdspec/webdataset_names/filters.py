"""The stages of webdataset, and the functions behind them."""

from __future__ import annotations

from typing import Any

from wdspec.fluent.error_handlers import reraise_exception as reraise_exception
from wdspec.fluent.foreign.pipeline_stages import PipelineStage as PipelineStage
from wdspec.fluent.foreign.pipeline_stages import pipelinefilter as pipelinefilter
from wdspec.fluent.foreign.plain_functions import dict2tuple as dict2tuple
from wdspec.fluent.foreign.plain_functions import getfirst as getfirst
from wdspec.fluent.foreign.plain_functions import pick as pick
from wdspec.fluent.foreign.plain_functions import plain
from wdspec.fluent.foreign.plain_functions import transform_with as transform_with
from wdspec.fluent.foreign.plain_functions import tuple2dict as tuple2dict
from wdspec.fluent.foreign.small_datasets import Cached as Cached
from wdspec.fluent.foreign.worker_seeds import identity as identity
from wdspec.fluent.replacements import hint_for
from wdspec.fluent.stage import StageMaker
from wdspec.fluent.stages.batching import batched as batched
from wdspec.fluent.stages.batching import default_collation_fn as default_collation_fn
from wdspec.fluent.stages.batching import listed as listed
from wdspec.fluent.stages.batching import unbatched as unbatched
from wdspec.fluent.stages.batching import unlisted as unlisted
from wdspec.fluent.stages.decode_stage import decode as decode
from wdspec.fluent.stages.field_patterns import extract_keys as extract_keys
from wdspec.fluent.stages.field_patterns import xdecode as xdecode
from wdspec.fluent.stages.inspecting import info as info
from wdspec.fluent.stages.inspecting import log_keys as log_keys
from wdspec.fluent.stages.inspecting import slice as slice
from wdspec.fluent.stages.mapping import associate as associate
from wdspec.fluent.stages.mapping import map as map
from wdspec.fluent.stages.mapping import map_dict as map_dict
from wdspec.fluent.stages.mapping import map_tuple as map_tuple
from wdspec.fluent.stages.mapping import select as select
from wdspec.fluent.stages.renaming import rename as rename
from wdspec.fluent.stages.renaming import rename_keys as rename_keys
from wdspec.fluent.stages.renaming import to_tuple as to_tuple
from wdspec.fluent.stages.shuffling import detshuffle as detshuffle
from wdspec.fluent.stages.shuffling import rsample as rsample
from wdspec.fluent.stages.shuffling import shuffle as shuffle


def __getattr__(name: str) -> Any:
    maker = globals().get(name.removeprefix("_")) if name.startswith("_") else None
    if isinstance(maker, StageMaker):
        return plain(maker)
    raise AttributeError(hint_for("filters", name))
