"""Remedies are written as they should be in the spec: applied literally, they give what was meant."""

import io
import json
import warnings
from pathlib import Path

import pytest
import yaml
from commandline import within
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.urls.braces import Braces


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shard(path, names, count=3, start="k"):
    write_shard(Path(path), [(f"{start}{i}", dict.fromkeys(names, b"1")) for i in range(count)])


def advice(*arguments, command="explain", code=0, **keys):
    with open("s.yaml", "w") as file:
        yaml.safe_dump({"dataset": [{"name": "a", **keys}]}, file)
    said = within(command, "s.yaml", *arguments, "--format", "json", code=code)[0]
    return json.loads(said).get("warnings", [])


@pytest.mark.parametrize(
    ("files", "pattern", "meant"),
    [
        (["a-0008.tar", "a-0009.tar"], "a-{8..9}.tar", "a-{0008..0009}.tar"),
        (["a-8.tar", "a-9.tar"], "a-{0008..0009}.tar", "a-{8..9}.tar"),
        (["a-03-x01.tar", "a-04-x01.tar"], "a-{3..4}-x{1..1}.tar", "a-{03..04}-x{01..01}.tar"),
    ],
)
def test_a_range_with_other_digits_than_the_files_is_written_with_theirs(folder, files, pattern, meant):
    for file in files:
        shard(file, ["txt"])
    [said] = advice(shards=pattern, code=1)
    assert said.endswith(f"write `shards: {meant}`")
    assert advice(shards=meant) == []


def test_a_range_whose_numbers_no_file_has_is_compared_with_the_files(folder):
    shard("a-0020.tar", ["txt"])
    [said] = advice(shards="a-{8..9}.tar", code=1)
    assert said.endswith("compare the pattern with these names")


def test_a_field_that_is_the_end_of_one_suffix_is_written_with_it(folder):
    shard("a.tar", ["color.txt", "mask.cls", "json"])
    said = advice(shards="a.tar", extensions="txt cls json")
    assert [each.endswith("write `extensions: color.txt mask.cls json`") for each in said] == [True, True]
    assert advice(shards="a.tar", extensions="color.txt mask.cls json") == []


def test_keys_with_dots_are_read_to_the_last_one(folder):
    shard("a.tar", ["txt"], start="v1.2_")
    [said] = advice(shards="a.tar", extensions="txt")
    assert "`key: last_dot`" in said
    assert advice(shards="a.tar", extensions="txt", key="last_dot") == []


def test_a_field_that_is_the_end_of_several_suffixes_is_not_guessed(folder):
    shard("a.tar", ["left.txt", "right.txt"])
    [said] = advice(shards="a.tar", extensions="txt")
    assert said.endswith("name one of these, or set `missing: none` to get None")


def test_a_decoder_of_another_suffix_is_written_for_the_files_that_it_takes(folder):
    shard("a.tar", ["flac", "txt"])
    [said] = advice(shards="a.tar", decode={"wav": "audio"})
    assert said.endswith("write `flac: audio` in `decode`")
    assert advice(shards="a.tar", decode={"flac": "audio"}) == []


@pytest.mark.parametrize(("count", "meant"), [(3, "[1, 2, 3]"), (1000, "1001")])
def test_classes_that_are_numbered_from_one_are_written_so(folder, count, meant):
    write_shard(folder / "a.tar", [("a", {"cls": str(count).encode()}), ("b", {"cls": str(count).encode()})])
    spec = {"dataset": [{"shards": "a.tar", "expect": {"fields": {"cls": {"classes": count}}}}]}
    (folder / "s.yaml").write_text(yaml.safe_dump(spec))
    lines = [line for line in within("check", "s.yaml", code=1)[0].split("\n") if "D213" in line]
    assert f"write `classes: {meant}`, else fix the data" in lines[0]
    assert (
        lines[1]
        .partition("D213 ")[2]
        .startswith(f"`cls` is {count}, where 0 to {count - 1:,} is expected [member b.cls")
    )
    spec["dataset"][0]["expect"]["fields"]["cls"]["classes"] = yaml.safe_load(meant)
    (folder / "s.yaml").write_text(yaml.safe_dump(spec))
    within("check", "s.yaml", code=0)


def test_a_class_that_is_not_the_one_after_the_last_has_no_such_remedy(folder):
    write_shard(folder / "a.tar", [("a", {"cls": b"9"})])
    spec = {"dataset": [{"shards": "a.tar", "expect": {"fields": {"cls": {"classes": 3}}}}]}
    (folder / "s.yaml").write_text(yaml.safe_dump(spec))
    assert "numbered from 1" not in within("check", "s.yaml", code=1)[0]


def test_a_dataset_next_to_splits_is_moved_into_one(folder):
    spec = "dataset: [{shards: a.tar}]\nsplits:\n  val: {dataset: [{shards: b.tar}], epoch: pass}\n"
    (folder / "s.yaml").write_text(spec)
    [problem, *_] = wdspec.validate("s.yaml")
    assert problem.hint == "move `dataset` (s.yaml:1:1) into a split: `splits: {train: {dataset: …}, val: …}`"


LAYERS = "dataset: [{shards: a.tar}]\n%s\nenvironments:\n  laptop:\n    %s\n"


@pytest.mark.parametrize(
    ("base", "laid", "inherited"),
    [
        ("batch: {global_size: 64}\nelastic: {ranks: 4}", "batch: {size: 4}", "global_size"),
        ("batch: {size: 4}", "batch: {global_size: 8}", "size"),
        ("batch: 4\nepoch: {batches: 8}", "epoch: {samples: 80}", "batches"),
    ],
)
def test_a_key_that_excludes_an_inherited_one_says_which_one_to_remove(folder, base, laid, inherited):
    (folder / "s.yaml").write_text(LAYERS % (base, laid))
    with pytest.raises(wdspec.SpecError) as error:
        wdspec.load("s.yaml", env="laptop")
    [problem] = error.value.problems
    other = laid.partition("{")[2].partition(":")[0]
    assert f"`{inherited}` is inherited from s.yaml:2:" in problem.hint or "s.yaml:3:" in problem.hint
    assert problem.hint.endswith(f"write `{inherited}: null` next to `{other}`")
    changed = LAYERS % (base, laid.replace("{", f"{{{inherited}: null, "))
    (folder / "s.yaml").write_text(changed)
    wdspec.load("s.yaml", env="laptop")


def test_two_keys_of_one_map_are_not_called_inherited(folder):
    (folder / "s.yaml").write_text("dataset: [{shards: a.tar}]\nbatch: {size: 4, global_size: 8}\n")
    with pytest.raises(wdspec.SpecError) as error:
        wdspec.load("s.yaml")
    assert error.value.problems[0].hint == "keep one; `size: null` removes an inherited one"


def png(mode="L", side=4):
    data = io.BytesIO()
    Image.new(mode, (side, side)).save(data, "png")
    return data.getvalue()


@pytest.mark.parametrize(
    ("field", "decoder", "is_doubted"),
    [
        ("labels.png", "l8+resize=8x8", True),
        ("segmentation.png", "rgb8+random_resized_crop=8", True),
        ("labels.png", "l8+resize=8x8+interpolation=bilinear", False),
        ("labels.png", "l8+resize=8x8+interpolation=nearest", False),
        ("labels.png", "l8", False),
        ("labels.jpg", "l8+resize=8x8", False),
        ("a.seg.png", "l8+resize=8x8", False),
        ("sketch.png", "l8+resize=8x8", False),
    ],
)
def test_images_of_labels_are_resized_by_nearest_neighbour(folder, field, decoder, is_doubted):
    write_shard(folder / "a.tar", [("k", {field: png()})])
    keys = {"shards": "a.tar", "extensions": field, "decode": {field: decoder}}
    said = advice(**keys)
    assert len(said) == is_doubted
    assert [each.code for each in wdspec.validate("s.yaml")] == ["W520"] * is_doubted
    if said:
        assert f"write `{field}: {decoder}+interpolation=nearest` in `decode`" in said[0]


@pytest.mark.parametrize(
    ("samples", "more", "is_doubted"),
    [
        (3, {}, True),
        (60, {}, True),
        (6, {}, False),
        (4, {}, False),
        (3, {"subset": "50%"}, False),
        (3, {"where": "txt.length > 0"}, False),
    ],
)
def test_samples_are_those_of_all_shards(folder, samples, more, is_doubted):
    for number in range(2):
        shard(f"a-{number}.tar", ["txt"], start=f"k{number}")
    said = [each for each in advice(shards="a-{0..1}.tar", samples=samples, **more) if "W521" in each]
    assert len(said) == is_doubted
    if said:
        assert f"`samples: {samples}` of `a`, but its first of 2 shards has 3; write `samples: 6`" in said[0]


def test_samples_of_the_only_shard_are_those_that_it_has(folder):
    shard("a.tar", ["txt"])
    assert advice(shards="a.tar", samples=3) == []
    [said] = advice(shards="a.tar", samples=4)
    assert "W521 `samples: 4` of `a`, but its only shard has 3; write `samples: 3`" in said


@pytest.mark.parametrize(
    ("mode", "decoder", "meant"),
    [
        ("I;16", "l8", "l16"),
        ("I;16", "rgb8+resize=2x2", "l16+resize=2x2"),
        ("I;16", "torchl8", "torchl"),
        ("I;16", "l16", None),
        ("I;16", "l", None),
        ("L", "l8", None),
        ("RGB", "rgb8", None),
    ],
)
def test_gray_images_of_16_bits_keep_them(folder, mode, decoder, meant):
    write_shard(folder / "a.tar", [("k", {"depth.png": png(mode)})])
    said = advice(shards="a.tar", extensions="depth.png", decode={"depth.png": decoder})
    assert len(said) == (meant is not None)
    if said:
        assert f"of which `{decoder}` keeps 8; write `depth.png: {meant}` in `decode`" in said[0]


@pytest.mark.parametrize(
    ("own", "other", "meant"),
    [
        ("i-{a,b}-{0..1}.tar", "c-{0..1}-{a,b}.tar", ["'c-{0..1}-a.tar'", "'c-{0..1}-b.tar'"]),
        ("i-{00..02}.tar", ["c-0.tar", "c-2.tar", "c-1.tar"], ["c-0.tar", "c-1.tar", "c-2.tar"]),
        ("i-{a,b}-{0..1}.tar", "c{a,b}{0..1}.tar", None),
        ("i-{0..1}.tar", "c-{7..8}.tar", None),
        ("i-{x,x}.tar", "c-{y,y}.tar", None),
    ],
)
def test_the_shards_of_a_join_are_in_the_order_of_the_source(folder, own, other, meant):
    for pattern, names in ((own, ["txt"]), (other, ["cls"])):
        for text in [pattern] if isinstance(pattern, str) else pattern:
            for name in set(Braces(text)):
                shard(name, names)
    join = {"shards": other, "fields": "cls"}
    said = [each for each in advice(shards=own, extensions="txt cls", join=[join]) if "W508" not in each]
    assert len(said) == (meant is not None)
    if said:
        assert said[0].endswith(f"write `shards: [{', '.join(meant)}]` in `join`")
        join["shards"] = yaml.safe_load(f"[{', '.join(meant)}]")
        assert advice(shards=own, extensions="txt cls", join=[join]) == []


@pytest.mark.parametrize(
    ("own", "other", "rule"),
    [
        ("0{i}", "cap_0{i}", r"(?:cap_)?([^.]+)\.(.+)"),
        ("0{i}_img", "0{i}", r"([^.]+?)(?:_img)?\.(.+)"),
        ("0{i}", "7{i}", None),
        ("0{i}", "10{i}", None),
    ],
)
def test_a_join_of_keys_with_a_prefix_gets_a_rule_for_keys(folder, own, other, rule):
    for name, field, key in (("a.tar", "txt", own), ("b.tar", "cls", other)):
        write_shard(folder / name, [(key.format(i=i), {field: b"1"}) for i in range(3)])
    source = {"shards": "a.tar", "join": [{"shards": "b.tar", "fields": "cls"}], "extensions": "txt cls"}
    (folder / "s.yaml").write_text(yaml.safe_dump({"dataset": [source]}))
    said = within("check", "s.yaml", "--jobs", "0", code=1)[0]
    assert ("write `key: {regex:" in said) == (rule is not None)
    if rule is not None:
        assert f"write `key: {{regex: '{rule}'}}` in the source" in said
        (folder / "s.yaml").write_text(yaml.safe_dump({"dataset": [{**source, "key": {"regex": rule}}]}))
        within("check", "s.yaml", "--jobs", "0")


def test_a_table_with_the_keys_in_another_column_names_it(folder):
    shard("a.tar", ["txt"])
    (folder / "t.csv").write_text("file,id,score\nk0.txt,k0,1\nk1.txt,k1,2\n")
    (folder / "t.jsonl").write_text('{"file": "k0.txt", "id": "k0", "score": 1}\n')
    keys = {"shards": "a.tar", "extensions": "txt"}
    for table in ("t.csv", "t.jsonl"):
        lookup = {"table": table, "key": "file", "fields": "score", "missing": "none"}
        [said] = advice(**keys, lookup=lookup)
        assert "keys such as 'k0', but its keys are such as 'k0.txt'; write `key: id`" in said
        assert advice(**keys, lookup={**lookup, "key": "id"}) == []


def test_a_table_with_no_such_column_shows_its_keys(folder):
    shard("a.tar", ["txt"])
    (folder / "t.csv").write_text("key,score\nz,1\n")
    [said] = advice(shards="a.tar", lookup={"table": "t.csv", "fields": "score", "missing": "skip"})
    assert "keys such as 'k0', but its keys are such as 'z'; compare the keys" in said


@pytest.mark.parametrize(
    ("keys", "is_doubted"),
    [
        ({"extensions": "photo label", "decode": "rgb8"}, True),
        ({"extensions": "photo label", "decode": ["rgb8", "audio"]}, True),
        ({"extensions": "image label", "decode": "rgb8"}, False),
        ({"extensions": "photo label", "decode": {"photo": "rgb8"}}, False),
        ({"extensions": "a.jpg txt", "decode": "rgb8"}, False),
        ({"decode": "rgb8"}, False),
        ({"extensions": "photo", "rename": {"image": "photo"}, "decode": "rgb8"}, None),
    ],
)
def test_a_decoder_of_no_field_is_a_warning_when_the_spec_is_loaded(folder, keys, is_doubted):
    spec = {"dataset": [{"name": "a", "shards": "a.parquet", **keys}]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wdspec.load(spec)
    if is_doubted is not None:
        assert bool(caught) == is_doubted
    if is_doubted:
        assert "such as `decode: {photo: rgb8}`" in wdspec.validate(spec)[0].hint


def test_a_decoder_in_defaults_may_be_for_other_sources(folder):
    sources = [{"shards": "a.tar", "extensions": "txt"}, {"shards": "b.tar", "extensions": "jpg"}]
    assert wdspec.validate({"defaults": {"decode": "rgb8"}, "dataset": sources}) == []


@pytest.mark.parametrize(
    ("pattern", "more", "meant"),
    [
        ("train*.tar", {}, "train-*.tar"),
        ("*.tar", {}, "train-*.tar"),
        ("train*.tar", {"subset": "50%"}, None),
        ("train-*.tar", {}, None),
        ("train_val*.tar", {}, None),
        ("train{-,_}*.tar", {"name": "train and val"}, None),
    ],
)
def test_a_glob_that_takes_shards_for_evaluation_is_narrowed(folder, pattern, more, meant):
    for name in ("train-000.tar", "train-001.tar", "train_val-000.tar"):
        shard(name, ["txt"], start=name)
    said = [each for each in advice(shards=pattern, **more) if "W302" in each]
    assert len(said) == (meant is not None)
    if said:
        assert (
            f"also lists `train_val-000.tar`, for evaluation by its name; write `shards: {meant}`" in said[0]
        )
        assert advice(shards=meant) == []
