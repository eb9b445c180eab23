"""Locks: the shards of a spec, whether they are still the same, and runs that read exactly these."""

import json
import os

import pytest
from commandline import within as wdspec
from shardmaking import write_source

import wdspec as wds
from wdspec.base.errors import SpecError, UsageError
from wdspec.shards.lock import Lock
from wdspec.storage.storage import Storage

SPEC = """
wdspec: 1
dataset:
  - {name: a, shards: a-*.tar, weight: 1, license: CC-BY-4.0, homepage: https://example.org/a, revision: v2}
  - {name: b, shards: "b-{000..001}.tar", weight: 1, samples: 6}
batch: 2
epoch: 8
elastic: {ranks: 1, workers: 1}
"""


@pytest.fixture
def folder(tmp_path):
    write_source(tmp_path, "a", shards=2, samples=3)
    write_source(tmp_path, "b", shards=2, samples=3)
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def lock(folder):
    wdspec("lock", "spec.yaml", folder=folder)
    return folder / "spec.lock.json"


def test_a_lock_must_be_a_path(folder):
    with pytest.raises(UsageError, match="`lock` is the path of a file that `wdspec lock` wrote, not True"):
        wds.plan(folder / "spec.yaml", lock=True)


def test_a_lock_has_shards_sizes_and_origin(folder, lock):
    said = json.loads(lock.read_text())
    a = said["sources"]["a"]
    assert a["shards"] == [{"names": ["a-000.tar", "a-001.tar"]}]
    assert said["sources"]["b"]["shards"] == [{"braces": "b-{000..001}.tar"}]
    assert [size for size, _ in a["objects"]] == [os.path.getsize(folder / f"a-00{i}.tar") for i in (0, 1)]
    assert (a["license"], a["homepage"], a["revision"]) == ("CC-BY-4.0", "https://example.org/a", "v2")
    assert said["sources"]["b"]["samples"] == 6
    assert str(folder) not in lock.read_text()
    assert Lock.read(lock).text == lock.read_text()


@pytest.mark.parametrize("more", [(), ("--update",)])
def test_only_a_damaged_lock_is_overwritten(folder, lock, more):
    said = wdspec("lock", "spec.yaml", "-o", "spec.yaml", *more, folder=folder, code=1)[1]
    assert "`spec.yaml` is not a file of `wdspec lock`; give another name" in said
    assert (folder / "spec.yaml").read_text() == SPEC
    whole = lock.read_text()
    for damaged in (whole[:-100], ""):
        lock.write_text(damaged)
        wdspec("lock", "spec.yaml", *more, folder=folder)
        assert lock.read_text() == whole


def test_only_sources_that_changed_are_checked_again(folder, lock, monkeypatch):
    asked = []
    stat = Storage.stat
    monkeypatch.setattr(Storage, "stat", lambda self, shard: asked.append(shard.text) or stat(self, shard))
    write_source(folder, "c", shards=1, samples=1)
    (folder / "spec.yaml").write_text(SPEC + "  # later\n")
    wdspec("lock", "spec.yaml", folder=folder)
    assert asked == []
    (folder / "spec.yaml").write_text(SPEC.replace("b-{000..001}", "c-{000..000}"))
    wdspec("lock", "spec.yaml", folder=folder)
    assert asked == ["c-000.tar"]
    wdspec("lock", "spec.yaml", "--update", folder=folder)
    assert sorted(asked) == ["a-000.tar", "a-001.tar", "c-000.tar", "c-000.tar"]


def test_check_names_new_missing_and_changed_shards(folder, lock):
    assert "as locked" in wdspec("lock", "spec.yaml", "--check", folder=folder)[0]
    (folder / "a-000.tar").unlink()
    write_source(folder, "a-x", shards=1, samples=1)
    (folder / "b-000.tar").write_bytes(bytes(20480))
    os.utime(folder / "b-001.tar", (1, 1))
    shown, _ = wdspec("lock", "spec.yaml", "--check", folder=folder, code=1)
    lines = {line.split()[1]: line for line in shown.splitlines() if line[:2] in ("a ", "b ")}
    assert lines["a-000.tar"].endswith("gone")
    assert lines["a-x-000.tar"].endswith("new")
    assert "20,480 now" in lines["b-000.tar"]
    assert "mtime 1970-01-01 00:00:01.000000000 now" in lines["b-001.tar"]
    assert "4 shards not as locked" in shown


def test_a_lock_can_be_reported_as_json(folder, lock):
    def report(*options, code=0):
        return json.loads(
            wdspec("lock", "spec.yaml", "--format", "json", *options, folder=folder, code=code)[0]
        )

    [file] = report()
    sizes = [os.path.getsize(folder / f"{name}-00{i}.tar") for name in "ab" for i in (0, 1)]
    assert file == {
        "file": "spec.lock.json",
        "digest": Lock.read(lock).digest,
        "shards": 4,
        "bytes": sum(sizes),
        "all_sizes_known": True,
        "changes": None,
    }
    assert report("--check")[0]["changes"] == []
    (folder / "b-001.tar").unlink()
    [change] = report("--check", code=1)[0]["changes"]
    assert (change["source"], change["url"]) == ("b", "b-001.tar")


def test_a_run_with_a_lock_reads_the_shards_in_the_lock(folder, lock, monkeypatch):
    spec = folder / "spec.yaml"
    before = [shard.text for shard in wds.plan(spec).sources[0].shards]
    write_source(folder, "a-later", shards=1, samples=3)
    assert len(wds.plan(spec).sources[0].shards) == 3
    monkeypatch.setattr(Storage, "list", lambda *arguments: pytest.fail("a store was asked for a list"))
    assert [shard.text for shard in wds.plan(spec, lock=lock).sources[0].shards] == before
    assert len(list(wds.compile(spec, lock=lock))) == 4
    with wds.loader(spec, lock=lock) as loader:
        keys = [key for batch in loader for key in batch["__key__"]]
    assert len(keys) == 8
    assert not any(key.startswith("a-later") for key in keys)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("a-*.tar", "a-0*.tar", "the source `a` has other `shards`"),
        ("name: b", "name: c", "the source `c` is not in it"),
        ("v2", "v3", "the source `a` has another license, homepage, revision or number of samples"),
    ],
)
def test_a_lock_of_another_spec_is_rejected_and_reported_by_validate(folder, lock, old, new, says):
    assert "no problems" in wdspec("validate", "--locked", "spec.yaml", folder=folder)[0]
    (folder / "spec.yaml").write_text(SPEC.replace(old, new))
    with pytest.raises(UsageError, match=f"does not fit the spec: {says}"):
        wds.plan(folder / "spec.yaml", lock=lock)
    shown, _ = wdspec("validate", "--locked", "spec.yaml", folder=folder, code=1)
    assert f"E403 the lock does not fit: {says}" in shown


def test_validate_requires_a_lock_for_each_split(folder):
    (folder / "spec.yaml").write_text(
        "wdspec: 1\nsplits:\n  train: {dataset: [{shards: a-*.tar}]}\n  val: {dataset: [{shards: b-*.tar}]}\n"
    )
    shown, _ = wdspec("validate", "--locked", "spec.yaml", folder=folder, code=1)
    assert "of the split `val` does not fit: `spec.val.lock.json` does not exist" in shown
    wdspec("lock", "spec.yaml", folder=folder)
    wdspec("validate", "--locked", "spec.yaml", folder=folder)
    assert "each of 2 splits" in wdspec("lock", "spec.yaml", "-o", "x", folder=folder, code=2)[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda text: text.replace("CC-BY", "CC-BX").replace('"digest": "', '"digest": "0'),
            "the digest of this lock",
        ),
        (lambda text: text.replace('"lock": 1', '"lock": 2'), "of format 2"),
        (lambda text: "{}", "this is not a lock that `wdspec lock` wrote"),
        (lambda text: "[" * 100_000, "this is not a lock"),
        (lambda text: text.replace('"a-001.tar"', '"a-001.tar", "a-002.tar"'), "this is not a lock"),
    ],
)
def test_a_damaged_lock_is_rejected(folder, lock, change, says):
    lock.write_text(change(lock.read_text()))
    with pytest.raises(UsageError, match=says):
        wds.plan(folder / "spec.yaml", lock=lock)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("objects", 1, 1), 15),
        (("objects", 1, 1), ["mtime"]),
        (("objects", 1, 0), "15"),
        (("objects", 1, 0), 10**400),
        (("objects", 1, 0), -1),
        (("objects", 1, 0), True),
        (("samples",), "many"),
        (("samples",), 10**400),
        (("license",), 1),
        (("asked",), "a-*.tar"),
        (("asked", 0), 3),
        (("via",), None),
        (("shards", 0), {"names": "ab"}),
        (("shards", 0), {"names": [1, 2]}),
        (("shards", 0), {"braces": 3}),
        (("shards", 0), {"braces": "{0..99999999999999999999}"}),
        (("shards", 0), {"braces": "{"}),
        (("shards", 0, "prefix"), 3),
    ],
)
def test_a_lock_with_a_value_of_another_type_is_rejected(folder, lock, keys, value):
    document = json.loads(lock.read_text())
    place = document["sources"]["a"]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    lock.write_text(json.dumps(document))
    for command in (["lock", "spec.yaml", "--check"], ["validate", "spec.yaml", "--locked"]):
        assert "this is not a lock that `wdspec lock` wrote" in "".join(
            wdspec(*command, folder=folder, code=1)
        )
    with pytest.raises(UsageError, match="this is not a lock that"):
        wds.plan(folder / "spec.yaml", lock=lock)


def test_with_a_missing_shard_no_lock_is_written(folder):
    (folder / "b-001.tar").unlink()
    assert "no such file" in wdspec("lock", "spec.yaml", folder=folder, code=1)[1]
    assert not (folder / "spec.lock.json").exists()


def test_no_secret_is_stored(folder):
    (folder / "spec.yaml").write_text('dataset: [{shards: "https://me:s3cret@127.0.0.1:9/a.tar"}]')
    assert "contain a secret" in wdspec("lock", "spec.yaml", folder=folder, code=1)[1]


def test_diff_compares_locked_shards(folder, lock):
    (folder / "old.yaml").write_text(SPEC)
    (folder / "old.lock.json").write_text(lock.read_text())
    (folder / "b-000.tar").write_bytes((folder / "b-000.tar").read_bytes() + bytes(10240))
    (folder / "a-001.tar").unlink()
    wdspec("lock", "spec.yaml", "--update", folder=folder)
    shown, _ = wdspec("diff", "old.yaml", "spec.yaml", "--format", "json", folder=folder)
    found = {each["source"]: each for each in json.loads(shown)["sources"]}
    assert (found["a"]["removed_shards"], found["a"]["rewritten_shards"]) == (1, 0)
    assert (found["b"]["change"], found["b"]["rewritten_shards"]) == ("changed", 1)
    assert "(1 rewritten)" in wdspec("diff", "old.yaml", "spec.yaml", folder=folder)[0]
    (folder / "spec.yaml").write_text(SPEC.replace("a-*", "a-0*"))
    assert "listed as they are now" in wdspec("diff", "old.yaml", "spec.yaml", folder=folder)[0]


def test_origin_keys_do_not_affect_order_or_samples(folder):
    from wdspec.planning.digest import describe_order, describe_samples

    plain = SPEC.replace(", license: CC-BY-4.0, homepage: https://example.org/a, revision: v2", "")
    (folder / "plain.yaml").write_text(plain)
    specs = [wds.load(folder / name) for name in ("spec.yaml", "plain.yaml")]
    assert specs[0].sources[0].license == "CC-BY-4.0"
    assert len({json.dumps(describe_order(spec, wds.plan(spec))) for spec in specs}) == 1
    assert len({describe_samples(spec) for spec in specs}) == 1
    with pytest.raises(SpecError, match="license"):
        wds.load({"dataset": [{"shards": "a.tar", "license": 3}]})
