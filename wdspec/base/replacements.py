"""Names of webdataset that wdspec does not have, and their replacements, for error messages."""

from __future__ import annotations

from typing import NoReturn

NAMES = {
    "Continue": "names that end in a packing, such as `json.gz`, which are decompressed automatically",
    "LMDBCached": "wdspec.DBCache",
    "LRUCleanup": "WebDataset(…, cache_dir=…, cache_size=…)",
    "MultiLoader": "wdspec.WebLoader",
    "gopen_schemes": "`@wdspec.opener('scheme')`",
    "gzfilter": "nothing: fields with a packing in their name, such as `json.gz`, are decompressed automatically",
    "numpy_dumps": "wdspec.TarWriter, which encodes `npy`",
    "pipe_cleaner": "WebDataset(…, cache_dir=…), which names copies automatically",
    "pytorch_weights_only": "nothing: `pth` is read with weights_only",
    "tenbin": "`npy` or `npz`: webdataset's own format is not supported on purpose",
    "torch_dumps": "wdspec.TarWriter, which encodes `pth`",
    "torch_loads": "the extension `pth`, or `safetensors`",
    "with_epoch": "the method `.with_epoch(n)`",
    "with_length": "the method `.with_length(n)`",
}
"""Names of the module `webdataset` → what to use instead."""


def missing_name(module: str, name: str) -> NoReturn:
    """Raise AttributeError for a name of one of webdataset's inner modules, with its replacement."""
    hint = NAMES.get(name) or INNER.get(name)
    remedy = (
        f"use {hint}" if hint else "webdataset's internals are missing here; docs/python.md lists what to use"
    )
    raise AttributeError(f"module 'wdspec.{module}' has no attribute {name!r}; {remedy}")


INNER = {
    "FileCache": "WebDataset(…, cache_dir=…, cache_size=…)",
    "StreamingOpen": "wdspec.url_opener",
    "cached_tarfile_to_samples": "WebDataset(…, cache_dir=…)",
    "cached_url_opener": "WebDataset(…, cache_dir=…)",
    "decoders": "wdspec.Decoder; docs/decoders.md has the table",
    "default_decoder": "wdspec.Decoder()",
    "encode_based_on_extension": "wdspec.TarWriter, which encodes by extension",
    "enforce_security": "the environment variable WDS_SECURE=1",
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
    "invoke": "iter(pipeline)",
    "iterator": "iter(pipeline)",
    "lmdb_cached": ".compose(wdspec.DBCache, path, size)",
    "mcached": ".compose(wdspec.DBCache, path, size)",
}
"""Methods of webdataset's pipelines → what to use instead."""
