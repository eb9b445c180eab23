"""Every code block of webdataset's notebook on offline augmentation."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from documentblocks import blocks_of
from documentstores import OPENIMAGES_KEYS

import wdspec as wds
from wdspec.cli.process import process


def test_every_block_has_its_test():
    named = {int(n) for name in globals() for n in re.findall(r"(?:test|and)_(\d\d)_", name)}
    assert named == set(blocks_of("augmentation"))


@pytest.fixture
def page(notebook):
    return notebook("augmentation")


def test_01_and_02_and_03_print_the_keys_of_augmented_samples(page):
    assert page.run(1, 2, 3).text.split() == OPENIMAGES_KEYS


def test_04_lists_the_written_shards(page):
    assert page.run(1, 2, 3, 4).text.split() == [
        f"{key}.{x}" for key in OPENIMAGES_KEYS for x in ("cls", "png")
    ]
    first = next(iter(wds.WebDataset("_temp.tar").decode("rgb8")))
    assert first["png"].shape == (701, 1024, 3)
    assert (first["png"].min(), first["png"].max(), first["cls"]) == (0, 255, 0)
    assert first["png"].dtype == np.uint8


JOB = r"""
dataset:
  - shards: gs://bucket/openimages-{000000..000001}.tar
    decode: torchrgb
    extensions: jpg;png json
map: augmenting:augment_sample
fields: [png, cls]
output: {from: 'gs://bucket/openimages-(.*)', to: 'gs://bucket2/openimages-augmented-\1'}
"""

AUGMENTING = """
import torch

def augment_sample(sample):
    image = sample["jpg"] + torch.randn_like(sample["jpg"]) * 0.01
    image = image.numpy().transpose(1, 2, 0)
    image -= image.min()
    image /= image.max()
    return {"png": image, "cls": 0}
"""


def test_05_augments_every_shard_with_dask_as_wdspec_does_on_the_same_cluster(
    page, dask_block, cluster, bucket, monkeypatch
):
    page.run(1, 2)
    assert dask_block(page, 5) == bucket
    by_hand = {path.name: list(wds.WebDataset(str(path)).decode("rgb8")) for path in bucket.iterdir()}
    samples = by_hand["openimages-augmented-000000.tar"]
    assert [s["__key__"] for s in samples][:5] == OPENIMAGES_KEYS
    first = samples[0]["png"]
    assert (first.shape, first.min(), first.max()) == ((701, 1024, 3), 0, 255)
    for path in bucket.iterdir():
        path.unlink()
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("job.yaml").write_text(JOB)
    Path("augmenting.py").write_text(AUGMENTING)
    call = ["job.yaml", "--engine", "dask", "--scheduler", cluster, "--format", "json"]
    result = CliRunner().invoke(process, call)
    sys.modules.pop("augmenting", None)
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["done"]) == 2
    for name, expected in by_hand.items():
        samples = list(wds.WebDataset(str(bucket / name)).decode("rgb8"))
        for one, other in zip(samples, expected, strict=True):
            assert (one["__key__"], one["cls"]) == (other["__key__"], other["cls"])
            assert np.abs(one["png"].astype(int) - other["png"]).mean() < 5  # each has its own noise
