"""From shards to samples, in webdataset's three steps or at once."""

from __future__ import annotations

from typing import Any

from wdspec.fluent.error_handlers import reraise_exception as reraise_exception
from wdspec.fluent.foreign.expanded_urls import gopen as gopen
from wdspec.fluent.foreign.pipeline_stages import pipelinefilter as pipelinefilter
from wdspec.fluent.foreign.small_datasets import tarfile_samples as tarfile_samples
from wdspec.fluent.foreign.tar_members import base_plus_ext as base_plus_ext
from wdspec.fluent.foreign.tar_members import valid_sample as valid_sample
from wdspec.fluent.replacements import hint_for
from wdspec.fluent.stages.tar_shards import group_by_keys as group_by_keys
from wdspec.fluent.stages.tar_shards import tar_file_expander as tar_file_expander
from wdspec.fluent.stages.tar_shards import tarfile_to_samples as tarfile_to_samples
from wdspec.fluent.stages.tar_shards import url_opener as url_opener

meta_prefix = meta_suffix = "__"


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("tariterators", name))
