"""Random specs, through random changes of topology, read the same as one process without interruption.

Most cases run the real Loader over `rotating.Rotation`, which does what torch's DataLoader does with worker
processes, in this process; a few run real ones. What the cases cover is counted, and the counts are asserted.
"""

import itertools
import json
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from rotating import rotating_loader
from runs import Listed
from shardmaking import UNEVEN, write_uneven_sources

import wdspec
from wdspec.planning.past import Changes
from wdspec.planning.shares import LiveShares
from wdspec.planning.topology import Seat
from wdspec.run.state import merge_states
from wdspec.spec.language.steps import StepRange, StepRanges
from wdspec.spec.load import load
from wdspec.testing import difference

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_uneven_sources(folder)
    return folder


KINDS = ("endless", "endless", "pass", "schedule", "pass")
"""What cases are of: shares that stay, shares that change, and a finite pass."""
ORDERS = {"endless": 4, "schedule": 4, "pass": 3}


@dataclass(frozen=True)
class Leg:
    """A part of a run: ranks, workers, and a number of steps."""

    ranks: int
    workers: int
    steps: int
    prefetch: int
    persistent: bool
    together: int
    """Batches in a delivery, where no processes say how many."""
    pauses: tuple[int, ...]
    """After how many items of the leg an iteration is left and another one started."""


@dataclass(frozen=True)
class Case:
    spec: dict
    ranks: int
    workers: int
    legs: tuple[Leg, ...]
    sets: dict[int, dict[str, int]]
    """Global batch -> the shares that the training loop sets from it on."""
    skips: tuple[tuple[int, int], ...] = ()
    """Steps that the spec skips: the first, and the one after the last."""
    skips_from_loop: tuple[tuple[int, int], ...] = ()
    """For each leg, how far ahead the loop skips steps at its start, and how many."""
    forgets: bool = False
    """Whether the spec of later legs says nothing of the steps that were skipped before."""


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def sources(draw, names, kind):
    def leaf(name):
        order = draw(st.sampled_from(["shuffled", "shuffled", "sequential", "resampled"][: ORDERS[kind]]))
        missing = draw(st.sampled_from(["none", "skip"]))
        # A slot that reads the same parts of shards in every pass may find none of a few samples among them.
        chosen = ["most", "coin"] if name == "d" or order == "sequential" else ["few", "most", "coin"]
        return {
            "name": name,
            "shards": f"FOLDER/{name}-{{000..{UNEVEN[name][0] - 1:03d}}}.tar",
            **share(1, 5),
            "shuffle": draw(st.sampled_from([0, 3, 16, 30, 60, 100])),
            **({} if kind == "pass" else {"interleave": draw(st.sampled_from([1, 2, 4, 8]))}),
            "order": order,
            **({"select": f"picks:{draw(st.sampled_from(chosen))}"} if draw(st.booleans()) else {}),
            **(
                {"extensions": "txt cls", "missing": missing}
                if draw(st.booleans())
                else {"extensions": "txt"}
            ),
        }

    def share(least, most):
        return {} if kind == "pass" else {"weight": draw(st.integers(least, most))}

    leaves = [leaf(name) for name in names]
    if len(leaves) < 2 or not draw(st.booleans()):
        return leaves
    cut = draw(st.integers(1, len(leaves) - 1))
    return [*leaves[:cut], {"name": "inner", **share(1, 3), "dataset": leaves[cut:]}]


@st.composite
def mixes(draw, dataset, kind, batch):
    """`mix` for some sources; their own shares go where a schedule has them."""
    if kind == "pass":
        return None
    draws = [{"draw": "even"}, {"draw": "random"}, *([{"unit": "batch"}] if batch else [])]
    if kind == "endless":
        return draw(st.sampled_from([*draws, {"draw": "round_robin"}]))
    for source in dataset:
        del source["weight"]
    names = [source["name"] for source in dataset]
    starts = [0, *sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=3)))]
    steps = [
        {
            "at": at,
            "shares": {name: draw(st.integers(0, 3)) for name in names} | {draw(st.sampled_from(names)): 2},
        }
        for at in starts
    ]
    return {**draw(st.sampled_from(draws)), "schedule": steps}


@st.composite
def cases(draw, fewest_workers=0, most_workers=6, most_legs=5, most_steps=8):
    ranks = draw(st.sampled_from([1, 2, 3, 4, 6]))
    workers = draw(st.sampled_from([1, 2, 3, 4, 6]))
    names = draw(st.permutations(sorted(UNEVEN)))[: draw(st.sampled_from([1, 2, 3, 4, 5]))]
    batch = draw(st.sampled_from([None, 1, 2, 3, 4]))
    kind = draw(st.sampled_from(KINDS))
    length = draw(st.integers(1, 11))
    epoch = {"batches": length} if batch else {"samples": length * ranks}
    if kind == "pass":
        enough = sum(shards * samples for shards, samples in map(UNEVEN.get, names)) >= ranks * (batch or 1)
        epoch = {"pass": draw(st.sampled_from(["pad", "drop"] if enough else ["pad"]))}
    dataset = draw(sources(names, kind))
    spec = {
        "seed": draw(st.integers(0, 99)),
        "mix": draw(mixes(dataset, kind, batch)),
        "dataset": dataset,
        "elastic": {"ranks": ranks, "workers": workers},
        "map": "picks:jitter",
        "fields": ["txt", "noise"],
        "to_tuple": None
        if draw(st.booleans())
        else ["__key__", "noise", "txt", *(["__mask__"] if kind == "pass" else [])],
        "batch": {"size": batch, "accumulate": draw(st.booleans())} if batch else None,
        "epoch": epoch,
    }
    legs = [
        Leg(
            ranks=draw(st.sampled_from(divisors(ranks))),
            workers=draw(
                st.sampled_from([w for w in (0, *divisors(workers)) if fewest_workers <= w <= most_workers])
            ),
            steps=draw(st.integers(1, most_steps)),
            prefetch=draw(st.integers(1, 3)),
            persistent=draw(st.booleans()),
            together=draw(st.sampled_from([1, 2, 3, 7])),
            # A new iteration over a pass starts the pass again.
            pauses=() if kind == "pass" else tuple(draw(st.lists(st.integers(1, 9), max_size=2))),
        )
        for _ in range(draw(st.integers(2, most_legs)))
    ]
    sets, skips = {}, kind != "pass" and draw(st.booleans())
    if kind != "pass" and (spec["mix"] or {}).get("draw") != "round_robin" and not skips:
        steps = (spec["mix"] or {}).get("schedule", [])
        tops = [source["name"] for source in dataset]
        # Those that the spec never gives a share cannot get one. Of steps before one batch only the last counts.
        tops = [top for top in tops if not steps or steps[-1]["shares"][top]]
        for at in draw(st.sets(st.integers(0, sum(leg.steps for leg in legs) - 1), min_size=1, max_size=4)):
            chosen = draw(st.permutations(tops))[: draw(st.integers(1, len(tops)))]
            sets[at] = {name: draw(st.integers(1, 5)) for name in chosen}
    if not skips:
        return Case(spec, ranks, workers, tuple(legs), sets)
    far, most = sum(leg.steps for leg in legs), draw(st.sampled_from([1, 4, 12]))
    skips = draw(st.lists(st.tuples(st.integers(0, far), st.integers(1, most)), max_size=3))
    skips_from_loop = draw(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, most)), min_size=1, max_size=len(legs))
    )
    skips = StepRanges.of((first, first + count) for first, count in skips).ranges
    return Case(spec, ranks, workers, tuple(legs), sets, skips, tuple(skips_from_loop), draw(st.booleans()))


def features(parts, case):
    """What a case covers."""
    plan = parts.run(Seat(), 0).plan
    sizes = [UNEVEN[source.name] for source in plan.sources]
    held = [source.delays.size for source in plan.sources]
    changes = [(leg.ranks, leg.workers) for leg in case.legs]
    return {
        "three sources or more": len(plan.sources) >= 3,
        "a nested mix": any(source.dataset for source in parts.spec.dataset),
        "a filter": any(source.select for source in parts.spec.sources),
        "more held than a shard has": any(
            size > samples for size, (_, samples) in zip(held, sizes, strict=True)
        ),
        "fewer shards than slots": any(shards < plan.topology.slots for shards, _ in sizes),
        "K > 1 and E not a multiple of K": plan.topology.workers > 1
        and bool(plan.timeline.epoch_steps % plan.topology.workers),
        "several changes": sum(a != b for a, b in itertools.pairwise(changes)) >= 2,
        "an epoch crossed": sum(leg.steps for leg in case.legs) > plan.timeline.epoch_steps,
        "a pass": plan.finite is not None,
        "a schedule": len(plan.schedule) > 1,
        "several batches a step": parts.spec.batch is not None
        and any(parts.run(Seat(0, leg.ranks), 0).items_per_step > 1 for leg in case.legs),
        "no batch": parts.spec.batch is None,
        "shares set": bool(case.sets),
        "steps skipped by the spec": bool(case.skips),
    }


MUST_COVER = (
    "three sources or more",
    "a nested mix",
    "a filter",
    "more held than a shard has",
    "fewer shards than slots",
    "K > 1 and E not a multiple of K",
    "several changes",
    "a pass",
    "a schedule",
    "several batches a step",
    "shares set",
    "steps skipped by the spec",
    "steps skipped by the loop",
)
"""What at least a tenth of the cases have each."""


def blueprint_of(case, folder):
    return Listed.of(load(json.loads(json.dumps(case.spec).replace("FOLDER", str(folder)))))


def take(loader, items, pauses=(), sets=None):
    """The next items, across epochs, leaving iterations early at the pauses, and setting shares as planned."""
    taken = []
    cuts = {*(p for p in pauses if p < items), items}

    def set_shares():
        if sets and len(taken) in sets:
            shares, after = sets[len(taken)]
            assert loader.set_shares(shares, after=after) == loader.stream.next_step + after

    set_shares()
    while len(taken) < items:
        for item in loader:
            taken.append(item)
            set_shares()
            if len(taken) in cuts:
                break
    return taken


def run(parts, case, make):
    """The global steps that the legs of a run read, each rank by rank, passing only JSON text between them; and which
    steps are skipped on the way."""
    steps, state, skipped = [], None, StepRanges(case.skips)
    sets, length = case.sets, parts.run(Seat(), 0).plan.timeline.epoch_steps
    for leg, skips_from_loop in itertools.zip_longest(case.legs, case.skips_from_loop, fillvalue=(0, 0)):
        rows, states = [], []
        at = 0 if state is None else json.loads(state)["batch"]
        to_come = StepRanges(case.skips).within(at) if case.forgets else StepRanges(case.skips)
        parts = replace(parts, spec=parts.spec.model_copy(update={"skip": as_written(to_come)}))
        more = StepRanges.of([(at + skips_from_loop[0], at + sum(skips_from_loop))])
        skipped |= more
        for rank in range(leg.ranks):
            seat = Seat(rank, leg.ranks)
            loader = make(parts, seat, leg)
            try:
                if state is not None:
                    loader.load_state_dict(json.loads(state))
                for first, stop in more.ranges:
                    loader.skip_steps(first, stop - 1)
                each = loader.run.items_per_step
                start = loader.epoch * length
                assert len(loader) == each * sum(step not in skipped for step in range(start, start + length))
                here = to_set(sets, len(steps), leg.steps, each)
                items = take(loader, leg.steps * each, leg.pauses, here)
                rows.append([items[at : at + each] for at in range(0, len(items), each)])
                states.append(json.loads(json.dumps(loader.state_dict())))
            finally:
                loader.close()
        steps += [[samples_of(row) for row in step] for step in zip(*rows, strict=True)]
        state = json.dumps(merge_states(states))
    return [list(itertools.chain.from_iterable(step)) for step in steps], skipped


def as_written(steps):
    return tuple(StepRange(first=first, last=stop - 1) for first, stop in steps.ranges)


def to_set(sets, first, steps, each):
    """The shares set in a leg from global batch `first`: number of items before -> (shares, after)."""
    here, before = {}, -1
    for at, shares in sorted(sets.items()):
        called = at if at % 2 else max(before + 1, first, at - 3)  # some are set before they are to hold
        if first <= at < first + steps:
            # Within the step before, where that gives several items: it must not make a difference.
            items = (called - first) * each - (each - 1 if called > first else 0)
            here[items] = shares, at - called
        before = at
    return here


def samples_of(items):
    """The samples in what one rank gets at a step, in order: key, noise and whether it is no padding."""
    found = []
    for item in items:
        if isinstance(item, tuple):
            keys, noise, _, *mask = item
        else:
            keys, noise = item["__key__"], item["noise"]
            mask = [item["__mask__"]] if "__mask__" in item else []
        if isinstance(keys, str):
            found.append((keys, noise, *mask))
        else:
            found += zip(keys, noise.tolist(), *(each.tolist() for each in mask), strict=True)
    return [(*row, True)[:3] for row in found]


def without_a_break(parts, steps, sets, skipped):
    """The same steps read by one process, all of them, without Loader, states or batches."""
    run = parts.run(Seat(), 0)
    reader, read = run.reader(), []
    numbers = itertools.count()
    while len(read) < steps:
        number = next(numbers)
        if number in sets:
            reader.draw_by(Changes(run.segments([LiveShares(number, sets[number])])))
        batch = [(s["__key__"], s["noise"], s.get("__mask__", True)) for s in reader.batch(number)]
        if not any(first <= number < stop for first, stop in skipped.ranges):
            read.append(batch)
    return read


def check(case, folder, make, census):
    parts = blueprint_of(case, folder)
    census["cases"] += 1
    census.update(name for name, holds in features(parts, case).items() if holds)
    steps = sum(leg.steps for leg in case.legs)
    census.update({"global batches": steps, "resumes": len(case.legs) - 1})
    seen, skipped = run(parts, case, make)
    census["steps skipped by the loop"] += skipped != StepRanges(case.skips)
    expected = without_a_break(parts, steps, case.sets, skipped)
    for number, (wanted, got) in enumerate(zip(expected, seen, strict=True)):
        assert difference(wanted, got, f"global batch {number}") is None


def in_process(parts, seat, leg):
    return rotating_loader(
        parts.run(seat, leg.workers), leg.workers, leg.prefetch, leg.persistent, leg.together
    )


def with_workers(parts, seat, leg):
    arguments = {"prefetch_factor": leg.prefetch, "persistent_workers": leg.persistent} if leg.workers else {}
    return wdspec.Loader(parts.run(seat, leg.workers), leg.workers, **arguments)


def search(folder, make, examples, strategy=None, number=0, **options):
    """Run `examples` random cases, the same for the same `number`; return what they covered."""
    census = Counter()

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        **options,
    )
    @given(cases() if strategy is None else strategy)
    def judge(case):
        check(case, folder, make, census)

    judge()
    return census


def assert_covered(census, examples):
    assert census["cases"] >= examples
    shares = {name: census[name] / census["cases"] for name in MUST_COVER}
    assert min(shares.values()) >= 0.1, shares


def test_random_specs_read_the_same_on_any_topologies(folder):
    # Few, as tests/oracle has random specs of every key; the cases of this number cover enough.
    census = search(folder, in_process, 24, number=6)
    assert_covered(census, 24)


def test_random_specs_read_the_same_through_real_workers(folder):
    search(folder, with_workers, 3, cases(fewest_workers=1, most_workers=2))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_thousands_of_random_specs_read_the_same_on_any_topologies(folder, number):
    census = search(folder, in_process, 1000, number=number)
    assert_covered(census, 1000)
    chains = search(folder, in_process, 180, cases(most_legs=14, most_steps=40), number=number)
    print(f"seed {number}: {dict(census)}, long chains: {dict(chains)}")  # shown with -rP
    assert chains["resumes"] >= 750
    assert chains["global batches"] >= 15_000
    search(folder, with_workers, 25, cases(fewest_workers=1, most_workers=4), number=number)
