"""The data in examples/data: its content, that val shares nothing, and that it can be made again."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

DATA = Path(__file__).parents[2] / "examples" / "data"
COUNTS = {"digits-a": 738, "digits-b": 739, "rendered": 300, "val": 320}
FREETYPE_OF_THE_SHARDS = "2.14.3"


def members(collection):
    """All members of a collection as (name, bytes), in order, as strict `tarfile` reads them."""
    for path in sorted(DATA.glob(f"{collection}-*.tar*")):
        with tarfile.open(path, errorlevel=2) as shard:
            for member in shard:
                yield member.name, shard.extractfile(member).read()


def samples(collection):
    """The samples of a collection as dicts, in order."""
    grouped = {}
    for name, data in members(collection):
        key, extension = name.split(".")
        grouped.setdefault(key, {})[extension] = data
    return grouped


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def hashes(collection):
    pictures = [pixels(sample["png"]) for sample in samples(collection).values()]
    return [hashlib.sha256(repr(p.shape).encode() + p.tobytes()).hexdigest() for p in pictures]


@pytest.mark.parametrize("collection", COUNTS)
def test_every_sample_has_png_cls_and_json_next_to_each_other(collection):
    names = [name.split(".") for name, _ in members(collection)]
    for at in range(0, len(names), 3):
        assert [extension for _, extension in names[at : at + 3]] == ["png", "cls", "json"]
        assert len({key for key, _ in names[at : at + 3]}) == 1


@pytest.mark.parametrize("collection", COUNTS)
def test_counts_and_labels(collection):
    found = samples(collection)
    assert len(found) == COUNTS[collection]
    labels = Counter(int(sample["cls"]) for sample in found.values())
    assert sorted(labels) == list(range(10))
    assert min(labels.values()) >= 25
    facts = [json.loads(sample["json"]) for sample in found.values()]
    assert {fact["collection"] for fact in facts} == {collection}
    assert {fact["split"] for fact in facts} == {"val" if collection == "val" else "train"}


def test_the_scans_equal_those_of_scikit_learn():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    indices = []
    for collection in ("digits-a", "digits-b", "val"):
        for sample in samples(collection).values():
            index = json.loads(sample["json"])["index"]
            levels = np.round(pixels(sample["png"]) * (16 / 255)).astype(int)
            assert (levels == digits.images[index]).all()
            assert int(sample["cls"]) == digits.target[index]
            indices.append(index)
    assert sorted(indices) == list(range(1797))


def test_the_halves_are_split_by_index():
    a, b = (
        [json.loads(s["json"])["index"] for s in samples(collection).values()]
        for collection in ("digits-a", "digits-b")
    )
    assert max(a) < min(b)


def test_val_shares_no_image_with_other_collections():
    training = {h for collection in ("digits-a", "digits-b", "rendered") for h in hashes(collection)}
    assert not training & set(hashes("val"))


def test_val_is_balanced_over_digits_and_shards():
    assert set(Counter(int(s["cls"]) for s in samples("val").values()).values()) == {32}
    for path in DATA.glob("val-*"):
        with tarfile.open(path) as shard:
            assert len(shard.getnames()) == 3 * 80


def test_drawn_digits_have_several_fonts_and_sizes():
    found = samples("rendered").values()
    assert len({json.loads(s["json"])["font"] for s in found}) == 6
    assert {pixels(s["png"]).shape[0] for s in found} == set(range(12, 21))


def test_all_data_stays_under_two_megabytes():
    assert sum(path.stat().st_size for path in DATA.iterdir() if path.is_file()) < 2_000_000


def test_make_writes_the_same_bytes_again(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("font_caladea")
    subprocess.run([sys.executable, DATA / "make.py", "--out", tmp_path], check=True, timeout=280)
    committed = {path.name for path in DATA.glob("*.tar*")}
    assert {path.name for path in tmp_path.iterdir()} == committed
    if features.version("freetype2") != FREETYPE_OF_THE_SHARDS:  # outlines are FreeType's to draw
        committed = {name for name in committed if not name.startswith("rendered")}
    assert [n for n in sorted(committed) if (tmp_path / n).read_bytes() != (DATA / n).read_bytes()] == []
