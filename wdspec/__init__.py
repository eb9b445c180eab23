"""wdspec: describe WebDataset training data in one YAML file, and train from it anywhere.

    import wdspec

    with wdspec.loader("train.yaml", num_workers=4) as loader:
        for batch in loader:
            ...

Nothing heavy is imported until it is used: validating a spec needs neither torch nor numpy.
"""

from __future__ import annotations

from typing import Any

_NAMES = {
    "wdspec.compiler": "compile loader plan",
    "wdspec.errors": "FieldError MissingShardError ShardError SpecError StoreError UrlError UsageError WdspecError",
    "wdspec.fields.codecs.images.image_encoder": "ImageEncoder",
    "wdspec.fluent.datapipeline": "DataPipeline Processor RandomMix ResizedDataset RoundRobin ShardList WebLoader",
    "wdspec.fluent.decoder": "Decoder",
    "wdspec.fluent.error_handlers": "reraise_exception ignore_and_continue ignore_and_stop warn_and_continue "
    "warn_and_stop",
    "wdspec.fluent.field_handlers": "handle_extension imagehandler torch_audio torch_video",
    "wdspec.fluent.spec_pipeline": "SpecPipeline",
    "wdspec.fluent.stages.batching": "batched default_collation_fn listed unbatched unlisted",
    "wdspec.fluent.stages.dbcache": "DBCache",
    "wdspec.fluent.stages.decode_stage": "decode",
    "wdspec.fluent.stages.field_patterns": "extract_keys xdecode",
    "wdspec.fluent.stages.inspecting": "info log_keys non_empty slice",
    "wdspec.fluent.stages.mapping": "associate map map_dict map_tuple select",
    "wdspec.fluent.stages.record_shards": "cbors_to_samples jsonl_to_samples msgpacks_to_samples",
    "wdspec.fluent.stages.renaming": "rename rename_keys to_tuple",
    "wdspec.fluent.stages.shard_lists": "ResampledShards SimpleShardList",
    "wdspec.fluent.stages.shard_mix": "MultiShardSample",
    "wdspec.fluent.stages.shuffling": "detshuffle rsample shuffle",
    "wdspec.fluent.stages.splitting": "single_node_only split_by_node split_by_worker",
    "wdspec.fluent.stages.tar_shards": "group_by_keys tar_file_expander tarfile_to_samples url_opener",
    "wdspec.planning.plan": "Plan",
    "wdspec.reading.sample_rng": "sample_rng",
    "wdspec.running.gathering": "gather_state",
    "wdspec.running.loader": "Loader",
    "wdspec.running.run_state": "merge_states",
    "wdspec.spec.language.models": "Spec",
    "wdspec.spec.loading": "load",
    "wdspec.stores.user_stores": "opener store",
    "wdspec.webdataset": "WebDataset",
    "wdspec.writing.record_writer": "RecordWriter",
    "wdspec.writing.shard_writer": "ShardWriter",
    "wdspec.writing.tar_writer": "TarWriter",
}
"""Module → the public names that it is home to. `__init__.pyi` says the same to type checkers; a test compares them."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_HOMES, "handlers"])  # spelt out for type checkers in the stub


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    import importlib

    if name == "handlers":
        return importlib.import_module("wdspec.fluent.error_handlers")
    if name not in _HOMES:
        import difflib

        from wdspec.fluent.replacements import NAMES

        if name in NAMES:
            raise AttributeError(f"module 'wdspec' has no attribute {name!r}; use {NAMES[name]}")
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
