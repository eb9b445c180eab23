"""The specs in examples/specs are valid, free of avoidable warnings, and deliver what their comments say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import within

import wdspec

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "examples" / "specs"
WITH_WARNINGS = {"seed-readme.yaml"}
"""The document that opens the description of the language names no sources and relies on a default range."""


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    """The specs name functions in examples/, which is found from the root of the checkout."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)


def batches(name, **choice):
    with wdspec.loader(SPECS / name, num_workers=0, **choice) as loader:
        found = list(loader)
        assert len(found) == len(loader)
    return found


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_spec_is_valid(path):
    shown, _ = within("validate", "--format", "json", path)
    if path.name not in WITH_WARNINGS:
        assert json.loads(shown) == []


def test_the_opening_document_is_kept_unchanged():
    shards = [source.shards for source in wdspec.load(SPECS / "seed-readme.yaml").sources]
    assert shards == [
        ("gs://nvdata-ocropus-tess/ia1-{000000..000033}.tar",),
        ("gs://nvdata-ocropus-tess/cdipsub-{000000..000022}.tar",),
        ("gs://nvdata-ocropus-tess/gsub-{000000..000167}.tar",),
        ("gs://nvdata-ocropus-tess/bin-gsub-{000000..000167}.tar",),
        ("gs://nvdata-ocropus/rendered.tar",),
    ]


def test_digits_train_mixes_three_collections():
    found = batches("digits.yaml", split="train")
    assert len(found) == 24
    sources = [name for batch in found for name in batch["__source__"]]
    assert {name: sources.count(name) / len(sources) for name in set(sources)} == pytest.approx(
        {"digits-a": 0.4, "digits-b": 0.4, "rendered": 0.2}, abs=0.01
    )
    assert found[0]["image"].shape == (64, 1, 16, 16)
    assert float(found[0]["image"].max()) == 1.0


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (1, 2), (2, 0), (2, 2)])
def test_digits_val_has_every_image_once(ranks, workers):
    keys = []
    for rank in range(ranks):
        with wdspec.loader(
            SPECS / "digits.yaml", split="val", num_workers=workers, rank=rank, world_size=ranks
        ) as loader:
            keys += [key for batch in loader for key in batch["__key__"]]
    assert len(keys) == len(set(keys)) == 320


@pytest.mark.parametrize("ranks", [1, 3])
def test_evaluation_has_every_image_once_and_masks_the_rest(ranks):
    keys = []
    for rank in range(ranks):
        found = batches("evaluation.yaml", rank=rank, world_size=ranks)
        assert len(found) == -(-320 // (48 * ranks))
        for batch in found:
            assert batch["image"].shape == (48, 8, 8)
            keys += [
                key for key, real in zip(batch["__key__"], batch["__mask__"].tolist(), strict=True) if real
            ]
    assert len(keys) == len(set(keys)) == 320


def test_smoke_is_a_reduced_digits():
    assert [len(batch["label"]) for batch in batches("smoke.yaml", split="train")] == [16] * 4
    assert sum(len(batch["label"]) for batch in batches("smoke.yaml", split="val")) == 32


def test_environments_reach_the_same_shards_elsewhere():
    found = batches("environments.yaml", env="checkout")
    assert len(found) == 8
    assert all(url.startswith("gs://digits-bucket/") for batch in found for url in batch["__url__"])


def test_nested_shares_multiply():
    found = batches("nested.yaml")
    sources = [name for batch in found for name in batch["__source__"]]
    assert [sources.count(name) for name in ("digits-a", "digits-b", "rendered")] == pytest.approx(
        [120, 40, 40], abs=8
    )
    drawn = [tag for batch in found for tag in batch["drawn"]]
    assert [bool(tag) for tag in drawn] == [name == "rendered" for name in sources]


def test_variables_set_the_image_size():
    assert batches("variables.yaml", vars={"side": 20})[0]["image"].shape == (32, 1, 20, 20)


def test_fields_gives_tuples_of_even_digits():
    images, labels = batches("fields.yaml")[0]
    assert images.shape == (10, 8, 8, 3)
    assert (labels % 2 == 0).all()


def test_score_adds_a_class_and_its_probability(tmp_path):
    within("process", SPECS / "score.yaml", "--output", tmp_path)
    samples = list(wdspec.compile({"dataset": [{"shards": f"{tmp_path}/*"}], "epoch": {"pass": "drop"}}))
    assert len(samples) == 320
    assert all(0.1 <= sample["score.json"]["probability"] <= 1 for sample in samples)
    assert all(sample.keys() >= {"cls", "score.json"} and "png" not in sample for sample in samples)


def test_digits_can_be_explained_without_a_checkout_as_working_directory(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WDS")}
    command = [Path(sys.executable).parent / "wdspec", "explain", f"{SPECS / 'digits.yaml'}#train"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "rendered" in done.stdout
