"""Joined shards: the global batches of one tar that holds both parts, and what plain Python knows; nothing is lost."""

import bz2
import functools
import gzip
import http.server
import itertools
import json
import random
import threading

import pytest
from commandline import within
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from shardmaking import write_shard

import wdspec
from wdspec.jobs.lock import find_changes, lock_spec
from wdspec.read.shard import Piece
from wdspec.read.transform import parts_of
from wdspec.shards.lock import Lock
from wdspec.shards.shards import list_shards
from wdspec.spec.load import load

PARTS = (2, 5, 9)
"""Numbers of shards of the sources."""


def make_source(folder, seed, shards, kind, is_sorted=True):
    """Write one source twice, as two parts and as one; returns what plain Python knows of it: key → (cls, caption)."""
    rng, truth = random.Random(seed), {}
    for shard in range(shards):
        keys = [f"{shard}-{number:03}" for number in range(rng.randint(8, 30))]
        if not is_sorted:
            rng.shuffle(keys)
        gaps = set() if shard % 3 == 2 else {key for key in keys if rng.random() < 0.2}
        captions = {key: f"caption {key} {'x' * rng.randint(0, 900)}" for key in keys if key not in gaps}
        first = [(key, {"cls": str(number).encode()}) for number, key in enumerate(keys)]
        second = [(key, {"txt": captions[key].encode()}) for key in keys if key in captions]
        if shard % 2:  # samples that the source lacks
            for place in (0, len(second) // 2, len(second)):
                extra = f"{shard}-{place:03}x"
                second.insert(place, (extra, {"txt": b"extra"}))
        whole = [
            (key, {**fields, **({"txt": captions[key].encode()} if key in captions else {})})
            for key, fields in first
        ]
        write_shard(folder / f"a-{shard}.tar", first)
        write_shard(folder / f"whole-{shard}.tar", whole)
        write_shard(folder / f"b-{shard}.tar", second)
        data = (folder / f"b-{shard}.tar").read_bytes()
        (folder / f"b-{shard}.tar.gz").write_bytes(gzip.compress(data))
        (folder / f"b-{shard}.tar.bz2").write_bytes(bz2.compress(data))
        lines = [json.dumps({"__key__": key, "txt": fields["txt"].decode()}) for key, fields in second]
        (folder / f"b-{shard}.jsonl").write_text("\n".join(lines) + "\n")
        truth |= {key: (number, captions.get(key)) for number, key in enumerate(keys)}
    rows = [json.dumps({"key": key, "score": score_of(key)}) for key in rng.sample(sorted(truth), len(truth))]
    (folder / "scores.jsonl").write_text("\n".join(rows))
    return truth


def score_of(key):
    """The score that the table has for a key."""
    return sum(key.encode()) + 0.5


class Listed(dict):
    """Sources by number; reports of failures do not list their samples."""

    def __repr__(self):
        return f"{len(self)} sources"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("joins")


@pytest.fixture(scope="module")
def sources(folder):
    found = Listed()
    for number, (shards, is_sorted) in enumerate(itertools.product(PARTS, (True, False))):
        place = folder / str(number)
        found[number] = place, shards, make_source(place, number, shards, "tar", is_sorted)
    return found


def run(spec, ranks, batches, state=None):
    """Global batches read by `ranks` ranks, as sets of (key, cls, caption), and the merged state, through JSON."""
    rows, states = [], []
    for rank in range(ranks):
        with wdspec.loader(spec, num_workers=0, rank=rank, world_size=ranks) as loader:
            if state is not None:
                loader.load_state_dict(state)
            seen = []
            while len(seen) < batches:
                seen += [
                    sorted(
                        zip(
                            batch["__key__"],
                            map(int, batch["cls"]),
                            map(str, batch["caption"]),
                            map(float, batch["score"]),
                            strict=True,
                        )
                    )
                    for batch in itertools.islice(loader, batches - len(seen))
                ]
            rows.append(seen)
            states.append(json.loads(json.dumps(loader.state_dict())))
    merged = wdspec.merge_states(states)
    return [sorted(itertools.chain.from_iterable(row)) for row in zip(*rows, strict=True)], merged


@st.composite
def cases(draw):
    return {
        "numbers": draw(st.lists(st.integers(0, 5), min_size=1, max_size=2, unique=True)),
        "missing": draw(st.sampled_from(("skip", "none"))),
        "format": draw(st.sampled_from(("tar", "tar", "tar.gz", "tar.bz2", "jsonl"))),
        "shuffle": draw(st.sampled_from((0, 5, 40))),
        "interleave": draw(st.sampled_from((1, 3))),
        "order": draw(st.sampled_from(("shuffled", "sequential", "resampled"))),
    }


def specs_of(sources, case):
    """The spec with a join, and the one of whole tars, whose samples come in the same order."""
    joined, whole = [], []
    for number in case["numbers"]:
        place, shards, _ = sources[number]
        common = {
            "name": f"s{number}",
            "shuffle": case["shuffle"],
            "interleave": case["interleave"],
            "order": case["order"],
            "lookup": {"table": f"{place}/scores.jsonl", "fields": "score"},
        }
        braces = f"{{0..{shards - 1}}}"
        join = {
            "shards": f"{place}/b-{braces}.{case['format']}",
            "missing": case["missing"],
            "fields": "txt",
            "rename": {"caption": "txt"},
        }
        joined.append({**common, "shards": f"{place}/a-{braces}.tar", "join": [join]})
        rename = {"caption": "txt"}
        whole.append(
            {**common, "shards": f"{place}/whole-{braces}.tar", "rename": rename, "missing": case["missing"]}
        )
    common = {"seed": 3, "batch": {"global_size": 8}, "epoch": {"batches": 4}}
    common["elastic"] = {"ranks": 4, "workers": 2}
    return [load({**common, "dataset": dataset}) for dataset in (joined, whole)]


@given(cases(), st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.integers(1, 9)), min_size=1, max_size=4))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_global_batches_equal_those_of_joined_tars_on_any_topology(sources, case, legs):
    joined, whole = specs_of(sources, case)
    seen, state = [], None
    for ranks, batches in legs:
        part, state = run(joined, ranks, batches, state)
        seen += part
    expected, _ = run(whole, 1, sum(batches for _, batches in legs))
    assert seen == expected
    truth = {}
    for number in case["numbers"]:
        truth |= {(f"s{number}", key): each for key, each in sources[number][2].items()}
    known = {(key, cls, str(caption), score_of(key)) for (_, key), (cls, caption) in truth.items()}
    assert all(sample in known for batch in seen for sample in batch)
    if case["missing"] == "skip":
        assert not any(caption == "None" for batch in seen for _, _, caption, _ in batch)


def write_pair(folder, first, second, name="b-0.tar"):
    """One shard with `cls` of some keys, and its partner with `txt` of some keys."""
    write_shard(folder / "a-0.tar", [(key, {"cls": b"1"}) for key in first])
    if name.endswith(".jsonl"):
        lines = [json.dumps({"__key__": key, "txt": f"of {key}"}) for key in second]
        (folder / name).write_text("\n".join(lines) + "\n")
    else:
        write_shard(folder / name, [(key, {"txt": f"of {key}".encode()}) for key in second])
    return {"name": "s", "shards": f"{folder}/a-0.tar", "join": [{"shards": f"{folder}/{name}"}]}


def read(source, **options):
    """The samples of a source in order, as (key, txt), and how many were dropped or skipped."""
    spec = {"dataset": [{"order": "sequential", "shuffle": 0, **source}], "epoch": "pass", **options}
    dataset = wdspec.compile(spec)
    samples = [(sample["__key__"], sample.get("txt")) for sample in dataset if sample["__mask__"]]
    counts = dataset.stats().sources["s"] if hasattr(dataset, "stats") else None
    dataset.close()
    return samples, counts


def test_a_missing_partner_sample_is_an_error_that_names_both_sides(tmp_path):
    source = write_pair(tmp_path, ["k1", "k2", "k3"], ["k1", "k3"])
    with pytest.raises(wdspec.ShardError) as caught:
        read(source)
    place = caught.value.place
    assert caught.value.code == "D220"
    assert place["url"] == f"{tmp_path}/a-0.tar"
    assert (place["key"], place["offset"]) == ("k2", 1024)
    assert place["partner"] == f"{tmp_path}/b-0.tar"
    assert (place["partner_key"], place["partner_offset"]) == ("k3", 1024)


@pytest.mark.parametrize("name", ["b-0.tar", "b-0.jsonl"])
@pytest.mark.parametrize(
    ("second", "code"),
    [
        (["k2", "k1", "k3"], "D221"),
        (["k3", "k2", "k1"], "D221"),
        (["k1", "k2", "k1", "k3"], "D222"),
        (["k1", "k1", "k2", "k3"], "D222"),
        (["k1", "k3", "k2"], "D221"),
    ],
)
@pytest.mark.parametrize("missing", ["error", "skip", "none"])
def test_keys_in_another_order_and_repeated_keys_are_errors_that_say_how_to_sort(
    tmp_path, name, second, code, missing
):
    if name.endswith(".tar") and second[0] == second[1]:
        pytest.skip("a tar has adjacent files of one key as one sample, with a file twice")
    source = write_pair(tmp_path, ["k1", "k2", "k3"], second, name)
    source["join"][0] |= {"missing": missing, "fields": "txt"}
    with pytest.raises(wdspec.ShardError) as caught:
        read(source)
    # The reader of tars finds repeated keys itself.
    assert caught.value.code in (code, "D205" if code == "D222" else code)
    assert "sort" in str(caught.value)
    assert "b-0" in str(caught.value)
    assert "a-0.tar" in str(caught.value)


@pytest.mark.parametrize("name", ["b-0.tar", "b-0.jsonl"])
def test_samples_that_the_source_lacks_are_skipped(tmp_path, name):
    source = write_pair(tmp_path, ["k1", "k3"], ["k0", "k1", "k2", "k3", "k4"], name)
    assert read(source)[0] == [("k1", "of k1"), ("k3", "of k3")]


@pytest.mark.parametrize("more", [{}, {"where": "cls == 1"}, {"keys": [f"k{n:02}" for n in range(0, 20, 2)]}])
@pytest.mark.parametrize("size", [1, 4, 5, 10, 20])
def test_skipped_samples_are_counted_for_full_and_partial_last_batches(tmp_path, size, more):
    first, second = [f"k{n:02}" for n in range(0, 20, 2)], [f"k{n:02}" for n in range(25)]
    source = {**write_pair(tmp_path, first, second), **more}
    spec = {"dataset": [source], "batch": size, "epoch": "pass", "elastic": {"ranks": 1, "workers": 1}}
    with wdspec.loader(spec, num_workers=0) as loader:
        assert sum(int(batch["__mask__"].sum()) for batch in loader) == 10
        assert loader.stats().sources["s"].unjoined == 15


def test_different_numbers_of_shards_are_an_error_with_both_numbers(tmp_path):
    source = write_pair(tmp_path, ["k1"], ["k1"])
    write_shard(tmp_path / "b-1.tar", [("k1", {"txt": b"1"})])
    source["join"][0]["shards"] = f"{tmp_path}/b-*.tar"
    with pytest.raises(wdspec.UsageError, match=r"has 1 shards.*has 2"):
        list_shards(load({"dataset": [source]}))


def test_a_missing_partner_shard_is_an_error_or_one_counted_skip(tmp_path):
    source = write_pair(tmp_path, ["k1", "k2"], ["k1", "k2"])
    (tmp_path / "b-0.tar").unlink()
    with pytest.raises(wdspec.MissingShardError) as caught:
        read(source)
    assert "b-0.tar" in str(caught.value)
    assert "a-0.tar" in str(caught.value)
    for name in ("a-1", "b-1"):
        write_shard(tmp_path / f"{name}.tar", [("k5", {"cls" if name[0] == "a" else "txt": b"1"})])
    source |= {"shards": f"{tmp_path}/a-{{0..1}}.tar", "errors": "skip"}
    source["join"][0]["shards"] = f"{tmp_path}/b-{{0..1}}.tar"
    assert [key for key, _ in read(source)[0]] == ["k5"]


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_truncated_partner_ends_its_pair(tmp_path, policy):
    keys = [f"k{number}" for number in range(9)]
    source = write_pair(tmp_path, keys, keys)
    path = tmp_path / "b-0.tar"
    path.write_bytes(path.read_bytes()[: 5 * 1024 + 200])
    source |= {"errors": policy}
    source["join"][0] |= {"missing": "none", "fields": "txt"}
    if policy == "raise":
        with pytest.raises(wdspec.ShardError, match=r"truncated.*b-0.tar.*a-0.tar"):
            read(source)
    else:
        assert read(source)[0] == [(key, f"of {key}") for key in keys[:4]]


def test_a_damaged_record_of_a_partner_is_an_error_or_a_counted_skip(tmp_path):
    keys = [f"k{number}" for number in range(5)]
    source = write_pair(tmp_path, keys, keys, "b-0.jsonl")
    path = tmp_path / "b-0.jsonl"
    path.write_text(path.read_text().replace('{"__key__": "k2"', '{"__key__" "k2"'))
    with pytest.raises(wdspec.ShardError, match="not JSON"):
        read(source)
    source |= {"errors": "skip"}
    assert [key for key, _ in read(source)[0]] == ["k0", "k1", "k3", "k4"]


def test_a_field_in_both_parts_is_an_error_unless_it_is_renamed(tmp_path):
    source = write_pair(tmp_path, ["k1"], ["k1"])
    write_shard(tmp_path / "b-0.tar", [("k1", {"txt": b"of k1", "cls": b"7"})])
    with pytest.raises(wdspec.ShardError, match="both parts of a join have the field `cls`") as caught:
        read(source)
    assert caught.value.code == "D224"
    source["join"][0]["rename"] = {"other": "cls"}
    dataset = wdspec.compile({"dataset": [source], "epoch": {"samples": 1}})
    (sample,) = dataset
    assert (sample["cls"], sample["other"], sample["txt"]) == (1, 7, "of k1")
    dataset.close()
    source["join"][0] = {"shards": f"{tmp_path}/b-0.tar", "fields": "txt"}
    assert read(source)[0] == [("k1", "of k1")]


def test_files_that_no_field_needs_are_not_read(tmp_path):
    source = write_pair(tmp_path, ["k1"], ["k1"])
    write_shard(tmp_path / "b-0.tar", [("k1", {"txt": b"of k1", "jpg": b"no image" * 999})])
    spec = load({"dataset": [source], "fields": "cls txt"})
    shards = list_shards(spec)
    opener = parts_of(spec, shards)["s"].open
    (raw,) = opener(Piece(shards.lists["s"][0]), on_error=lambda error: None)
    assert set(raw) == {"__key__", "__url__", "__source__", "cls", "txt"}


def test_two_partners_are_merged(tmp_path):
    source = write_pair(tmp_path, ["k1", "k2", "k3"], ["k1", "k3"])
    write_shard(tmp_path / "c-0.tar", [(key, {"json": b"{}"}) for key in ("k2", "k3")])
    source["join"][0] |= {"missing": "skip"}
    source["join"].append({"shards": f"{tmp_path}/c-0.tar", "missing": "none", "fields": "json"})
    dataset = wdspec.compile({"dataset": [{**source, "order": "sequential", "shuffle": 0}], "epoch": "pass"})
    samples = {sample["__key__"]: sample["json"] for sample in dataset if sample["__mask__"]}
    assert samples == {"k1": None, "k3": {}}
    dataset.close()


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_workers_read_the_same_batches(sources, kind):
    joined, _ = specs_of(
        sources,
        {
            "numbers": [2, 5],
            "missing": "skip",
            "format": "tar",
            "shuffle": 5,
            "interleave": 3,
            "order": "shuffled",
        },
    )
    keys = lambda loader: [list(batch["__key__"]) for batch in loader]  # noqa: E731
    with wdspec.loader(joined, num_workers=0, rank=0, world_size=1) as loader:
        expected = keys(loader)
    joined = joined.model_copy(update={"loader": joined.loader.model_copy(update={"kind": kind})})
    with wdspec.loader(joined, num_workers=2, rank=0, world_size=1) as loader:
        assert keys(loader) == expected


def test_a_lock_has_the_partners_and_the_tables(tmp_path):
    source = write_pair(tmp_path, ["k1", "k2"], ["k1", "k2"])
    (tmp_path / "t.jsonl").write_text('{"key": "k1", "score": 1}\n{"key": "k2", "score": 2}\n')
    source["join"][0]["shards"] = f"{tmp_path}/b-*.tar"
    source["lookup"] = {"table": f"{tmp_path}/t.jsonl", "fields": "score"}
    spec = load({"dataset": [source], "epoch": {"samples": 2}})
    lock = lock_spec(spec)
    path = tmp_path / "spec.lock.json"
    path.write_text(lock.text)
    assert Lock.read(path) == lock
    assert list(find_changes(lock, spec)) == []
    dataset = wdspec.compile(spec, lock=path)
    assert {(sample["txt"], sample["score"]) for sample in dataset} == {("of k1", 1), ("of k2", 2)}
    dataset.close()
    write_shard(tmp_path / "b-0.tar", [("k1", {"txt": b"longer" * 999})])
    (tmp_path / "t.jsonl").write_text('{"key": "k1", "score": 1}\n')
    changed = [change.url for change in find_changes(lock, spec)]
    assert changed == [f"{tmp_path}/b-0.tar", f"{tmp_path}/t.jsonl"]
    other = load({"dataset": [{**source, "join": f"{tmp_path}/b-0.tar"}]})
    assert list(lock.misfits(other)) == ["the source `s` has another `join` or `lookup`"]


def test_check_reports_missing_and_surplus_partners(tmp_path):
    source = write_pair(tmp_path, ["k1", "k2", "k3"], ["k0", "k1", "k3"])
    (tmp_path / "spec.json").write_text(json.dumps({"dataset": [source]}))
    shown, _ = within("check", "spec.json", "--format", "json", folder=tmp_path, code=1)
    found = json.loads(shown)
    codes = {problem["code"] for problem in found["problems"]}
    assert {"D220", "D319"} <= codes


def test_a_damaged_copy_of_a_partner_is_replaced_from_its_store(tmp_path):
    source = write_pair(tmp_path, ["k1", "k2"], ["k1", "k2"])
    handler = functools.partial(QuietHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        source |= {"shards": f"{url}/a-0.tar", "join": f"{url}/b-0.tar", "cache": f"{tmp_path}/cache"}
        expected = [("k1", "of k1"), ("k2", "of k2")]
        assert read(source)[0] == expected
        (copy,) = (path for path in (tmp_path / "cache").rglob("*b-0.tar*") if path.is_file())
        data = bytearray(copy.read_bytes())
        data[1024 + 3] ^= 0xFF
        copy.write_bytes(bytes(data))
        assert read(source)[0] == expected
    finally:
        server.shutdown()
        server.server_close()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a log."""

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_partners_in_tables_with_gaps_are_matched_by_key(tmp_path, suffix):
    write_shard(tmp_path / "a.tar", [(f"k{n}", {"cls": b"%d" % n}) for n in range(12)])
    rows = [{"__key__": f"k{n}", "caption": f"c{n}"} for n in range(12) if n % 3]
    if suffix == "jsonl":
        (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), tmp_path / "b.parquet")
    join = {"shards": f"{tmp_path}/b.{suffix}", "missing": "skip", "fields": "caption"}
    spec = {"dataset": [{"shards": f"{tmp_path}/a.tar", "join": [join]}], "epoch": "pass"}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        found = [(each["__key__"], each["caption"]) for each in loader if each["__mask__"]]
    assert sorted(found) == sorted((row["__key__"], row["caption"]) for row in rows)


@st.composite
def damaged_pairs(draw):
    """Keys of a shard and of its partner, some only in one of them, and the numbers of damaged rows."""
    keys = [f"{number:02}" for number in range(draw(st.integers(3, 14)))]
    places = st.sampled_from(("both", "both", "both", "shard", "partner"))
    parts = draw(st.lists(places, min_size=len(keys), max_size=len(keys)))
    first = [key for key, part in zip(keys, parts, strict=True) if part != "partner"]
    second = [key for key, part in zip(keys, parts, strict=True) if part != "shard"]
    lost = draw(st.sets(st.integers(0, max(0, len(second) - 1)), max_size=2)) if second else set()
    return first or ["00"], second or ["00"], lost


def write_damaged_partner(folder, kind, keys, lost):
    """Write a partner with damage; returns the keys that it may have, or None for a damaged one, in order."""
    path = folder / f"b-0.{kind}"
    if kind == "jsonl":
        lines = [json.dumps({"__key__": key, "y": f"of {key}"}) for key in keys]
        path.write_text("".join(f"{line[:9] if n in lost else line}\n" for n, line in enumerate(lines)))
        return [None if number in lost else key for number, key in enumerate(keys)]
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = "__key__" if kind == "key.parquet" else "y"
    table = pa.table({"__key__": keys, "y": [f"of {key}" for key in keys]})
    pq.write_table(
        table, path, row_group_size=3, write_page_checksum=True, compression="none", use_dictionary=False
    )
    data, groups = bytearray(path.read_bytes()), {number // 3 for number in lost}
    for group in groups:
        chunk = pq.read_metadata(path).row_group(group).column(0 if column == "__key__" else 1)
        data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 0xFF
    path.write_bytes(bytes(data))
    return [None if number // 3 in groups else key for number, key in enumerate(keys)]


def find_joined(first, second, seen, missing, knows_keys):
    """What a run delivers of a damaged pair: key → the value of `y`."""
    found = {}
    for at, key in enumerate(first):
        if key in seen:
            found[key] = f"of {key}"
            continue
        if knows_keys and key in second:
            continue
        before = max((seen.index(each) for each in first[:at] if each in seen), default=-1)
        after = min((seen.index(each) for each in first[at:] if each in seen), default=len(seen))
        if not knows_keys and None in seen[before + 1 : after]:
            continue
        if missing == "none":
            found[key] = None
    return found


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "key.parquet"])
@given(
    pair=damaged_pairs(), missing=st.sampled_from(("error", "skip", "none")), slots=st.sampled_from((1, 2))
)
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_in_a_partner_costs_its_own_samples_also_after_a_resume(
    tmp_path_factory, kind, pair, missing, slots
):
    folder = tmp_path_factory.mktemp("damaged")
    first, second, lost = pair
    (folder / "a-0.jsonl").write_text("".join(json.dumps({"__key__": key, "x": 1}) + "\n" for key in first))
    seen = write_damaged_partner(folder, kind, second, lost)
    expected = find_joined(first, second, seen, missing, kind == "parquet")
    assume(expected)
    join = {"shards": f"{folder}/b-0.{kind}", "missing": missing, "fields": "y"}
    source = {"shards": f"{folder}/a-0.jsonl", "shuffle": 0, "order": "sequential", "join": [join]}
    spec = {"dataset": [source], "errors": "skip", "batch": 1, "elastic": {"ranks": 1, "workers": slots}}
    if slots > 1 and any(not set(first[slot::slots]) & expected.keys() for slot in range(slots)):
        return  # a slot without a sample is an error

    def run_on(state, count):
        read, states = [], []
        with wdspec.loader(spec, num_workers=0) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for batch in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), count):
                read.append((batch["__key__"][0], batch["y"][0]))
                states.append(loader.state_dict())
        return read, states

    if slots == 1:
        order = [(key, expected[key]) for key in first if key in expected]
        total = 2 * len(order)
        whole, states = run_on(None, total)
        assert whole == order * 2
    else:
        total = 2 * len(first)
        whole, states = run_on(None, total)
        assert dict(whole) == expected
    for at, state in enumerate(states[: len(first)]):
        assert run_on(state, total - at - 1)[0] == whole[at + 1 :]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "key.parquet"])
def test_a_damaged_sample_of_a_partner_is_one_error_with_its_key(tmp_path, kind):
    keys = [f"k{number}" for number in range(9)]
    source = write_pair(tmp_path, keys, keys)
    seen = write_damaged_partner(tmp_path, kind, keys, {4})
    join = {"shards": f"{tmp_path}/b-0.{kind}", "missing": "none", "fields": "y"}
    source |= {"join": [join]}
    with pytest.raises(wdspec.ShardError, match=r"k4|k3") as caught:
        read(source)
    assert caught.value.place["partner"] == f"{tmp_path}/a-0.tar"
    assert caught.value.code == ("D120" if kind == "jsonl" else "D121")
    spec = {"dataset": [source | {"errors": "skip"}], "epoch": "pass", "batch": 2}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        read_keys = [
            key
            for batch in loader
            for key, is_one in zip(batch["__key__"], batch["__mask__"], strict=True)
            if is_one
        ]
        assert sorted(read_keys) == [key for key in seen if key]
        assert sum(loader.stats().sources["s"].skipped.values()) == seen.count(None)


@pytest.mark.parametrize(
    "more", [{}, {"epoch": "pass"}, {"epoch": "pass", "batch": {"cost": "1", "max_cost": 4}}]
)
@pytest.mark.parametrize("where", [{}, {"where": "cls == 1"}])
def test_a_partner_shard_that_does_not_exist_is_skipped_in_every_kind_of_run(tmp_path, more, where):
    keys = [[f"{shard}-{number:02}" for number in range(10)] for shard in range(3)]
    for shard in range(3):
        write_shard(tmp_path / f"a-{shard}.tar", [(key, {"cls": b"1"}) for key in keys[shard]])
    for shard in (0, 2):
        write_shard(tmp_path / f"b-{shard}.tar", [(key, {"txt": b"of"}) for key in keys[shard]])
    source = {
        "name": "s",
        "shards": f"{tmp_path}/a-{{0..2}}.tar",
        "join": f"{tmp_path}/b-{{0..2}}.tar",
        **where,
    }
    spec = {"errors": "skip", "batch": 4, "elastic": {"ranks": 1, "workers": 1}, "dataset": [source], **more}
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = list(itertools.islice(loader, 5 if not more else 8))
        assert {key for batch in batches for key in batch["__key__"] if key} == {*keys[0], *keys[2]}
        assert loader.stats().sources["s"].skipped == {"D101": 1}
    with pytest.raises(wdspec.MissingShardError, match=r"b-1\.tar"):
        run_once(spec | {"errors": "raise"})


def run_once(spec):
    """Read a few batches."""
    with wdspec.loader(spec, num_workers=0) as loader:
        list(itertools.islice(loader, 10))


@pytest.mark.parametrize("topology", [(1, 1), (1, 3), (2, 2)])
def test_a_pass_counts_the_same_samples_without_a_partner_on_any_topology(tmp_path, topology):
    write_shard(tmp_path / "a-0.tar", [(f"{n:02}", {"cls": b"1"}) for n in range(1, 40, 2)])
    write_shard(tmp_path / "b-0.tar", [(f"{n:02}", {"txt": b"x"}) for n in range(40)])
    source = {"name": "s", "shards": f"{tmp_path}/a-0.tar", "join": f"{tmp_path}/b-0.tar"}
    ranks, workers = topology
    spec = {"dataset": [source], "epoch": "pass", "batch": 2, "elastic": {"ranks": ranks, "workers": workers}}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        states = [loader.state_dict() for _ in loader]
        counted = loader.stats().sources["s"].unjoined
    assert counted == 20
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        loader.load_state_dict(states[2])
        list(loader)
        assert loader.stats().sources["s"].unjoined == 20
