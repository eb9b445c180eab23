"""Names of webdataset that wdspec does not have, and their replacements, for error messages.

Also the modules that webdataset has, too: setting their attributes has the effect that it has there, or is refused.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from wdspec.base.user_code import enforce_security, secure_mode

NAMES = {
    "ChoppedDataset": "the method `.with_epoch(n)`",
    "Continue": "names that end in a packing, such as `json.gz`, which are decompressed automatically",
    "DirectoryShardList": "wdspec.shardlists.DirectoryShardList",
    "FluidInterface": "wdspec.compat.FluidInterface",
    "FluidWrapper": "wdspec.compat.FluidWrapper",
    "IndexedTarSamples": "`wdspec ls` for what is in a tar; samples are read in order, not by their index",
    "LMDBCached": "wdspec.DBCache",
    "LRUCleanup": "WebDataset(…, cache_dir=…, cache_size=…)",
    "MockDataset": "wdspec.compat.MockDataset",
    "MultiLoader": "wdspec.WebLoader",
    "getfirst": "`rename`, which takes the first of `jpg;png` that a sample has",
    "gopen_schemes": "`@wdspec.opener('scheme')`",
    "gzfilter": "nothing: fields with a packing in their name, such as `json.gz`, are decompressed automatically",
    "imagehandler": "wdspec.autodecode.imagehandler",
    "jsonl_to_samples": "wdspec.tariterators.jsonl_to_samples",
    "msgpacks_to_samples": "wdspec.tariterators.msgpacks_to_samples",
    "numpy_dumps": "wdspec.TarWriter, which encodes `npy`",
    "pipe_cleaner": "WebDataset(…, cache_dir=…), which names copies automatically",
    "pytorch_weights_only": "nothing: `pth` is read with weights_only",
    "shardspec": "wdspec.shardlists.shardspec",
    "tarfile_samples": "wdspec.tariterators.tarfile_samples",
    "tenbin": "`npy` or `npz`: webdataset's own format is not supported on purpose",
    "torch_dumps": "wdspec.TarWriter, which encodes `pth`",
    "torch_loads": "the extension `pth`, or `safetensors`",
    "transform_with": "wdspec.map_tuple",
    "wids": "`wdspec convert`, which turns an index of wids into a spec; samples are read in order, not by their index",
    "with_epoch": "the method `.with_epoch(n)`",
    "with_length": "the method `.with_length(n)`",
}
"""Names of the module `webdataset`, and two of other readers in its modules → what to use instead."""


def missing_name(module: str, name: str) -> Any:
    """Raise AttributeError for a name of one of webdataset's inner modules, with its replacement.

    `enforce_security`, which is here a variable of the environment, is returned.
    """
    if name == "enforce_security":
        return secure_mode()
    hint = NAMES.get(name) or INNER.get(name)
    remedy = (
        f"use {hint}" if hint else "webdataset's internals are missing here; docs/python.md lists what to use"
    )
    raise AttributeError(f"module 'wdspec.{module}' has no attribute {name!r}; {remedy}")


class WebdatasetModule(ModuleType):
    """A module that webdataset has, too. Programs set attributes of its modules, which are not settings here."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set `enforce_security`; for any other public name, raise AttributeError, as it would have no effect."""
        if name == "enforce_security":
            enforce_security(bool(value))
        elif (name.startswith("_") and not hasattr(self, name.lstrip("_"))) or isinstance(value, ModuleType):
            super().__setattr__(name, value)
        else:
            hint = (
                SETTINGS.get(name) or NAMES.get(name) or INNER.get(name) or "an argument or a stage instead"
            )
            raise AttributeError(f"setting {self.__name__}.{name} would have no effect; use {hint}")


SETTINGS = {
    "base_plus_ext": "group_by_keys(keys=function), or `rename_files=` to change the names of members",
    "default_cache_dir": "WebDataset(…, cache_dir=…), or the environment variable WDS_CACHE",
    "default_cache_size": "WebDataset(…, cache_size=…), or the environment variable WDS_CACHE_SIZE",
    "default_collation_fn": "batched(n, collation_fn=…)",
    "default_rng": "the argument `seed` of the dataset",
    "gopen": "`@wdspec.opener('scheme')`",
    "group_by_keys": "WebDataset(…, rename_files=…), or your function as a stage after tar_file_expander",
    "meta_prefix": "select_files= or rename_files= of WebDataset to choose members",
    "meta_suffix": "select_files= or rename_files= of WebDataset to choose members",
    "trace": "WebDataset(…, verbose=True)",
    "url_opener": "`@wdspec.opener('scheme')`",
    "verbose_cache": "the log of `wdspec`",
}
"""Names that programs set in modules of webdataset → what to use instead."""


INNER = {
    "FileCache": "WebDataset(…, cache_dir=…, cache_size=…)",
    "StreamingOpen": "wdspec.url_opener",
    "cached_tarfile_to_samples": "WebDataset(…, cache_dir=…)",
    "cached_url_opener": "WebDataset(…, cache_dir=…)",
    "decoders": "wdspec.Decoder; docs/decoders.md has the table",
    "default_decoder": "wdspec.Decoder()",
    "encode_based_on_extension": "wdspec.TarWriter, which encodes by extension",
    "get_filetype": "nothing: shards are recognized by their first bytes",
    "gopen_pipe": "wdspec.gopen.gopen('pipe:…')",
    "imagespecs": "`wdspec.Decoder('rgb8')`; docs/decoders.md has the names",
    "make_encoder": "wdspec.TarWriter(…, encoder=…)",
    "tar_file_iterator": "wdspec.tar_file_expander",
    "unpickle_loads": "the extension `pkl` with allow=('pickle',)",
    "url_to_cache_name": "WebDataset(…, cache_dir=…), which names copies automatically",
    "url_to_name": "WebDataset(…, cache_dir=…), which names copies automatically",
}
"""Names of its inner modules → what to use instead."""

METHODS = {
    "ddp_equalize": ".with_epoch(n, over='job'), with a multiple of the number of ranks, or a spec",
    "invoke": "iter(pipeline)",
    "iterator": "iter(pipeline)",
    "lmdb_cached": ".compose(wdspec.DBCache, path, size)",
    "mcached": ".compose(wdspec.DBCache, path, size)",
    "set_length": ".with_length(n)",
    "then": ".compose(function)",
}
"""Methods of webdataset's pipelines → what to use instead."""

ARGUMENTS = {
    "cache_name": "url_to_name=",
    "initial_pipeline": "DataPipeline(…)",
    "prepare_for_worker": "nothing: workers are known while reading",
    "rng": "seed=",
    "shuffle": "shardshuffle=",
    "splitter": "nodesplitter= or workersplitter=",
    "tarhandler": "handler=",
}
"""Arguments that `WebDataset` once had → what to use instead."""
