"""`where`, `subset`, `keys` and `exclude`, against plain Python over the same samples."""

import io
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import numpy as np
import pytest
from shardmaking import write_shard

import wdspec
from wdspec.testing import assert_resumable

SHARDS, SAMPLES = 6, 60
KEYS = {
    "where": "json.score >= 0.5 and cls in [1, 3]",
    "default": "default(json.rare, 0) > 0 or not json.ok",
    "tag": "cls == limit",
    "part": "20%",
}


def facts_of(number):
    draw = random.Random(number)
    facts = {"score": round(draw.random(), 3), "user": f"u{number % 11}", "ok": draw.random() < 0.8}
    if draw.random() < 0.3:
        facts["rare"] = draw.choice([0, 1, None])
    return facts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("selection")
    for shard in range(SHARDS):
        samples = []
        for index in range(SAMPLES):
            number = shard * SAMPLES + index
            fields = {"json": json.dumps(facts_of(number)).encode(), "cls": str(number % 5).encode()}
            samples.append((f"k{number:04d}", fields))
        write_shard(folder / f"a-{shard}.tar", samples)
        write_shard(folder / f"b-{shard}.tar", [(f"b{shard}{i}", {"cls": b"9"}) for i in range(SAMPLES)])
    return folder


def spec_of(folder, more=None, **keys):
    return {
        "seed": 3,
        "dataset": [{"name": "a", "shards": f"{folder}/a-{{0..{SHARDS - 1}}}.tar", **keys}],
        "batch": {"size": 4},
        "epoch": {"batches": 30},
        **(more or {}),
    }


def place_of(text):
    """The published hash of `subset`, written independently: a number in [0, 1)."""
    crc = crc32(text.encode())
    return (crc ^ (crc >> 16)) * 0x9E3779B97F4A7C15 % 2**64 / 2**64


CASES = {
    "where": ({"where": KEYS["where"]}, lambda n, f: f["score"] >= 0.5 and n % 5 in (1, 3)),
    "default and null": ({"where": KEYS["default"]}, lambda n, f: bool(f.get("rare")) or not f["ok"]),
    "tags": ({"where": KEYS["tag"], "tags": {"limit": 2}}, lambda n, f: n % 5 == 2),
    "size of text": ({"where": "fields['cls'] < 2"}, lambda n, f: n % 5 < 2),
    "part": ({"subset": "20%"}, lambda n, f: place_of(f"k{n:04d}") < 0.2),
    "range": ({"subset": ["60%", "90%"]}, lambda n, f: 0.6 <= place_of(f"k{n:04d}") < 0.9),
    "of": ({"subset": {"of": "json.user", "part": "40%"}}, lambda n, f: place_of(f["user"]) < 0.4),
    "of integer": ({"subset": {"of": "cls", "part": 0.5}}, lambda n, f: place_of(str(n % 5)) < 0.5),
    "keys": ({"keys": [f"k{n:04d}" for n in range(0, 360, 7)]}, lambda n, f: n % 7 == 0),
    "exclude": ({"exclude": [f"k{n:04d}" for n in range(0, 360, 3)]}, lambda n, f: n % 3 != 0),
    "all": (
        {
            "where": "json.score < 0.7",
            "subset": "70%",
            "exclude": ["k0001"],
            "keys": [f"k{n:04d}" for n in range(300)],
        },
        lambda n, f: f["score"] < 0.7 and place_of(f"k{n:04d}") < 0.7 and n != 1 and n < 300,
    ),
}


def expected(keep):
    return {f"k{number:04d}" for number in range(SHARDS * SAMPLES) if keep(number, facts_of(number))}


@pytest.mark.parametrize("name", CASES)
def test_each_selected_sample_appears_once_per_pass(folder, name):
    keys, keep = CASES[name]
    chosen = expected(keep)
    spec = spec_of(folder, {"batch": None, "epoch": 3 * len(chosen)}, order="sequential", shuffle=0, **keys)
    found = [sample["__key__"] for sample in wdspec.compile(spec)]
    assert set(found[: len(chosen)]) == chosen
    assert Counter(found) == Counter(dict.fromkeys(chosen, 3))


@pytest.mark.parametrize("name", CASES)
def test_a_pass_has_the_selected_samples_and_masks_the_others(folder, name):
    keys, keep = CASES[name]
    spec = spec_of(folder, {"epoch": "pass"}, **keys)
    with wdspec.loader(spec, num_workers=0) as loader:
        found = Counter(
            key
            for batch in loader
            for key, real in zip(batch["__key__"], batch["__mask__"], strict=True)
            if real
        )
    assert found == Counter(expected(keep))


@pytest.mark.parametrize("name", ["where", "of", "all"])
def test_order_and_resume_do_not_depend_on_the_topology(folder, name):
    mixed = {"elastic": {"ranks": 4, "workers": 2}, "batch": {"global_size": 8}, "fields": "cls"}
    spec = spec_of(folder, mixed, weight=2, shuffle=40, **CASES[name][0])
    spec["dataset"].append({"name": "b", "shards": f"{folder}/b-{{0..5}}.tar", "weight": 1})

    def batches(world, state=None, stop=None):
        loaders = [wdspec.loader(spec, num_workers=0, rank=rank, world_size=world) for rank in range(world)]
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        found = []
        for parts in zip(*loaders, strict=True):
            found.append(sorted(key for part in parts for key in part["__key__"]))
            if len(found) == stop:
                break
        states = [loader.state_dict() for loader in loaders]
        for loader in loaders:
            loader.close()
        return found, wdspec.merge_states(states)

    whole, _ = batches(1)
    assert len(whole) == 30
    for first, second, stop in ((4, 2, 7), (2, 1, 13), (1, 4, 22)):
        start, state = batches(first, stop=stop)
        rest, _ = batches(second, state)
        assert start + rest == whole


def test_a_run_with_a_selection_is_resumable(folder):
    spec = spec_of(folder, {"epoch": {"batches": 12}}, shuffle=50, **CASES["all"][0])
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0, rank=0, world_size=1))


def test_shares_are_exact_and_dropped_samples_use_no_draw(folder):
    spec = spec_of(folder, {"batch": {"size": 8}, "fields": "cls"}, weight=3, subset="10%")
    spec["dataset"].append({"name": "b", "shards": f"{folder}/b-{{0..5}}.tar", "weight": 1})
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        for batch in loader:
            assert sum(key.startswith("k") for key in batch["__key__"]) == 6
        assert set(loader.stats().sources["a"].dropped) == {"subset"}


def test_skipped_steps_are_selected_without_decoding(folder, monkeypatch):
    (folder / "selection_steps.py").write_text(
        "calls = []\ndef note(sample):\n    calls.append(1)\n    return sample\n"
    )
    monkeypatch.syspath_prepend(folder)
    import selection_steps

    keys = {**CASES["where"][0], "map": "selection_steps:note"}
    with wdspec.loader(spec_of(folder, **keys), num_workers=0) as loader:
        whole = [batch["__key__"] for batch in loader]
    selection_steps.calls.clear()
    with wdspec.loader(spec_of(folder, {"skip": "0..20"}, **keys), num_workers=0) as loader:
        rest = [batch["__key__"] for batch in loader]
    assert rest[-9:] == whole[21:]
    assert len(selection_steps.calls) < 4 * len(rest) + 60


def test_parts_are_disjoint_and_nested(folder):
    def keys_of(part):
        spec = spec_of(folder, {"epoch": "pass", "batch": 1}, subset=part)
        with wdspec.loader(spec, num_workers=0) as loader:
            return {batch["__key__"][0] for batch in loader if batch["__mask__"][0]}

    train, val = keys_of(["0%", "95%"]), keys_of(["95%", "100%"])
    assert not train & val
    assert len(train | val) == SHARDS * SAMPLES
    assert keys_of("10%") < keys_of("20%") < train
    other = keys_of({"part": "20%", "seed": 1})
    assert other != keys_of("20%")


@pytest.mark.parametrize(
    "pattern", ["{:06d}", "{:09d}", "user{}", "train/s{:03d}/x_{:05d}", "{:08x}", "n0144/{0}_{0}"]
)
@pytest.mark.parametrize("percent", [1, 10, 50])
def test_a_part_has_its_size_for_any_keys(pattern, percent):
    from wdspec.read.selection import hash_part

    count = 40_000
    inside = sum(hash_part(pattern.format(n, n)) < percent * 2**64 // 100 for n in range(count))
    expected, spread = count * percent / 100, (count * percent / 100 * (1 - percent / 100)) ** 0.5
    assert abs(inside - expected) < 4 * spread


def test_images_are_selected_by_their_headers(tmp_path):
    from PIL import Image

    def jpeg(width):
        data = io.BytesIO()
        Image.new("RGB", (width, 10)).save(data, "JPEG")
        return data.getvalue()

    write_shard(
        tmp_path / "a.tar", [(f"k{n}", {"jpg": jpeg(8 + n)[: -20 if n < 4 else None]}) for n in range(8)]
    )
    spec = {
        "dataset": [{"shards": f"{tmp_path}/a.tar", "where": "jpg.width >= 12", "decode": "rgb8"}],
        "epoch": 8,
    }
    # Those that are left out are cut, so decoding them would fail.
    assert {sample["__key__"] for sample in wdspec.compile(spec)} == {"k4", "k5", "k6", "k7"}


def test_a_condition_that_no_sample_meets_is_an_error(folder):
    with pytest.raises(wdspec.ShardError, match=r"nothing in a whole pass.*where 360"):
        next(iter(wdspec.loader(spec_of(folder, where="json.score > 2"), num_workers=0)))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("json.nope > 1", r"there is no `nope` in it"),
        (
            "json.user > 1",
            r"`where` cannot be evaluated: `json.user > 1` compares the text .* with the number 1",
        ),
        ("png.width > 1", r"needs the field `png`"),
        ("1 / (cls - cls) > 1", r"`where` cannot be evaluated: ZeroDivisionError"),
    ],
)
def test_a_condition_that_cannot_be_evaluated_is_an_error(folder, where, message):
    with pytest.raises(wdspec.FieldError, match=rf"{message}.*source a.*key k"):
        next(iter(wdspec.loader(spec_of(folder, where=where), num_workers=0)))


def test_a_misspelled_field_is_compared_with_those_of_the_spec(folder):
    spec = spec_of(folder, where="labl > 1", rename={"label": "cls"}, tags={"origin": "web"})
    with pytest.raises(
        wdspec.FieldError, match=r"it has origin, .*label.*\. Did you mean `label`\? Otherwise"
    ) as said:
        next(iter(wdspec.loader(spec, num_workers=0)))
    assert " cls" not in str(said.value).partition("Did")[0]


def test_samples_whose_condition_fails_to_evaluate_are_skipped_and_counted(folder):
    spec = spec_of(folder, {"epoch": "pass"}, where="json.rare > 0", errors="skip")
    with wdspec.loader(spec, num_workers=0) as loader:
        found = {
            key
            for batch in loader
            for key, real in zip(batch["__key__"], batch["__mask__"], strict=True)
            if real
        }
        counts = loader.stats().sources["a"]
    facts = [facts_of(number) for number in range(SHARDS * SAMPLES)]
    assert found == {f"k{number:04d}" for number, each in enumerate(facts) if each.get("rare")}
    assert sum(counts.skipped.values()) == sum("rare" not in each for each in facts)
    assert counts.dropped == {"where": sum("rare" in each and not each["rare"] for each in facts)}


def test_values_that_are_not_text_or_integers_have_no_part(folder):
    spec = spec_of(folder, subset={"of": "json.score", "part": "10%"})
    with pytest.raises(
        wdspec.FieldError, match=r"`subset: \{of: json.score\}` is 0\.\d+; it must be text or an integer"
    ):
        next(iter(wdspec.loader(spec, num_workers=0)))


def test_a_changed_selection_changes_the_order(folder):
    with wdspec.loader(spec_of(folder, where="cls < 3"), num_workers=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with (
        wdspec.loader(spec_of(folder, where="cls < 4"), num_workers=0) as other,
        pytest.raises(wdspec.UsageError, match="where"),
    ):
        other.load_state_dict(state)


def test_process_writes_the_selected_samples(folder, tmp_path):
    from wdspec.cli.main import main

    spec = spec_of(folder, {"batch": None, "epoch": None, "output": f"{tmp_path}/out/"}, **CASES["all"][0])
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    with pytest.raises(SystemExit) as done:
        main(["process", str(tmp_path / "spec.yaml"), "--jobs", "0"])
    assert done.value.code == 0
    written = {"dataset": [{"shards": f"{tmp_path}/out/", "empty": "allow"}], "epoch": "pass"}
    assert {sample["__key__"] for sample in wdspec.compile(written)} == expected(CASES["all"][1])


class TestKeyFiles:
    """`keys: '@file'`: short lists in memory, long ones in a table."""

    @pytest.fixture
    def temporary(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        return tmp_path

    def test_a_file_next_to_the_spec_is_read(self, folder):
        (folder / "uids.txt").write_text("k0001\r\n\nk0100\nk0301")
        (folder / "spec.yaml").write_text(json.dumps(spec_of(folder, keys="@uids.txt")))
        with wdspec.loader(folder / "spec.yaml", num_workers=0) as loader:
            assert {key for batch in loader for key in batch["__key__"]} == {"k0001", "k0100", "k0301"}

    def test_a_changed_file_changes_the_order(self, folder):
        (folder / "bad.txt").write_text("k0001\n")
        spec = spec_of(folder, exclude=f"@{folder}/bad.txt")
        with wdspec.loader(spec, num_workers=0) as loader:
            next(iter(loader))
            state = loader.state_dict()
        (folder / "bad.txt").write_text("k0002\n")
        with (
            wdspec.loader(spec, num_workers=0) as other,
            pytest.raises(wdspec.UsageError, match=r"files\.exclude"),
        ):
            other.load_state_dict(state)

    @pytest.mark.parametrize(
        ("content", "message"),
        [(b"\n\n", "no key in this file"), (b"a\0b\n", "zero byte"), (b"x" * 70_000, "too long")],
    )
    def test_a_bad_file_is_an_error_with_its_place(self, folder, content, message):
        (folder / "wrong.txt").write_bytes(content)
        with pytest.raises(wdspec.ShardError, match=rf"{message}.*source a.*list @.*wrong\.txt"):
            wdspec.loader(spec_of(folder, keys=f"@{folder}/wrong.txt"), num_workers=0)
        with pytest.raises(wdspec.ShardError, match=r"no such file.*source a, .*list @.*none\.txt"):
            wdspec.loader(spec_of(folder, keys=f"@{folder}/none.txt"), num_workers=0)

    def test_a_long_list_is_a_table_that_all_processes_map(self, folder, temporary, monkeypatch):
        monkeypatch.setattr("wdspec.shards.key_lists.IN_MEMORY", 10)
        kept = [f"k{n:04d}" for n in range(0, 360, 5)]
        (folder / "long.txt").write_text("\n".join(kept * 2))
        spec = spec_of(folder, keys=[f"@{folder}/long.txt", "k0001"])
        with wdspec.loader(spec, num_workers=2) as loader:
            assert {key for batch in loader for key in batch["__key__"]} <= {*kept, "k0001"}
        (table,) = temporary.rglob("*.keys")
        before = table.stat().st_mtime_ns
        with wdspec.loader(spec, num_workers=0) as loader:
            next(iter(loader))
        assert table.stat().st_mtime_ns == before

    @pytest.mark.parametrize("count", [1, 2, 999, 150_000])
    def test_a_table_has_its_keys_and_no_others(self, temporary, count):
        from wdspec.shards.key_lists import _find_table

        keys = [f"prefix/{n * 7:x}é".encode() for n in range(count)]
        table = _find_table(f"t{count}", count * 2, [iter(keys), iter(keys)])
        assert all(key.decode() in table for key in keys)
        assert not any(f"other/{n}" in table for n in range(20_000))

    def test_concurrent_processes_build_a_table_once(self, temporary):
        from wdspec.shards.key_lists import _find_table

        keys = [b"%d" % n for n in range(30_000)]
        with ThreadPoolExecutor(4) as pool:
            tables = list(pool.map(lambda _: _find_table("same", len(keys), [iter(keys)]), range(4)))
        assert len({table.path for table in tables}) == 1
        assert not list(temporary.rglob("*.partial"))
        assert "29999" in tables[3]
        assert "30000" not in tables[3]


def write_large(path, order, count=40, size=140_000):
    """Samples with a large picture; `order` is that of their files."""
    samples = []
    for number in range(count):
        files = {
            "json": json.dumps({"score": number}).encode(),
            "jpg": bytes([number]) * size,
            "txt": b"t%d" % number,
        }
        samples.append((f"k{number:03d}", {name: files[name] for name in order}))
    write_shard(path, samples)


LARGE = {
    "score": ({"where": "json.score in [3, 13, 23, 33]"}, lambda n: n % 10 == 3),
    "and text": (
        {"where": "json.score in [3, 13, 23, 33] and txt.length > 2"},
        lambda n: n % 10 == 3 and n > 9,
    ),
    "default": ({"where": "default(json.score, 0) in [3, 13, 23, 33]"}, lambda n: n % 10 == 3),
    "subset": ({"subset": "20%"}, lambda n: part_of(f"k{n:03d}") < 0.2),
    "of": (
        {"subset": {"of": "json.score", "part": "50%"}, "where": "txt.length == 3"},
        lambda n: part_of(str(n)) < 0.5 and n > 9,
    ),
    "keys": ({"keys": ["k003", "k005", "k039"], "where": "json.score != 5"}, lambda n: n in (3, 39)),
    "rename": (
        {"where": "facts.score in [3, 13, 23, 33]", "rename": {"facts": "json"}},
        lambda n: n % 10 == 3,
    ),
    "choice": (
        {"where": "a.score in [3, 13, 23, 33]", "rename": {"a": "meta.json;json"}},
        lambda n: n % 10 == 3,
    ),
}
BY_KEY, WITH_JSON_FIRST = {"subset", "keys"}, {"score", "default", "rename"}


def part_of(text):
    crc = crc32(text.encode())
    return (crc ^ crc >> 16) * 0x9E3779B97F4A7C15 % 2**64 / 2**64


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    for order in ("json-jpg-txt", "jpg-json-txt", "txt-jpg-json"):
        write_large(folder / f"{order}.tar", order.split("-"))
    return folder


@pytest.mark.parametrize("order", ["json-jpg-txt", "jpg-json-txt", "txt-jpg-json"])
@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("extensions", [None, "jpg txt"])
def test_large_files_of_dropped_samples_are_not_read(large, order, case, extensions):
    """What comes does not depend on whether they are read, nor on whether only `where` reads the JSON."""
    keys, keeps = LARGE[case]
    if extensions is not None and "rename" in keys:
        return
    asks = {} if extensions is None else {"extensions": extensions}
    spec = {"dataset": [{"name": "a", "shards": f"{large}/{order}.tar", **keys, **asks}], "epoch": "pass"}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        found = [sample for sample in loader if sample["__mask__"]]
        counts = loader.stats().sources["a"]
    assert [sample["__key__"] for sample in found] == [f"k{n:03d}" for n in range(40) if keeps(n)]
    for sample in found:
        number = int(sample["__key__"][1:])
        assert sample["jpg"] == bytes([number]) * 140_000
        assert sample["txt"] == f"t{number}"
        assert ("json" in sample) == (extensions is None and "rename" not in keys)
    is_early = case in BY_KEY or (case in WITH_JSON_FIRST and order.startswith("json"))
    assert (counts.bytes < 40 * 140_000 / 2) == is_early


def test_a_join_and_an_endless_stream_skip_large_files_too(tmp_path):
    write_large(tmp_path / "a.tar", ("json", "jpg"))
    write_shard(tmp_path / "b.tar", [(f"k{number:03d}", {"cap": b"c%d" % number}) for number in range(40)])
    source = {"name": "a", "shards": f"{tmp_path}/a.tar", "join": [{"shards": f"{tmp_path}/b.tar"}]}
    source |= {"extensions": "jpg cap", "where": "json.score >= 36", "shuffle": 0}
    spec = {"dataset": [source], "epoch": 4, "batch": 1}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        batches = list(loader)
        assert [batch["cap"] for batch in batches] == [[b"c%d" % number] for number in range(36, 40)]
        assert "json" not in batches[0]
        assert loader.stats().sources["a"].bytes < 40 * 140_000 / 2


UIDS = ["139e4a9b22a614771f06c700a8ebe150", "6e356964a967af455c8016b75d691203", "f" * 32, "0" * 31 + "7"]


@pytest.mark.parametrize("key", ["keys", "exclude"])
@pytest.mark.parametrize("form", ["datacomp", "texts", "bytes", "lines"])
def test_lists_of_values_that_are_not_keys_such_as_datacomp_uids(tmp_path, key, form):
    """The uids of DataComp are pairs of `u8`: numpy.array([(int(uid[:16], 16), int(uid[16:], 16)), …], "u8,u8")."""
    known = UIDS[:2] if form == "lines" else UIDS[1:]
    path = tmp_path / ("uids.txt" if form == "lines" else "uids.npy")
    if form == "lines":
        path.write_text("\n".join(known))
    elif form == "datacomp":
        pairs = np.array([(int(uid[:16], 16), int(uid[16:32], 16)) for uid in known], np.dtype("u8,u8"))
        pairs.sort()
        np.save(path, pairs)
    else:
        np.save(path, np.array(known, "S" if form == "bytes" else "U"))
    samples = [
        (f"{n:08d}", {"json": json.dumps({"uid": uid}).encode(), "jpg": b"x"}) for n, uid in enumerate(UIDS)
    ]
    write_shard(tmp_path / "a.tar", samples)
    source = {
        "name": "a",
        "shards": f"{tmp_path}/a.tar",
        key: f"@{path}",
        "keys_of": "json.uid",
        "extensions": "jpg",
    }
    spec = {"dataset": [source], "epoch": "pass"}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        found = [sample["__key__"] for sample in loader if sample["__mask__"]]
    assert found == [f"{n:08d}" for n, uid in enumerate(UIDS) if (uid in known) == (key == "keys")]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), "type float64"),
        (np.zeros((3, 2), "u8"), r"shape \(3, 2\)"),
        (b"no array", "not an array of numpy"),
    ],
)
def test_arrays_that_are_not_keys(tmp_path, array, message):
    write_shard(tmp_path / "a.tar", [("a", {"txt": b"x"})])
    if isinstance(array, bytes):
        (tmp_path / "uids.npy").write_bytes(array)
    else:
        np.save(tmp_path / "uids.npy", array)
    spec = {"dataset": [{"shards": f"{tmp_path}/a.tar", "keys": f"@{tmp_path}/uids.npy"}]}
    with pytest.raises(wdspec.ShardError, match=message):
        wdspec.plan(spec)


def test_a_part_above_one_is_rejected_with_the_valid_forms():
    problems = wdspec.validate({"dataset": [{"shards": "a.tar", "subset": "120%"}]})
    assert [(each.code, each.hint.partition(",")[0]) for each in problems if each.is_error] == [
        ("E210", "write a fraction such as `10%`")
    ]


def test_a_state_that_does_not_say_what_expressions_read_loads_if_the_spec_is_the_same(tmp_path, monkeypatch):
    write_shard(tmp_path / "a-0.tar", [(f"{n:03}", {"x.json": b'{"v": %d}' % (n % 2)}) for n in range(60)])
    source = {"name": "a", "shards": f"{tmp_path}/a-0.tar", "rename": {"m": "x.json"}, "where": "m.v == 1"}
    spec = {"dataset": [source], "batch": 4, "elastic": {"ranks": 1, "workers": 1}}
    with monkeypatch.context() as older:
        older.setattr("wdspec.planning.digest.describe_selection", lambda source, costs: {})
        with wdspec.loader(spec, num_workers=0) as loader:
            batches = iter(loader)
            next(batches)
            state = json.loads(json.dumps(loader.state_dict()))
            expected = next(batches)["__key__"]
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.load_state_dict(state)
        assert next(iter(loader))["__key__"] == expected
    changed = spec | {"dataset": [source | {"rename": {"m": "y.json"}}]}
    with wdspec.loader(changed, num_workers=0) as loader, pytest.raises(wdspec.UsageError, match="reads"):
        loader.load_state_dict(state)


def test_a_state_of_another_rename_is_refused_where_an_expression_reads_it(tmp_path):
    samples = [
        (f"{n:03}", {"x.json": b'{"v": %d}' % (n % 2), "y.json": b'{"v": %d}' % (n % 3)}) for n in range(60)
    ]
    write_shard(tmp_path / "a-0.tar", samples)

    def spec_with(**more):
        source = {"name": "a", "shards": f"{tmp_path}/a-0.tar", **more}
        return {"dataset": [source], "batch": 4, "elastic": {"ranks": 1, "workers": 1}}

    for where, old, new in (
        ("m.v == 1", {"rename": {"m": "x.json"}}, {"rename": {"m": "y.json"}}),
        ("fields['x.json'].v == t", {"tags": {"t": 1}}, {"tags": {"t": 0}}),
    ):
        with wdspec.loader(spec_with(where=where, **old), num_workers=0) as loader:
            next(iter(loader))
            state = loader.state_dict()
        refuses = pytest.raises(wdspec.UsageError, match=r"sources\.a\.reads\.[mt]")
        with wdspec.loader(spec_with(where=where, **new), num_workers=0) as loader, refuses:
            loader.load_state_dict(state)


def test_a_state_loads_if_a_part_is_written_in_another_way(tmp_path):
    write_shard(tmp_path / "a-0.tar", [(f"{n:03}", {"cls": b"1"}) for n in range(60)])

    def spec_with(subset):
        source = {"name": "a", "shards": f"{tmp_path}/a-0.tar", "subset": subset}
        return {"dataset": [source], "batch": 4, "elastic": {"ranks": 1, "workers": 1}}

    with wdspec.loader(spec_with("50%"), num_workers=0) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = next(batches)["__key__"]
    for subset in (["0%", "50%"], [0, 0.5], "50.00%"):
        with wdspec.loader(spec_with(subset), num_workers=0) as loader:
            loader.load_state_dict(state)
            assert next(iter(loader))["__key__"] == expected


@pytest.mark.parametrize("where", ["npy", "not npy", "npy and cls == 1"])
def test_an_array_as_a_condition_is_a_field_error(tmp_path, where):
    array = io.BytesIO()
    np.save(array, np.arange(3))
    write_shard(tmp_path / "a-0.tar", [("k", {"npy": array.getvalue(), "cls": b"1"})])
    source = {"name": "a", "shards": f"{tmp_path}/a-0.tar", "where": where}
    with pytest.raises(wdspec.FieldError, match="an array is neither true nor false"):
        next(iter(wdspec.compile({"dataset": [source]})))


@pytest.fixture
def downloads(tmp_path):
    """Every third sample failed: it has no `mp4`; of the others, `gap` has none either."""
    samples = []
    for number in range(12):
        failed = number % 3 == 0
        facts = {"status": "failed" if failed else "success", "user": f"u{number}"}
        fields = {"json": json.dumps(facts).encode(), "txt": b"t"}
        samples.append((f"k{number:02d}", fields if failed else {"mp4": b"m", **fields}))
    write_shard(tmp_path / "a.tar", samples)
    return tmp_path


FAILED = [f"k{number:02d}" for number in range(0, 12, 3)]
SELECTIONS = [
    {"where": "json.status == 'success'"},
    {"exclude": FAILED},
    {"exclude": [f"u{number}" for number in range(0, 12, 3)], "keys_of": "json.user"},
    {"subset": "99.9999%", "where": "json.status == 'success'"},
    {"where": "json.status == 'success'", "extensions": "mp4 txt json"},
    {"where": "json.status == 'success' and mp4.length > 0"},
    {
        "where": "json.user != 'none' and json.status == 'success' and mp4.length > 0",
        "extensions": "mp4 json",
    },
]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("epoch", ["pass", {"samples": 8}])
def test_what_a_selection_drops_may_lack_other_files(downloads, selection, epoch):
    source = {"name": "a", "shards": f"{downloads}/a.tar", "extensions": "mp4 txt", **selection}
    loader = wdspec.loader({"dataset": [source], "batch": 4, "epoch": epoch})
    keys = {key for batch in loader for key in batch["__key__"]}
    assert keys == {f"k{number:02d}" for number in range(12)} - {*FAILED}


def test_a_gap_among_the_samples_that_are_kept_is_still_an_error(downloads):
    source = {"name": "a", "shards": f"{downloads}/a.tar", "extensions": "mp4 txt"}
    for kept in (
        "json.status == 'failed'",
        "mp4.length > 0 and json.status == 'success'",
        "json.nothing == 1",
    ):
        with pytest.raises(wdspec.FieldError, match="no field 'mp4'"):
            list(wdspec.loader({"dataset": [{**source, "where": kept}], "batch": 4, "epoch": "pass"}))
    loader = wdspec.loader(
        {"dataset": [{**source, "where": "json.user != 'u0'", "errors": "skip"}], "batch": 4, "epoch": "pass"}
    )
    assert sum(len(batch["__key__"]) for batch in loader) >= 8
    counts = loader.stats().sources["a"]
    assert (counts.dropped, counts.skipped) == ({"where": 1}, {"D201": 3})
