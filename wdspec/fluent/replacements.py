"""What webdataset has and wdspec has not, with what takes its place: for the errors that name it."""

from __future__ import annotations

NAMES = {
    "Cached": "wdspec.DBCache",
    "Continue": "names that end in a packing, such as `json.gz`: they are unpacked by themselves",
    "DecodingError": "wdspec.FieldError",
    "DirectoryShardList": "a directory as a URL: wdspec.WebDataset('directory/')",
    "FluidInterface": "wdspec.DataPipeline, which has the methods",
    "FluidWrapper": "wdspec.DataPipeline, which has the methods",
    "LMDBCached": "wdspec.DBCache",
    "LRUCleanup": "WebDataset(…, cache_dir=…, cache_size=…)",
    "MockDataset": "wdspec.DataPipeline([sample] * length)",
    "MultiLoader": "wdspec.WebLoader",
    "PipelineStage": "any function from iterator to iterator, or a class with `__call__`",
    "expand_urls": "list(wdspec.SimpleShardList(urls).urls)",
    "getfirst": "wdspec.to_tuple('a;b'), or `rename`",
    "gopen": "wdspec.url_opener; `@wdspec.opener` adds schemes",
    "gopen_schemes": "`@wdspec.opener('scheme')`",
    "gzfilter": "nothing: names that end in a packing, such as `json.gz`, are unpacked by themselves",
    "numpy_dumps": "wdspec.TarWriter, which encodes `npy`",
    "pipe_cleaner": "WebDataset(…, cache_dir=…), which names copies by itself",
    "pipelinefilter": "any generator function as a stage; functools.partial gives it arguments",
    "pytorch_weights_only": "nothing: `pth` is read with weights_only",
    "repeatedly": "the method `.repeat(…)`",
    "resampled": "wdspec.ResampledShards, or WebDataset(…, resampled=True)",
    "shardspec": "wdspec.WebDataset('spec.yaml'), or wdspec.load",
    "tarfile_samples": "wdspec.tarfile_to_samples()",
    "tenbin": "`npy` or `npz`: webdataset's own format is left out on purpose",
    "torch_dumps": "wdspec.TarWriter, which encodes `pth`",
    "torch_loads": "the extension `pth`, or `safetensors`",
    "transform_with": "wdspec.map_tuple",
    "with_epoch": "the method `.with_epoch(n)`",
    "with_length": "the method `.with_length(n)`",
}
"""Names of the module `webdataset` that are not here → what to use instead."""

METHODS = {
    "append": ".compose(stage), which returns a new pipeline",
    "invoke": "iter(pipeline)",
    "iterator": "iter(pipeline)",
    "lmdb_cached": ".compose(wdspec.DBCache, path, size)",
    "mcached": ".compose(wdspec.DBCache, path, size)",
    "stage": ".stages[i]",
}
"""Methods of webdataset's pipelines that are not here → what to use instead."""
