"""A record of what a run reads, as JSON: which data, in which order, with which versions, trained a model.

    {"format": "wdspec-run", "version": 1, "time": …,
     "spec": {…}, "digest": …, "order": {…}, "samples": …,     what it reads, and in which order
     "lock": {…}, "topology": {…},
     "versions": {…}, "environment": {…},                      what reads it
     "read": {…}}                                              how far it is

Secrets are masked (`base/redaction.py`). `wdspec diff` compares two records.
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

from wdspec.base.errors import UsageError
from wdspec.base.files import open_regular
from wdspec.base.redaction import without_secrets
from wdspec.read.counts import Amount
from wdspec.run.libraries import ALWAYS, IF_BOTH, version_of
from wdspec.run.received import add_up, received_in, source_names
from wdspec.run.run import Run
from wdspec.run.state import check_undamaged, ranks_of
from wdspec.run.stats import describe_ranks
from wdspec.run.stream import Resumable, Stream
from wdspec.shards.lock import Lock
from wdspec.storage.environment import describe_variables

FORMAT, VERSION = "wdspec-run", 1
_STARTS = WeakKeyDictionary[Stream, str]()
"""Stream → the id of this start of a run, by which records of one start are known."""
MOST_LOCK = 4_000_000
"""Bytes of a lock that is included whole; of a larger one, the numbers and sizes of shards are."""
_LIBRARIES = (
    *("wdspec", *ALWAYS, *IF_BOTH, "transformers", "webdataset"),
    *("backports.zstd", "isal", "fsspec", "s3fs", "gcsfs", "adlfs", "huggingface_hub", "aistore", "urllib3"),
)
"""Packages that read or decode."""


def make_record(reading: Resumable, state: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the record of a run, as JSON values.

    Args:
        reading: a loader or a compiled spec.
        state: the state of all ranks (`gather_state`), for what all of them have received; by default that of this
            rank, without asking the others.

    Raises:
        UsageError: the state is of another run.
    """
    run, spec = reading.run, reading.run.spec
    saved = reading.state_dict() if state is None else state
    check_undamaged(saved)
    if saved["digest"] != run.order_digest:
        raise UsageError("`state` is of another run: its order has another digest; pass gather_state(loader)")
    topology, stats = run.plan.topology, reading.stream.stats()
    return {
        "format": FORMAT,
        "version": VERSION,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "file": spec.file,
        "split": spec.split,
        "spec": without_secrets(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)),
        "digest": run.order_digest,
        "order": json.loads(run.order_text),
        "samples": run.samples_digest,
        "lock": _describe_lock(run),
        "topology": {"ranks": topology.ranks, "workers": topology.workers, "world_size": run.seat.world_size},
        "versions": dict(_versions()),
        "environment": {"spec": spec.environment, "variables": describe_variables()},
        "read": {
            "batches": saved["batch"],
            "epoch": reading.epoch,
            "ranks": len(ranks_of(saved)),
            "of_ranks": describe_ranks(ranks_of(saved), topology.ranks),
            "canonical_ranks": ranks_of(saved),
            **_describe_received(saved),
            "rank": run.seat.rank,
            "start": {
                "id": _STARTS.setdefault(reading.stream, str(uuid.uuid4())),
                "batches": max(0, saved["batch"] - stats.batches),
            },
            "stats": asdict(stats),
        },
    }


def read_record(path: str) -> dict[str, Any] | None:
    """Return the record in a file; None if the file is something else, such as a spec.

    Raises:
        UsageError: it is a record of a later version, or damaged.
    """
    try:
        with open_regular(path) as file:
            if not file.read(64).lstrip().startswith(b"{"):
                return None
            file.seek(0)
            record = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        return None
    if record.get("version") != VERSION:
        raise UsageError(
            f"the record has version {record.get('version')}, this wdspec reads version {VERSION}", file=path
        )
    parts = ("spec", "order", "topology", "versions", "environment", "read")
    damaged = [name for name in parts if not isinstance(record.get(name), dict)]
    damaged += [name for name in ("digest", "samples", "time") if name not in record]
    if not damaged and not isinstance(record["read"].get("batches"), int):
        damaged = ["read.batches"]
    if damaged:
        raise UsageError(f"the record is damaged: `{damaged[0]}` is missing", file=path)
    return record


def _describe_received(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the samples, cost and tokens received of each source, without numbers that are unknown."""
    total = add_up(list(received_in(state).values())) or {}
    amounts = {name: total[name] for name in source_names(state) if name in total}
    return {
        key: {name: each[at] for name, each in amounts.items() if each[at] is not None}
        for at, key in enumerate(Amount._fields)
    }


def _describe_lock(run: Run) -> dict[str, Any] | None:
    """Return the lock of the run: whole, or without its shards if it is large."""
    if run.shards.lock is None:
        return None
    path = os.fspath(run.shards.lock)
    try:
        lock = Lock.read(path)
    except (OSError, UsageError) as error:
        return {"file": path, "error": str(error)}
    listed = {name: list(each.texts()) for name, each in lock.shards(run.spec, path).items()}
    changed = any([*run.shards.lists[name].texts()] != texts for name, texts in listed.items() if texts)
    described: dict[str, Any] = {
        "file": path,
        "digest": lock.digest,
        "sources": {
            name: {"shards": len(each.objects), "bytes": each.size} for name, each in lock.sources.items()
        },
    }
    if changed:
        described["error"] = "it was written again since the run has listed its shards"
    elif os.path.getsize(path) <= MOST_LOCK:
        described["text"] = lock.text
    return described


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    yield "platform", platform.platform()
    yield from ((name, version) for name in _LIBRARIES if (version := version_of(name)))
