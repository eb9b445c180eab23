"""Commands on specs whose samples name objects (docs/references.md)."""

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import within
from PIL import Image
from servers.objects import ObjectServer, data_of
from shardmaking import write_shard

import wdspec


def jpeg(seed):
    """The bytes of an image."""
    file, pixels = io.BytesIO(), np.random.default_rng(seed).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def server():
    with ObjectServer() as running:
        yield running


def spec_of(folder, server, references, **more):
    """A file with a spec whose rows name these objects."""
    rows = [(f"{at:03d}", {"json": json.dumps({"url": name}).encode()}) for at, name in enumerate(references)]
    write_shard(folder / "rows.tar", rows)
    fetch = {"bin": {"url": "json.url", "root": server.url}}
    source = {"name": "a", "shards": "rows.tar", "fetch": fetch, "where": "json.url != ''", **more}
    (folder / "spec.yaml").write_text(json.dumps({"dataset": [source]}))
    return folder / "spec.yaml"


def test_process_writes_shards_that_have_the_objects(tmp_path, server):
    spec = spec_of(tmp_path, server, ["ok/0", "", "ok/1", "ok/2"])
    within("process", spec, "--output", tmp_path / "out", "--jobs", 0, folder=tmp_path)
    with tarfile.open(next((tmp_path / "out").glob("*.tar"))) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}
    expected = {"000.bin": data_of("0"), "002.bin": data_of("1"), "003.bin": data_of("2")}
    assert {name: data for name, data in found.items() if name.endswith(".bin")} == expected
    assert json.loads(found["000.json"]) == {"url": "ok/0"}
    assert server.requests == {f"/ok/{name}": 1 for name in range(3)}


@pytest.mark.parametrize("policy", ["skip", "none"])
def test_check_lists_the_objects_that_are_lost_and_not_the_samples_that_name_none(tmp_path, server, policy):
    spec = spec_of(tmp_path, server, ["ok/0", "status-404/a", None, "status-410/b"], missing=policy)
    report = json.loads(within("check", spec, "--format", "json", folder=tmp_path)[0])
    found = [(each["code"], each["key"], each["field"], each["severity"]) for each in report["problems"]]
    leaves_out = [("W531", None, None, "warning")] * (
        policy == "skip"
    )  # `skip` leaves out one that names none
    assert found == [("D340", "001", "bin", "warning"), ("D340", "003", "bin", "warning"), *leaves_out]
    assert {"source": "a", "code": "D340", "problems": 2} in report["totals"]
    within("check", spec, "--strict", folder=tmp_path, code=1)
    within("check", spec, "--strict", "--ignore", "D340", "--ignore", "W531", folder=tmp_path)


def test_the_text_of_check_counts_the_samples_that_lack_a_reference(tmp_path, server):
    spec = spec_of(tmp_path, server, ["ok/0", "ok/1", None, "ok/2", "status-404/a"], missing="skip")
    out, _ = within("check", spec, folder=tmp_path)
    seen = "1 of 5 lack the object that `json.url` names for `bin`, 1 lack the reference `json.url` for `bin`"
    assert f"left out of `a`: {seen}" in out
    assert "by json.url (one request per object) or leave the sample out" in " ".join(
        within("explain", spec, folder=tmp_path)[0].split()
    )
    spec = spec_of(tmp_path, server, ["ok/0", "ok/1"], missing="skip")
    assert "left out" not in within("check", spec, folder=tmp_path)[0]


@pytest.mark.parametrize("shards", ["rows.tar", "rows.parquet"])
def test_process_keeps_the_bytes_of_decoded_objects_that_no_step_changes(tmp_path, shards):
    (tmp_path / "objects").mkdir()
    files = {f"{at}.jpg": jpeg(at) for at in range(3)}
    for name, data in files.items():
        (tmp_path / "objects" / name).write_bytes(data)
    if shards == "rows.tar":
        write_shard(
            tmp_path / shards, [(name[0], {"json": json.dumps({"url": name}).encode()}) for name in files]
        )
    else:
        pq.write_table(pa.table({"__key__": [*files], "url": [*files]}), tmp_path / shards)
    url = "json.url" if shards == "rows.tar" else "url"
    source = {"shards": shards, "fetch": {"jpg": {"url": url, "root": "objects"}}, "decode": {"jpg": "rgb8"}}
    (tmp_path / "spec.yaml").write_text(json.dumps({"dataset": [source]}))
    within("process", "spec.yaml", "--output", "out", "--jobs", 0, folder=tmp_path)
    read = {"shards": str(tmp_path / "out" / shards), "decode": {"jpg": "raw"}}
    with wdspec.loader({"dataset": [read], "epoch": "pass"}, num_workers=0) as loader:
        assert [sample["jpg"] for sample in loader] == [*files.values()]


def test_process_writes_lists_of_objects_into_tables_with_their_bytes(tmp_path):
    (tmp_path / "objects").mkdir()
    files = [jpeg(at) for at in range(3)]
    for at, data in enumerate(files):
        (tmp_path / "objects" / f"{at}.jpg").write_bytes(data)
    urls = [["0.jpg", "1.jpg"], [], ["2.jpg", "0.jpg", "2.jpg"]]
    pq.write_table(pa.table({"urls": pa.array(urls, pa.list_(pa.string()))}), tmp_path / "rows.parquet")
    fetch = {"images": {"url": "urls", "root": "objects"}}
    source = {"shards": "rows.parquet", "fetch": fetch, "decode": {"images": "rgb8"}}
    (tmp_path / "spec.yaml").write_text(json.dumps({"dataset": [source]}))
    within("process", "spec.yaml", "--output", "out", "--jobs", 0, folder=tmp_path)
    read = {"shards": str(tmp_path / "out" / "rows.parquet")}

    def images(**source):
        with wdspec.loader({"dataset": [{**read, **source}], "epoch": "pass"}, num_workers=0) as loader:
            return [sample["images"] for sample in loader]

    assert images() == [[files[int(url[0])] for url in each] for each in urls]
    decoded = [[np.asarray(Image.open(io.BytesIO(files[int(url[0])]))) for url in each] for each in urls]
    for found, expected in zip(images(decode={"images": "rgb8+pillow"}), decoded, strict=True):
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_a_tar_has_no_lists_of_objects(tmp_path, server):
    spec = spec_of(tmp_path, server, [["ok/0", "ok/1"], []], where="json.url.length >= 0")
    shown, said = within("process", spec, "--output", "out", "--jobs", 0, folder=tmp_path, code=1)
    assert (
        "write a table instead: `output: {from: '(?:.*/)?(.*)[.]tar', to: 'out/\\1.parquet'}`" in shown + said
    )
    job = json.loads(spec.read_text()) | {"output": {"from": "(?:.*/)?(.*)[.]tar", "to": "out/\\1.parquet"}}
    spec.write_text(json.dumps(job))
    within("process", spec, "--jobs", 0, folder=tmp_path)
    assert pq.read_table(tmp_path / "out" / "rows.parquet")["bin"].to_pylist() == [
        [data_of("0"), data_of("1")],
        [],
    ]


def test_check_reports_objects_that_are_missing_wrong_or_not_allowed(tmp_path, server):
    references = ["ok/0", "status-404/x", "page/x", "../x", "ok/1"]
    shown, _ = within("check", spec_of(tmp_path, server, references), "--jobs", 0, folder=tmp_path, code=1)
    for code, key in (("D262", "001"), ("D264", "002"), ("D261", "003")):
        [line] = [line for line in shown.splitlines() if code in line]
        assert f"key {key}" in line
    assert "3 errors" in shown


def test_check_says_which_objects_and_references_the_samples_lack_that_it_leaves_out(tmp_path):
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "here").write_bytes(b"x")
    rows = [("gone", "here"), ("here", None), ("", "gone"), (["here", "gone"], "here")]
    lines = [{"__key__": str(at), "a": one, "b": other} for at, (one, other) in enumerate(rows)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    fetch = {name: {"url": name[0], "root": "objects", "missing": "skip"} for name in ("a1", "b1")}
    source = {"name": "s", "shards": "rows.jsonl", "fetch": fetch}
    (tmp_path / "spec.yaml").write_text(json.dumps({"dataset": [source]}))
    shown, _ = within("check", "spec.yaml", "--jobs", 0, folder=tmp_path, code=1)
    assert (
        "no sample of `s` is left: 2 of 4 lack the object that `a` names for `a1`, 1 lack the reference `a` for `a1`, "
        "1 lack the reference `b` for `b1`"
    ) in " ".join(shown.split())
    shown, _ = within("check", "spec.yaml", "--jobs", 0, "--format", "json", folder=tmp_path, code=1)
    assert '"lack the object that `a` names for `a1`": 2' in shown
    source["expect"] = {"dropped": 0.1}
    (tmp_path / "rows.jsonl").write_text('{"__key__": "1", "a": "here", "b": "gone"}\n')
    (tmp_path / "spec.yaml").write_text(json.dumps({"dataset": [source]}))
    shown, _ = within("check", "spec.yaml", "--jobs", 0, folder=tmp_path, code=1)
    assert "no sample of `s` is left: 1 of 1 lack the object that `b` names for `b1`" in " ".join(
        shown.split()
    )


def test_explain_says_where_objects_come_from_without_secrets(tmp_path, server):
    spec = spec_of(tmp_path, server, ["ok/0"])
    spec.write_text(spec.read_text().replace("http://", "http://user:canary@"))
    shown, said = within("explain", spec, folder=tmp_path)
    assert f"@{server.host}" in shown
    assert "fetch bin from" in shown
    assert "canary" not in shown + said
    assert f"requests per sample: 1 to {server.url}; 1,000 per second at 1,000 samples per second" in shown


def test_explain_counts_the_requests_of_each_store_by_the_shares(tmp_path):
    (tmp_path / "x").mkdir()
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"__key__": str(at), "url": str(at)}) + "\n" for at in range(8)))
    urls = tmp_path / "urls.jsonl"
    urls.write_text('{"__key__": "1", "url": "https://a.org/1"}\n')
    fetch = {
        "a": {"url": "url", "root": "s3://bucket/x/"},
        "b": {"url": "url", "root": "s3://bucket/", "seconds": [0, 1]},
    }
    spec = {
        "dataset": [
            {"name": "many", "shards": str(path), "probability": 0.5, "fetch": fetch},
            {
                "name": "hosts",
                "shards": str(urls),
                "probability": 0.25,
                "fetch": {"c": {"url": "url", "hosts": ["a.org"]}},
            },
            {
                "name": "local",
                "shards": str(path),
                "probability": 0.25,
                "fetch": {"d": {"url": "url", "root": "x"}},
            },
        ],
        "batch": 4,
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    shown, _ = within("explain", "spec.json", "--format", "json", folder=tmp_path)
    objects = json.loads(shown)["objects"]
    assert [(each["store"], each["sources"]) for each in objects] == [
        ("s3://bucket", ["many"]),
        ("a.org", ["hosts"]),
    ]
    assert [each["per_sample"] for each in objects] == pytest.approx([1.5, 0.25], abs=0.02)


def test_explain_counts_a_request_for_each_item_of_a_list(tmp_path):
    rows = [["a", "b", "c"], [], ["d", None], "e", None]
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"__key__": str(at), "urls": urls}) + "\n" for at, urls in enumerate(rows))
    )
    fetch = {"bin": {"url": "urls", "root": "s3://bucket/", "missing": "none"}}
    spec = {
        "dataset": [{"name": "a", "shards": str(path), "fetch": fetch}],
        "batch": 4,
        "stats": "stats.json",
    }

    def objects(**keys):
        (tmp_path / "spec.json").write_text(json.dumps(spec | keys))
        shown = within("explain", "spec.json", "--format", "json", folder=tmp_path)[0]
        return [(each["per_sample"], each["is_least"]) for each in json.loads(shown)["objects"]]

    assert objects() == [(1.0, False)]  # 5 of 5 samples
    spec["dataset"][0]["where"] = 'fields["__key__"] in ["0", "1"]'
    assert objects() == [(1.5, False)]
    # Where no shard is local, `stats` counts.
    spec["dataset"][0] |= {"shards": f"pipe:cat {path}", "format": "jsonl"}
    assert objects() == [(1.0, True)]
    shown = " ".join(within("explain", "spec.json", folder=tmp_path)[0].split())
    assert "at least 1 to s3://bucket; at least 1,000 per second" in shown
    within("stats", "spec.json", "-o", "stats.json", "--jobs", "0", folder=tmp_path)
    assert objects() == [(1.5, False)]
    fetch["bin"]["url"] = "other"  # what was counted is something else
    assert objects() == [(1.0, True)]


def test_resolve_shows_where_references_start(tmp_path, server):
    spec = spec_of(tmp_path, server, ["ok/0"])
    moved = {"rewrite": [{"from": f"{server.url}/", "to": "/mirror/"}]}
    spec.write_text(json.dumps(json.loads(spec.read_text()) | moved))
    shown, _ = within("resolve", spec, folder=tmp_path)
    [at] = [at for at, line in enumerate(shown.splitlines()) if line.startswith("  fetch bin: ")]
    assert "/mirror/" in "".join(shown.splitlines()[at + 1 :])
    as_json, _ = within("resolve", spec, "--format", "json", folder=tmp_path)
    [found] = json.loads(as_json)["resolved"]
    assert found["fetch"]["bin"]["location"] == "/mirror/"
    assert not server.requests


def test_a_lock_and_statistics_are_those_of_the_shards(tmp_path, server):
    spec = spec_of(tmp_path, server, ["ok/0", "ok/1"])
    within("stats", spec, "--jobs", 0, folder=tmp_path)
    within("lock", spec, folder=tmp_path)
    assert not server.requests


def test_explain_counts_the_requests_for_objects_of_companions(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"__key__": str(at), "url": str(at)}) + "\n" for at in range(8)))
    companion = {"source": "noise", "count": 3, "chance": 0.5}
    fetch = {"c": {"url": "url", "root": "s3://bucket/"}}
    spec = {
        "dataset": [
            {"name": "a", "shards": str(path), "probability": 0.5, "companions": {"other": companion}},
            {"name": "b", "shards": str(path), "probability": 0.5, "fetch": fetch},
        ],
        "companions": {
            "noise": {"shards": str(path), "fetch": {"d": {"url": "url", "root": "gs://bucket/"}}}
        },
        "batch": 4,
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    shown = json.loads(within("explain", "spec.yaml", "--format", "json", folder=tmp_path)[0])
    assert [(each["store"], each["sources"], each["per_sample"]) for each in shown["objects"]] == [
        ("gs://bucket", ["noise"], 0.75),
        ("s3://bucket", ["b"], 0.5),
    ]
