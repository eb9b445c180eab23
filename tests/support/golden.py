"""Orders and states of random specs, recorded once: no change of the code may alter them.

`python tests/support/golden.py` rewrites `golden.json`, which only a change marked ORDER or STATE FORMAT in the
CHANGELOG may do.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
from pathlib import Path

from shardmaking import UNEVEN, write_uneven_sources

SPECS = 60
STEPS = 40
FILE = Path(__file__).with_suffix(".json")


def spec_number(number):
    """A spec that depends on its number alone; shards are named relative to the working directory."""
    rng = random.Random(f"golden {number}")
    kind = rng.choice(["endless", "endless", "schedule", "pass"])
    names = rng.sample(sorted(UNEVEN), rng.randint(1, 5))
    ranks, workers = rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 3, 4])
    batch = rng.choice([None, 1, 2, 3, 4])
    leaves = [_leaf(rng, name, kind) for name in names]
    if len(leaves) > 1 and rng.random() < 0.4:
        cut = rng.randint(1, len(leaves) - 1)
        inner = {"name": "inner", **_share(rng, kind, 1, 3), "dataset": leaves[cut:]}
        leaves = [*leaves[:cut], inner]
    length = rng.randint(1, 11)
    epoch = {"batches": length} if batch else {"samples": length * ranks}
    return {
        "seed": rng.randint(0, 99),
        "mix": _mix(rng, leaves, kind, batch),
        "dataset": leaves,
        "elastic": {"ranks": ranks, "workers": workers},
        "map": "picks:jitter",
        "fields": ["txt", "noise"],
        "batch": {"size": batch, "accumulate": rng.random() < 0.5} if batch else None,
        "epoch": {"pass": "pad"} if kind == "pass" else rng.choice([epoch, None]),
    }


def _share(rng, kind, least, most):
    return {} if kind == "pass" else {"weight": rng.randint(least, most)}


def _leaf(rng, name, kind):
    order = rng.choice(["shuffled", "shuffled", "sequential", *([] if kind == "pass" else ["resampled"])])
    leaf = {
        "name": name,
        "shards": f"{name}-{{000..{UNEVEN[name][0] - 1:03d}}}.tar",
        **_share(rng, kind, 1, 5),
        "shuffle": rng.choice([0, 3, 16, 30, 60, 100]),
        "order": order,
        "extensions": "txt",
    }
    if kind != "pass":
        leaf["interleave"] = rng.choice([1, 1, 2, 4])
    if rng.random() < 0.4:
        leaf["select"] = f"picks:{rng.choice(['most', 'coin'])}"
    if rng.random() < 0.4:
        leaf |= {"extensions": "txt cls", "missing": rng.choice(["none", "skip"])}
    if rng.random() < 0.2:
        leaf["tags"] = {"lang": "en"}
    return leaf


def _mix(rng, leaves, kind, batch):
    if kind == "pass":
        return None
    draws = [{"draw": "even"}, {"draw": "random"}, *([{"unit": "batch"}] if batch else [])]
    if kind == "endless":
        return rng.choice([*draws, {"draw": "round_robin"}])
    for leaf in leaves:
        del leaf["weight"]
    names = [leaf["name"] for leaf in leaves]
    steps = [
        {"at": at, "shares": {name: rng.randint(0, 3) for name in names} | {rng.choice(names): 2}}
        for at in (0, *sorted(rng.sample(range(1, 60), rng.randint(1, 3))))
    ]
    return {**rng.choice(draws), "schedule": steps}


def observed(spec):
    """The output of a spec in the working directory: the first keys, a hash of all samples, and of the state then."""
    import wdspec

    pipeline = wdspec.compile(json.loads(json.dumps(spec)), rank=0, world_size=1)
    items, left = [], STEPS
    while left:
        taken = list(itertools.islice(pipeline, left))
        left -= len(taken)
        items += taken
    rows = [_row(item) for item in items]
    state = pipeline.state_dict()
    pipeline.close()
    return {
        "first": rows[0],
        "order": _hash(rows),
        "digest": state["digest"],
        "samples": state["samples"],
        "state": _hash({**state, **_without_totals(state), "ranks": _slots_of(state)}),
        "slots": len([slot for slots in _slots_of(state).values() for slot in slots if slot]),
    }


def _without_totals(state):
    """The version of a state without what was received, which passes that drop samples have in their entries."""
    from wdspec.run.state import totals_of

    return {"version": 5} if "pass" in state["order"] and totals_of(state, 0) else {}


def _slots_of(state):
    """The content of the entries of a state, however they are encoded."""
    from wdspec.run.state import decode, entry_of

    workers = json.loads(state["order"])["elastic"]["workers"]
    return {
        rank: [
            slot and [list(each) for each in slot]
            for slot in decode(entry_of(state, rank), workers, len(state["sources"]))
        ]
        for rank in state["ranks"]
    }


def _row(item):
    mask = item.get("__mask__", True)
    noise = item["noise"]
    if isinstance(item["__key__"], str):
        return [item["__key__"], noise, mask]
    return [item["__key__"], noise.tolist(), mask if mask is True else mask.tolist()]


def _hash(value):
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def main():
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write_uneven_sources(Path(folder))
        os.chdir(folder)
        found = [{"spec": spec_number(n), **observed(spec_number(n))} for n in range(SPECS)]
    FILE.write_text("[\n" + ",\n".join(json.dumps(each) for each in found) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
