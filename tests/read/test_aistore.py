"""A spec yields the same through AIStore as from a disk; only the environment decides."""

import pytest
from servers.aistore_double import AisDouble, Etl, cut, fine, status
from servers.aistore_nodes import GatewayHandler
from shardmaking import keys, write_source

import wdspec
from wdspec.base.errors import ShardError, StoreError

SPEC = {
    "seed": 5,
    "elastic": {"ranks": 1, "workers": 2},
    "dataset": [
        {"shards": "gs://train/a/s-{000..005}.tar", "shuffle": 30, "name": "s"},
        {"shards": "gs://train/b/t-*.tar", "shuffle": 30, "name": "t", "interleave": 2},
    ],
    "batch": 6,
    "epoch": {"batches": 20},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_source(folder / "a", "s", shards=6, samples=20)
    write_source(folder / "b", "t", shards=3, samples=20)
    return folder


@pytest.fixture
def double(data):
    with AisDouble(tokens={"s3cret"}, page_size=2) as double:
        for path in sorted(data.rglob("*.tar")):
            double.put(f"gs://train/{path.relative_to(data)}", path.read_bytes())
        yield double
    assert not double.violations


@pytest.fixture
def from_disk(data, monkeypatch):
    def switch():
        for name in ("AIS_ENDPOINT", "USE_AIS_FOR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("WDS_REWRITE", f"gs://train/={data}/")

    return switch


@pytest.fixture
def from_ais(double, monkeypatch):
    def switch():
        monkeypatch.delenv("WDS_REWRITE", raising=False)
        monkeypatch.setenv("AIS_ENDPOINT", double.endpoint)
        monkeypatch.setenv("USE_AIS_FOR", "gs")
        monkeypatch.setenv("AIS_AUTHN_TOKEN", "s3cret")

    return switch


@pytest.mark.parametrize("kind", ["drawn", "pass"])
def test_the_cluster_prefetches_upcoming_shards_on_request(double, from_ais, kind):
    from_ais()
    names = {f"a/s-{n:03d}.tar" for n in range(6)}
    spec = {
        "dataset": [{"shards": "gs://train/a/s-{000..005}.tar", "shuffle": 0, "interleave": 1}],
        "aistore": {"prefetch": 4},
        "epoch": 120,
    }
    if kind == "pass":
        spec["epoch"] = "pass"
    assert len(list(wdspec.compile(spec))) == 120
    asked = list(double.jobs.values())
    assert len({name for job in asked for name in job} & names) >= 5, "all but the one that is read at once"
    assert 2 <= len(asked) <= 4, "half of them at a time"
    assert len(list(wdspec.compile({**spec, "aistore": {"prefetch": 0}}))) == 120
    assert list(double.jobs.values()) == asked


def test_a_cluster_that_rejects_prefetch_is_asked_once_and_still_read(double, from_ais, monkeypatch, caplog):
    from_ais()
    monkeypatch.setattr(
        GatewayHandler, "prefetch", lambda self, bucket, value: self.refuse(403, "not permitted")
    )
    spec = {"dataset": "gs://train/a/s-{000..005}.tar", "aistore": {"prefetch": 2}, "epoch": 120}
    spec["dataset"] = [{"shards": spec["dataset"], "interleave": 1}]
    assert len(list(wdspec.compile(spec))) == 120
    assert caplog.text.count("AIStore does not prefetch from /v1/buckets/train") == 1
    assert not double.jobs


def epoch(spec=SPEC, workers=2, state=None, stop=None):
    """The keys of an epoch, batch by batch, and the state after it, or after `stop` batches."""
    with wdspec.loader(spec, num_workers=workers) as loader:
        if state is not None:
            loader.load_state_dict(state)
        batches = []
        for batch in loader:
            batches.append(batch)
            if len(batches) == stop:
                break
        return keys(batches), loader.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_equal_those_on_disk_with_one_request_per_shard(double, from_disk, from_ais, workers):
    from_disk()
    expected, _ = epoch(workers=workers)
    from_ais()
    assert epoch(workers=workers)[0] == expected
    assert {each.method for each in double.requests} == {"GET"}
    assert all(("authorization" in each.headers) == each.by_gateway for each in double.requests)
    # 80 samples of the 120 in `a`: no shard twice, except those of the next pass that are opened ahead.
    asked = [each.path for each in double.seen("p") if "/a/" in each.path]
    assert max(map(asked.count, asked)) <= 2


def test_a_small_epoch_requests_each_shard_exactly_once(double, from_ais):
    from_ais()
    spec = {
        "dataset": [{"shards": "gs://train/a/s-{000..005}.tar"}],
        "epoch": "pass",
        "elastic": {"ranks": 1},
    }
    with wdspec.loader({**spec, "batch": 6}, num_workers=0) as loader:
        list(loader)
        double.forget()
        list(loader)
    assert sorted(each.path for each in double.seen("p")) == [
        f"/v1/objects/train/a/s-{n:03d}.tar" for n in range(6)
    ]


def test_a_state_moves_between_a_disk_and_aistore(double, from_disk, from_ais):
    from_disk()
    expected, _ = epoch()
    first, state = epoch(stop=7)
    from_ais()
    second, state = epoch(state=state, stop=6)
    from_disk()
    third, _ = epoch(state=state)
    assert first + second + third == expected


def test_faults_change_nothing(double, from_disk, from_ais):
    from_disk()
    expected, _ = epoch()
    from_ais()
    double.script("p", status(503))
    double.script("t", fine, cut(10_000), fine, fine, cut(30_000, reset=True))
    assert epoch(workers=0)[0] == expected


def test_a_setup_error_is_never_skipped_like_a_bad_shard(double, from_ais, monkeypatch):
    from_ais()
    spec = {"dataset": [{"shards": "gs://trian/a/s-000.tar"}], "errors": "skip", "batch": 2}
    for workers in (0, 1):
        with (
            wdspec.loader(spec, num_workers=workers) as loader,
            pytest.raises(StoreError, match="NoSuchBucket"),
        ):
            next(iter(loader))
    monkeypatch.delenv("AIS_AUTHN_TOKEN")
    with pytest.raises(StoreError, match="401: token required"):
        wdspec.plan(SPEC)


def test_a_missing_shard_is_skipped_if_the_spec_says_so(double, from_ais):
    from_ais()
    double.remove("gs://train/a/s-002.tar")
    spec = {"dataset": [{"shards": "gs://train/a/s-{000..005}.tar"}], "errors": "skip", "batch": 10}
    with wdspec.loader({**spec, "epoch": {"batches": 10}}, num_workers=0) as loader:
        assert len({key for batch in loader for key in batch["__key__"]}) == 100


def test_an_etl_can_apply_to_one_source(double, from_ais):
    from_ais()
    double.etls["upper-case"] = Etl(lambda data, args: data.replace(b"s 0", b"S 0"))
    plain = {"shards": "gs://train/a/s-000.tar", "weight": 1, "name": "plain"}
    changed = {**plain, "name": "changed", "aistore": {"etl": "upper-case"}}
    with wdspec.loader({"dataset": [plain, changed], "batch": 20, "epoch": {"batches": 2}}) as loader:
        texts = {
            (source, text[:3])
            for batch in loader
            for source, text in zip(batch["__source__"], batch["txt"], strict=True)
        }
    assert texts == {("plain", "s 0"), ("changed", "S 0")}


def test_an_etl_must_return_tar(double, from_ais):
    from_ais()
    spec = {"dataset": [{"shards": "gs://train/a.jsonl", "aistore": {"etl": "upper-case"}}], "batch": 2}
    double.put("gs://train/a.jsonl", b"{}\n")
    double.etls["upper-case"] = Etl(lambda data, args: data)
    with (
        wdspec.loader(spec) as loader,
        pytest.raises(StoreError, match=r"must return tar, but .* read as jsonl"),
    ):
        next(iter(loader))


def test_copies_of_an_etl_are_separate(double, from_ais, tmp_path):
    from_ais()
    double.etls["upper-case"] = Etl(lambda data, args: data.replace(b"s ", b"S "))
    plain = {"shards": "gs://train/a/s-{000..002}.tar", "weight": 1, "name": "plain"}
    changed = {**plain, "name": "changed", "aistore": {"etl": "upper-case"}}
    spec = {
        "dataset": [plain, changed],
        "batch": 20,
        "epoch": {"batches": 6},
        "cache": str(tmp_path / "cache"),
    }

    def texts():
        with wdspec.loader(spec, num_workers=0) as loader:
            return [
                (source, text)
                for batch in loader
                for source, text in zip(batch["__source__"], batch["txt"], strict=True)
            ]

    cold = texts()
    assert {(source, text[:1]) for source, text in cold} == {("plain", "s"), ("changed", "S")}
    assert len(double.seen("t")) == 6
    assert texts() == cold
    assert len(double.seen("t")) == 6


def test_incomplete_etl_output_is_never_cached(double, from_ais, tmp_path):
    from_ais()
    double.etls["upper-case"] = Etl(lambda data, args: data, dies_after=10_240)
    source = {"shards": "gs://train/a/s-000.tar", "aistore": {"etl": "upper-case"}}
    # A pass, so that nothing is read ahead: the next loader would wait for what the first one still fetches.
    spec = {"dataset": [source], "batch": 20, "epoch": "pass", "cache": str(tmp_path / "cache")}
    with pytest.raises(ShardError), wdspec.loader(spec, num_workers=0) as loader:
        list(loader)
    assert not list((tmp_path / "cache").rglob("*.tar"))
    double.etls["upper-case"].dies_after = None
    with wdspec.loader(spec, num_workers=0) as loader:
        assert len(keys(loader)[0]) == 20
