"""Pipelines."""

from __future__ import annotations

from typing import Any

from wdspec.fluent.datapipeline import DataPipeline as DataPipeline
from wdspec.fluent.foreign.pipeline_stages import PipelineStage as PipelineStage
from wdspec.fluent.replacements import hint_for


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("pipeline", name))
