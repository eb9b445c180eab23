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
    from wdspec.errors import (
        FieldError,
        MissingShardError,
        ShardError,
        SpecError,
        StoreError,
        UrlError,
        UsageError,
        WdspecError,
    )
    from wdspec.fields.decoder_handlers import handle_extension, imagehandler, torch_audio, torch_video
    from wdspec.fluent import handlers
    from wdspec.fluent.datapipeline import (
        DataPipeline,
        Processor,
        RandomMix,
        ResizedDataset,
        RoundRobin,
        ShardList,
        WebLoader,
    )
    from wdspec.fluent.decoder import Decoder
    from wdspec.fluent.handlers import (
        ignore_and_continue,
        ignore_and_stop,
        reraise_exception,
        warn_and_continue,
        warn_and_stop,
    )
    from wdspec.fluent.spec_pipeline import SpecPipeline
    from wdspec.fluent.stages.batching import batched, default_collation_fn, listed, unbatched, unlisted
    from wdspec.fluent.stages.dbcache import DBCache
    from wdspec.fluent.stages.decode_stage import decode
    from wdspec.fluent.stages.field_patterns import extract_keys, xdecode
    from wdspec.fluent.stages.inspecting import info, log_keys, non_empty, slice
    from wdspec.fluent.stages.mapping import associate, map, map_dict, map_tuple, select
    from wdspec.fluent.stages.record_shards import cbors_to_samples, jsonl_to_samples, msgpacks_to_samples
    from wdspec.fluent.stages.renaming import rename, rename_keys, to_tuple
    from wdspec.fluent.stages.shard_lists import ResampledShards, SimpleShardList
    from wdspec.fluent.stages.shard_mix import MultiShardSample
    from wdspec.fluent.stages.shuffling import detshuffle, rsample, shuffle
    from wdspec.fluent.stages.splitting import single_node_only, split_by_node, split_by_worker
    from wdspec.fluent.stages.tar_shards import (
        group_by_keys,
        tar_file_expander,
        tarfile_to_samples,
        url_opener,
    )
    from wdspec.planning.plan import Plan
    from wdspec.reading.sample_rng import sample_rng
    from wdspec.running.gathering import gather_state
    from wdspec.running.loader import Loader
    from wdspec.running.run_state import merge_states
    from wdspec.spec.language.models import Spec
    from wdspec.spec.loading import load
    from wdspec.stores.user_stores import opener, store
    from wdspec.webdataset import WebDataset
    from wdspec.writing.record_writer import RecordWriter
    from wdspec.writing.shard_writer import ShardWriter
    from wdspec.writing.tar_writer import TarWriter

_HOMES = {
    "compile": "wdspec.compiler",
    "loader": "wdspec.compiler",
    "plan": "wdspec.compiler",
    "handle_extension": "wdspec.fields.decoder_handlers",
    "imagehandler": "wdspec.fields.decoder_handlers",
    "torch_audio": "wdspec.fields.decoder_handlers",
    "torch_video": "wdspec.fields.decoder_handlers",
    "load": "wdspec.spec.loading",
    "merge_states": "wdspec.running.run_state",
    "DataPipeline": "wdspec.fluent.datapipeline",
    "Decoder": "wdspec.fluent.decoder",
    "Processor": "wdspec.fluent.datapipeline",
    "RandomMix": "wdspec.fluent.datapipeline",
    "ResizedDataset": "wdspec.fluent.datapipeline",
    "RoundRobin": "wdspec.fluent.datapipeline",
    "ShardList": "wdspec.fluent.datapipeline",
    "WebLoader": "wdspec.fluent.datapipeline",
    "SpecPipeline": "wdspec.fluent.spec_pipeline",
    "gather_state": "wdspec.running.gathering",
    "ignore_and_continue": "wdspec.fluent.handlers",
    "ignore_and_stop": "wdspec.fluent.handlers",
    "reraise_exception": "wdspec.fluent.handlers",
    "warn_and_continue": "wdspec.fluent.handlers",
    "warn_and_stop": "wdspec.fluent.handlers",
    "Loader": "wdspec.running.loader",
    "sample_rng": "wdspec.reading.sample_rng",
    "batched": "wdspec.fluent.stages.batching",
    "default_collation_fn": "wdspec.fluent.stages.batching",
    "listed": "wdspec.fluent.stages.batching",
    "unbatched": "wdspec.fluent.stages.batching",
    "unlisted": "wdspec.fluent.stages.batching",
    "decode": "wdspec.fluent.stages.decode_stage",
    "associate": "wdspec.fluent.stages.mapping",
    "map": "wdspec.fluent.stages.mapping",
    "map_dict": "wdspec.fluent.stages.mapping",
    "map_tuple": "wdspec.fluent.stages.mapping",
    "select": "wdspec.fluent.stages.mapping",
    "rename": "wdspec.fluent.stages.renaming",
    "rename_keys": "wdspec.fluent.stages.renaming",
    "to_tuple": "wdspec.fluent.stages.renaming",
    "MultiShardSample": "wdspec.fluent.stages.shard_mix",
    "extract_keys": "wdspec.fluent.stages.field_patterns",
    "xdecode": "wdspec.fluent.stages.field_patterns",
    "DBCache": "wdspec.fluent.stages.dbcache",
    "cbors_to_samples": "wdspec.fluent.stages.record_shards",
    "jsonl_to_samples": "wdspec.fluent.stages.record_shards",
    "msgpacks_to_samples": "wdspec.fluent.stages.record_shards",
    "ResampledShards": "wdspec.fluent.stages.shard_lists",
    "SimpleShardList": "wdspec.fluent.stages.shard_lists",
    "detshuffle": "wdspec.fluent.stages.shuffling",
    "rsample": "wdspec.fluent.stages.shuffling",
    "shuffle": "wdspec.fluent.stages.shuffling",
    "single_node_only": "wdspec.fluent.stages.splitting",
    "split_by_node": "wdspec.fluent.stages.splitting",
    "split_by_worker": "wdspec.fluent.stages.splitting",
    "group_by_keys": "wdspec.fluent.stages.tar_shards",
    "tar_file_expander": "wdspec.fluent.stages.tar_shards",
    "tarfile_to_samples": "wdspec.fluent.stages.tar_shards",
    "url_opener": "wdspec.fluent.stages.tar_shards",
    "info": "wdspec.fluent.stages.inspecting",
    "log_keys": "wdspec.fluent.stages.inspecting",
    "non_empty": "wdspec.fluent.stages.inspecting",
    "slice": "wdspec.fluent.stages.inspecting",
    "Plan": "wdspec.planning.plan",
    "FieldError": "wdspec.errors",
    "MissingShardError": "wdspec.errors",
    "ShardError": "wdspec.errors",
    "SpecError": "wdspec.errors",
    "StoreError": "wdspec.errors",
    "UrlError": "wdspec.errors",
    "UsageError": "wdspec.errors",
    "WdspecError": "wdspec.errors",
    "Spec": "wdspec.spec.language.models",
    "opener": "wdspec.stores.user_stores",
    "store": "wdspec.stores.user_stores",
    "WebDataset": "wdspec.webdataset",
    "RecordWriter": "wdspec.writing.record_writer",
    "ShardWriter": "wdspec.writing.shard_writer",
    "TarWriter": "wdspec.writing.tar_writer",
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
    "store",
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
        return importlib.import_module("wdspec.fluent.handlers")
    if name not in _HOMES:
        import difflib

        from wdspec.fluent.replacements import INSTEAD

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
