"""wdspec: describe WebDataset training data in one YAML file, and train from it anywhere.

    import wdspec

    with wdspec.loader("train.yaml", num_workers=4) as loader:
        for batch in loader:
            ...

Nothing heavy is imported until it is used: validating a spec needs neither torch nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wdspec.compiler import compile, loader, plan
    from wdspec.fields.handlers import handle_extension, imagehandler, torch_audio, torch_video
    from wdspec.loading import load
    from wdspec.pipeline import handlers
    from wdspec.pipeline.checkpoint import merge_states
    from wdspec.pipeline.datapipeline import (
        DataPipeline,
        Processor,
        RandomMix,
        ResizedDataset,
        RoundRobin,
        ShardList,
        WebLoader,
    )
    from wdspec.pipeline.dataset import SpecPipeline
    from wdspec.pipeline.decoder import Decoder
    from wdspec.pipeline.gathering import gather_state
    from wdspec.pipeline.handlers import (
        ignore_and_continue,
        ignore_and_stop,
        reraise_exception,
        warn_and_continue,
        warn_and_stop,
    )
    from wdspec.pipeline.loader import Loader
    from wdspec.pipeline.randomness import sample_rng
    from wdspec.pipeline.stages.batching import batched, default_collation_fn, listed, unbatched, unlisted
    from wdspec.pipeline.stages.chosen import MultiShardSample
    from wdspec.pipeline.stages.dbcache import DBCache
    from wdspec.pipeline.stages.decoding import decode
    from wdspec.pipeline.stages.mapping import associate, map, map_dict, map_tuple, select
    from wdspec.pipeline.stages.naming import rename, rename_keys, to_tuple
    from wdspec.pipeline.stages.patterns import extract_keys, xdecode
    from wdspec.pipeline.stages.records import cbors_to_samples, jsonl_to_samples, msgpacks_to_samples
    from wdspec.pipeline.stages.shardlists import ResampledShards, SimpleShardList
    from wdspec.pipeline.stages.shuffling import detshuffle, rsample, shuffle
    from wdspec.pipeline.stages.splitting import single_node_only, split_by_node, split_by_worker
    from wdspec.pipeline.stages.tars import group_by_keys, tar_file_expander, tarfile_to_samples, url_opener
    from wdspec.pipeline.stages.watching import info, log_keys, non_empty, slice
    from wdspec.planning.plan import Plan
    from wdspec.spec.errors import (
        FieldError,
        MissingShardError,
        ShardError,
        SpecError,
        StoreError,
        UrlError,
        UsageError,
        WdspecError,
    )
    from wdspec.spec.models import Spec
    from wdspec.storage.registry import opener
    from wdspec.webdataset import WebDataset
    from wdspec.writing.records import RecordWriter
    from wdspec.writing.sharding import ShardWriter
    from wdspec.writing.tar import TarWriter

_HOMES = {
    "compile": "wdspec.compiler",
    "loader": "wdspec.compiler",
    "plan": "wdspec.compiler",
    "handle_extension": "wdspec.fields.handlers",
    "imagehandler": "wdspec.fields.handlers",
    "torch_audio": "wdspec.fields.handlers",
    "torch_video": "wdspec.fields.handlers",
    "load": "wdspec.loading",
    "merge_states": "wdspec.pipeline.checkpoint",
    "DataPipeline": "wdspec.pipeline.datapipeline",
    "Decoder": "wdspec.pipeline.decoder",
    "Processor": "wdspec.pipeline.datapipeline",
    "RandomMix": "wdspec.pipeline.datapipeline",
    "ResizedDataset": "wdspec.pipeline.datapipeline",
    "RoundRobin": "wdspec.pipeline.datapipeline",
    "ShardList": "wdspec.pipeline.datapipeline",
    "WebLoader": "wdspec.pipeline.datapipeline",
    "SpecPipeline": "wdspec.pipeline.dataset",
    "gather_state": "wdspec.pipeline.gathering",
    "ignore_and_continue": "wdspec.pipeline.handlers",
    "ignore_and_stop": "wdspec.pipeline.handlers",
    "reraise_exception": "wdspec.pipeline.handlers",
    "warn_and_continue": "wdspec.pipeline.handlers",
    "warn_and_stop": "wdspec.pipeline.handlers",
    "Loader": "wdspec.pipeline.loader",
    "sample_rng": "wdspec.pipeline.randomness",
    "batched": "wdspec.pipeline.stages.batching",
    "default_collation_fn": "wdspec.pipeline.stages.batching",
    "listed": "wdspec.pipeline.stages.batching",
    "unbatched": "wdspec.pipeline.stages.batching",
    "unlisted": "wdspec.pipeline.stages.batching",
    "decode": "wdspec.pipeline.stages.decoding",
    "associate": "wdspec.pipeline.stages.mapping",
    "map": "wdspec.pipeline.stages.mapping",
    "map_dict": "wdspec.pipeline.stages.mapping",
    "map_tuple": "wdspec.pipeline.stages.mapping",
    "select": "wdspec.pipeline.stages.mapping",
    "rename": "wdspec.pipeline.stages.naming",
    "rename_keys": "wdspec.pipeline.stages.naming",
    "to_tuple": "wdspec.pipeline.stages.naming",
    "MultiShardSample": "wdspec.pipeline.stages.chosen",
    "extract_keys": "wdspec.pipeline.stages.patterns",
    "xdecode": "wdspec.pipeline.stages.patterns",
    "DBCache": "wdspec.pipeline.stages.dbcache",
    "cbors_to_samples": "wdspec.pipeline.stages.records",
    "jsonl_to_samples": "wdspec.pipeline.stages.records",
    "msgpacks_to_samples": "wdspec.pipeline.stages.records",
    "ResampledShards": "wdspec.pipeline.stages.shardlists",
    "SimpleShardList": "wdspec.pipeline.stages.shardlists",
    "detshuffle": "wdspec.pipeline.stages.shuffling",
    "rsample": "wdspec.pipeline.stages.shuffling",
    "shuffle": "wdspec.pipeline.stages.shuffling",
    "single_node_only": "wdspec.pipeline.stages.splitting",
    "split_by_node": "wdspec.pipeline.stages.splitting",
    "split_by_worker": "wdspec.pipeline.stages.splitting",
    "group_by_keys": "wdspec.pipeline.stages.tars",
    "tar_file_expander": "wdspec.pipeline.stages.tars",
    "tarfile_to_samples": "wdspec.pipeline.stages.tars",
    "url_opener": "wdspec.pipeline.stages.tars",
    "info": "wdspec.pipeline.stages.watching",
    "log_keys": "wdspec.pipeline.stages.watching",
    "non_empty": "wdspec.pipeline.stages.watching",
    "slice": "wdspec.pipeline.stages.watching",
    "Plan": "wdspec.planning.plan",
    "FieldError": "wdspec.spec.errors",
    "MissingShardError": "wdspec.spec.errors",
    "ShardError": "wdspec.spec.errors",
    "SpecError": "wdspec.spec.errors",
    "StoreError": "wdspec.spec.errors",
    "UrlError": "wdspec.spec.errors",
    "UsageError": "wdspec.spec.errors",
    "WdspecError": "wdspec.spec.errors",
    "Spec": "wdspec.spec.models",
    "opener": "wdspec.storage.registry",
    "WebDataset": "wdspec.webdataset",
    "RecordWriter": "wdspec.writing.records",
    "ShardWriter": "wdspec.writing.sharding",
    "TarWriter": "wdspec.writing.tar",
}

__all__ = [
    "DBCache",
    "DataPipeline",
    "Decoder",
    "FieldError",
    "Loader",
    "MissingShardError",
    "MultiShardSample",
    "Plan",
    "Processor",
    "RandomMix",
    "RecordWriter",
    "ResampledShards",
    "ResizedDataset",
    "RoundRobin",
    "ShardError",
    "ShardList",
    "ShardWriter",
    "SimpleShardList",
    "Spec",
    "SpecError",
    "SpecPipeline",
    "StoreError",
    "TarWriter",
    "UrlError",
    "UsageError",
    "WdspecError",
    "WebDataset",
    "WebLoader",
    "associate",
    "batched",
    "cbors_to_samples",
    "compile",
    "decode",
    "default_collation_fn",
    "detshuffle",
    "extract_keys",
    "gather_state",
    "group_by_keys",
    "handle_extension",
    "handlers",
    "ignore_and_continue",
    "ignore_and_stop",
    "imagehandler",
    "info",
    "jsonl_to_samples",
    "listed",
    "load",
    "loader",
    "log_keys",
    "map",
    "map_dict",
    "map_tuple",
    "merge_states",
    "msgpacks_to_samples",
    "non_empty",
    "opener",
    "plan",
    "rename",
    "rename_keys",
    "reraise_exception",
    "rsample",
    "sample_rng",
    "select",
    "shuffle",
    "single_node_only",
    "slice",
    "split_by_node",
    "split_by_worker",
    "tar_file_expander",
    "tarfile_to_samples",
    "to_tuple",
    "torch_audio",
    "torch_video",
    "unbatched",
    "unlisted",
    "url_opener",
    "warn_and_continue",
    "warn_and_stop",
    "xdecode",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    import importlib

    if name == "handlers":
        return importlib.import_module("wdspec.pipeline.handlers")
    if name not in _HOMES:
        import difflib

        from wdspec.foreign import INSTEAD

        if name in INSTEAD:
            raise AttributeError(f"module 'wdspec' has no attribute {name!r}; use {INSTEAD[name]}")
        close = difflib.get_close_matches(name, __all__, 1)
        hint = f"; did you mean {close[0]!r}?" if close and not name.startswith("_") else ""
        raise AttributeError(f"module 'wdspec' has no attribute {name!r}{hint}")
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "torch":
            importlib.import_module("wdspec.compiler").require_torch(f"wdspec.{name}")
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
