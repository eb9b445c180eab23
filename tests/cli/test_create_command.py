"""`wdspec create`: shards of folders, recipes and manifests."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest
from commandline import PROGRAM, environment, on_terminal
from commandline import within as wdspec

from wdspec import WebDataset
from wdspec.formats.tar.reader import TarSamples


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("WDS_REWRITE", "WDS_SECURE"):
        monkeypatch.delenv(name, raising=False)
    for n in range(10):
        path = tmp_path / "in" / f"part{n % 2}"
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{n:02d}.cls").write_text(str(n))
        (path / f"{n:02d}.txt").write_text("x" * (n * 100))
    (tmp_path / "in" / ".hidden.txt").write_text("no")
    return tmp_path


def read(path):
    with open(path, "rb") as file:
        return list(TarSamples(file))


def shards(folder, prefix="a"):
    return {name: len(read(folder / name)) for name in sorted(os.listdir(folder)) if name.startswith(prefix)}


def test_a_folder_becomes_a_sample_for_each_key_in_order(folder):
    _, said = wdspec("create", "in", "-o", "a.tar", folder=folder)
    samples = read(folder / "a.tar")
    assert [sample["__key__"] for sample in samples] == sorted(f"part{n % 2}/{n:02d}" for n in range(10))
    assert samples[1] == {"__key__": "part0/02", "cls": b"2", "txt": b"x" * 200}
    assert said.startswith("wrote 10 samples (")


def test_the_same_folder_gives_the_same_bytes(folder):
    wdspec("create", "in", "-o", "a.tar", folder=folder)
    os.utime(folder / "in" / "part0" / "00.cls", (1, 1))
    wdspec("create", "in", "-o", "b.tar", folder=folder)
    assert (folder / "a.tar").read_bytes() == (folder / "b.tar").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        (["--shards", "3"], [3, 3, 4]),
        (["--maxcount", "4"], [3, 3, 4]),
        (["--maxcount", "5"], [5, 5]),
        (["--maxsize", "100kB"], [10]),
    ],
)
def test_samples_are_spread_evenly_over_shards(folder, arguments, counts):
    wdspec("create", "in", "-o", "a-%03d.tar", *arguments, folder=folder)
    assert list(shards(folder).values()) == counts


def test_shards_of_about_equal_size_can_be_requested(folder):
    (folder / "in" / "part0" / "00.txt").write_text("x" * 20_000)
    wdspec("create", "in", "-o", "a-%d.tar", "--shards", "2", "--by", "size", folder=folder)
    assert list(shards(folder).values()) == [1, 9]


def test_no_shard_exceeds_the_size_limit(folder):
    wdspec("create", "in", "-o", "a-%d.tar", "--maxsize", "16kB", folder=folder)
    sizes = [(folder / name).stat().st_size for name in shards(folder)]
    assert len(sizes) > 2
    assert max(sizes) <= 16_000


def test_a_seed_shuffles_the_same_way_each_time(folder):
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        wdspec("create", "in", "-o", f"{name}.tar", "--shuffle", seed, folder=folder)
        orders.append([sample["__key__"] for sample in read(folder / f"{name}.tar")])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) != orders[0]


def test_a_tarp_recipe_is_followed(folder):
    (folder / "plan").write_text(
        "a.txt /dev/null\nb.txt  in/part0/00.cls\n# a remark\n\na.more.txt text:more text\nb.more.txt pipe:echo hi\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", PROGRAM, "create", "plan", "-o", "-", "--run-pipes"],
        cwd=folder, env=environment(), capture_output=True, check=True,
    )  # fmt: skip
    assert list(TarSamples(io.BytesIO(shown.stdout))) == [
        {"__key__": "a", "more.txt": b"more text", "txt": b""},
        {"__key__": "b", "more.txt": b"hi\n", "txt": b"0"},
    ]


def test_commands_of_a_recipe_run_only_on_request_and_never_under_wds_secure(folder):
    (folder / "plan").write_text("a.txt pipe:touch ran\n")
    _, said = wdspec("create", "plan", "-o", "a.tar", folder=folder, code=1)
    assert "plan:1: `pipe:touch ran` runs a command; if you trust this recipe, add --run-pipes" in said
    _, said = wdspec("create", "plan", "-o", "a.tar", "--run-pipes", folder=folder, code=1, WDS_SECURE="1")
    assert "WDS_SECURE forbids the commands of a recipe" in said
    assert not (folder / "ran").exists()
    assert not (folder / "a.tar").exists()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("a.txt\n", "plan:1: `a.txt` has no source"),
        ("a.txt nothing-here\n", "nothing-here: No such file or directory (plan:1) [key a, field txt]"),
        ("a.txt pipe:exit 3\n", "exit 3: the command exited with code 3 (plan:1) [key a, field txt]"),
        ("a.txt text:1\na.txt text:2\n", "plan:2: `a.txt` is a duplicate; the first one is in plan:1"),
        ("a text:1\n", "`a` (plan:1) has no extension"),
        ("/a.txt text:1\n", "is an absolute path"),
        ("../a.txt text:1\n", "leaves its folder"),
        ("", "it contains no samples"),
    ],
)
def test_an_invalid_recipe_is_reported_with_its_line_and_writes_nothing(folder, plan, said):
    (folder / "plan").write_text(plan)
    assert said in wdspec("create", "plan", "-o", "a.tar", "--run-pipes", folder=folder, code=1)[1]
    assert [name for name in os.listdir(folder) if name not in ("in", "plan")] == []


def test_a_csv_manifest_maps_columns_to_fields(folder):
    (folder / "m.csv").write_text(
        'id,path,label,about\nx1,in/part0/02.txt,3,"{""a"": 1}"\nx2,in/part0/04.txt,4,null\n'
    )
    options = ["--key-column", "id", "--file", "txt=path", "--value", "cls=label", "--value", "json=about"]
    shown, _ = wdspec("create", "m.csv", "-o", "a.tar", *options, "--format", "json", folder=folder)
    assert json.loads(shown)["samples"] == 2
    assert read(folder / "a.tar") == [
        {"__key__": "x1", "cls": b"3", "json": b'{"a": 1}', "txt": b"x" * 200},
        {"__key__": "x2", "cls": b"4", "json": b"null", "txt": b"x" * 400},
    ]


def test_a_jsonl_manifest_stores_every_column_and_numbers_the_samples(folder):
    (folder / "m.jsonl").write_text('{"cls": 3, "txt": "a"}\n{"cls": 4, "txt": "b"}\n')
    wdspec("create", "m.jsonl", "-o", "a.tar", folder=folder)
    assert read(folder / "a.tar") == [
        {"__key__": "000000000", "cls": b"3", "txt": b"a"},
        {"__key__": "000000001", "cls": b"4", "txt": b"b"},
    ]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("a,b\n1\n", [], "m.csv:2: this row has 1 cells, but the header has 2"),
        ("a,a\n1,2\n", [], "names of the columns, without duplicates"),
        ("id,cls\nx,1\n", ["--value", "cls=klass"], "m.csv:2: no column `klass`; the columns are id, cls"),
        ("cls\n1.5\n", [], "invalid literal for int()"),
        ("json\n{\n", [], "m.csv:2: column `json` is not JSON"),
        ("p\n\n,\n", [], "this row has 2 cells, but the header has 1"),
        ("__key__,cls\nx.y,1\n", [], "has a dot in its last part"),
        ("__key__,cls\nx,1\nx,2\n", [], "already has a sample with the same key"),
    ],
)
def test_an_unreadable_manifest_is_reported_with_its_line(folder, text, options, said):
    (folder / "m.csv").write_text(text)
    assert said in wdspec("create", "m.csv", "-o", "a.tar", *options, folder=folder, code=1)[1]
    assert not (folder / "a.tar").exists()


@pytest.mark.parametrize(
    "text",
    [
        '[{"cls": 3, "txt": "a"},\n {"cls": 4, "txt": "b"}]',
        '{"cls": 3, "txt": "a"}\n{"cls": 4, "txt": "b"}\n',
    ],
    ids=["a list", "JSON lines"],
)
def test_a_json_file_is_a_manifest(folder, text):
    (folder / "m.json").write_text(text)
    wdspec("create", "m.json", "-o", "a.tar", folder=folder)
    assert read(folder / "a.tar") == [
        {"__key__": "000000000", "cls": b"3", "txt": b"a"},
        {"__key__": "000000001", "cls": b"4", "txt": b"b"},
    ]


def coco(images=({"id": 7, "file_name": "part0/02.txt"},), annotations=()):
    return json.dumps(
        {"info": {}, "images": list(images), "annotations": list(annotations), "categories": []}
    )


def box(of=7, at=(1, 2, 30.5, 40), label=18, **more):
    return {"image_id": of, "bbox": list(at), "category_id": label, **more}


def test_coco_gives_each_image_its_boxes_and_labels_without_crowds_and_empty_boxes(folder):
    annotations = [
        box(9),
        box(label=3),
        box(iscrowd=1),
        box(at=(1, 2, 0, 4)),
        box(at=(5, 6, 7, 8), iscrowd=0),
    ]
    images = [{"id": of, "file_name": f"part0/0{of}.txt", "width": 640} for of in (7, 9, 8)]
    for of in (7, 9):
        (folder / f"in/part0/0{of}.txt").write_text(str(of))
    (folder / "m.json").write_text(coco(images, annotations))
    options = ["--file", "txt=file_name", "--value", "boxes.npy=boxes", "--value", "labels.npy=labels"]
    options += ["--value", "json=annotations", "--base", "in"]
    wdspec("create", "m.json", "-o", "a.tar", *options, folder=folder)
    samples = {sample["__key__"]: sample for sample in read(folder / "a.tar")}
    found = {
        key: [np.load(io.BytesIO(sample[name])) for name in ("boxes.npy", "labels.npy")]
        for key, sample in samples.items()
    }
    assert list(found) == ["part0/07", "part0/09", "part0/08"]
    assert found["part0/07"][0].tolist() == [[1, 2, 30.5, 40], [5, 6, 7, 8]]
    assert found["part0/07"][1].tolist() == [3, 18]
    assert found["part0/08"][0].shape == (0, 4)
    assert {(boxes.dtype.str, labels.dtype.str) for boxes, labels in found.values()} == {("<f4", "<i8")}
    assert json.loads(samples["part0/07"]["json"]) == [each for each in annotations if each["image_id"] == 7]
    assert samples["part0/09"]["txt"] == b"9"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (coco([{"file_name": "a.jpg"}]), "image 0 has no `id`"),
        (coco([{"id": 1}]), "image 0 has no `file_name`"),
        (coco([{"id": 1, "file_name": ""}]), "image 0 has '' as `file_name`"),
        (coco([{"id": 1, "file_name": "a.jpg"}] * 2), "image 1 has the id 1 of another image"),
        (
            coco([{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "a.png"}]),
            "image 1 and m.json: image 0 would be the same sample, `a`",
        ),
        (coco(annotations=[box(8)]), "annotation 0 is of image 8, which is not in `images`"),
        (coco(annotations=[{"category_id": 1}]), "annotation 0 has no `image_id`"),
        (
            coco(annotations=[box(at=(1, 2, 3))]),
            "annotation 0 has [1, 2, 3] as `bbox`; write left, top, width",
        ),
        (coco(annotations=[box(at=(1, 2, 3, float("nan")))]), "annotation 0 has [1, 2, 3, nan] as `bbox`"),
        (coco(annotations=[box(label="dog")]), "annotation 0 has 'dog' as `category_id`"),
        ('{"images": {}, "annotations": []}', "`images` must be a list, not dict"),
        (
            '{\n"images": []}',
            "expected a list of objects, JSON lines, or an object with `images` and `annotations`",
        ),
        ("[1]", "m.json: row 0: a row must be an object, not int"),
        ('{"a": 1}\n{', "m.json:2: this is not JSON"),
    ],
)
def test_unusable_json_is_reported_with_its_place(folder, text, said):
    (folder / "m.json").write_text(text)
    assert said in wdspec("create", "m.json", "-o", "a.tar", folder=folder, code=1)[1]
    assert not (folder / "a.tar").exists()


def test_existing_files_are_not_replaced_without_force(folder):
    (folder / "a-1.tar").write_bytes(b"old")
    _, said = wdspec("create", "in", "-o", "a-%d.tar", "--shards", "2", folder=folder, code=1)
    assert "a file of this name exists" in said
    assert sorted(name for name in os.listdir(folder) if name != "in") == ["a-1.tar"]
    assert (folder / "a-1.tar").read_bytes() == b"old"
    wdspec("create", "in", "-o", "a-%d.tar", "--shards", "2", "--force", folder=folder)
    assert shards(folder) == {"a-0.tar": 5, "a-1.tar": 5}


def test_existing_outputs_are_found_before_any_work(folder):
    for url in (f"file:{folder}/a-1.tar", f"file://{folder}/a-1.tar"):
        (folder / "a-1.tar").write_bytes(b"old")
        pattern = url.replace("a-1", "a-%d")
        _, said = wdspec("create", "in", "-o", pattern, "--shards", "2", folder=folder, code=1)
        assert "a file of this name exists; choose another name, or add --force" in said
        assert sorted(name for name in os.listdir(folder) if name != "in") == ["a-1.tar"]


def test_a_failure_removes_the_shards_already_written(folder):
    (folder / "plan").write_text("".join(f"{n}.txt text:{n}\n" for n in range(8)) + "9.txt missing\n")
    wdspec("create", "plan", "-o", "a-%d.tar", "--maxcount", "2", folder=folder, code=1)
    assert sorted(os.listdir(folder)) == ["in", "plan"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.cbors.gz", "a.msgpack"])
def test_the_suffix_selects_the_format(folder, name):
    (folder / "m.jsonl").write_text('{"__key__": "k", "cls": 3, "txt": "a"}\n')
    wdspec("create", "m.jsonl", "-o", name, folder=folder)
    shown, _ = wdspec("ls", name, "--format", "json", folder=folder)
    assert [(s["key"], sorted(s["fields"])) for s in json.loads(shown)["samples"]] == [("k", ["cls", "txt"])]


@pytest.mark.parametrize(
    "arguments",
    [
        ["in", "-o", "a-%d.tar", "--by", "size"],
        ["in", "-o", "a.tar", "--value", "a=b"],
        ["m.csv", "-o", "a.tar", "--value", "ab"],
        ["in"],
        ["in", "-o", "a-%d.tar", "--maxsize", "lots"],
    ],
)
def test_wrong_usage_exits_2(folder, arguments):
    (folder / "m.csv").write_text("cls\n1\n")
    wdspec("create", *arguments, folder=folder, code=2)


def test_several_shards_need_a_pattern_and_limits_exclude_each_other(folder):
    assert (
        "put %06d in place"
        in wdspec("create", "in", "-o", "a.tar", "--shards", "2", folder=folder, code=1)[1]
    )
    both = ["--shards", "2", "--maxcount", "3"]
    assert "use only one of" in wdspec("create", "in", "-o", "a-%d.tar", *both, folder=folder, code=1)[1]


def test_a_killed_run_leaves_only_whole_shards(folder):
    lines = "".join(f"{n}.bin in/big\n" for n in range(400))
    (folder / "in" / "big").write_bytes(bytes(1_000_000))
    (folder / "plan").write_text(lines)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "create", "plan", "-o", "a-%03d.tar", "--maxcount", "20"],
        cwd=folder, env=environment(), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while not (folder / "a-002.tar").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for name in os.listdir(folder):
        if name.startswith("a-"):
            with tarfile.open(folder / name) as tar:
                assert len(tar.getnames()) == 20


def test_a_terminal_shows_a_progress_bar_and_no_tar_bytes(folder):
    assert "wrote 10 samples" in on_terminal("create", "in", "-o", "a.tar", folder=folder)
    done = subprocess.run(
        ["script", "-qec", f"{sys.executable} -c '{PROGRAM}' create in -o -", "/dev/null"],
        cwd=folder, env=environment(), capture_output=True, text=True,
    ) if os.path.exists("/usr/bin/script") else None  # fmt: skip
    if done is not None:
        assert "a shard cannot be written to a terminal" in done.stdout


def test_a_full_disk_is_reported_in_one_line(folder):
    if os.path.exists("/dev/full"):
        done = subprocess.run(
            f"{sys.executable} -c '{PROGRAM}' create in -o - > /dev/full",
            shell=True, cwd=folder, env=environment(), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("pattern", ["out-%q.tar", "out-%d-%d.tar", "out-%.tar"])
def test_a_pattern_without_a_number_is_rejected_before_writing(folder, pattern):
    _, said = wdspec("create", "in", "-o", pattern, "--maxcount", "2", folder=folder, code=1)
    assert "is not a pattern for the names of shards" in said
    assert "Traceback" not in said


def test_a_folder_of_classes_labels_each_sample(tmp_path):
    from commandline import within

    import wdspec as wds

    for name, count in (("dog", 2), ("cat", 1), ("n01", 1)):
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "train" / name / f"{number}.JPEG").write_bytes(b"j")
    _, said = within("create", "train", "-o", "plain.tar", folder=tmp_path)
    assert "--classes" in said
    _, said = within("create", "train", "-o", "train.tar", "--classes", folder=tmp_path)
    assert said.splitlines()[-1] == "3 classes (in classes.txt): 0 cat, 1 dog, 2 n01"
    assert (tmp_path / "classes.txt").read_text() == "cat\ndog\nn01\n"
    samples = list(wds.WebDataset(str(tmp_path / "train.tar")).decode())
    assert [(s["__key__"], s["cls"], s["label.txt"]) for s in samples] == [
        ("cat/0", 0, "cat"),
        ("dog/0", 1, "dog"),
        ("dog/1", 1, "dog"),
        ("n01/0", 2, "n01"),
    ]
    (tmp_path / "train" / "stray.jpg").write_bytes(b"j")
    _, said = within("create", "train", "-o", "x.tar", "--classes", folder=tmp_path, code=1)
    assert "stray.jpg is not in a folder" in said
    within("create", "index.csv", "-o", "x.tar", "--classes", folder=tmp_path, code=2)


def test_class_numbers_are_the_same_in_every_call(tmp_path):
    for split, names in {"train": ("bird", "cat", "dog"), "val": ("dog",), "new": ("ant", "dog")}.items():
        for name in names:
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "0.jpg").write_bytes(b"j")

    def create(split, *more, code=0):
        return wdspec(
            "create", split, "-o", f"out/{split}.tar", "--classes", *more, folder=tmp_path, code=code
        )[1]

    def numbers(split):
        return {s["label.txt"]: s["cls"] for s in WebDataset(str(tmp_path / "out" / f"{split}.tar")).decode()}

    create("train")
    create("val")
    assert numbers("val") == {"dog": numbers("train")["dog"]} == {"dog": 2}
    said = create("new", code=1)
    assert "out/classes.txt" in said
    assert "no line for 1 class (ant); add the names at its end" in said
    with open(tmp_path / "out/classes.txt", "a") as file:
        file.write("ant\n")
    create("new")
    assert numbers("new") == {"ant": 3, "dog": 2}
    create("val", "--force", "--class-names", "names/other.txt")
    assert numbers("val") == {"dog": 0}
    assert (tmp_path / "names/other.txt").read_text() == "dog\n"
    (tmp_path / "twice.txt").write_text("dog\ndog\n")
    assert "twice.txt" in create("val", "--force", "--class-names", "twice.txt", code=1)
    _, said = wdspec("create", "val", "-o", "-", "--class-names", "names/other.txt", folder=tmp_path)
    assert "1 class (in names/other.txt): 0 dog" in said


def test_each_file_in_a_folder_of_classes_is_a_sample(tmp_path):
    from commandline import within

    names = [f"holiday.2021.{n}.jpg" for n in range(3)]
    others = [".hidden.jpg", "._1.jpg", "Thumbs.db", "desktop.ini", ".DS_Store"]
    for label in "cat", "dog":
        (tmp_path / "train" / label).mkdir(parents=True)
        for name in (*names, "1.jpg", *others):
            (tmp_path / "train" / label / name).write_bytes(b"j")
    within("create", "train", "-o", "t.tar", "--classes", folder=tmp_path)
    with tarfile.open(tmp_path / "t.tar") as tar:
        images = [name for name in tar.getnames() if name.endswith(".jpg")]
    stems = ("1", "holiday_2021_0", "holiday_2021_1", "holiday_2021_2")
    assert images == [f"{label}/{stem}.jpg" for label in ("cat", "dog") for stem in stems]
    (tmp_path / "train" / "dog" / "1.png").write_bytes(b"p")
    _, said = within("create", "train", "-o", "u.tar", "--classes", folder=tmp_path, code=1)
    assert all(f"train/dog/{name}" in said for name in ("1.jpg", "1.png"))
    assert "would be the same sample, `dog/1`" in said
    (tmp_path / "train" / "dog" / "1.png").unlink()
    (tmp_path / "train" / "dog" / "Thumbs.db").write_bytes(b"")
    within("create", "train", "-o", "v.tar", "--key", "last_dot", folder=tmp_path)


def test_check_compares_numbers_and_names_of_classes(tmp_path):
    for split, names in {"train": ("bird", "cat", "dog"), "val": ("cat", "dog")}.items():
        for name in names:
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "0.txt").write_text(f"{split} {name}")
        wdspec("create", split, "-o", f"{split}.tar", "--class-names", f"{split}.txt", folder=tmp_path)
    (tmp_path / "s.yaml").write_text(
        "wdspec: 1\nsplits:\n  train: {dataset: [{name: t, shards: train.tar}]}\n"
        "  val: {dataset: [{name: v, shards: val.tar}]}\n  both:\n    dataset:\n"
        "      - {name: t, shards: train.tar, rename: {label: cls}}\n      - {name: v, shards: val.tar}\n"
        "  numbers:\n    defaults: {extensions: txt cls}\n"
        "    dataset: [{name: t, shards: train.tar}, {name: v, shards: val.tar}]\n"
    )
    check = ("check", "--jobs", "0", "--format", "json", "--strict")
    for arguments in (["s.yaml#both"], ["s.yaml#numbers"], ["s.yaml#val", "--against", "s.yaml#train"]):
        shown, _ = wdspec(*check, *arguments, folder=tmp_path, code=1)
        found = [each for each in json.loads(shown)["problems"] if each["code"] == "D313"]
        assert [each["key"] for each in found] == ["cat/0", "dog/0"]
        assert "the class is `0 cat` in 1 of 2 samples, but `0 bird` in `t`" in found[0]["message"]
    wdspec(*check, "s.yaml#train", folder=tmp_path)
