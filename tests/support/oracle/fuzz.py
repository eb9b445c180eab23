"""Random specs: what the loader gives is what the reference model gives, on every topology and after every resume.

    python tests/support/oracle/fuzz.py --seed 0 --count 2000 --jobs 2

A trial is a spec, what the training loop calls, and legs: runs that start at the beginning, or from a state of an
earlier leg. A trial that fails is shrunk, and printed as a dict for `check(Trial(**…))` in a test.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import wdspec
from oracle.generator import Draw, draw_calls
from oracle.model import replay
from oracle.plain import plain
from oracle.record import data_folder, quiet
from oracle.samples import RunError

STEPS = 30
TRIAL_SECONDS = 180
"""The time that a trial may take in the command."""
HEADS = "oracle_functions:is_heads"
"""A `select` that throws a coin."""
Json = dict[str, Any]


@dataclass
class Leg:
    """One run of a trial.

    Args:
        ranks, workers: its topology; workers are threads if the spec says so.
        origin: number of the leg whose state it loads; None to start at the beginning.
        cut: after how many steps that state was saved.
        change: what differs in the spec from here on (`change_spec`); None for that of the origin.
    """

    ranks: int = 1
    workers: int = 0
    threads: bool = False
    origin: int | None = None
    cut: int = 0
    change: str | None = None


@dataclass
class Trial:
    """A spec, the calls of the training loop (as of `Model`), and the legs, of which the first is the base."""

    spec: Json
    live: list[Any] = field(default_factory=list)
    skips: list[Any] = field(default_factory=list)
    legs: list[Any] = field(default_factory=lambda: [Leg()])
    steps: int = STEPS

    def __post_init__(self) -> None:
        self.legs = [Leg(**each) if isinstance(each, dict) else each for each in self.legs]


@dataclass
class Failure:
    """A difference: where, and what."""

    kind: str
    leg: int
    message: str


@dataclass
class Reading:
    """What a leg has given on one rank: its items by step, its lengths, its states by step, and what ended it."""

    found: dict[int, list[Any]] = field(default_factory=dict)
    lengths: dict[int, int | None] = field(default_factory=dict)
    states: dict[int, Any] = field(default_factory=dict)
    error: str | None = None
    failed_at: int = 0
    """J of the step that could not be read."""
    delivered: dict[str, int] = field(default_factory=dict)
    """What `stats` says about samples by source."""


# Reading with the loader


def read(trial: Trial, leg: Leg, rank: int, state: Json | None, cuts: Sequence[int]) -> Reading:
    """Read a leg on one rank."""
    spec = spec_of(trial, leg)
    reading = Reading()
    try:
        loader = wdspec.loader(spec, num_workers=leg.workers, rank=rank, world_size=leg.ranks)
    except Exception as error:
        reading.error = _describe(error)
        return reading
    with loader:
        try:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)), allow_changed=leg.change is not None)
            # An epoch that begins anew does so before the cut.
            first = loader.state_dict()["batch"] if reshuffles(spec) else leg.cut
            _read_steps(trial, loader, reading, first, cuts)
        except Exception as error:
            reading.error = _describe(error)
        counts, mixed = (
            loader.stats().sources,
            loader.run.plan.sources,
        )  # companions are read ahead of samples
        reading.delivered = {source.name: counts[source.name].delivered for source in mixed}
    return reading


def changes_of(trial: Trial, leg: Leg) -> tuple[tuple[str, int], ...]:
    """Return the changes since the start of a run, each with the step before which it was made."""
    before = () if leg.origin is None else changes_of(trial, trial.legs[leg.origin])
    return before if leg.change is None else (*before, (leg.change, leg.cut))


def change_specs(trial: Trial, changes: Sequence[tuple[str, int]]) -> list[tuple[Json, int]]:
    """Return the specs of a run, each with its first step."""
    phases = [(json.loads(json.dumps(trial.spec)), 0)]
    for change, cut in changes:
        spec = json.loads(json.dumps(phases[-1][0]))
        change_spec(spec, change)
        phases.append((spec, cut))
    return phases


def spec_of(trial: Trial, leg: Leg) -> Json:
    """Return the spec of a leg."""
    spec, _ = change_specs(trial, changes_of(trial, leg))[-1]
    if leg.threads:
        spec["loader"] = {**spec.get("loader", {}), "kind": "threads"}
    return spec


def _describe(error: Exception) -> str:
    if isinstance(error, (AssertionError, AttributeError, KeyError, IndexError, NameError)):
        return f"CRASH {''.join(traceback.format_exception(error)[-3:])}"
    return f"{type(error).__name__}: {str(error)[:200]}"


def _call(trial: Trial, loader: Any, step: int) -> bool:
    """Make the calls before a step; return whether they ended the iteration."""
    for called, shares, after in trial.live:
        if called == step:
            loader.set_shares(shares, after=after)
    for called, first, last in trial.skips:
        if called == step:
            loader.skip_steps(first, last)
    return any(called == step for called, *_ in trial.skips)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _read_steps(trial: Trial, loader: Any, reading: Reading, step: int, cuts: Sequence[int]) -> None:
    per_step = loader.run.items_per_step
    items: list[Any] = []
    _call(trial, loader, step)
    empty = 0
    while step < trial.steps:
        reading.failed_at = before = step
        reading.lengths[step] = _length(loader)
        for item in loader:
            items.append(plain(item))
            if len(items) < per_step:
                continue
            state = loader.state_dict()
            step = state["batch"]
            reading.found[step - 1], items = items, []
            reading.failed_at = step
            if step in cuts:
                reading.states[step] = json.loads(json.dumps(state))
            if step >= trial.steps or _call(trial, loader, step):
                break
        if items:
            raise AssertionError(f"an iteration ended with {len(items)} of {per_step} items of a step")
        step = loader.state_dict()["batch"]
        empty = empty + 1 if step == before else 0
        if empty == 2 or (step == before and loader.run.plan.finite is None):
            return


def is_pass(spec: Json) -> bool:
    """Whether every epoch of a spec is a pass."""
    epoch = spec.get("epoch")
    return epoch == "pass" or (isinstance(epoch, dict) and "pass" in epoch)


def reshuffles(spec: Json) -> bool:
    """Whether every epoch of a spec is a pass with another order."""
    return is_pass(spec) and isinstance(spec["epoch"], dict) and bool(spec["epoch"].get("reshuffle"))


def is_windowed(spec: Json) -> bool:
    """Whether the batches of a spec are planned from windows."""
    batch = spec.get("batch")
    return isinstance(batch, dict) and bool(batch.keys() & {"cost", "pack", "group_by"})


# What is right


class Right:
    """What the reference model says about a leg."""

    def __init__(self, trial: Trial, leg: Leg, base: Leg) -> None:
        calls = {"ranks": base.ranks, "workers": base.workers, "live": trial.live, "skips": trial.skips}
        self.model = replay(change_specs(trial, changes_of(trial, leg)), **calls)
        self._items: dict[tuple[int, int, int], list[Any]] = {}

    def items(self, step: int, leg: Leg, rank: int) -> list[Any]:
        """Return the items of a step on a rank of a leg, as plain values."""
        place = step, rank, leg.ranks
        if place not in self._items:
            self._items[place] = [plain(item) for item in self.model.items_of(*place)]
        return self._items[place]

    def length(self, step: int, leg: Leg) -> int | None:
        """Return `len` of the loader before a step."""
        whole = self.model.length(step)
        if whole is None or leg.ranks == 1:
            return whole
        return whole // self.model.items_per_step * max(1, self.model.items_per_step // leg.ranks)


class NotModelledError(Exception):
    """The reference model does not know something in the spec."""


def check_in_time(trial: Trial, seconds: float) -> Failure | None:
    """Return what `check` does; a failure if that takes longer, such as a loader that reads forever."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"the trial is not done after {seconds:g} s")

    if not hasattr(signal, "setitimer"):
        return check(trial)
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return check(trial)
    except TimeoutError as error:
        return Failure("hang", 0, str(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check(trial: Trial) -> Failure | None:
    """Return the first difference between the loader and the reference model.

    Raises:
        NotModelledError: the reference model does not know something in the spec.
    """
    with quiet():
        return _check(trial)


def _check(trial: Trial) -> Failure | None:
    base = trial.legs[0]
    states: dict[tuple[int, int], Json] = {}
    rights: dict[tuple[tuple[str, int], ...], Right] = {}
    for number, leg in enumerate(trial.legs):
        state = None
        if leg.origin is not None:
            state = states.get((leg.origin, leg.cut))
            if state is None:
                continue
        cuts = [each.cut for each in trial.legs if each.origin == number]
        try:
            key = changes_of(trial, leg)
            if key not in rights:
                rights[key] = Right(trial, leg, base)
            right = rights[key]
        except NotImplementedError as error:
            raise NotModelledError(str(error)) from error
        except (RunError, wdspec.WdspecError) as error:
            reading = read(trial, leg, 0, state, ())
            # The model reads the whole section of a stage at once, so it fails earlier.
            if reading.error is None or (reading.found and "stage" not in trial.spec):
                return Failure(
                    "no error", number, f"the model: {error}; the loader gives {list(reading.found)}"
                )
            return None
        readings = []
        for rank in range(leg.ranks):
            reading = read(trial, leg, rank, state, cuts)
            failure = _compare(trial, number, rank, reading, right)
            if failure is not None:
                return failure
            readings.append(reading)
        for cut in set(cuts):
            if all(cut in reading.states for reading in readings):
                parts = [reading.states[cut] for reading in readings]
                merged = parts[0] if leg.ranks == 1 else wdspec.merge_states(parts)
                states[number, cut] = json.loads(json.dumps(merged))
        if number == 0:
            failure = _check_counts(trial, readings) or _check_pass(trial, readings, right)
            if failure is not None:
                return failure
    return None


def _compare(trial: Trial, number: int, rank: int, reading: Reading, right: Right) -> Failure | None:
    leg = trial.legs[number]
    if reading.error is not None and reading.error.startswith("CRASH"):
        return Failure("crash", number, reading.error)
    begun = right.model.begun
    first = leg.cut if begun is None else min(reading.found, default=leg.cut)
    if first not in (leg.cut, begun):
        return Failure("place", number, f"resumes with {first}, not at {leg.cut} or anew at {begun}")
    for step in range(first, trial.steps):
        try:
            expected = right.items(step, leg, rank)
        except NotImplementedError as error:
            raise NotModelledError(str(error)) from error
        except RunError as error:
            # The model reads all samples of a slot in a pass, and of a section of a stage, at once, and an error may be
            # one of another rank.
            is_reached = not right.model.spec.is_pass or right.model.epoch <= trial.steps
            is_reached = is_reached and "stage" not in trial.spec
            if reading.error is None and leg.ranks == 1 and is_reached:
                return Failure("no error", number, f"step {step}, rank {rank}: the model says {error}")
            return None
        if expected and step not in reading.found and reading.error is not None and reading.failed_at <= step:
            if "yielded nothing in a whole pass" in reading.error and right.model.barren:
                return None  # the run ends; another pass, which the model reads, may keep some
            return Failure("error", number, f"step {step}, rank {rank}: {reading.error}")
        found = reading.found.get(step, [])
        if json.dumps(found, sort_keys=True) != json.dumps(expected, sort_keys=True):
            return Failure("items", number, f"step {step}, rank {rank}: {_difference(found, expected)}")
    for step, length in reading.lengths.items():
        if length != right.length(step, leg):
            return Failure("len", number, f"before {step}: {length}, not {right.length(step, leg)}")
    return None


def _difference(found: list[Any], expected: list[Any]) -> str:
    if len(found) != len(expected):
        return f"{len(found)} items, not {len(expected)}; found {_short(found)}, right {_short(expected)}"
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
            first = "__key__" if "__key__" in names else names[0] if names else "the order of fields"
            return (
                f"item {place} differs in {', '.join(names)}: {first} is {_short(one.get(first))}, "
                f"not {_short(other.get(first))}"
            )
        return f"item {place} is {_short(one)}, not {_short(other)}"
    return "the order of fields"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 300 else f"{text[:300]}…"


def _samples_of(item: Any) -> list[tuple[str, str]]:
    """Return (key, source) of each sample of an item that is not padding."""
    if not isinstance(item, dict) or "__key__" not in item:
        return []
    keys, sources, masks = (item.get(name) for name in ("__key__", "__source__", "__mask__"))
    if isinstance(keys, str):
        return [(keys, sources)] if masks in (None, True) else []
    if isinstance(masks, list) and len(masks) == 3 and isinstance(masks[0], str):  # a tensor
        masks = masks[2]
    masks = [True] * len(keys) if masks is None else masks
    return [pair for pair, mask in zip(zip(keys, sources, strict=True), masks, strict=True) if mask]


def _check_counts(trial: Trial, readings: list[Reading]) -> Failure | None:
    """Compare `stats` with what was received, where nothing is read ahead, dropped late, or skipped."""
    batch = trial.spec.get("batch", {})
    ahead = {"cost", "pack", "group_by"} & batch.keys() if isinstance(batch, dict) else ()
    base = trial.legs[0]
    if ahead or base.workers or is_pass(trial.spec) or "to_tuple" in trial.spec or "stage" in trial.spec:
        return None
    if trial.spec.get("skip") is not None or trial.skips or any(each.error for each in readings):
        return None
    for rank, reading in enumerate(readings):
        received: dict[str, int] = collections.Counter()
        for items in reading.found.values():
            for item in items:
                received.update(source for _, source in _samples_of(item))
        counted = {name: count for name, count in reading.delivered.items() if count}
        if base.ranks == 1 and counted != received:
            return Failure("counts", 0, f"rank {rank}: stats say {counted}, received {dict(received)}")
    return None


def _check_pass(trial: Trial, readings: list[Reading], right: Right) -> Failure | None:
    """Check that each epoch of a pass has no sample more often than its source is repeated."""
    batch = trial.spec.get("batch", {})
    pack = batch.get("pack") if isinstance(batch, dict) else None
    if not is_pass(trial.spec) or "to_tuple" in trial.spec or any(each.error for each in readings):
        return None
    if pack and (pack.get("method") == "concatenate" or batch.get("overlong") == "split"):
        return None
    seen: dict[tuple[int, tuple[str, str]], int] = collections.Counter()
    for reading in readings:
        for step, items in reading.found.items():
            epoch, _, _ = right.model.epoch_at(step)
            seen.update((epoch, pair) for item in items for pair in _samples_of(item))
    repeat = {leaf.name: leaf.copies for leaf in right.model.spec.sources}
    for (_, (key, source)), count in seen.items():
        copies = repeat[source]
        if count > math.ceil(copies):
            return Failure("pass", 0, f"{key} of {source} came {count} times, with `repeat: {copies}`")
    return None


# Changes


def change_spec(spec: Json, change: str) -> None:
    """Change a spec as a text says, such as `weight 3`."""
    kind, _, text = change.partition(" ")
    rng = random.Random(change)
    leaves = [leaf for each in spec["dataset"] for leaf in each.get("dataset", [each])]
    chosen = leaves[int(text) % len(leaves)]
    if kind == "weight":
        if "schedule" in (spec.get("mix") or {}):
            step = spec["mix"]["schedule"][0]["shares"]
            for name in step:
                step[name] = rng.choice((1, 2, 3))
        elif any("weight" in each for each in spec["dataset"]):
            spec["dataset"][int(text) % len(spec["dataset"])]["weight"] = 4
        else:
            spec.setdefault("mix", {})["by"] = "equal"
    elif kind in ("shuffle", "interleave"):
        values = (0, 3, 12, 60, 200) if kind == "shuffle" else (1, 2, 5)
        for each in leaves:
            each[kind] = rng.choice(values)
    elif kind == "select":
        chosen["select"] = "oracle_functions:is_most"
    elif kind == "source_added":
        new = copy.deepcopy(chosen)
        new["name"] = "added"
        spec["dataset"].append(new)
        if "weight" not in new and any("weight" in each for each in spec["dataset"]):
            new["weight"] = 2
        if "schedule" in (spec.get("mix") or {}):
            spec["mix"]["schedule"][0]["shares"]["added"] = 2
    elif kind == "source_removed":
        gone = spec["dataset"].pop(int(text) % len(spec["dataset"]))["name"]
        for step in (spec.get("mix") or {}).get("schedule", ()):
            step["shares"].pop(gone, None)
    elif kind == "order":
        chosen["order"] = "sequential" if chosen.get("order") != "sequential" else "shuffled"
    elif kind == "seed":
        spec["seed"] = spec.get("seed", 0) + 1
    elif kind == "where":
        chosen["subset"] = "70%"
    elif kind == "draw":
        spec.setdefault("mix", {})["draw"] = "random"
    elif kind == "tags":
        for each in leaves:
            each["tags"] = {**each.get("tags", {}), "origin": "new"}
    elif kind == "batch":
        _change_batch(spec, rng)
    elif kind == "plain":
        kept = {"collate": spec["batch"]["collate"]} if "collate" in spec["batch"] else {}
        # Values that a window brought together in a batch need not stack with others.
        spec["batch"] = {**kept, "ragged": "list", "size": 3}
    elif kind == "stage":
        del spec["stage"]
    elif kind == "epoch":
        spec["epoch"] = {"batches": 6} if is_pass(spec) else "pass"


def _change_batch(spec: Json, rng: random.Random) -> None:
    """Change the size of batches, what they may cost, or the length of windows."""
    if isinstance(spec["batch"], int):
        spec["batch"] += 1
        return
    keys = [
        key for key in ("size", "global_size", "max_cost", "window", "group_wait") if key in spec["batch"]
    ]
    spec["batch"][rng.choice(keys)] *= 2


CHANGES = (
    *("weight", "weight", "shuffle", "interleave", "select", "source_added", "draw"),
    *("source_removed", "order", "seed", "where", "batch", "plain", "stage", "epoch", "tags"),
)
OF_LENGTH = ("source_added", "source_removed", "where", "batch", "plain")
"""Changes of the length of a pass. One that reshuffles in batches of a size then begins its epoch at another step."""


def known_fault(spec: Json) -> str | None:
    """Return what is known to be wrong for a spec, so that a difference says nothing new."""
    leaves = [leaf for each in spec["dataset"] for leaf in each.get("dataset", [each])]
    if is_pass(spec) and is_windowed(spec):
        for leaf in leaves:
            if ("repeat" in leaf or reshuffles(spec)) and leaf.get("select") == HEADS:
                return "a random `select` in a pass by cost is measured by the numbers of the first copy and epoch"
    return None


# Drawing trials


def draw_trial(seed: object) -> Trial:
    """Return a random trial; its spec may not be valid."""
    spec = json.loads(json.dumps(Draw(seed).spec))
    rng = random.Random(f"trial {seed}")
    live, skips = draw_calls(seed, spec, STEPS - 6)
    return add_legs(rng, Trial(spec, live, skips))


def draw_trial_with_companions(seed: object) -> Trial:
    """Return a random trial, each of whose sources with text has companions that its samples tell of."""
    trial = draw_trial(seed)
    rng = random.Random(f"companions {seed}")
    blocks: Json = {
        "one": {"shards": "a-{000..004}.tar", "shuffle": rng.choice((0, 4, 1000))},
        "two": {"shards": "b-{000..011}.tar", "where": "txt.length > 2", "order": "resampled"},
        "three": {
            "shards": "e-{000..001}.tar",
            "select": "oracle_functions:is_most",
            "map": "oracle_functions:jitter",
            "interleave": rng.choice((1, 8)),
        },
    }
    trial.spec["companions"] = blocks
    is_planned = is_pass(trial.spec) and is_windowed(trial.spec)
    if is_planned and trial.spec["batch"].get("cost") == "oracle_functions:cost":
        trial.spec["batch"]["cost"] = "txt.length + 1"  # a function of whole samples may depend on companions
    for source in [leaf for each in trial.spec["dataset"] for leaf in each.get("dataset", [each])]:
        source["companions"] = {
            "beside": {"source": rng.choice([*blocks]), "chance": rng.choice((0, 0.3, 0.5, 1))},
            "others": {"source": rng.choice([*blocks]), "count": rng.choice((1, 2, 3))},
        }
        if is_planned:  # a sample that fails with its companions has a place in the plan (docs/companions.md)
            source.get("expect", {}).get("fields", {}).get("txt", {}).pop("length", None)
        maps = source.get("map", [])
        told: Json = {"call": "oracle_functions:tell_companions"}
        if rng.random() < 0.5 and not is_planned:
            told["sets"] = ["txt"]
        source["map"] = [*(maps if isinstance(maps, list) else [maps]), told]
    if is_pass(trial.spec):  # the model reads a pass from its start
        trial.legs = [leg for leg in trial.legs if leg.change is None]
    return trial


def add_legs(rng: random.Random, trial: Trial) -> Trial:
    """Return a trial with random legs."""
    spec = trial.spec
    elastic = spec.get("elastic")
    batch = spec.get("batch")
    can_thread = "oracle_functions" not in json.dumps(spec) and rng.random() < 0.5
    # Workers that read Lance are spawned, which takes seconds each; tests/formats/test_lance.py has a few.
    has_processes = rng.random() < 0.01 and ".lance" not in json.dumps(spec)
    base = Leg()
    if elastic is None:
        canonical = (rng.choice((1, 1, 2)), rng.choice((0, 2)) if can_thread else 0)
        if isinstance(batch, dict) and "global_size" in batch and batch["global_size"] % canonical[0]:
            canonical = (1, canonical[1])
        base = Leg(*canonical, threads=bool(canonical[1]))
    ranks, workers = (elastic["ranks"], elastic["workers"]) if elastic else (base.ranks, max(1, base.workers))
    is_split = batch is None or is_windowed(spec) or (isinstance(batch, dict) and batch.get("accumulate"))
    places = ranks
    if not is_split:
        size = batch if isinstance(batch, int) else batch.get("size") or batch["global_size"] // ranks
        places = ranks * size

    def topology() -> Json:
        if elastic is None:  # the first topology is the canonical one
            return {key: getattr(base, key) for key in ("ranks", "workers", "threads")}
        worlds = [each for each in range(1, 5) if places % each == 0]
        found: Json = {"ranks": rng.choice(worlds), "workers": 0}
        counts = [each for each in range(1, workers + 1) if workers % each == 0]
        if can_thread and rng.random() < 0.5:
            found |= {"workers": rng.choice(counts), "threads": True}
        elif has_processes:
            found |= {"ranks": 1, "workers": rng.choice(counts)}
        return found

    first, second = sorted(rng.sample(range(1, trial.steps - 4), 2))
    legs = [base, Leg(**topology()), Leg(**topology(), origin=0, cut=first)]
    legs.append(Leg(**topology(), origin=2, cut=second))
    is_fixed = reshuffles(spec) and not is_windowed(spec)
    changes = [each for each in CHANGES if not (is_fixed and each in OF_LENGTH)]
    if base == Leg() and rng.random() < 0.7:
        legs.append(Leg(origin=0, cut=first, change=f"{rng.choice(changes)} {rng.randrange(9)}"))
        if rng.random() < 0.5:  # again, soon after
            again = min(first + rng.choice((1, 1, 2, 3, 6)), trial.steps - 2)
            legs.append(Leg(origin=4, cut=again, change=f"{rng.choice(changes)} {rng.randrange(9)}"))
    # Random cuts at places that a run does not reach would test nothing: a call before a step that follows a skipped
    # one is never made.
    trial.legs = legs
    return _without_unreachable_calls(trial)


def _without_unreachable_calls(trial: Trial) -> Trial:
    skipped: set[int] = set()
    written = trial.spec.get("skip", [])
    for each in written if isinstance(written, list) else [written]:
        first, _, last = str(each).partition("..")
        skipped |= set(range(int(first), int(last or first) + 1))
    skips = []
    for called, first, last in trial.skips:
        if called == 0 or called - 1 not in skipped:
            skips.append((called, first, last))
            skipped |= set(range(first, last + 1))
    live = [each for each in trial.live if each[0] == 0 or each[0] - 1 not in skipped]
    return Trial(trial.spec, live, skips, trial.legs, trial.steps)


def is_valid(trial: Trial) -> bool:
    """Whether the spec of every leg is valid, and names at least one source."""
    for leg in trial.legs:
        try:
            spec = spec_of(trial, leg)
        except (IndexError, KeyError):
            return False
        if not spec["dataset"] or any(problem.is_error for problem in wdspec.validate(spec)):
            return False
    names = {each["name"] for each in trial.spec["dataset"]}
    return all(set(shares) <= names and any(shares.values()) for _, shares, _ in trial.live)


# Shrinking


def shrink(trial: Trial, failure: Failure, seconds: float = 60) -> tuple[Trial, Failure]:
    """Return a smaller trial that fails in the same way."""
    until = time.monotonic() + seconds
    is_smaller = True
    while is_smaller and time.monotonic() < until:
        is_smaller = False
        for candidate in _smaller(trial):
            if time.monotonic() > until:
                break
            try:
                found = check(candidate) if is_valid(candidate) else None
            except Exception:
                continue
            if found is not None and found.kind == failure.kind:
                trial, failure, is_smaller = candidate, found, True
                break
    return trial, failure


def _smaller(trial: Trial) -> Iterator[Trial]:
    def copied() -> Trial:
        return Trial(**json.loads(json.dumps(asdict(trial))))

    for number in range(len(trial.legs) - 1, 0, -1):
        if all(leg.origin != number for leg in trial.legs):
            made = copied()
            del made.legs[number]
            for leg in made.legs:
                leg.origin = leg.origin - 1 if leg.origin is not None and leg.origin > number else leg.origin
            yield made
    for name in ("live", "skips"):
        for number in range(len(getattr(trial, name))):
            made = copied()
            del getattr(made, name)[number]
            yield made
    for path in _paths(trial.spec):
        made = copied()
        holder: Any = made.spec
        for part in path[:-1]:
            holder = holder[part]
        del holder[path[-1]]
        yield made
    for number, leg in enumerate(trial.legs):
        for key, value in asdict(Leg()).items():
            if key in ("ranks", "workers", "threads") and getattr(leg, key) != value:
                made = copied()
                setattr(made.legs[number], key, value)
                yield made
    if "elastic" in trial.spec:
        for key in ("ranks", "workers"):
            if trial.spec["elastic"].get(key, 1) > 1:
                made = copied()
                made.spec["elastic"][key] = 1
                yield made
    if trial.steps > 4:
        made = copied()
        made.steps = trial.steps * 3 // 4
        yield made


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of what may be deleted, the largest parts first."""
    children = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, _ in children:
        yield (*path, key)
    for key, child in children:
        if isinstance(child, (dict, list)):
            yield from _paths(child, (*path, key))


def describe(trial: Trial) -> str:
    """Return a trial as a Python dict, without what it need not say."""
    legs = [
        {key: value for key, value in asdict(leg).items() if value != getattr(Leg(), key)}
        for leg in trial.legs
    ]
    found = {"spec": trial.spec, "legs": legs, "steps": trial.steps}
    found |= {name: getattr(trial, name) for name in ("live", "skips") if getattr(trial, name)}
    return repr(found)


# The command


def run(
    seeds: Sequence[object],
    *,
    having: str = "",
    stop: bool = False,
    shrinks: bool = True,
    seconds: float | None = None,
    draw: Callable[[object], Trial] = draw_trial,
) -> Json:
    """Check the trials of seeds in the data folder, print failures, and return them with counts by kind.

    Args:
        having: a regular expression that the JSON of a trial contains; others are passed over.
        stop: whether to stop at the first failure.
        shrinks: whether to shrink trials that fail.
        seconds: the time that a trial may take; None for any.
        draw: draws the trial of a seed.
    """
    counts: dict[str, int] = collections.Counter()
    failures = []
    for seed in seeds:
        trial = draw(seed)
        if not re.search(having, json.dumps(asdict(trial))):
            continue
        counts["drawn"] += 1
        if any(problem.is_error for problem in wdspec.validate(trial.spec)):
            counts["not valid"] += 1
            continue
        while trial.legs and not is_valid(trial):  # the last legs change the spec
            trial.legs.pop()
        if not trial.legs:
            counts["not valid"] += 1
            continue
        fault = next(filter(None, (known_fault(spec_of(trial, leg)) for leg in trial.legs)), None)
        if fault is not None:
            counts[f"known fault: {fault}"] += 1
            continue
        try:
            failure = check(trial) if seconds is None else check_in_time(trial, seconds)
        except NotModelledError as error:
            counts[f"not modelled: {error}"] += 1
            continue
        except Exception as error:
            failure = Failure("model crash", 0, "".join(traceback.format_exception(error)[-4:]))
        counts["checked"] += 1
        if failure is None:
            continue
        counts["failed"] += 1
        original = failure
        if shrinks and failure.kind not in ("model crash", "hang"):
            trial, failure = shrink(trial, failure)
        failures.append({"seed": seed, "kind": failure.kind, "message": failure.message})
        print(f"seed {seed!r}: {original.kind} in leg {original.leg}: {original.message}")
        print(
            f"  smallest: {failure.kind} in leg {failure.leg}: {failure.message}\n  {describe(trial)}",
            flush=True,
        )
        if stop:
            break
    return {"counts": dict(counts), "failures": failures}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=100, help="number of specs to draw")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument(
        "--having", default="", help="only trials whose JSON contains this regular expression"
    )
    parser.add_argument("--companions", action="store_true", help="give all sources companions")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--no-shrink", action="store_true", help="print failures as they are")
    chosen = parser.parse_args(arguments)
    if chosen.jobs > 1:
        return _run_processes(chosen)
    start = time.monotonic()
    with data_folder():
        seeds = range(chosen.seed, chosen.seed + chosen.count)
        found = run(
            seeds,
            having=chosen.having,
            stop=chosen.stop,
            shrinks=not chosen.no_shrink,
            seconds=TRIAL_SECONDS,
            draw=draw_trial_with_companions if chosen.companions else draw_trial,
        )
    counts = found["counts"]
    valid = counts.get("drawn", 0) - counts.get("not valid", 0)
    print(f"{counts}; {valid / max(1, counts.get('drawn', 0)):.1%} valid; {time.monotonic() - start:.0f} s")
    return 1 if found["failures"] else 0


def _run_processes(chosen: argparse.Namespace) -> int:
    each = -(-chosen.count // chosen.jobs)
    options = ["--having", chosen.having]
    options += [
        name
        for name in ("--stop", "--no-shrink", "--companions")
        if getattr(chosen, name.strip("-").replace("-", "_"))
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--seed", str(first), "--count", str(count), *options], env=os.environ
        )
        for first in range(chosen.seed, chosen.seed + chosen.count, each)
        for count in [min(each, chosen.seed + chosen.count - first)]
    ]
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
