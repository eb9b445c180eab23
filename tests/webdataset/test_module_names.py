"""Every public name of webdataset's modules as wdspec has them: existing imports keep working."""

from __future__ import annotations

import importlib
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

import wdspec
from wdspec.base.user_code import secure_mode

_file = io.BytesIO()
np.save(_file, np.array([None]), allow_pickle=True)
OBJECTS = _file.getvalue()
"""An array of objects, which numpy stores as a pickle."""

NAMES = {
    "autodecode": "Decoder DecodingError ImageHandler handle_extension imagehandler imagespecs torch_audio torch_video",
    "compat": "DataPipeline FluidInterface FluidWrapper WebDataset WebLoader",
    "filters": "Cached PipelineStage associate batched decode default_collation_fn detshuffle extract_keys "
    "identity info listed log_keys map map_dict map_tuple pick pipelinefilter rename rename_keys "
    "reraise_exception rsample select shuffle slice to_tuple unbatched unlisted xdecode",
    "gopen": "gopen rewrite_url",
    "handlers": "ignore_and_continue ignore_and_stop reraise_exception warn_and_continue warn_and_stop",
    "mix": "RandomMix RoundRobin",
    "pipeline": "DataPipeline PipelineStage",
    "shardlists": "DirectoryShardList MultiShardSample ResampledShards SimpleShardList "
    "expand_urls non_empty pipelinefilter resampled shardspec single_node_only "
    "split_by_node split_by_worker",
    "tariterators": "base_plus_ext gopen group_by_keys meta_prefix meta_suffix pipelinefilter reraise_exception "
    "tar_file_expander tarfile_samples tarfile_to_samples url_opener valid_sample",
    "utils": "PipelineStage deprecated guess_batchsize identity pytorch_worker_info pytorch_worker_seed "
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
def test_every_name_is_the_object_of_wdspec(module: str) -> None:
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


def test_a_module_that_hides_a_function_is_callable() -> None:
    code = "import io, wdspec.gopen, sys\nassert wdspec.gopen('-') is sys.stdin.buffer\n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_enforcing_security_forbids_programs_and_pickles_from_then_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "0")
    with wdspec.TarWriter(shard := tmp_path / "a.tar") as writer:
        writer.write({"__key__": "a", "txt": "x"})
    dataset = wdspec.WebDataset(f"pipe:cat {shard}")
    decoders = [wdspec.Decoder(allow=["pickle"])]
    assert wdspec.utils.enforce_security is False
    assert len(list(dataset)) == 1
    wdspec.utils.enforce_security = True
    assert wdspec.utils.enforce_security is True
    assert secure_mode()
    for opened in (lambda: list(dataset), lambda: wdspec.gopen(f"pipe:cat {shard}")):
        with pytest.raises(wdspec.UrlError, match="WDS_SECURE forbids `pipe:`"):
            opened()
    for name, data in (("pkl", pickle.dumps([1])), ("npy", OBJECTS), ("pth", b"")):
        with pytest.raises(wdspec.UsageError, match="WDS_SECURE=1 forbids"):
            decoders[0]({"__key__": "a", name: data})
    wdspec.utils.enforce_security = False
    assert decoders[0]({"__key__": "a", "pkl": pickle.dumps([1])})["pkl"] == [1]
    assert len(list(dataset)) == 1


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("autodecode", "decoders", "wdspec.Decoder"),
        ("autodecode", "default_decoder", "wdspec.Decoder"),
        ("autodecode", "imagespecs", "rgb8"),
        ("autodecode", "pytorch_weights_only", "weights_only"),
        ("cache", "default_cache_dir", "cache_dir="),
        ("cache", "default_cache_size", "WDS_CACHE_SIZE"),
        ("cache", "verbose_cache", "log"),
        ("filters", "default_collation_fn", "collation_fn="),
        ("filters", "default_decoders", "argument"),
        ("filters", "_shuffle", "argument"),
        ("gopen", "gopen_schemes", "opener"),
        ("gopen", "gopen_pipe", "gopen"),
        ("shardlists", "default_rng", "seed"),
        ("tariterators", "base_plus_ext", "keys=function"),
        ("tariterators", "group_by_keys", "stage"),
        ("tariterators", "meta_prefix", "select_files="),
        ("tariterators", "trace", "verbose=True"),
        ("tariterators", "url_opener", "opener"),
        ("utils", "anything", "argument"),
        ("writer", "default_handlers", "argument"),
    ],
)
def test_a_setting_without_effect_is_rejected(module: str, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match="would have no effect; use ") as error:
        setattr(importlib.import_module(f"wdspec.{module}"), name, None)
    assert hint in str(error.value)


def test_tables_cannot_be_changed_without_effect() -> None:
    with pytest.raises(TypeError):
        wdspec.autodecode.imagespecs["mine"] = ("numpy", "uint8", "rgb")  # type: ignore[index]
    for module, table in (
        ("gopen", "gopen_schemes"),
        ("autodecode", "decoders"),
        ("writer", "default_handlers"),
    ):
        with pytest.raises(AttributeError):
            getattr(importlib.import_module(f"wdspec.{module}"), table)["mine"] = str
