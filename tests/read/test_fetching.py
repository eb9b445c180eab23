"""Objects that samples name (docs/references.md): which samples a loader gives, and what becomes of broken answers."""

import hashlib
import io
import json
import os
import tarfile
import time
from types import SimpleNamespace

import pytest
from fetchedrows import jsonl, read
from servers.objects import ObjectServer, data_of
from speed import mostly_long

import wdspec
from wdspec.base.errors import FieldError, StoreError
from wdspec.read import fetching
from wdspec.spec.language.fetching import FetchedObject
from wdspec.storage.objects import ObjectReader, Reference
from wdspec.storage.storage import Storage

ROWS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four tars of rows, and a local directory with the objects that they name."""
    home = tmp_path_factory.mktemp("rows")
    (home / "objects").mkdir()
    for shard in range(4):
        with tarfile.open(home / f"a-{shard}.tar", "w") as tar:
            for row in range(shard * ROWS // 4, (shard + 1) * ROWS // 4):
                data = data_of(str(row))
                (home / "objects" / f"{row}.bin").write_bytes(data)
                values = {"url": f"{row}.bin", "n": row, "hash": hashlib.sha256(data).hexdigest()}
                add(tar, f"{row:03d}.json", json.dumps(values).encode())
    return home


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def spec_of(folder, **more):
    source = {"shards": f"{folder}/a-{{0..3}}.tar", "name": "a"}
    source["fetch"] = {"bin": {"url": "json.url", "root": f"{folder}/objects"}}
    return {
        "seed": 3,
        "batch": 5,
        "epoch": {"batches": 20},
        **more,
        "dataset": [source | more.get("source", {})],
    }


def without_fetch(spec):
    """The same spec, whose samples lack the objects."""
    [source] = spec["dataset"]
    return {**spec, "dataset": [{key: value for key, value in source.items() if key != "fetch"}]}


def rows_of(spec, workers=0):
    """(key, bytes of the object) of the samples of an epoch, by batch."""
    spec = {key: value for key, value in spec.items() if key != "source"}
    with wdspec.loader(spec, num_workers=workers) as loader:
        return [
            list(zip(each["__key__"], each.get("bin", [None] * len(each["__key__"])), strict=True))
            for each in loader
        ]


KINDS = {
    "shuffled": {},
    "in order": {"source": {"shuffle": 0}},
    "a large buffer": {"source": {"shuffle": 1000}},
    "selected": {"source": {"where": "json.n > 20"}},
    "a pass": {"epoch": "pass"},
    "a selected pass": {"epoch": "pass", "source": {"where": "json.n > 20"}},
    "a shuffled pass": {"epoch": {"pass": "drop", "reshuffle": True}},
    "a cost": {"batch": {"cost": "json.n + 1", "max_cost": 90, "window": 16}},
    "a pass by cost": {"batch": {"cost": "json.n + 1", "max_cost": 90, "window": 16}, "epoch": "pass"},
    "groups": {"batch": {"group_by": "json.n > 30", "size": 4, "window": 16}},
    "a cost after map": {
        "batch": {"cost": "bin", "max_cost": 9999, "window": 8},
        "map": {"bin": "builtins:len"},
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_fetching_changes_neither_the_order_nor_the_batches(folder, kind):
    spec = spec_of(folder, **KINDS[kind])
    if kind == "a cost after map":
        found = rows_of(spec)
        assert {int(size) for batch in found for _, size in batch} == {2000}
        assert {len(batch) for batch in found} == {4}
        return
    plain = without_fetch({key: value for key, value in spec.items() if key != "source"})
    expected = [[(key, data_of(str(int(key)))) for key, _ in batch] for batch in rows_of(plain)]
    assert rows_of(spec) == expected
    assert sum(map(len, expected)) > 20


@pytest.mark.parametrize(
    "kind",
    mostly_long(["shuffled", "in order", "a shuffled pass", "a cost", "groups"], ["in order", "a cost"]),
)
def test_a_resumed_run_gives_the_same_samples_with_any_number_of_workers(folder, kind):
    spec = {key: value for key, value in spec_of(folder, **KINDS[kind]).items() if key != "source"}
    spec |= {"elastic": {"ranks": 1, "workers": 2}}
    expected = rows_of(spec)
    for taken in (1, 4, 7):
        with wdspec.loader(spec, num_workers=0) as loader:
            batches = iter(loader)
            first = [next(batches)["__key__"] for _ in range(taken)]
            state = json.loads(json.dumps(loader.state_dict()))
        with wdspec.loader(spec, num_workers=2 if taken == 4 else 1) as loader:
            loader.load_state_dict(state)
            rest = [list(zip(each["__key__"], each["bin"], strict=True)) for each in loader]
        assert [[key for key, _ in batch] for batch in expected[:taken]] == first
        assert rest == expected[taken:]


def test_threads_read_the_same(folder):
    spec = spec_of(folder, elastic={"ranks": 1, "workers": 2})
    assert rows_of({**spec, "loader": {"kind": "threads"}}, 2) == rows_of(spec)


@pytest.mark.parametrize("policy", [{"missing": "skip"}, {"missing": "none"}, {}])
def test_a_local_root_that_does_not_exist_is_an_error_whatever_is_skipped(folder, policy):
    """Otherwise, a root that is misspelled, or not mounted, would leave only samples that name nothing."""
    entry = {"url": "json.url", "root": f"{folder}/objektcs", **policy}
    spec = spec_of(folder, errors={"skip": True})
    spec["dataset"][0]["fetch"] = {"bin": entry}
    with pytest.raises(wdspec.WdspecError, match=r"`root` of `fetch` is not a directory.*objektcs"):
        next(iter(wdspec.loader(spec, num_workers=0)))


@pytest.fixture
def server():
    with ObjectServer() as running:
        yield running


@pytest.mark.parametrize(("sources", "rows", "shuffle"), [(1, 40, 2), (65, 5, 4)])
def test_states_are_those_without_objects_whatever_was_fetched_ahead(
    server, tmp_path, sources, rows, shuffle
):
    """Also where a block starts and where a pass ends, which are read long before their samples are yielded."""
    shards = [
        jsonl(tmp_path / f"{at}.jsonl", [{"url": f"ok/{n}"} for n in range(rows)]) for at in range(sources)
    ]

    def states(**fetch):
        dataset = [
            {"name": f"s{at:02d}", "shards": each, "shuffle": shuffle, **fetch}
            for at, each in enumerate(shards)
        ]
        with wdspec.loader(
            {"dataset": dataset, "epoch": 2 * (rows + 1) * sources, "seed": 5}, num_workers=0
        ) as loader:
            return [dict(loader.stream.slot_states) for _ in loader]

    assert states(fetch={"bin": {"url": "url", "root": server.url}}) == states()


LACKING = [{"url": None}, {"url": ""}, {"url": "  "}, {}, {"url": "status-404/x"}, {"url": "status-410/x"}]


@pytest.mark.parametrize("lacking", LACKING)
@pytest.mark.parametrize(
    ("policy", "becomes"), [("skip", "its sample is left out"), ("none", "it becomes None")]
)
def test_an_object_that_is_lost_is_reported_and_a_reference_that_is_null_is_not(
    server, tmp_path, caplog, lacking, policy, becomes
):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "ok/0"}, *[lacking] * 9, {"url": "ok/2"}])
    entry = {"url": "url", "root": server.url, "missing": policy}
    _, stats = read(shard, entry, 11 if policy == "none" else 2)
    said = [record.getMessage() for record in caplog.records]
    if not (lacking.get("url") or "").strip():
        assert (stats.lost, said) == (0, [])
        return
    assert stats.lost == 9
    numbers = [line.partition("lost object (D262 no. ")[2].partition(" ")[0] for line in said]
    assert numbers == ["1", "2", "3", "4", "8"]
    assert f"`fetch: bin`: there is no object `{server.url}/{lacking['url']}`" in said[0]
    assert f"; {becomes} [source" in said[0]


@pytest.mark.parametrize("lacking", LACKING)
def test_missing_says_what_becomes_of_a_sample_without_an_object(server, tmp_path, lacking):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "ok/0"}, lacking, {"url": "ok/2"}])
    entry = {"url": "url", "root": server.url}
    found, stats = read(shard, entry | {"missing": "skip"}, 2)
    assert found == [data_of("0"), data_of("2")]
    assert stats.dropped == {"missing": 1}
    assert read(shard, entry | {"missing": "none"}, 3)[0] == [data_of("0"), None, data_of("2")]
    assert read(shard, entry, 3, source={"missing": "none"})[0] == [data_of("0"), None, data_of("2")]
    with pytest.raises(FieldError, match="missing: skip") as caught:
        read(shard, entry, 3)
    assert caught.value.code == "D262"
    assert caught.value.place["key"] == "1"
    found, stats = read(shard, entry, 2, errors="skip")
    assert found == [data_of("0"), data_of("2")]
    assert stats.skipped == {"D262": 1}


WRONG = [3, 1.5, True, {"path": "a.jpg"}]


@pytest.mark.parametrize("value", WRONG)
def test_a_reference_is_text(server, tmp_path, value):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": value}])
    with pytest.raises(FieldError, match="not a reference") as caught:
        read(shard, {"url": "url", "root": server.url})
    assert caught.value.code == "D261"


def test_a_reference_is_made_of_several_values(server, tmp_path):
    rows = [{"how": "ok", "camera": "top", "n": 7}, {"how": "ok", "camera": "wrist", "n": 1234}]
    entry = {"url": "{how}/{camera}-{n:03d}.bin", "root": server.url}
    expected = [data_of("top-007.bin"), data_of("wrist-1234.bin")]
    assert read(jsonl(tmp_path / "a.jsonl", rows), entry, 2)[0] == expected
    lacking = [rows[0], {**rows[0], "n": None}, {**rows[0], "camera": ""}, rows[1]]
    assert read(jsonl(tmp_path / "b.jsonl", lacking), entry | {"missing": "skip"}, 2)[0] == expected
    asked = sum(server.requests.values())
    for wrong in (
        {"camera": "../../x"},
        {"how": "/etc"},
        {"n": "7"},
        {"n": 1.5},
        {"n": True},
    ):
        with pytest.raises(FieldError) as caught:
            read(jsonl(tmp_path / "c.jsonl", [rows[0] | wrong]), entry)
        assert caught.value.code == "D261", wrong
    assert sum(server.requests.values()) == asked


@pytest.mark.parametrize(
    "value", ["../x", "/etc/passwd", "file:///etc/passwd", "http://127.0.0.1:1/x", "data:,x"]
)
def test_a_reference_that_is_not_allowed_is_never_requested(server, tmp_path, value):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": value}])
    with pytest.raises(FieldError) as caught:
        read(shard, {"url": "url", "root": server.url, "missing": "skip"})
    assert caught.value.code == "D261"
    assert not server.requests


BROKEN = {
    "status-403": "D263",
    "status-500": "D263",
    "status-429": "D263",
    "short": "D263",
    "page": "D264",
    "bomb": "D263",
    "endless": "D263",
    "slow": "D263",
    "circle": "D263",
    "file": "D263",
    "metadata": "D263",
    "elsewhere": "D263",
    "login": "D263",
}


@pytest.mark.parametrize(
    "kind", mostly_long(BROKEN, ["status-500", "short", "page", "bomb", "slow", "metadata", "elsewhere"])
)
def test_a_broken_answer_is_an_error_or_a_counted_skip_in_time(tmp_path, kind):
    with (
        ObjectServer() as other,
        ObjectServer(elsewhere=other.url.replace("127.0.0.1", "localhost")) as server,
    ):
        shard = jsonl(tmp_path / "a.jsonl", [{"url": "ok/0"}, {"url": f"{kind}/1"}, {"url": "ok/2"}])
        found, stats = read(
            shard,
            {"url": "url", "root": server.url, "missing": "skip"},
            2,
            errors={"skip": True, "retry": "200ms", "timeout": "3s" if kind == "slow" else "100s"},
            loader={"fetch_memory": "1MB"},
        )
        assert found == [data_of("0"), data_of("2")]
        assert stats.skipped == {BROKEN[kind]: 1}
        assert not other.requests


@pytest.mark.parametrize("kind", ["once-429", "once-503", "here"])
def test_a_passing_failure_is_no_failure(server, tmp_path, kind):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": f"{kind}/0"}])
    assert read(shard, {"url": "url", "root": server.url})[0] == [data_of("0")]


def test_a_refused_login_is_never_skipped(server, tmp_path):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "status-401/0"}])
    with pytest.raises(StoreError):
        read(shard, {"url": "url", "root": server.url, "missing": "skip"}, errors="skip")


def test_a_range_and_a_digest(server, tmp_path):
    data = data_of("0")[100:200]
    row = {"url": "ok/0", "a": 100, "b": 200, "h": hashlib.sha256(data).hexdigest()}
    entry = {"url": "url", "root": server.url, "bytes": ["a", "b"], "sha256": "h"}
    assert read(jsonl(tmp_path / "a.jsonl", [row]), entry)[0] == [data]
    assert [each.get("range") for each in server.headers] == ["bytes=100-199"]
    upper = {**row, "h": f"sha256:{row['h'].upper()}"}
    assert read(jsonl(tmp_path / "a.jsonl", [upper]), entry)[0] == [data]
    for wrong in (
        {"h": "0" * 64},
        {"h": None},
        {"h": "abc"},
        {"a": 200},
        {"a": -1},
        {"a": 1.5},
        {"b": None},
        {"b": 9999},
    ):
        with pytest.raises(FieldError) as caught:
            read(jsonl(tmp_path / "a.jsonl", [row | wrong]), entry)
        assert caught.value.code == "D264", wrong


def test_a_range_of_an_empty_object_is_an_error_at_once(server, tmp_path):
    server.objects["empty"] = b""
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "ok/empty", "a": 0, "b": 9}])
    with pytest.raises(FieldError) as caught:
        read(shard, {"url": "url", "root": server.url, "bytes": ["a", "b"]})
    assert caught.value.code == "D264"
    assert server.requests["/ok/empty"] == 1


def test_samples_that_are_read_at_the_same_time_share_an_object(tmp_path):
    with ObjectServer(delay=0.05, together=4) as server:
        shard = jsonl(tmp_path / "a.jsonl", [{"url": f"ok/{at // 10}"} for at in range(40)])
        found, _ = read(shard, {"url": "url", "root": server.url}, 40)
        assert found == [data_of(str(at // 10)) for at in range(40)]
        assert server.requests == {f"/ok/{number}": 1 for number in range(4)}


def test_many_objects_are_requested_at_a_time_and_delivered_in_order(tmp_path):
    with ObjectServer(delay=0.05, together=8) as server:
        shard = jsonl(tmp_path / "a.jsonl", [{"url": f"ok/{at}"} for at in range(200)])
        found, _ = read(shard, {"url": "url", "root": server.url}, 200)
        assert found == [data_of(str(at)) for at in range(200)]
        assert 8 <= server.most_running <= 32


def test_objects_that_wait_for_their_samples_fit_into_the_budget(tmp_path):
    with ObjectServer(size=100_000) as server:
        shard = jsonl(tmp_path / "a.jsonl", [{"url": f"ok/{at}"} for at in range(100)])
        source = {"shards": shard, "shuffle": 0, "fetch": {"bin": {"url": "url", "root": server.url}}}
        spec = {"dataset": [source], "epoch": 100, "loader": {"fetch_memory": 1_000_001}}
        with wdspec.loader(spec, num_workers=0) as loader:
            samples = iter(loader)
            for taken in range(1, 60):
                assert len(next(samples)["bin"]) == 100_000
                time.sleep(0.002)
                assert sum(server.requests.values()) <= taken + 12


def test_an_object_larger_than_expected_waits_for_room_and_never_for_itself(tmp_path):
    with ObjectServer(size=900_000) as server:
        shard = jsonl(tmp_path / "a.jsonl", [{"url": f"ok/{at}"} for at in range(12)])
        found, _ = read(shard, {"url": "url", "root": server.url}, 12, loader={"fetch_memory": 1_000_002})
        assert [len(each) for each in found] == [900_000] * 12


def test_an_object_takes_up_no_more_of_the_budget_than_its_bytes(tmp_path):
    with ObjectServer(size=1_000_000, delay=0.1) as server:
        reader = ObjectReader.of(Storage(), FetchedObject(url="url", root=f"{server.url}/"), "bin")
        reserved = []
        for expected in (900_000, 1_000_000, 300_000):
            reading = SimpleNamespace(reserve=reserved.append, note_open=lambda stream: None)
            data = reader.read(Reference(f"{server.url}/ok/0"), 64_000_000, expected, reading)
            assert data == data_of("0", 1_000_000)
            assert max(reserved, default=0) <= 1_000_000


def test_a_private_address_behind_a_name_is_refused(server, tmp_path, monkeypatch):
    import socket

    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *more, **options: real(
            "127.0.0.1" if host == "cdn.example.org" else host, *more, **options
        ),
    )
    port = server.host.rpartition(":")[2]
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "ok/0"}])
    root = f"http://cdn.example.org:{port}/"
    with pytest.raises(FieldError, match=r"address 127\.0\.0\.1, which is not public") as caught:
        read(shard, {"url": "url", "root": root})
    assert caught.value.code == "D263"
    assert not server.requests
    assert read(shard, {"url": "url", "root": root, "hosts": "127.0.0.0/8"})[0] == [data_of("0")]


def test_hosts_allow_complete_urls_and_redirects(tmp_path):
    with ObjectServer() as other, ObjectServer(elsewhere=other.url) as server:
        shard = jsonl(tmp_path / "a.jsonl", [{"url": f"{server.url}/ok/0"}])
        assert read(shard, {"url": "url", "hosts": [server.url]})[0] == [data_of("0")]
        shard = jsonl(tmp_path / "b.jsonl", [{"url": "elsewhere/1"}])
        assert read(shard, {"url": "url", "root": server.url, "hosts": [other.url]})[0] == [data_of("1")]


def test_logins_stay_with_the_host_of_the_root(tmp_path, monkeypatch):
    login = tmp_path / "netrc"
    login.write_text("default login canary password canary-secret\n")
    os.chmod(login, 0o600)
    monkeypatch.setenv("NETRC", str(login))
    with ObjectServer() as other, ObjectServer(elsewhere=other.url) as server:
        shard = jsonl(tmp_path / "a.jsonl", [{"url": "elsewhere/1"}])
        assert read(shard, {"url": "url", "root": server.url, "hosts": other.url})[0] == [data_of("1")]
        assert "authorization" in server.headers[0]
        shard = jsonl(tmp_path / "b.jsonl", [{"url": f"{other.url}/ok/0"}])
        assert read(shard, {"url": "url", "hosts": other.url})[0] == [data_of("0")]
        assert [each.get("authorization") for each in other.headers] == [None, None]


def test_a_link_does_not_lead_out_of_a_local_root(tmp_path):
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "inner" / "a").write_bytes(b"inside")
    (root / "to-inner").symlink_to(root / "inner")
    (root / "to-secret").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    (tmp_path / "linked").symlink_to(root)
    entry = {"url": "url", "root": str(tmp_path / "linked")}
    for name in ("inner/a", "to-inner/a"):
        assert read(jsonl(tmp_path / "a.jsonl", [{"url": name}]), entry)[0] == [b"inside"]
    for name in ("to-secret", "up/secret", "pipe", "inner"):
        with pytest.raises(FieldError) as caught:
            read(jsonl(tmp_path / "a.jsonl", [{"url": name}]), entry)
        assert caught.value.code == "D263", name
    with pytest.raises(FieldError) as caught:
        read(jsonl(tmp_path / "a.jsonl", [{"url": "inner/b"}]), entry)
    assert caught.value.code == "D262"


def test_a_rewrite_rule_may_move_a_root_but_makes_no_command_of_data(server, tmp_path):
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "x").write_bytes(b"copy")
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "x"}])
    entry = {"url": "url", "root": "https://cdn.example.org/a/"}
    moved = {"from": "https://cdn.example.org/a/", "to": f"{tmp_path}/copies/"}
    assert read(shard, entry, rewrite=[moved])[0] == [b"copy"]
    whole = {"url": "url", "hosts": "cdn.example.org"}
    served = {"from": "https://cdn.example.org/a/", "to": f"{server.url}/ok/"}
    assert read(shard, entry, rewrite=[served])[0] == [data_of("x")]
    with pytest.raises(FieldError, match="rewrites both"):
        read(jsonl(tmp_path / "b.jsonl", [{"url": "https://cdn.example.org/a/x"}]), whole, rewrite=[moved])
    command = {"from": "https://cdn.example.org/(.*)", "to": r"pipe:echo \1"}
    with pytest.raises(FieldError, match="command"):
        read(shard, entry, rewrite=[command])


def test_objects_are_cached_like_shards(server, tmp_path):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "ok/0"}, {"url": "ok/1"}, {"url": "ok/2", "a": 5, "b": 9}])
    entry, cache = {"url": "url", "root": server.url}, str(tmp_path / "cache")
    expected = [data_of(str(at)) for at in range(3)]
    assert read(shard, entry, 3, cache=cache)[0] == expected
    assert read(shard, entry, 3, cache=cache)[0] == expected
    assert sum(server.requests.values()) == 3
    ranged = jsonl(tmp_path / "b.jsonl", [{"url": "ok/2", "a": 5, "b": 9}, {"url": "ok/3", "a": 5, "b": 9}])
    found = read(ranged, entry | {"bytes": ["a", "b"]}, 2, cache=cache)[0]
    assert found == [data_of("2")[5:9], data_of("3")[5:9]]
    assert read(jsonl(tmp_path / "c.jsonl", [{"url": "ok/3"}]), entry, cache=cache)[0] == [data_of("3")]


def test_an_object_is_like_a_file_of_its_name(server, tmp_path):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "ok/0", "more": 1}])
    source = {"rename": {"image": "bin"}, "map": {"image": "builtins:len"}}
    spec = {
        "dataset": [{"shards": shard, "fetch": {"bin": {"url": "url", "root": server.url}}, **source}],
        "fields": "image",
        "epoch": 1,
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        [sample] = loader
    assert {key: value for key, value in sample.items() if key[:2] != "__"} == {"image": 2000}


def test_a_field_that_the_sample_has_is_not_replaced(server, tmp_path):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "ok/0", "bin": "x"}])
    with pytest.raises(FieldError, match="already has") as caught:
        read(shard, {"url": "url", "root": server.url})
    assert caught.value.code == "D206"


def test_references_can_be_columns_of_tables_and_parts_of_joins(server, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    rows = pa.table({"__key__": ["0", "1"], "path": ["ok/0", "ok/1"]})
    parquet.write_table(rows, tmp_path / "a.parquet")
    entry = {"url": "path", "root": server.url}
    assert read(str(tmp_path / "a.parquet"), entry, 2)[0] == [data_of("0"), data_of("1")]
    shard = jsonl(tmp_path / "b.jsonl", [{"n": 1}, {"n": 2}])
    join = {"join": {"shards": str(tmp_path / "a.parquet"), "fields": "path"}}
    assert read(shard, entry, 2, source=join)[0] == [data_of("0"), data_of("1")]
    lookup = {"lookup": {"table": str(tmp_path / "a.parquet"), "fields": "path", "key": "__key__"}}
    assert read(shard, entry, 2, source=lookup)[0] == [data_of("0"), data_of("1")]


def test_with_fields_only_what_references_need_is_read(server, tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "0.json", b'{"url": "ok/0"}')
        add(tar, "0.txt", b"text")
    for more in ({"fields": "bin"}, {"source": {"extensions": "txt"}}):
        found, _ = read(str(tmp_path / "a.tar"), {"url": "json.url", "root": server.url}, 1, **more)
        assert found == [data_of("0")]


def test_what_was_requested_ahead_is_given_up_when_the_loader_closes(tmp_path, caplog):
    with ObjectServer() as server:
        rows = [{"url": "ok/0"}, *({"url": f"status-503/{at}"} for at in range(8))]
        source = {"shards": jsonl(tmp_path / "a.jsonl", rows), "shuffle": 0}
        source["fetch"] = {"bin": {"url": "url", "root": server.url}}
        with wdspec.loader({"dataset": [source], "epoch": 9}, num_workers=0) as loader:
            assert next(iter(loader))["bin"] == data_of("0")
        late = time.monotonic() + 60  # half as long as they would be retried
        while any(fetcher._running for fetcher in fetching._fetchers.value._values.values()):
            assert time.monotonic() < late
            time.sleep(0.01)


def test_each_object_of_a_pass_by_cost_is_requested_once(server, tmp_path):
    """Also those of the last batch of a window, which is given after the window has been read to its end."""
    shard = jsonl(tmp_path / "a.jsonl", [{"url": f"ok/{at}", "n": 1 + at % 5} for at in range(40)])
    source = {"shards": shard, "fetch": {"bin": {"url": "url", "root": server.url}}}
    batch = {"cost": "n", "max_cost": 9, "window": 12}
    with wdspec.loader({"dataset": [source], "batch": batch, "epoch": "pass"}, num_workers=0) as loader:
        assert sum(len(each["bin"]) for each in loader) == 40
    assert server.requests == {f"/ok/{at}": 1 for at in range(40)}
