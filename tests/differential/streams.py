"""Observe what a spec yields: its plan, the items of pipelines and loaders, states, and how runs resume.

A case has `spec`, `as_dict` (pass it to `wdspec.load` as a dict), `items` (how many to read), and `legs`: ranks,
workers, kind of workers (`here`, `processes`, `threads`) and steps of each part of a run, where each part resumes from
the merged state of the one before. It may have

- `shares`: steps before a change of the shares, the shares, and the steps until they apply;
- `skips`: the first and last step to skip;
- `pauses`: after how many items an iteration is left;
- `torch`: workers of a torch DataLoader that reads the compiled pipeline;
- `changed`: another spec that loads the state;
- `wrong`: (ranks, workers) that may not fit.

The shards are those of `shards.tar.xz`. A case of the kind `served` reads them by HTTP.
An expression is Python: a pipeline to read twice, or any other value.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import json
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
from program import (
    describe_error,
    list_warnings,
    logged,
    masked,
    new_folder,
    situation,
    values_of,
)
from torch.utils.data import DataLoader

import wdspec
import wdspec as wds

EARLY = 4
"""A state is also saved after this many items."""
MOST = 40
"""Items to read of each pass of an expression."""
PATTERNS = {
    "A": "a-{000..004}.tar",
    "C": "c-{000..002}.tar",
    "PIC": "pic-{000..002}.tar",
    "SEQ": "seq-{000..002}.tar",
}
"""Names that expressions use."""
_OPEN = contextlib.ExitStack()


@functools.cache
def folder() -> Path:
    """Return the folder of all cases of this process: functions are imported from it once."""
    return _OPEN.enter_context(new_folder({}, ["shards.tar.xz"]))


def observe(case: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a stream: each of its parts, or what that part raises."""
    if case["kind"] == "served":
        case = json.loads(json.dumps(case).replace("PORT", str(_serve())))
    torch.set_num_threads(1)
    with situation(folder()) as seen, logged() as lines:
        record = {"kind": case["kind"], **_Observer(case).record()}
        shutil.rmtree("copies", ignore_errors=True)
    return _with_messages(record, seen, lines)


def observe_expression(case: dict[str, Any]) -> dict[str, Any]:
    """Return the record of an expression: the value of its `repr`, length and items, or what it raises."""
    record: dict[str, Any] = {"expression": case["expression"]}
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    known = {
        "wds": wds,
        "np": np,
        "random": random,
        "DataLoader": DataLoader,
        "partial": functools.partial,
        "double": lambda source: (2 * each for each in source),
        "Path": Path,
        **PATTERNS,
    }
    with situation(folder()) as seen, logged() as lines:
        try:
            value = eval(case["expression"], known)
            record["repr"] = masked(repr(value), folder())
            if hasattr(value, "model_dump"):
                record["spec"] = values_of(value, folder())
            else:
                with contextlib.suppress(TypeError):
                    record["length"] = len(value)
                for number in range(2):
                    record[f"pass {number}"] = _hashes(itertools.islice(iter(value), MOST))
        except Exception as error:
            record["raised"] = describe_error(error, folder())
        Path("samples.db").unlink(missing_ok=True)
    return _with_messages(record, seen, lines)


def _with_messages(record: dict[str, Any], seen: list[Any], lines: list[str]) -> dict[str, Any]:
    if warned := list_warnings(seen, folder()):
        record["warned"] = warned
    if lines:
        record["logged"] = sorted({masked(line, folder()) for line in lines})
    return record


class _Observer:
    """Goes through a case, part by part."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.parts: dict[str, Any] = {}

    def record(self) -> dict[str, Any]:
        with self._part("spec") as found:
            self.spec = self._load(self.case["spec"])
            found |= values_of(self.spec, folder())
        if "raised" in self.parts["spec"]:
            return self.parts
        for name, look in (
            ("plan", self._plan),
            ("compiled", self._compiled),
            ("legs", self._legs),
            ("shares", self._shares),
            ("skips", self._skips),
            ("changed", self._changed),
            ("wrong", self._wrong),
            ("pauses", self._pauses),
            ("torch", self._torch),
        ):
            if name in self.case or name in ("plan", "compiled"):
                with self._part(name) as found:
                    look(found)
        return self.parts

    @contextlib.contextmanager
    def _part(self, name: str, within: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the dict of a part; an error becomes its entry `raised`."""
        found = (self.parts if within is None else within)[name] = {}
        try:
            yield found
        except Exception as error:
            found["raised"] = describe_error(error, folder())

    def _load(self, spec: dict[str, Any]) -> Any:
        if self.case["as_dict"]:
            return wdspec.load(spec)
        Path("stream.yaml").write_text(json.dumps(spec), encoding="utf-8")
        return wdspec.load("stream.yaml")

    def _plan(self, found: dict[str, Any]) -> None:
        plan = wdspec.plan(self.spec, ranks=2, workers=3)
        found["html"] = masked(plan._repr_html_(), folder())
        found["repr"] = masked(repr(plan), folder())
        found["epoch"] = plan.timeline.epoch_steps
        found["sources"] = [
            [each.name, len(each.shards), str(each.share), each.samples, each.interleave, each.delays.size]
            for each in plan.sources
        ]

    def _compile(self) -> Any:
        return contextlib.closing(wdspec.compile(self.spec, rank=0, world_size=1))

    def _loader(
        self, ranks: int = 1, workers: int = 0, rank: int = 0, spec: Any = None, **options: Any
    ) -> Any:
        spec = self.spec if spec is None else spec
        return contextlib.closing(
            wdspec.loader(spec, num_workers=workers, rank=rank, world_size=ranks, **options)
        )

    def _compiled(self, found: dict[str, Any]) -> None:
        with self._compile() as pipeline:
            found["length"] = _length(pipeline)
            found["html"] = masked(pipeline._repr_html_(), folder())
            found["repr"] = masked(repr(pipeline), folder())
            self._read(pipeline, self.case["items"], found)
            found["stats"] = _counts(pipeline)
            found["shares"] = pipeline.shares

    def _read(self, reader: Any, count: int, found: dict[str, Any]) -> None:
        """Read items, over epochs; record their hashes, the epochs, and states."""
        hashes: list[str] = []
        epochs: list[Any] = []
        empty = 0
        while len(hashes) < count and empty < 3:
            before = len(hashes)
            epochs.append([before, reader.epoch])
            for item in itertools.islice(reader, count - before):
                hashes += _hashes([item])
                if len(hashes) == EARLY:
                    found["early state"] = _hash(reader.state_dict())
            empty = empty + 1 if len(hashes) == before else 0
        found |= {"items": hashes, "epochs": epochs, "state": reader.state_dict()}

    def _legs(self, found: dict[str, Any]) -> None:
        state = None
        for number, leg in enumerate(self.case["legs"]):
            part = found[str(number)] = {"topology": [leg["ranks"], leg["workers"], leg["kind"]]}
            states = []
            for rank in range(leg["ranks"]):
                mine = part[f"rank {rank}"] = {}
                with self._leg(leg, rank) as loader:
                    if state is not None:
                        loader.load_state_dict(json.loads(json.dumps(state)))
                    mine["length"] = _length(loader)
                    self._read(loader, leg["steps"] * self._items_per_step(leg["ranks"]), mine)
                    if leg["kind"] == "here":
                        mine["stats"] = _counts(loader)
                    states.append(mine.pop("state"))
            state = wdspec.merge_states(states)
            part["state"] = _hash(state)
        found["last state"] = state

    def _leg(self, leg: dict[str, Any], rank: int) -> Any:
        spec, options = None, {}
        if leg["kind"] == "threads":
            spec = wdspec.load(self.case["spec"], overrides={"loader": {"kind": "threads"}})
        elif leg["kind"] == "processes":
            options = {"prefetch_factor": 2, "persistent_workers": leg["steps"] % 2 == 0}
        return self._loader(
            leg["ranks"], 0 if leg["kind"] == "here" else leg["workers"], rank, spec, **options
        )

    def _items_per_step(self, ranks: int) -> int:
        batch = self.case["spec"].get("batch")
        if batch is not None and not (isinstance(batch, dict) and batch.get("accumulate")):
            return 1
        return self.case["spec"].get("elastic", {"ranks": ranks})["ranks"] // ranks

    def _readers(self) -> list[tuple[str, Callable[[], Any]]]:
        return [("compiled", self._compile), ("loader", self._loader)]

    def _shares(self, found: dict[str, Any]) -> None:
        before, shares, after = self.case["shares"]
        each = self._items_per_step(1) if "elastic" in self.case["spec"] else 1
        for name, open_reader in self._readers():
            mine = found[name] = {}
            with open_reader() as reader:
                list(itertools.islice(reader, before * each))
                mine["start"] = reader.set_shares(shares, after=after)
                mine["now"] = reader.shares
                self._read(reader, 12, mine)
                mine["then"] = reader.shares

    def _skips(self, found: dict[str, Any]) -> None:
        for name, open_reader in self._readers():
            mine = found[name] = {}
            with open_reader() as reader:
                list(itertools.islice(reader, 2))
                reader.skip_steps(*self.case["skips"])
                mine["length"] = _length(reader)
                self._read(reader, 14, mine)
                mine["stats"] = _counts(reader)
                reader.skip_steps(0)

    def _changed(self, found: dict[str, Any]) -> None:
        other = self._load(self.case["changed"])
        state = self.parts["compiled"].get("state")
        if "elastic" in self.case["spec"]:
            state = self.parts["legs"].get("last state", state)
        for allow in (False, True) if state is not None else ():
            with (
                contextlib.closing(wdspec.compile(other, rank=0, world_size=1)) as reader,
                self._part(f"allowed {allow}", found) as mine,
            ):
                reader.load_state_dict(state, allow_changed=allow)
                self._read(reader, 14, mine)

    def _wrong(self, found: dict[str, Any]) -> None:
        for ranks, workers in self.case["wrong"]:
            with (
                self._part(f"{ranks} ranks, {workers} workers", found) as mine,
                self._loader(ranks, workers) as loader,
            ):
                mine |= {"length": _length(loader), "epoch": loader.epoch}
        for name, state in (("empty", {}), ("text", {"format": "x"}), ("none", None)):
            with self._part(name, found) as mine, self._compile() as reader:
                reader.load_state_dict(state)
                mine["state"] = reader.state_dict()

    def _pauses(self, found: dict[str, Any]) -> None:
        """Leave iterations early, and set epochs."""
        with self._loader() as loader:
            for number, pause in enumerate(self.case["pauses"]):
                items = list(itertools.islice(loader, pause))
                found[str(number)] = [len(items), _hash(items), loader.epoch, _length(loader)]
                for epoch in (loader.epoch, loader.epoch + 1):
                    with self._part(f"{number} to {epoch}", found):
                        loader.set_epoch(epoch)

    def _torch(self, found: dict[str, Any]) -> None:
        """Read the compiled pipeline with a torch DataLoader, for two epochs or some batches."""
        workers = self.case["torch"]
        with self._compile() as pipeline:
            loader = DataLoader(
                pipeline, batch_size=None, num_workers=workers, persistent_workers=workers > 0
            )
            found["items"] = [each for _ in range(2) for each in _hashes(itertools.islice(loader, 10))]
            found["epoch"] = pipeline.epoch
            if not workers:
                found["state"] = pipeline.state_dict()


def _length(reader: Any) -> Any:
    try:
        return len(reader)
    except TypeError as error:
        return {"raised": describe_error(error, folder())}


def _counts(reader: Any) -> dict[str, Any]:
    """Return the counts of `stats()`, without times and what depends on them."""
    left_out = ("seconds", "waited", "cache_hits", "cache_used", "cache_evictions", "cache_bypasses")
    stats = reader.stats().flat()
    return {name: value for name, value in stats.items() if name.partition("/")[0] not in left_out}


def _hash(value: Any) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(value):
        digest.update(piece + b"\0")
    return digest.hexdigest()[:16]


def _hashes(items: Any) -> list[str]:
    return [_hash(item)[:8] for item in items]


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield the types, shapes and bytes of a value."""
    if isinstance(value, torch.Tensor) and value.is_nested:
        yield from _pieces(["nested", *value.unbind()])
    elif isinstance(value, torch.Tensor):
        yield f"tensor {value.dtype} {tuple(value.shape)}".encode()
        yield value.contiguous().numpy().tobytes()
    elif isinstance(value, (np.ndarray, np.generic)):
        yield f"array {value.dtype} {value.shape}".encode()
        yield value.tobytes()
    elif isinstance(value, dict):
        yield f"dict {len(value)}".encode()
        for item in value.items():
            yield from _pieces(item)
    elif isinstance(value, (list, tuple)):
        yield f"{type(value).__name__} {len(value)}".encode()
        for each in value:
            yield from _pieces(each)
    elif isinstance(value, str):
        yield b"str " + masked(value, folder()).encode("utf-8", "surrogatepass")
    elif hasattr(value, "tobytes") and hasattr(value, "mode"):
        yield f"image {value.mode} {value.size}".encode()
        yield value.tobytes()
    else:
        yield f"{type(value).__name__} {value!r}".encode()


class _Ranges(SimpleHTTPRequestHandler):
    """Serves files and ranges of bytes, as stores do."""

    protocol_version = "HTTP/1.1"

    def send_head(self) -> Any:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if not wanted or not path.is_file():
            return super().send_head()
        size, first = path.stat().st_size, int(wanted[1])
        last = min(int(wanted[2] or size), size - 1)
        self.send_response(206 if first < size else 416)
        self.send_header("Content-Range", f"bytes {f'{first}-{last}' if first < size else '*'}/{size}")
        self.send_header("Content-Length", str(max(0, last - first + 1)))
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        return io.BytesIO(path.read_bytes()[first : last + 1])

    def log_message(self, *_: Any) -> None: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore readers that have closed the connection."""


@functools.cache
def _serve() -> int:
    """Serve `folder()` from this process; return the port."""
    server = _Server(("127.0.0.1", 0), functools.partial(_Ranges, directory=str(folder())))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])
