"""Every code block of webdataset's notebook on offline augmentation. Block 5 (Dask) is kept by tests/offline."""

import re

import numpy as np
import pytest
from documentblocks import blocks_of
from documentstores import OPENIMAGES_KEYS

import wdspec as wds

ELSEWHERE = {5: "processing every shard with Dask: tests/offline"}


def test_every_block_has_its_test():
    named = {int(n) for name in globals() for n in re.findall(r"(?:test|and)_(\d\d)_", name)}
    assert named | set(ELSEWHERE) == set(blocks_of("augmentation"))


@pytest.fixture
def page(notebook):
    return notebook("augmentation")


def test_01_and_02_and_03_print_the_keys_of_augmented_samples(page):
    assert page.run(1, 2, 3).text.split() == OPENIMAGES_KEYS


def test_04_lists_what_was_written(page):
    assert page.run(1, 2, 3, 4).text.split() == [
        f"{key}.{x}" for key in OPENIMAGES_KEYS for x in ("cls", "png")
    ]
    first = next(iter(wds.WebDataset("_temp.tar").decode("rgb8")))
    assert first["png"].shape == (701, 1024, 3)
    assert (first["png"].min(), first["png"].max(), first["cls"]) == (0, 255, 0)
    assert first["png"].dtype == np.uint8
