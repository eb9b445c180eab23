"""Batches, lengths and states of all cases, recorded once: no change of the code may alter them.

`python tests/support/oracle/record.py` rewrites `golden.json.xz`, which only a change marked ORDER or STATE FORMAT in
the CHANGELOG may do. Cases that are new are added with `--new`, which leaves the others as they are.

`states` in the record were made by the commit `made_at`; they are kept when the rest is rewritten, so that they prove
that later versions can load them. `--model` fills `right`, what the reference model gives, where a result is known to
be wrong (`wrong`, the number in the list of faults).
"""

from __future__ import annotations

import contextlib
import json
import logging
import lzma
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("golden.json.xz")
MADE_AT = "d5b5b3c7"
STEPS = 14
CUTS = (3, 8)
MORE = 8
"""Steps that are recorded after a change."""
Json = dict[str, Any]


def observe(
    spec: Json,
    steps: int = STEPS,
    *,
    calls: Sequence[Sequence[Any]] = (),
    cuts: Sequence[int] = (),
    state: Json | None = None,
    allow_changed: bool = False,
    workers: int = 0,
) -> Json:
    """Read a spec on one rank in the working directory.

    Args:
        spec: the spec.
        steps: the number of steps to read, over epochs.
        calls: what the training loop calls, as [step, method, arguments, keywords]: before it requests that step,
            counted from the first one that it reads.
        cuts: after which steps to save a state.
        state: a state to load first.
        allow_changed: whether the spec may differ from that of the state.
        workers: worker processes; with `kind: threads` the spec says how many.

    Returns:
        `refused`: codes of the errors, or the message, if the spec cannot be read; and nothing else. Otherwise `steps`:
        for each step its items as [keys, digest of the contents]; `len` before each epoch; `ends`, the steps that were
        read at the end of each epoch; `states` by cut; `returned`, what the calls returned; `error`, what ended it.
    """
    import wdspec
    from wdspec.base.errors import SpecError

    is_threaded = spec.get("loader", {}).get("kind") == "threads"
    found: Json = {"len": [], "ends": [], "steps": [], "states": {}, "returned": []}
    with quiet():
        try:
            loader = wdspec.loader(
                json.loads(json.dumps(spec)),
                num_workers=None if is_threaded else workers,
                rank=0,
                world_size=1,
            )
        except SpecError as error:
            return {"refused": sorted({problem.code for problem in error.problems if problem.is_error})}
        except Exception as error:
            return {"refused": describe_error(error)}
        with loader:
            try:
                if state is not None:
                    loader.load_state_dict(json.loads(json.dumps(state)), allow_changed=allow_changed)
                _read(loader, steps, calls, cuts, found)
            except Exception as error:
                found["error"] = describe_error(error)
    return {name: value for name, value in found.items() if value or name == "steps"}


def plain_json(value: Any) -> Any:
    """Return a value as it is after it was written as JSON."""
    return json.loads(json.dumps(value))


def refusal(spec: Json) -> list[str]:
    """Return the codes of the errors of a spec."""
    import wdspec

    return sorted({problem.code for problem in wdspec.validate(spec) if problem.is_error})


def has_padding(spec: Json) -> bool:
    """Whether the batches of ranks do not combine to those of one rank, because each is padded for itself."""
    batch = spec.get("batch") or {}
    return batch.get("collate") is not None and not batch.keys() & {"cost", "pack", "group_by"}


def describe_error(error: Exception) -> str:
    """Return the type and the code of an error, or the start of its message."""
    code = getattr(error, "code", None)
    return f"{type(error).__name__} {code or str(error).partition(';')[0][:80]}"


def _read(loader: Any, steps: int, calls: Sequence[Sequence[Any]], cuts: Sequence[int], found: Json) -> None:
    per_step = loader.state_dict()["items"]
    items: list[Any] = []
    done = empty = 0

    def call() -> bool:
        """Make the calls before the next step; return whether the iteration has ended."""
        names = []
        for step, name, arguments, keywords in calls:
            if step == done:
                found["returned"].append(getattr(loader, name)(*arguments, **keywords))
                names.append(name)
        return "skip_steps" in names

    call()
    while done < steps:
        found["len"].append(_length(loader))
        before, is_over = done, True
        for item in loader:
            items.append(item_record(item))
            if len(items) < per_step:
                continue
            found["steps"].append(items)
            items = []
            done += 1
            if done in cuts:
                found["states"][str(done)] = loader.state_dict()
            if done >= steps or call():
                is_over = False
                break
        if is_over:
            found["ends"].append(done)
            empty = empty + 1 if done == before else 0
            if empty == 2 or loader.stream.run.plan.finite is not None:
                return


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def item_record(item: Any) -> list[Any]:
    """Return the keys of an item as one text, and a digest of its contents."""
    from oracle.plain import digest, plain

    value = plain(item)
    held = value["tuple"][0] if isinstance(item, tuple) else value["__key__"]
    return [held if isinstance(held, str) else " ".join(held), digest(value)]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings and log lines, which cases with damaged data print."""
    logger = logging.getLogger("wdspec")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def record_case(case: Any) -> Json:
    """Return the record of a case: what it gives, and what it gives after each change."""
    found = {"spec": case.spec, **observe(case.spec, calls=case.calls, cuts=CUTS)}
    if case.calls:
        found["calls"] = case.calls
    wrong = case.wrong or _wrong_length(found)
    if wrong:
        found["wrong"] = wrong
    states = found.get("states", {})
    if states:
        found["made_at"] = MADE_AT
    legs = {leg.name: record_leg(leg, states[str(leg.cut)]) for leg in case.legs if str(leg.cut) in states}
    return {**found, **({"legs": legs} if legs else {})}


def _wrong_length(found: Json) -> str:
    """Return the number of the fault that `len` is above 0 after a run has stopped; empty if it is not."""
    ends = found.get("ends", [])
    has_stopped = len(ends) > 1 and ends[-1] == ends[-2]
    return "11" if has_stopped and found["len"][-1] else ""


def record_leg(leg: Any, state: Json) -> Json:
    """Return what a run gives that resumes from a state with a changed spec."""
    found = observe(leg.spec, MORE, state=state, allow_changed=True)
    found.pop("states", None)
    return {"cut": leg.cut, "spec": leg.spec, **found, **({"wrong": leg.wrong} if leg.wrong else {})}


def read_on(spec: Json, steps: int, state: Json, ranks: int, threads: int = 0) -> list[Any]:
    """Return the steps that ranks read from a state on, each as the items that one rank would get."""
    import wdspec

    spec = json.loads(json.dumps(spec))
    if threads:
        spec["loader"] = {**spec.get("loader", {}), "kind": "threads", "workers": threads}
    with quiet(), contextlib.ExitStack() as stack:
        loaders = []
        for rank in range(ranks):
            loader = wdspec.loader(spec, num_workers=threads, rank=rank, world_size=ranks)
            stack.enter_context(loader)
            loader.load_state_dict(json.loads(json.dumps(state)))
            loaders.append(loader)
        found: list[Any] = []
        empty, per_step = 0, state["items"]
        while len(found) < steps and empty < 2:
            before = len(found)
            for parts in zip(*(_steps_of(loader) for loader in loaders), strict=True):
                items = [item for part in parts for item in part]
                if len(items) != per_step:
                    items = [_join(items)]
                found.append([item_record(item) for item in items])
                if len(found) == steps:
                    break
            empty = empty + 1 if len(found) == before else 0
            if loaders[0].stream.run.plan.finite is not None:
                break
    return json.loads(json.dumps(found))


def _steps_of(loader: Any) -> Iterator[list[Any]]:
    per_step, items = loader.state_dict()["items"], []
    for item in loader:
        items.append(item)
        if len(items) == per_step:
            yield items
            items = []


def _join(parts: list[Any]) -> Any:
    """Return a global batch made of the parts of several ranks; values that do not stack become a list."""
    import torch

    first = parts[0]
    if isinstance(first, tuple):
        return tuple(_join(list(each)) for each in zip(*parts, strict=True))
    if isinstance(first, dict):
        return {name: _join([part[name] for part in parts]) for name in first}
    if all(isinstance(part, torch.Tensor) and part.shape[1:] == first.shape[1:] for part in parts):
        return torch.cat(parts)
    rows = [part.tolist() if isinstance(part, torch.Tensor) and part.ndim == 1 else part for part in parts]
    return [value for part in rows for value in part]


def load_records(file: Path = FILE) -> dict[str, Json]:
    """Return the records by the name of their case."""
    return json.loads(lzma.decompress(file.read_bytes())) if file.exists() else {}


def save_records(records: dict[str, Json], file: Path = FILE) -> None:
    """Write the records."""
    text = json.dumps(records, separators=(",", ":"), ensure_ascii=False)
    file.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


@contextlib.contextmanager
def data_folder() -> Iterator[Path]:
    """A temporary working directory with the data."""
    from oracle.data import write_data

    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        write_data(folder)
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def main(arguments: Sequence[str]) -> None:
    """Write the records: of all cases, or with `--new` only of those that have none."""
    from oracle.cases import CASES

    old = load_records()
    kept = old if "--new" in arguments else {}
    with data_folder():
        records = {
            case.name: kept.get(case.name) or json.loads(json.dumps(record_case(case))) for case in CASES
        }
    save_records(records)
    print(f"{len(records)} cases, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(sys.argv[1:])
