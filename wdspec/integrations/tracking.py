"""`log_run`: logs the record of a run to a file, W&B, MLflow or TensorBoard."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.run.record import make_record
from wdspec.run.stream import Resumable
from wdspec.stores.outputs import save

NAME = "wdspec.json"
"""File name of a record in a tracker."""


def log_run(loader: Resumable, to: Any = None, *, state: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Record the data of a training run: spec, lock, digests, versions, environment, and what was read so far.

    Call it on rank 0 at the start, and again at the end or with each checkpoint. `wdspec diff` compares two records.

    Args:
        loader: a loader, or a dataset from `wdspec.compile`.
        to: where to write the record. A path writes a JSON file. A W&B run gets the artifact `wdspec-RUN`, and the
            digests in its config. The module `mlflow` writes the artifact `wdspec.json` of the active run, and the
            digests as tags. A `SummaryWriter` gets the text `wdspec`. With None, the record is only returned.
        state: a state from `gather_state`, to record what all ranks have received. By default, the record covers the
            canonical ranks of this rank, as `of_ranks` says.

    Returns:
        The record, as JSON values.

    Raises:
        UsageError: `to` has another type, the file cannot be written, or `state` comes from another run.

    Example:
        >>> import wdspec
        >>> with wdspec.loader("examples/specs/digits.yaml", split="train") as loader:
        ...     batch = next(iter(loader))
        ...     record = wdspec.log_run(loader)
        >>> record["read"]["samples"]
        {'digits-a': 26, 'digits-b': 26, 'rendered': 12}
    """
    if not isinstance(loader, Resumable):
        raise UsageError(f"`log_run` takes a loader or a dataset, not {type(loader).__name__}")
    record = make_record(loader, state)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    if isinstance(to, (str, os.PathLike)):
        save(os.fspath(to), text.encode("utf-8", "surrogatepass"))
    elif isinstance(to, ModuleType) and to.__name__ == "mlflow":
        to.log_text(text, NAME)
        to.set_tags(_summary(record))
    elif hasattr(to, "log_artifact") and hasattr(to, "config"):
        _log_to_wandb(to, record, text)
    elif hasattr(to, "add_text"):
        to.add_text("wdspec", f"```json\n{text}```", record["read"]["batches"])
    elif to is not None:
        raise UsageError(
            f"`to` is {type(to).__name__}; pass a path, the run of wandb.init, the module mlflow, or a SummaryWriter"
        )
    return record


def _summary(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the values by which runs are searched and compared, as text."""
    lock = record["lock"] or {}
    return {
        "wdspec.spec": str(record["file"] or "a dict") + (f"#{record['split']}" if record["split"] else ""),
        "wdspec.digest": record["digest"],
        "wdspec.samples": record["samples"],
        "wdspec.lock": lock.get("digest", "none"),
        "wdspec.version": record["versions"]["wdspec"],
        "wdspec.batches": str(record["read"]["batches"]),
    }


def _log_to_wandb(run: Any, record: Mapping[str, Any], text: str) -> None:
    import wandb

    run.config.update(_summary(record), allow_val_change=True)
    artifact = wandb.Artifact(f"wdspec-{run.id}", type="wdspec-run", metadata=_summary(record))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        artifact.add_file(str(path), NAME)
    run.log_artifact(artifact)
