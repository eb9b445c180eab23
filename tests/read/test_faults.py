"""Random faults between a whole reader and its store: the same samples as without them, or an error with the URL."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.fault_proxy import Cut, NoRange, Said, Script, Stall, Status
from shardmaking import write_shard

from wdspec.api import sample_reader
from wdspec.base.errors import ShardError
from wdspec.spec.load import load
from wdspec.stores.retry import RetryPolicy

SHARDS = ["a-0.tar", "a-1.tar", "b-0.tar.gz"]
SAMPLES = 150
"""More than two passes over all shards, by one slot."""
PATIENCE = RetryPolicy(
    budget=250, brief=250, delay=0.0005, longest_delay=0.005, read_timeout=0.1, connect_timeout=60
)
_runs = count()

OFFSETS = st.one_of(st.integers(0, 2000), st.integers(0, 1_500_000))
CUT = st.builds(Cut, OFFSETS, st.booleans())
STATUS = st.builds(Status, st.sampled_from([408, 409, 425, 429, 500, 502, 503, 504]))
LIE = st.sampled_from([NoRange(), Said((("etag", '"stale"'),)), Said((("content-range", "bytes 1-2/3"),))])
STALL = st.builds(Stall, st.one_of(st.just(-1), OFFSETS))
TRANSIENT = st.one_of(*[CUT, STATUS, LIE] * 6, STALL)  # stalls are rare, for they take time
LASTING = st.one_of(
    st.builds(Status, st.sampled_from([403, 404, 500, 503])),
    st.builds(Cut, st.integers(0, 500), st.booleans()),
    st.just(Said((("etag", '"new"'),))),
)


def spec_of(root):
    return {
        "dataset": [
            {"name": "a", "shards": f"{root}/a-{{0..1}}.tar", "probability": 0.5},
            {"name": "b", "shards": f"{root}/b-0.tar.gz", "probability": 0.5},
        ],
        "defaults": {"shuffle": 20, "decode": "raw"},
        "seed": 3,
    }


def samples(spec, patience=PATIENCE):
    """The samples of a spec, with a given patience."""
    reader = sample_reader(load(spec))
    for number, source in enumerate(reader._sources):
        opener = source.parts.open
        opener = replace(opener, storage=replace(opener.storage, retry_policy=patience))
        reader._sources[number] = replace(source, parts=replace(source.parts, open=opener))
    try:
        for number in range(SAMPLES):
            [sample] = reader.batch(number)
            yield {name: value for name, value in sample.items() if name != "__url__"}
    finally:
        reader.close()


@pytest.fixture(scope="module")
def expected(nginx):
    """The samples of a reader, from the local files that nginx serves."""
    rng = random.Random(1)
    folder = nginx.root / "faults"
    for name in SHARDS:
        sizes = [rng.choice([100, 5000, 60_000, 120_000]) for _ in range(25)]
        content = [
            (f"{name[:3]}{i:03d}", {"bin": rng.randbytes(n), "txt": b"text %d" % i})
            for i, n in enumerate(sizes)
        ]
        write_shard(folder / name.removesuffix(".gz"), content)
        if name.endswith(".gz"):
            path = folder / name
            path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
            path.with_suffix("").unlink()
    return list(samples(spec_of(folder)))


def check(proxy, expected, first, then):
    """One run: `first` are the faults of the first requests of each shard, `then` what befalls one for good."""
    run = f"run-faults-{next(_runs)}/faults"
    for name, faults in zip(SHARDS, first, strict=True):
        proxy.scripts[f"/{run}/{name}"] = Script(list(faults))
    if then is not None:
        shard, fault, after = then
        script = proxy.scripts[f"/{run}/{SHARDS[shard]}"]
        script.first = script.first[:after]
        script.then = fault
    patience = PATIENCE if then is None else replace(PATIENCE, budget=0.2, connect_timeout=5)
    got, problem = [], ""
    try:
        for sample in samples(spec_of(f"{proxy.url}/{run}"), patience):
            got.append(sample)
    except ShardError as error:
        problem = str(error)
    assert got == expected[: len(got)]
    if problem:
        assert then is not None, f"a temporary fault was not retried: {problem}"
        assert f"{proxy.url}/{run}/" in problem
    else:
        assert len(got) == len(expected)
    return not problem


FAULTS = st.tuples(*(st.lists(st.none() | TRANSIENT, max_size=4) for _ in SHARDS))
THEN = st.tuples(st.integers(0, len(SHARDS) - 1), LASTING, st.integers(0, 3))
OPTIONS = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}


@settings(max_examples=20, **OPTIONS)
@given(first=FAULTS)
def test_temporary_faults_change_no_sample(proxy, expected, first):
    assert check(proxy, expected, first, None)


@settings(max_examples=25, **OPTIONS)
@given(first=FAULTS, then=THEN)
def test_permanent_faults_give_an_error_with_the_url_and_no_wrong_sample(proxy, expected, first, then):
    check(proxy, expected, first, then)


@pytest.mark.long
@pytest.mark.timeout(1200)
@settings(max_examples=1000, **OPTIONS)
@given(first=FAULTS, then=st.none() | st.none() | st.none() | THEN)
def test_a_thousand_random_faults(proxy, expected, first, then):
    whole = check(proxy, expected, first, then)
    assert whole or then is not None


def test_a_permanently_missing_shard_is_one_skip(proxy, expected):
    run = f"run-faults-{next(_runs)}/faults"
    proxy.scripts[f"/{run}/a-1.tar"] = Script(then=Status(503))
    spec = {**spec_of(f"{proxy.url}/{run}"), "errors": "skip"}
    got = list(samples(spec, replace(PATIENCE, budget=0.02)))
    assert len(got) == SAMPLES
    assert {sample["__key__"][:3] for sample in got} == {"a-0", "b-0"}
