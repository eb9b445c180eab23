"""Names of webdataset that are not here, with what takes their place."""

from __future__ import annotations

INSTEAD = {
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
"""Name in webdataset → what to use here."""
