"""What webdataset's other modules share."""

from __future__ import annotations

from typing import Any

from wdspec.fluent.foreign.pipeline_stages import PipelineStage as PipelineStage
from wdspec.fluent.foreign.plain_functions import guess_batchsize as guess_batchsize
from wdspec.fluent.foreign.plain_functions import repeatedly as repeatedly
from wdspec.fluent.foreign.worker_seeds import deprecated as deprecated
from wdspec.fluent.foreign.worker_seeds import identity as identity
from wdspec.fluent.foreign.worker_seeds import make_seed as make_seed
from wdspec.fluent.foreign.worker_seeds import pytorch_worker_info as pytorch_worker_info
from wdspec.fluent.foreign.worker_seeds import pytorch_worker_seed as pytorch_worker_seed
from wdspec.fluent.replacements import hint_for


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("utils", name))
