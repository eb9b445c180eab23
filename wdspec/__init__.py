"""wdspec: describe WebDataset training data in one YAML file, and train from it anywhere.

    import wdspec

    with wdspec.loader("train.yaml", num_workers=4) as loader:
        for batch in loader:
            ...

Nothing heavy is imported until it is used: validating a spec needs neither torch nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wdspec.compiler import compile, loader, plan
    from wdspec.fields.handlers import Decoder, handle_extension, imagehandler, torch_audio, torch_video
    from wdspec.loading import load
    from wdspec.pipeline.checkpoint import merge_states
    from wdspec.pipeline.dataset import DataPipeline
    from wdspec.pipeline.gathering import gather_state
    from wdspec.pipeline.loader import Loader
    from wdspec.pipeline.randomness import sample_rng
    from wdspec.planning.plan import Plan
    from wdspec.spec.errors import (
        FieldError,
        MissingShardError,
        ShardError,
        SpecError,
        UrlError,
        UsageError,
        WdspecError,
    )
    from wdspec.spec.models import Spec
    from wdspec.writing.records import RecordWriter
    from wdspec.writing.sharding import ShardWriter
    from wdspec.writing.tar import TarWriter

_HOMES = {
    "compile": "wdspec.compiler",
    "loader": "wdspec.compiler",
    "plan": "wdspec.compiler",
    "Decoder": "wdspec.fields.handlers",
    "handle_extension": "wdspec.fields.handlers",
    "imagehandler": "wdspec.fields.handlers",
    "torch_audio": "wdspec.fields.handlers",
    "torch_video": "wdspec.fields.handlers",
    "load": "wdspec.loading",
    "merge_states": "wdspec.pipeline.checkpoint",
    "gather_state": "wdspec.pipeline.gathering",
    "DataPipeline": "wdspec.pipeline.dataset",
    "Loader": "wdspec.pipeline.loader",
    "sample_rng": "wdspec.pipeline.randomness",
    "Plan": "wdspec.planning.plan",
    "Spec": "wdspec.spec.models",
    "FieldError": "wdspec.spec.errors",
    "MissingShardError": "wdspec.spec.errors",
    "ShardError": "wdspec.spec.errors",
    "SpecError": "wdspec.spec.errors",
    "UrlError": "wdspec.spec.errors",
    "UsageError": "wdspec.spec.errors",
    "WdspecError": "wdspec.spec.errors",
    "RecordWriter": "wdspec.writing.records",
    "ShardWriter": "wdspec.writing.sharding",
    "TarWriter": "wdspec.writing.tar",
}

__all__ = [
    "DataPipeline",
    "Decoder",
    "FieldError",
    "Loader",
    "MissingShardError",
    "Plan",
    "RecordWriter",
    "ShardError",
    "ShardWriter",
    "Spec",
    "SpecError",
    "TarWriter",
    "UrlError",
    "UsageError",
    "WdspecError",
    "compile",
    "gather_state",
    "handle_extension",
    "imagehandler",
    "load",
    "loader",
    "merge_states",
    "plan",
    "sample_rng",
    "torch_audio",
    "torch_video",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'wdspec' has no attribute {name!r}")
    import importlib

    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            importlib.import_module("wdspec.compiler").require_torch(f"wdspec.{name}")
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
