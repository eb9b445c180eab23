"""Joins by name: records find the files that they name, in any order, and several may name one."""

import json
import random

import pytest
from shardmaking import write_shard
from speechdata import write_lines, write_tar

import wdspec
from wdspec.testing import assert_resumable


def write(folder, names, files=None, shard=0, suffix=".wav"):
    """Records with these names and a number, and a tar with a file of each recording."""
    write_lines(
        folder / f"manifest_{shard}.jsonl",
        [{"audio_filepath": None if name is None else name + suffix, "n": n} for n, name in enumerate(names)],
    )
    files = (
        list(dict.fromkeys(name.partition("-sub")[0] for name in names if name)) if files is None else files
    )
    write_tar(folder / f"audio_{shard}.tar", [(f"{name}.wav", name.encode()) for name in files])


def spec_of(folder, shards=1, join=None, **top):
    numbers = f"{{0..{shards - 1}}}" if shards > 1 else "0"
    return {
        "dataset": [
            {
                "name": "talks",
                "shards": str(folder / f"manifest_{numbers}.jsonl"),
                "order": "sequential",
                "shuffle": 0,
                "join": {
                    "shards": str(folder / f"audio_{numbers}.tar"),
                    "on": "audio_filepath",
                    **(join or {}),
                },
                **top.pop("source", {}),
            }
        ],
        "fields": ["n", "wav"],
        "epoch": "pass",
        **top,
    }


def read(spec, **options):
    with wdspec.loader(spec, num_workers=0, **options) as loader:
        return [
            (each["n"], None if each["wav"] is None else each["wav"].decode())
            for each in loader
            if each["__mask__"]
        ]


def test_each_record_gets_the_file_that_it_names_in_any_order(tmp_path):
    names = [f"r{n:02}" for n in range(30)]
    files = list(names)
    random.Random(1).shuffle(files)
    write(tmp_path, names, [*files, "unused"])
    assert read(spec_of(tmp_path)) == list(enumerate(names))


def test_several_records_share_a_recording_which_is_read_once_if_they_are_neighbours(tmp_path):
    names = ["a", "a-sub1", "a-sub2", "b", "c", "c-sub1", "a-sub3", "b-sub1"]
    write(tmp_path, names)
    assert read(spec_of(tmp_path)) == [(n, name[0]) for n, name in enumerate(names)]


def test_names_with_dots_folders_and_an_own_sub_are_found_as_they_are(tmp_path):
    names = ["dir/a", "b-sub1", "x.y"]
    write(tmp_path, names, ["dir/a", "b-sub1", "b", "x.y"])
    assert read(spec_of(tmp_path, source={"key": "last_dot"})) == list(enumerate(names))


def test_names_that_encode_offset_and_duration_are_those_of_files(tmp_path):
    names = ["talk_1_0_0_5_25", "talk_1_5_25_4_0", "talk_1_9_25_1_125"]  # NeMo's --slice_with_offset
    write(tmp_path, names, names[::-1])
    assert read(spec_of(tmp_path)) == list(enumerate(names))


def test_names_may_have_another_extension_or_none(tmp_path):
    write(tmp_path, ["a", "b"], suffix=".mp3")
    assert read(spec_of(tmp_path)) == [(0, "a"), (1, "b")]
    write(tmp_path, ["a", "b"], suffix="")
    assert read(spec_of(tmp_path)) == [(0, "a"), (1, "b")]


@pytest.mark.parametrize(
    ("missing", "found"),
    [("skip", [(0, "a"), (3, "b")]), ("none", [(0, "a"), (1, None), (2, None), (3, "b")])],
)
def test_a_record_whose_recording_is_missing_is_treated_as_missing_says(tmp_path, missing, found):
    write(tmp_path, ["a", "gone", None, "b"], ["a", "b"])
    assert read(spec_of(tmp_path, join={"missing": missing, "fields": "wav"})) == found


def test_a_missing_recording_is_an_error_with_its_record_and_name(tmp_path):
    write(tmp_path, ["a", "gone", "b"], ["a", "b"])
    with pytest.raises(wdspec.ShardError) as caught:
        read(spec_of(tmp_path))
    error = caught.value
    assert error.code == "D220"
    assert "has no sample named 'gone.wav' (`on: audio_filepath`)" in error.message
    assert (error.place["source"], error.place["key"]) == ("talks", "manifest_0/1")
    assert error.place["partner"].endswith("audio_0.tar")
    write(tmp_path, ["a", None], ["a"])
    with pytest.raises(wdspec.ShardError, match="the record has no `audio_filepath`"):
        read(spec_of(tmp_path))
    write_lines(tmp_path / "manifest_0.jsonl", [{"audio_filepath": ["a.wav"], "n": 0}])
    with pytest.raises(
        wdspec.ShardError, match=r"`audio_filepath` is \['a.wav'\], which cannot be looked up"
    ):
        read(spec_of(tmp_path))


def test_a_truncated_partner_costs_only_the_records_of_what_is_lost(tmp_path):
    names = ["a", "b", "c", "a-sub1"]
    write(tmp_path, names)
    path = tmp_path / "audio_0.tar"
    path.write_bytes(path.read_bytes()[:2560])  # before the data of c
    with pytest.raises(wdspec.ShardError, match="truncated"):
        read(spec_of(tmp_path))
    assert read(spec_of(tmp_path, source={"errors": "skip"})) == [(0, "a"), (1, "b"), (3, "a")]


def many(folder):
    rng = random.Random(3)
    for shard in range(4):
        recordings = [f"s{shard}r{n}" for n in range(5)]
        names = recordings + [f"{rng.choice(recordings)}-sub{n}" for n in range(1, 8)]
        rng.shuffle(names)
        write(folder, names, recordings, shard)


def test_a_run_by_name_resumes_at_every_sample_and_is_equal_on_other_topologies(tmp_path):
    many(tmp_path)
    source = {"order": "shuffled", "shuffle": 10}
    spec = spec_of(tmp_path, 4, source=source, elastic={"ranks": 2, "workers": 2}, batch=3)
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), stops=[0, 3, 7, 10])
    one, two = loaded(spec, 1), loaded(spec, 2)
    assert one == two
    assert len({key for key, _ in one}) == 48


def loaded(spec, world_size):
    found = []
    for rank in range(world_size):
        with wdspec.loader(spec, num_workers=0, rank=rank, world_size=world_size) as loader:
            for batch in loader:
                found += zip(map(str, batch["__key__"]), batch["wav"], strict=True)
    return sorted(found)


def test_check_reports_recordings_that_no_record_names(tmp_path):
    from commandline import within

    long = "a" * 80  # as long as contents must be to be compared
    write(tmp_path, [long, f"{long}-sub1", "b"], [long, "b", "spare"])
    (tmp_path / "s.yaml").write_text(json.dumps(spec_of(tmp_path)))
    shown = "".join(within("check", "s.yaml", "--jobs", "0", folder=tmp_path))
    assert "D319" in shown
    assert "D304" not in shown, "segments of one recording are no repeated samples"


def test_parquet_records_name_files_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    write(tmp_path, ["a", "b", "a-sub1"])
    table = pyarrow.table({"audio_filepath": ["a.wav", "b.wav", "a-sub1.wav"], "n": [0, 1, 2]})
    parquet.write_table(table, tmp_path / "manifest_0.parquet")
    spec = spec_of(tmp_path, source={"shards": str(tmp_path / "manifest_0.parquet")})
    assert read(spec) == [(0, "a"), (1, "b"), (2, "a")]


def test_files_of_a_tar_name_those_of_another(tmp_path):
    write(tmp_path, ["a", "b"])
    rows = [(f"{n}", {"json": json.dumps({"audio": name, "n": n}).encode()}) for n, name in enumerate("abba")]
    write_shard(tmp_path / "records.tar", rows)
    source = {"shards": str(tmp_path / "records.tar")}
    spec = spec_of(tmp_path, join={"on": "json.audio"}, source=source, fields=["json", "wav"])
    with wdspec.loader(spec, num_workers=0) as loader:
        assert [(each["json"]["n"], each["wav"]) for each in loader] == [
            (0, b"a"),
            (1, b"b"),
            (2, b"b"),
            (3, b"a"),
        ]


def test_a_damaged_record_of_a_partner_counts_once(tmp_path):
    write_lines(tmp_path / "a.jsonl", [{"name": f"k{n}", "n": n} for n in range(6)])
    lines = [json.dumps({"__key__": f"k{n}", "wav": str(n)}) for n in range(6)]
    (tmp_path / "b.jsonl").write_text("\n".join([*lines[:2], lines[2][:-5], *lines[3:], ""]))
    spec = spec_of(tmp_path, join={"shards": str(tmp_path / "b.jsonl"), "on": "name", "fields": "wav"})
    spec["dataset"][0] |= {"shards": str(tmp_path / "a.jsonl"), "errors": "skip"}
    with wdspec.loader(spec | {"epoch": 5}, num_workers=0) as loader:
        assert [each["n"] for each in loader] == [0, 1, 3, 4, 5]
        assert loader.stats().sources["talks"].skipped == {"D120": 1}
