"""Every code block of webdataset's README of 2021, in its order."""

import io
import itertools
import os
import re

import braceexpand
import imageio
import numpy as np
import pytest
import torch
from documentblocks import blocks_of
from documentstores import OPENIMAGES_KEYS
from torch.utils.data import IterableDataset

import wdspec as wds


def test_every_block_has_its_test():
    named = {int(n) for name in globals() for n in re.findall(r"test_(\d\d)_", name)}
    named |= {int(n) for name in globals() for n in re.findall(r"_and_(\d\d)_", name)}
    assert named == set(blocks_of("readme_2021"))


@pytest.fixture
def readme(notebook):
    return notebook("readme_2021", torch=torch, np=np, io=io, imageio=imageio, os=os)


@pytest.fixture
def opened(readme):
    """The README up to the definition of `url` as a pipe."""
    readme.run(3)
    return readme


def test_01_is_a_whole_training_loop(readme, tmp_path):
    with wds.TarWriter(str(tmp_path / "a.tar")) as writer:
        for i in range(40):
            writer.write({"__key__": f"{i}", "png": np.full((4, 5, 3), i, np.uint8), "json": {"label": i}})
    readme.names["url"] = str(tmp_path / "a.tar")
    readme.run(1)
    assert readme.names["inputs"].shape[1:] == (3, 4, 5)
    assert readme.names["inputs"].dtype == torch.float32
    assert set(readme.names["outputs"]) == {"label"}


def test_02_lists_the_first_files_of_a_shard(readme):
    files = [f"{key}.{suffix}" for key in OPENIMAGES_KEYS for suffix in ("jpg", "json")]
    assert readme.run(2).text.split() == files


def test_03_and_04_show_three_samples_as_bytes(opened):
    text = opened.run(4).text
    assert [line for line in text.splitlines() if "__key__" in line] == [
        f"__key__ '{key}'" for key in OPENIMAGES_KEYS[:3]
    ]
    assert text.count(r"jpg b'\xff\xd8\xff\xe0\x00\x10JFIF") == 3
    assert text.count('json b\'[{"ImageID": "') == 3
    # Later versions of webdataset, and wdspec, also say where a sample is from.
    assert text.count("__url__ 'pipe:curl") == 3


def test_05_decodes_into_float_arrays(opened):
    lines = opened.run(5).text.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert re.fullmatch(r"\(\d+, \d+, 3\) float32 <class 'list'>", line)


def test_05_gives_the_sizes_that_the_document_shows(opened):
    # The shuffle's order is its own, so the sizes are looked for among all.
    shapes = {image.shape for image, _ in itertools.islice(opened.run(5) and opened.names["dataset"], 7)}
    assert {(701, 1024, 3), (1024, 768, 3), (1024, 683, 3)} <= shapes


def test_06_augments_with_torchvision(opened):
    lines = opened.run(6).text.splitlines()
    assert lines == ["torch.Size([3, 224, 224]) torch.float32 <class 'list'>"] * 3


def test_07_and_08_chain_a_generator_function(readme):
    readme.names["dataset"] = [(torch.zeros(3), i) for i in range(4)]
    readme.run(7, 8)
    noisy = readme.names["noisy_dataset"]
    assert isinstance(noisy, IterableDataset)
    noise = torch.stack([inputs for inputs, _ in noisy])
    assert 0 < noise.abs().max() < 0.2
    assert [targets for _, targets in noisy] == [0, 1, 2, 3]


def test_09_writes_the_pipeline_out(opened):
    # `wds.augment_sample` never existed: it represents a user function.
    with pytest.raises(AttributeError, match="augment_sample"):
        opened.run(9)
    opened.names["augment_sample"] = augment_sample
    opened.run(9, replace=[("wds.augment_sample", "augment_sample")])
    sample = next(iter(opened.names["noisy_dataset"]))
    assert sample["jpg"].dtype == torch.float32
    assert sample["jpg"].shape[0] == 3
    assert sample["noise"] == 0.02


def augment_sample(source, noise):
    return ({**sample, "noise": noise} for sample in source)


class MySqlIterableDataset(IterableDataset):
    def __init__(self, connection):
        self.connection = connection

    def __iter__(self):
        return iter(self.connection)


def test_10_reuses_stages_with_another_dataset(readme):
    readme.names.update(
        MySqlIterableDataset=MySqlIterableDataset,
        database_connection=range(40),
        augment_sample=lambda s, noise: s,
    )
    # The stage is called `batched`; so says the README's own list of them.
    with pytest.raises(AttributeError, match="did you mean 'batched'"):
        readme.run(10)
    readme.run(10, replace=[("wds.batch,", "wds.batched,"), ("wds.augment_sample", "augment_sample")])
    batches = list(readme.names["noisy_dataset"])
    assert [len(batch) for batch in batches] == [16, 16, 8]
    assert sorted(torch.cat(batches).tolist()) == list(range(40))
    assert batches[0].tolist() != list(range(16))


def test_11_opens_all_554_shards_and_12_fails_to_stack_lists_of_unequal_length(opened):
    opened.run(6, 11)
    assert len(opened.names["dataset"].stages[0]) == 555
    # The document shows this error: the lists of labels are of unequal lengths, and DataLoader stacks lists.
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size") as caught:
        opened.run(12)
    end_workers(caught)


def end_workers(caught):
    """Ends the workers of the DataLoader that an error came through: it holds on to them.

    Collected as part of a cycle torch's iterator takes 5 seconds a worker, maybe within a worker of a later test.
    """
    for entry in caught.traceback:
        end = getattr(entry.frame.f_locals.get("self"), "_shutdown_workers", None)
        if end is not None:
            end()
            return


def test_13_batches_in_the_dataset_and_sets_a_length(opened):
    opened.run(6)
    shape = opened.run(13).value
    assert shape == (20, 3, 224, 224)
    assert len(opened.names["dataset"]) == int(1e9) // 20
    assert len(opened.names["targets"]) == 20


def a_png():
    file = io.BytesIO()
    imageio.imwrite(file, np.full((4, 5, 3), 7, np.uint8), format="png")
    return file.getvalue()


def test_14_decodes_with_a_function_of_samples(readme):
    readme.names["dataset"] = [{"__key__": "a", "left.png": a_png(), "txt": b"text"}]
    # The original block is a sketch: `elif ...:` replaces other cases, and `mageio` is a typo.
    code = [
        ("mageio", "imageio"),
        ("elif ...:", "else:"),
        ("            ...\n", "            result[key] = value\n"),
    ]
    readme.run(14, replace=code)
    (sample,) = readme.names["dataset"]
    assert sample["left.png"].shape == (4, 5, 3)
    assert (sample["__key__"], sample["txt"]) == ("a", b"text")


def test_14_unchanged_names_a_missing_module(readme):
    readme.names["dataset"] = [{"__key__": "a", "png": a_png()}]
    readme.run(14)
    with pytest.raises(NameError, match="mageio"):
        list(readme.names["dataset"])


def test_15_decodes_with_functions_of_key_and_bytes(readme):
    readme.names["dataset"] = [{"__key__": "a", "left.png": a_png(), "cls": b"3", "bin": b"x"}]
    readme.run(15)
    (sample,) = readme.names["dataset"]
    assert sample["left.png"].shape == (4, 5, 3)
    assert (sample["cls"], sample["bin"]) == (3, b"x")


def test_16_decodes_by_extension_with_a_dot(readme):
    readme.names["dataset"] = [{"__key__": "a", "left.png": a_png()}]
    readme.run(16)
    (sample,) = readme.names["dataset"]
    assert sample["left.png"].shape == (4, 5, 3)  # webdataset takes a bare `png` only


def test_17_and_18_copy_a_shard_and_read_it(opened, tmp_path):
    here = [("/tmp/", f"{tmp_path}/")]
    opened.run(17, replace=here)
    shown = opened.run(18, replace=here).value
    assert shown.startswith("{'__key__': 'e39871fd9fd74f55', ")
    assert r"'jpg': b'\xff\xd8\xff\xe0\x00\x10JFIF" in shown


def test_20_caches_samples_in_a_database(opened, stores):
    opened.run(3)
    text = opened.run(20).text
    first, second = text.split("=== second pass")
    assert first.strip() == "=== first pass"
    assert [line for line in second.splitlines() if "__key__" in line] == [
        f"__key__ '{key}'" for key in OPENIMAGES_KEYS[:4]
    ]
    assert "./cache.db" in second
    requests = len(stores.requests)
    assert len(list(opened.names["dataset"])) == 7
    assert len(stores.requests) == requests  # nothing is fetched again


def test_21_makes_a_shard_with_tar(readme, tmp_path):
    (tmp_path / "dataset").mkdir()
    for name in ("b.txt", "a.txt", "a.cls"):
        (tmp_path / "dataset" / name).write_text("1")
    readme.shell(readme.blocks[21][1].strip().removeprefix("$ "))
    samples = list(wds.WebDataset("dataset.tar").decode())
    assert [(s["__key__"], sorted(s)[2:]) for s in samples] == [
        ("dataset/a", ["cls", "txt"]),
        ("dataset/b", ["txt"]),
    ]


def test_22_is_the_form_of_a_recipe(readme):
    lines = readme.blocks[22][1].splitlines()
    assert [line.split() for line in lines[:2]] == [[f"archive-name-{n}", f"source-name-{n}"] for n in (1, 2)]


def open_my_dataset(count=3):
    """Pairs as the document's loop takes them: (index, (input, output))."""
    return enumerate((np.full((4, 5, 3), i / 10, np.float32), i) for i in range(count))


def test_23_stores_pickles_only_if_that_is_allowed(readme):
    readme.names["open_my_dataset"] = open_my_dataset
    with pytest.raises(wds.WdspecError, match="allow_pickle"):
        readme.run(23)
    readme.run(23, replace=[('TarWriter("dest.tar")', 'TarWriter("pickles.tar", allow_pickle=True)')])
    with pytest.raises(wds.UsageError, match=r"allow.*pickle"):
        list(wds.WebDataset("pickles.tar").decode())
    samples = list(wds.WebDataset("pickles.tar").decode(allow=["pickle"]))
    assert [s["output.pyd"] for s in samples] == [0, 1, 2]
    assert samples[2]["input.pyd"].dtype == np.float32


def test_24_stores_images_and_classes(readme):
    readme.names["open_my_dataset"] = open_my_dataset
    # `assert input.dtype = np.float32` is an assignment, which Python refuses.
    with pytest.raises(SyntaxError):
        readme.run(24)
    readme.run(24, replace=[("input.dtype = np", "input.dtype == np")])
    samples = list(wds.WebDataset("dest.tar").decode("rgb"))
    assert [s["output.cls"] for s in samples] == [0, 1, 2]
    assert abs(samples[1]["input.jpg"] - 0.1).max() < 0.02


def test_25_stores_files_unchanged(readme, tmp_path):
    for name in ("x", "y"):
        (tmp_path / f"{name}.png").write_bytes(a_png())
    readme.names.update(basenames=["x", "y"], lookup_cls=lambda name: str(ord(name)).encode())
    with pytest.raises(SyntaxError):  # `as stream):` has a bracket too many
        readme.run(25)
    readme.run(25, replace=[("as stream):", "as stream:")])
    samples = list(wds.WebDataset("dest.tar").decode("rgb8"))
    assert [s["target.cls"] for s in samples] == [ord("x"), ord("y")]
    assert samples[0]["input.png"].shape == (4, 5, 3)


def test_26_and_27_augment_a_shard(opened):
    opened.run(6, 26)
    assert opened.run(27).text.split() == OPENIMAGES_KEYS


def test_28_shows_the_augmented_shard(opened):
    opened.run(6, 26, 27)
    assert opened.run(28).text.split() == [f"{key}.{x}" for key in OPENIMAGES_KEYS for x in ("cls", "png")]
    samples = list(wds.WebDataset("_temp.tar").decode("rgb8"))
    assert [s["cls"] for s in samples] == [0] * 5
    assert samples[0]["png"].shape == (224, 224, 3)
    assert (samples[0]["png"].min(), samples[0]["png"].max()) == (0, 255)


@pytest.mark.long  # test_augmentation.py has the same block
def test_29_augments_every_shard_with_dask(opened, dask_block):
    opened.run(6, 26)
    augmented = dask_block(opened, 29)
    samples = list(wds.WebDataset(f"{augmented}/openimages-augmented-000000.tar").decode("rgb8"))
    assert [s["__key__"] for s in samples][:5] == OPENIMAGES_KEYS
    assert {(s["png"].shape, s["cls"]) for s in samples} == {((224, 224, 3), 0)}


def test_30_writes_two_shards_in_two_ways(readme, tmp_path):
    braces, listed = readme.blocks[30][1].splitlines()
    for line in (braces, listed):
        urls = [entry["url"] for entry in eval(line, {"ShardList": wds.ShardList})]
        assert urls == list(braceexpand.braceexpand("dataset-{000..001}.tar"))


def test_19_caches_shards(opened, stores):
    text = opened.run(19).text
    second = text.split("=== second pass")[1]
    assert [line for line in second.splitlines() if "__key__" in line] == [
        f"__key__ '{key}'" for key in OPENIMAGES_KEYS[:4]
    ]
    requests = len(stores.requests)
    assert len(list(opened.names["dataset"])) == 7
    assert len(stores.requests) == requests
