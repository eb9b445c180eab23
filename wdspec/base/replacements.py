"""What webdataset has and wdspec has not, with what takes its place: for the errors that name it."""

from __future__ import annotations

from typing import NoReturn

NAMES = {
    "Continue": "names that end in a packing, such as `json.gz`: they are unpacked by themselves",
    "LMDBCached": "wdspec.DBCache",
    "LRUCleanup": "WebDataset(…, cache_dir=…, cache_size=…)",
    "MultiLoader": "wdspec.WebLoader",
    "gopen_schemes": "`@wdspec.opener('scheme')`",
    "gzfilter": "nothing: names that end in a packing, such as `json.gz`, are unpacked by themselves",
    "numpy_dumps": "wdspec.TarWriter, which encodes `npy`",
    "pipe_cleaner": "WebDataset(…, cache_dir=…), which names copies by itself",
    "pytorch_weights_only": "nothing: `pth` is read with weights_only",
    "tenbin": "`npy` or `npz`: webdataset's own format is left out on purpose",
    "torch_dumps": "wdspec.TarWriter, which encodes `pth`",
    "torch_loads": "the extension `pth`, or `safetensors`",
    "with_epoch": "the method `.with_epoch(n)`",
    "with_length": "the method `.with_length(n)`",
}
"""Names of the module `webdataset` that are not here → what to use instead."""


def missing_name(module: str, name: str) -> NoReturn:
    """Raises AttributeError where code asks one of webdataset's inner modules for a name that is not there."""
    hint = NAMES.get(name) or INNER.get(name)
    said = (
        f"use {hint}"
        if hint
        else "webdataset's internals are not here; docs/python.md says what there is instead"
    )
    raise AttributeError(f"module 'wdspec.{module}' has no attribute {name!r}; {said}")


INNER = {
    "FileCache": "WebDataset(…, cache_dir=…, cache_size=…)",
    "StreamingOpen": "wdspec.url_opener",
    "cached_tarfile_to_samples": "WebDataset(…, cache_dir=…)",
    "cached_url_opener": "WebDataset(…, cache_dir=…)",
    "decoders": "wdspec.Decoder; docs/decoders.md has the table",
    "default_decoder": "wdspec.Decoder()",
    "encode_based_on_extension": "wdspec.TarWriter, which encodes by extension",
    "enforce_security": "the environment variable WDS_SECURE=1",
    "get_filetype": "nothing: shards are known by their first bytes",
    "gopen_pipe": "wdspec.gopen.gopen('pipe:…')",
    "imagespecs": "`wdspec.Decoder('rgb8')`; docs/decoders.md has the names",
    "make_encoder": "wdspec.TarWriter(…, encoder=…)",
    "tar_file_iterator": "wdspec.tar_file_expander",
    "unpickle_loads": "the extension `pkl` with allow=('pickle',)",
    "url_to_cache_name": "WebDataset(…, cache_dir=…), which names copies by itself",
    "url_to_name": "WebDataset(…, cache_dir=…), which names copies by itself",
}
"""Names of its inner modules that are not here → what to use instead."""

METHODS = {
    "invoke": "iter(pipeline)",
    "iterator": "iter(pipeline)",
    "lmdb_cached": ".compose(wdspec.DBCache, path, size)",
    "mcached": ".compose(wdspec.DBCache, path, size)",
}
"""Methods of webdataset's pipelines that are not here → what to use instead."""
