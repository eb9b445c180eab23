"""Every public name of webdataset's modules as wdspec has them: existing imports keep working."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import wdspec

NAMES = {
    "autodecode": "Decoder DecodingError ImageHandler handle_extension imagehandler imagespecs torch_audio torch_video",
    "compat": "DataPipeline FluidInterface FluidWrapper WebDataset WebLoader",
    "filters": "Cached PipelineStage associate batched decode default_collation_fn detshuffle dict2tuple extract_keys "
    "getfirst identity info listed log_keys map map_dict map_tuple pick pipelinefilter rename rename_keys "
    "reraise_exception rsample select shuffle slice to_tuple transform_with tuple2dict unbatched unlisted xdecode",
    "gopen": "gopen rewrite_url",
    "handlers": "ignore_and_continue ignore_and_stop reraise_exception warn_and_continue warn_and_stop",
    "mix": "RandomMix RoundRobin",
    "pipeline": "DataPipeline PipelineStage",
    "shardlists": "DirectoryShardList MultiShardSample ResampledShardList ResampledShards SimpleShardList "
    "expand_source expand_urls non_empty pipelinefilter resampled shardspec single_node_only "
    "split_by_node split_by_worker",
    "tariterators": "base_plus_ext gopen group_by_keys meta_prefix meta_suffix pipelinefilter reraise_exception "
    "tar_file_expander tarfile_samples tarfile_to_samples url_opener valid_sample",
    "utils": "PipelineStage deprecated guess_batchsize identity make_seed pytorch_worker_info pytorch_worker_seed "
    "repeatedly",
    "webdataset": "WebDataset",
    "writer": "ImageEncoder ShardWriter TarWriter",
}
PLAIN = (
    "associate batched detshuffle extract_keys info listed log_keys map map_dict map_tuple rename rename_keys rsample "
    "select shuffle slice to_tuple unbatched unlisted xdecode"
)
"""Stages that webdataset also has as functions of an iterator, under names such as `_shuffle`."""


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_the_one_that_wdspec_has(module: str) -> None:
    found = importlib.import_module(f"wdspec.{module}")
    for name in NAMES[module].split():
        value = getattr(found, name)
        if name in wdspec.__all__ and name != "gopen":
            assert value is getattr(wdspec, name)


IMPORTING = """
import importlib, sys
for line in sys.argv[1:]:
    module, *names = line.split()
    for loaded in [name for name in sys.modules if name.partition(".")[0] == "wdspec"]:
        del sys.modules[loaded]
    scope = {}
    exec(f"from wdspec.{module} import {', '.join(names)}; import wdspec.{module} as found", scope)
    assert scope["found"].__doc__ and all(name in scope for name in names)
"""


def test_each_module_can_be_imported_first() -> None:
    lines = [f"{module} {names}" for module, names in NAMES.items()]
    subprocess.run([sys.executable, "-c", IMPORTING, *lines], check=True)


def test_functions_of_stages_have_webdatasets_names() -> None:
    for name in PLAIN.split():
        function = getattr(wdspec.filters, f"_{name}")
        assert (function.__name__, function.__doc__) == (f"_{name}", getattr(wdspec, name).__doc__)


def test_a_module_may_be_called_where_it_hides_a_function() -> None:
    code = "import io, wdspec.gopen, sys\nassert wdspec.gopen('-') is sys.stdin.buffer\n"
    subprocess.run([sys.executable, "-c", code], check=True)
