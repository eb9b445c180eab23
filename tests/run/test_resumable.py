"""Every kind of spec resumes exactly, from every batch, in every way of reading it."""

import gzip
from pathlib import Path

import pytest
from shardmaking import write_shard, write_source
from speed import mostly_long

import wdspec
from wdspec.spec.load import load
from wdspec.testing import assert_resumable

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Sources with names for what is special about them."""
    folder = tmp_path_factory.mktemp("shards")
    found = {
        name: write_source(folder, name, n, samples)
        for name, n, samples in [
            ("many", 9, 11),
            ("one", 1, 9),
            ("large", 3, 40),
            ("bad", 3, 15),
            ("zip", 3, 12),
        ]
    }
    for path in Path(folder).glob("zip-*.tar"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    damaged = Path(folder) / "bad-001.tar"
    data = bytearray(damaged.read_bytes())
    data[7 * 4 * 512 + 3] ^= 0xFF  # the header of the eighth sample's first member
    damaged.write_bytes(data)
    write_shard(
        Path(folder) / "gaps-000.tar",
        [(f"gaps{i:04d}", {"txt": b"x"} if i % 3 else {"txt": b"x", "cls": b"1"}) for i in range(30)],
    )
    return {**found, "gaps": f"{folder}/gaps-000.tar"}


def source(shards, name, **options):
    return {"name": name, "shards": shards[name], "shuffle": 20, **options}


def spec_of(*sources, **changes):
    return {
        "seed": 3,
        "dataset": list(sources),
        "elastic": {"ranks": 1, "workers": 2},
        "batch": 3,
        "epoch": {"batches": 6},
        **changes,
    }


KINDS = {
    "single": lambda s: spec_of(source(s, "many")),
    "mixed": lambda s: spec_of(*(source(s, n, weight=w) for n, w in [("many", 3), ("one", 1), ("large", 2)])),
    "nested": lambda s: spec_of(
        source(s, "many", weight=1),
        {"name": "inner", "weight": 2, "dataset": [source(s, n, weight=1) for n in ("one", "large")]},
    ),
    "filter": lambda s: spec_of(
        source(s, "many", weight=1, select="picks:few"), source(s, "large", weight=1, select="picks:most")
    ),
    "more_held_than_a_shard_has": lambda s: spec_of(source(s, "many", shuffle=70)),
    "in_order": lambda s: spec_of(source(s, "many", shuffle=0), source(s, "large", shuffle=0)),
    "fewer_shards_than_slots": lambda s: spec_of(
        source(s, "one", shuffle=5), elastic={"ranks": 2, "workers": 2}, epoch={"batches": 5}
    ),
    "epoch_of_one": lambda s: spec_of(source(s, "large"), epoch={"batches": 1}),
    "epoch_shorter_than_the_workers": lambda s: spec_of(
        source(s, "large"), epoch={"batches": 2}, elastic={"ranks": 1, "workers": 4}
    ),
    "epoch_no_multiple_of_the_workers": lambda s: spec_of(
        source(s, "many"), epoch={"batches": 7}, elastic={"ranks": 1, "workers": 4}
    ),
    "unbatched": lambda s: spec_of(source(s, "many"), source(s, "large"), batch=None, epoch=10),
    "unbatched_over_two_ranks": lambda s: spec_of(
        source(s, "many"), batch=None, epoch=10, elastic={"ranks": 2, "workers": 2}
    ),
    "to_tuple": lambda s: spec_of(source(s, "many"), to_tuple=["txt", "cls"]),
    "missing_skipped": lambda s: spec_of(
        source(s, "gaps", missing="skip", extensions="txt cls"), source(s, "many", extensions="txt cls")
    ),
    "damaged_shard_skipped": lambda s: spec_of(source(s, "bad", errors="skip"), source(s, "many")),
    "damaged_shard_skipped_in_order": lambda s: spec_of(source(s, "bad", errors="skip", shuffle=0)),
    "resampled": lambda s: spec_of(source(s, "many", order="resampled")),
    "sequential": lambda s: spec_of(source(s, "many", order="sequential", shuffle=0)),
    "interleaved": lambda s: spec_of(
        source(s, "many", interleave=3), source(s, "large", interleave=2, shuffle=0)
    ),
    "one_source_a_batch": lambda s: spec_of(source(s, "many"), source(s, "large"), mix={"unit": "batch"}),
    "accumulated": lambda s: spec_of(
        source(s, "many"), elastic={"ranks": 2, "workers": 2}, batch={"size": 3, "accumulate": True}
    ),
    "compressed": lambda s: spec_of(source(s, "zip"), source(s, "many")),
    "random_draws": lambda s: spec_of(source(s, "many"), source(s, "large"), mix={"draw": "random"}),
    "round_robin": lambda s: spec_of(source(s, "many"), source(s, "large"), mix={"draw": "round_robin"}),
    "random_transforms": lambda s: spec_of(source(s, "many", select="picks:coin"), map="picks:jitter"),
}


def alone(spec, **arguments):
    """A function that makes a loader of the whole job."""
    return lambda: wdspec.loader(spec, rank=0, world_size=1, **arguments)


IN_PIPELINE = ("nested", "filter", "unbatched_over_two_ranks", "to_tuple", "interleaved", "random_transforms")
THROUGH_WORKERS = (
    "mixed",
    "more_held_than_a_shard_has",
    "epoch_no_multiple_of_the_workers",
    "unbatched",
    "damaged_shard_skipped",
    "accumulated",
    "random_transforms",
)


class TestEveryKind:
    @pytest.mark.parametrize("kind", mostly_long(KINDS, KINDS.keys() - {*IN_PIPELINE[1:]}))
    def test_resumes_in_a_loader(self, shards, kind):
        assert_resumable(alone(load(KINDS[kind](shards)), num_workers=0))

    @pytest.mark.parametrize("kind", mostly_long(KINDS, IN_PIPELINE))
    def test_resumes_in_a_pipeline(self, shards, kind):
        spec = load(KINDS[kind](shards))
        assert_resumable(lambda: wdspec.compile(spec, rank=0, world_size=1))

    @pytest.mark.parametrize("kind", mostly_long(KINDS, THROUGH_WORKERS))
    def test_resumes_through_workers(self, shards, kind):
        assert_resumable(alone(load(KINDS[kind](shards)), num_workers=2), stops=[5])

    @pytest.mark.long
    @pytest.mark.parametrize("kind", KINDS)
    def test_resumes_through_workers_from_everywhere(self, shards, kind):
        assert_resumable(alone(load(KINDS[kind](shards)), num_workers=2))


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_of_several_resumes(shards, rank):
    spec = load({**KINDS["mixed"](shards), "elastic": {"ranks": 4, "workers": 2}})
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0, rank=rank, world_size=2))


def test_an_endless_stream_resumes(shards):
    spec = load({**KINDS["mixed"](shards), "epoch": None})
    assert_resumable(alone(spec, num_workers=0), batches=15)
    assert_resumable(alone(spec, num_workers=2), batches=12, stops=[0, 7])


# All pairs are in the long test below.
@pytest.mark.parametrize(("workers", "canonical", "persistent"), [(2, 4, False), (3, 3, True)])
def test_any_number_of_workers_resumes(shards, workers, canonical, persistent):
    spec = load(
        {
            **KINDS["mixed"](shards),
            "elastic": {"ranks": 1, "workers": canonical},
            "epoch": {"batches": 7},
        }
    )
    make = alone(spec, num_workers=workers, persistent_workers=persistent)
    assert_resumable(make, stops=[6, 10])


@pytest.mark.long
@pytest.mark.parametrize(("workers", "canonical"), [(1, 4), (2, 4), (3, 3), (4, 4)])
@pytest.mark.parametrize("persistent", [True, False])
def test_any_number_of_workers_resumes_from_everywhere(shards, workers, canonical, persistent):
    spec = load(
        {**KINDS["mixed"](shards), "elastic": {"ranks": 1, "workers": canonical}, "epoch": {"batches": 7}}
    )
    assert_resumable(alone(spec, num_workers=workers, persistent_workers=persistent))


@pytest.mark.parametrize("prefetch", mostly_long([1, 5], [1]))
def test_any_prefetch_resumes(shards, prefetch):
    spec = load(KINDS["filter"](shards))
    assert_resumable(alone(spec, num_workers=2, prefetch_factor=prefetch), stops=[0, 1, 5, 6])


@pytest.mark.parametrize("persistent", [True, pytest.param(False, marks=pytest.mark.long)])
def test_spawned_workers_resume(shards, persistent):
    make = alone(
        load(KINDS["nested"](shards)),
        num_workers=1,
        persistent_workers=persistent,
        multiprocessing_context="spawn",
    )
    assert_resumable(make, batches=6 + 2 * persistent, stops=[4], live=persistent)


@pytest.mark.parametrize("name", ["stage 1", "windows 0123456789abcdef"])
def test_a_source_may_have_the_name_of_another_part_of_a_state(shards, name):
    mixed = spec_of(source(shards, "many"), source(shards, "one") | {"name": name})
    assert_resumable(alone(load(mixed), num_workers=0))
