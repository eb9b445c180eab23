"""Datasets with the methods of pipelines."""

from __future__ import annotations

from typing import Any

from wdspec.fluent.datapipeline import DataPipeline as DataPipeline
from wdspec.fluent.datapipeline import WebLoader as WebLoader
from wdspec.fluent.foreign.pipeline_stages import FluidInterface as FluidInterface
from wdspec.fluent.foreign.small_datasets import FluidWrapper as FluidWrapper
from wdspec.fluent.replacements import hint_for
from wdspec.webdataset import WebDataset as WebDataset


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("compat", name))
