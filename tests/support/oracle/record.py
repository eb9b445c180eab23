"""Batches, lengths and states of all cases, recorded once: no change of the code may alter them.

`python tests/support/oracle/record.py` rewrites `golden.json.xz`, which only a change marked ORDER or STATE FORMAT in
the CHANGELOG may do. `--new` records the cases that have no record yet, or another spec, and leaves the others as they
are. `--model` fills `right`, what the reference model gives, where a result is known to be wrong. `--order REASON`
records the cases with windows again whose results differ, for a change marked ORDER.

The record of a case, by its name:

    spec, calls        as in `cases.py`
    refused            codes of the errors, or the message, if the rules forbid it; then there is nothing else
    steps              for each step its items as [keys, digest of the contents]
    len, ends          `len` before each epoch, and the number of steps read after each
    returned, error    what the calls returned, and what ended the run
    states, made_at    the state after each cut, and the commit whose code made it
    wrong, right       the number of the fault that `steps` show, and the steps of the reference model
    right_len          the lengths by the model, where `len` is wrong
    order              why the order differs from that of the commit that made the states
    resumed            then, what runs give that resume from `states`, by cut
    resumes_wrong      the number of the fault that runs show that resume from one of the states
    legs               what runs give that resume with a changed spec: `cut`, `spec`, and as above

`states` are kept as they are when the rest is rewritten, so that they prove that later versions can load them.
"""

from __future__ import annotations

import contextlib
import itertools
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
        The record of the run.
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
            except _RefusedCallError as error:
                return {"refused": str(error)}
            except Exception as error:
                found["error"] = describe_error(error)
    return {name: value for name, value in found.items() if value or name == "steps"}


class _RefusedCallError(Exception):
    """The rules forbid a call of the training loop."""


def plain_json(value: Any) -> Any:
    """Return a value as it is after it was written as JSON."""
    return json.loads(json.dumps(value))


def find_errors(spec: Json) -> list[str]:
    """Return the codes of the errors of a spec."""
    import wdspec

    return sorted({problem.code for problem in wdspec.validate(spec) if problem.is_error})


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
                try:
                    found["returned"].append(getattr(loader, name)(*arguments, **keywords))
                except ValueError as error:  # as UsageError is
                    raise _RefusedCallError(describe_error(error)) from error
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
        if "error" not in found and compare_resumed(plain_json(found)):
            found["resumes_wrong"] = case.wrong or "?"
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


def list_topologies(spec: Json) -> list[tuple[int, int]]:
    """Return the numbers of ranks and of threads on which runs of a spec can resume, and are compared."""
    if "loader" in spec:
        return []
    elastic = spec.get("elastic", {"ranks": 1, "workers": 1})
    ranks = [ranks for ranks in range(1, elastic["ranks"] + 1) if elastic["ranks"] % ranks == 0]
    batch = spec.get("batch") or {}
    if batch.get("collate") is not None and not gives_parts(spec):
        ranks = ranks[:1]  # each rank pads its part for itself
    threads = [0]
    if not elastic["workers"] % 2 and not find_errors({**spec, "loader": {"kind": "threads", "workers": 2}}):
        threads.append(2)
    return list(itertools.product(ranks, threads))


def list_resumes(written: Json, is_whole: bool = True) -> Iterator[tuple[str, tuple[int, int]]]:
    """List the states of a record, by cut, and the topologies on which a run resumes from each.

    Args:
        written: the record; "0" is the start of the run.
        is_whole: whether every state is paired with every topology. Otherwise each state and each topology is in at
            least one pair.
    """
    cuts, topologies = ["0", *written.get("states", {})], list_topologies(written["spec"])
    pairs = itertools.product(cuts, topologies)
    if not is_whole and topologies:
        count = max(len(cuts), len(topologies))
        pairs = ((cuts[-1 - n % len(cuts)], topologies[-1 - n % len(topologies)]) for n in range(count))
    for cut, topology in pairs:
        if cut != "0" or topology != (1, 0):
            yield cut, topology


def compare_resumed(written: Json, *, is_whole: bool = True) -> str:
    """Return where runs on other topologies, from each state, differ from it; empty if nowhere.

    Args:
        written: the record.
        is_whole: as of `list_resumes`.
    """
    for cut, (ranks, threads) in list_resumes(written, is_whole):
        after = written.get("resumed", {}).get(cut, {})
        if "error" in after or "refused" in after:
            continue
        expected = after.get("steps", written["steps"][int(cut) :])
        later = [[step - int(cut), *call] for step, *call in written.get("calls", ()) if step >= int(cut)]
        state = written["states"][cut] if cut != "0" else None
        found = read_on(written["spec"], len(expected), state, later, ranks, threads)
        if found != expected:
            at = next(
                n for n, pair in enumerate(itertools.zip_longest(found, expected)) if pair[0] != pair[1]
            )
            where = f"after {cut}, with {ranks} ranks and {threads} threads"
            return f"{where}: {found[at : at + 1]} is not {expected[at : at + 1]}"
    return ""


def read_on(
    spec: Json, steps: int, state: Json | None, calls: Sequence[Sequence[Any]], ranks: int, threads: int
) -> list[Any]:
    """Return the steps that ranks read, from a state on or the start, each as the items of one rank."""
    import wdspec

    if threads:
        spec = {**spec, "loader": {"kind": "threads", "workers": threads}}
    with quiet(), contextlib.ExitStack() as stack:
        loaders = []
        for rank in range(ranks):
            loader = wdspec.loader(plain_json(spec), num_workers=threads, rank=rank, world_size=ranks)
            stack.enter_context(loader)
            if state is not None:
                loader.load_state_dict(plain_json(state))
            loaders.append(loader)
        found: list[Any] = []
        empty = 0

        def call() -> bool:
            now = [each for each in calls if each[0] == len(found)]
            for loader, (_, name, arguments, keywords) in itertools.product(loaders, now):
                getattr(loader, name)(*arguments, **keywords)
            return any(name == "skip_steps" for _, name, *_ in now)

        call()
        while len(found) < steps and empty < 2:
            before = len(found)
            for parts in zip(*(_steps_of(loader) for loader in loaders), strict=True):
                items = [item for part in parts for item in part]
                if len(items) > 1 and not gives_parts(spec):
                    items = [_join(items)]
                found.append([item_record(item) for item in items])
                if len(found) == steps or call():
                    break
            empty = empty + 1 if len(found) == before else 0
            if loaders[0].stream.run.plan.finite is not None:
                break
    return plain_json(found)


def gives_parts(spec: Json) -> bool:
    """Whether a rank gets one item for each of its canonical ranks."""
    batch = spec.get("batch")
    return (
        batch is None or bool(batch.keys() & {"cost", "pack", "group_by"}) or batch.get("accumulate", False)
    )


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


def model_of(case: Any, leg: Any = None, step: int = 0, made_at: str = MADE_AT) -> Any:
    """Return the reference model of a case; with a leg, of the run that resumes with it at a step.

    Args:
        made_at: which version read up to this step.
    """
    from oracle.model import Model, replay

    is_same = leg is None or leg.spec == case.spec  # then the calls after the cut are made, too
    made = [call for call in case.calls if is_same or call[0] < leg.cut]
    skipped = skipped_steps(case.spec)
    for _, name, arguments, _ in made:
        if name == "skip_steps":
            skipped |= set(range(arguments[0], arguments[1] + 1))
    given = [step for step in range(200) if step not in skipped]
    starts = {call[0]: given[call[0] - 1] + 1 if call[0] else 0 for call in made}
    live = [
        (starts[at], arguments[0], keywords.get("after", 0))
        for at, name, arguments, keywords in made
        if name == "set_shares"
    ]
    skips = [(starts[at], *arguments) for at, name, arguments, _ in made if name == "skip_steps"]
    if leg is None:
        return Model(case.spec, live=live, skips=skips)
    is_older = made_at == MADE_AT
    return replay([(case.spec, 0), (leg.spec, step)], live=live, skips=skips, is_older=is_older)


def skipped_steps(spec: Json) -> set[int]:
    """Return the steps that a spec skips."""
    import wdspec

    return {step for each in wdspec.load(spec).skip for step in range(each.first, each.last + 1)}


def model_steps(model: Any, steps: int, first: int = 0) -> list[Any]:
    """Return what the reference model gives, as it is recorded."""
    found: list[Any] = []
    end = model.epoch if model.spec.is_pass else first + steps + 100
    with quiet():
        for step in range(first, end):
            items = model.items(step)
            if items:
                found.append([item_record(item) for item in items])
            if len(found) == steps:
                break
    return plain_json(found)


def model_lengths(case: Any, ends: Sequence[int]) -> list[int]:
    """Return the `len` that the reference model gives before each epoch; `ends` are the steps read after each."""
    model, skipped = model_of(case), skipped_steps(case.spec)
    given = [step for step in range(200) if step not in skipped]
    step, found = 0, []
    for before, done in itertools.pairwise([0, *ends]):
        found.append(model.length(step))
        if done > before:
            step = given[done - 1] + 1
        elif model.end() is None or step < model.end():
            step = (step // model.epoch + 1) * model.epoch
    return found


def fill_right(cases: Sequence[Any], records: dict[str, Json]) -> None:
    """Fill in what the reference model gives where results are wrong; remove the mark of those that it confirms."""
    for case in cases:
        written = records[case.name]
        _fill(written, lambda case=case: model_steps(model_of(case), STEPS))
        if written.get("wrong") == "11":
            written["right_len"] = model_lengths(case, written["ends"])
        for leg in case.legs:
            if leg.name in written.get("legs", {}):
                step = written["states"][str(leg.cut)]["batch"]
                _fill(
                    written["legs"][leg.name],
                    lambda case=case, leg=leg, step=step: model_steps(model_of(case, leg, step), MORE, step),
                )


def _fill(written: Json, compute: Any) -> None:
    if "wrong" not in written or "right" in written:
        return
    try:
        right = compute()
    except Exception as error:
        print(f"the model: {describe_error(error)}")
        return
    if right != written.get("steps"):
        written["right"] = right
    elif written["wrong"] != "11":  # which is about lengths
        del written["wrong"]


def main(arguments: Sequence[str]) -> None:
    """Write the records of all cases, or update them."""
    from oracle.cases import CASES

    old = load_records()
    with data_folder():
        if "--model" in arguments:
            records = old
            fill_right(CASES, records)
        elif "--order" in arguments:
            reason = arguments[arguments.index("--order") + 1]
            records = {case.name: _reorder(case, old[case.name], reason) for case in CASES}
        else:
            records = {case.name: _renew(case, old.get(case.name), "--new" in arguments) for case in CASES}
    save_records(records)
    print(f"{len(records)} cases, {FILE.stat().st_size:,} bytes")


def _reorder(case: Any, old: Json, reason: str) -> Json:
    """Return the record of a case after a change of the order; its states stay those of the older order."""
    if not gives_parts(old["spec"]) or "refused" in old:
        return old
    seen = observe(case.spec, calls=case.calls, cuts=CUTS)
    if "refused" in seen:
        return old
    seen.pop("states", None)
    names = ("steps", "len", "ends", "returned", "error")
    found: Json = plain_json({**{name: value for name, value in old.items() if name not in names}, **seen})
    states = old.get("states", {})
    resumed = {cut: record_resumed(case, old, cut) for cut in states}
    resumed = {cut: each for cut, each in resumed.items() if each.get("steps") != found["steps"][int(cut) :]}
    legs = {
        leg.name: plain_json(record_leg(leg, states[str(leg.cut)]))
        for leg in case.legs
        if leg.name in old.get("legs", {})
    }
    for name, leg in legs.items():
        right = old["legs"][name].get("right")
        if right is not None and leg["steps"] == old["legs"][name]["steps"]:
            leg["right"] = right
    found |= {"legs": legs} if legs else {}
    if found == old:
        return old
    found |= {"order": reason, **({"resumed": plain_json(resumed)} if resumed else {})}
    if "wrong" in found and found["steps"] != old["steps"]:
        found.pop("right", None)
    fill_right([case], {case.name: found})
    print(case.name)
    return found


def record_resumed(case: Any, written: Json, cut: str) -> Json:
    """Return what a run gives that resumes from a state that was made by an older order."""
    later = [[step - int(cut), *call] for step, *call in case.calls if step >= int(cut)]
    found = observe(case.spec, STEPS - int(cut), calls=later, state=written["states"][cut])
    return {name: found[name] for name in ("steps", "error", "refused") if name in found}


def _renew(case: Any, old: Json | None, is_kept: bool) -> Json:
    if old is not None and old["spec"] == case.spec and is_kept:
        return old
    found: Json = plain_json(record_case(case))
    if old is not None and old["spec"] == case.spec and "states" in old:
        found |= {"states": old["states"], "made_at": old["made_at"]}
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(sys.argv[1:])
