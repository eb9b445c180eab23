"""Every code block of AIStore's post on webdataset.

The post's client, `WDTransform` and `utils` are gone (the post says so), and its cluster is not here: small stand-ins
give the same URLs on the documents' own server, which runs the transforms.
"""

import io
import re
import sys
import types

import numpy as np
import pytest
import torch
from documentblocks import blocks_of

import wdspec as wds


def test_every_block_has_its_test():
    named = {int(n) for name in globals() for n in re.findall(r"(?:test|and)_(\d\d)_", name)}
    assert named == set(blocks_of("aistore_post"))


class Client:
    """The part of the client that the post uses: where objects are."""

    def __init__(self, endpoint):
        self.endpoint = endpoint

    def object_url(self, bucket, name, transform_id=None):
        query = f"?provider=gcp&uuid={transform_id}" if transform_id else "?provider=gcp"
        return f"{self.endpoint}/v1/objects/{bucket.partition('://')[2]}/{name}{query}"

    def expand_object_urls(self, bucket, transform_id, template):
        urls = wds.SimpleShardList(template).urls
        return [self.object_url(bucket, url.text, transform_id) for url in urls]


def etl(stores):
    class WDTransform:
        """Has the server apply a function to every sample of the objects it is asked for."""

        def __init__(self, client, function, transform_name, verbose=False):
            self.uuid = transform_name
            stores.transforms[transform_name] = lambda data: transformed(data, function)
            print("Initializing ETL...")
            print(f"ETL {transform_name} successfully initialized")

    return WDTransform


def transformed(data, function):
    file = io.BytesIO()
    decode = wds.Decoder("pil")
    samples = wds.DataPipeline(
        lambda: [{"url": "shard", "stream": io.BytesIO(data)}], wds.tar_file_expander, wds.group_by_keys
    )
    with wds.TarWriter(file) as writer:
        for sample in samples.slice(70):
            writer.write(function(decode(sample)))
    return file.getvalue()


def display_loader_images(loader, objects):
    images, classes = next(iter(loader))[:2]
    return [tuple(image.shape) for image in images[:objects]], classes[:objects].tolist()


def display_shard_images(client, bucket, name, objects):
    dataset = wds.WebDataset(client.object_url(bucket, name)).decode("rgb8").to_tuple("jpg")
    return [image.shape for (image,) in dataset.slice(objects)]


@pytest.fixture
def post(notebook, stores, monkeypatch):
    sdk, transform, utils = (
        types.ModuleType(name) for name in ("aistore.sdk", "aistore.client.transform", "utils")
    )
    sdk.Client = Client
    transform.WDTransform = etl(stores)
    utils.display_loader_images, utils.display_shard_images = display_loader_images, display_shard_images
    for module in (types.ModuleType("aistore"), types.ModuleType("aistore.client"), sdk, transform, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return notebook("aistore_post")


def test_01_installs_packages_and_reads_nothing(post):
    assert post.blocks[1][1].startswith("! pip install webdataset")


def test_02_lists_a_shard(post, stores, tmp_path, monkeypatch):
    script = f'#!/bin/sh\nexec curl -s -f "{stores.url}/v1/objects/${{2#gcp://}}"\n'
    (tmp_path / "ais").write_text(script)
    (tmp_path / "ais").chmod(0o755)
    command = post.blocks[2][1].splitlines()[0].removeprefix("! ")
    lines = post.shell(f"unset http_proxy; PATH={tmp_path}:$PATH; {command}").splitlines()
    assert len(lines) == 10
    assert [line.split()[-1] for line in lines[:2]] == ["0000000.cls", "0000000.jpg"]


def test_03_transforms_on_the_client(post):
    post.run(3)
    images, classes = next(iter(post.names["loader"]))
    assert (images.shape, images.dtype) == ((64, 3, 224, 224), torch.float32)
    assert classes.tolist() == list(range(64))


def test_04_and_05_and_06_show_images(post):
    assert post.run(3, 4, 5).value == [(40, 48, 3)] * 4
    assert post.run(6).value == ([(3, 224, 224)] * 4, [0, 1, 2, 3])


def test_07_and_08_and_09_and_11_read_shards_that_the_cluster_transformed(post):
    text = post.run(3, 4, 8, 7).text  # the function of block 8 is what block 7 hands over
    assert text.splitlines() == [line.strip() for line in post.blocks[10][1].splitlines()]
    post.run(9)
    assert post.run(11).value == ([(3, 224, 224)] * 4, [0, 1, 2, 3])


def test_10_is_the_output_of_the_initialisation(post):
    assert [line.strip() for line in post.blocks[10][1].splitlines()] == [
        "Initializing ETL...",
        "ETL imagenet-train successfully initialized",
    ]


def test_12_and_13_and_14_read_several_shards_that_the_cluster_transformed(post):
    post.run(3, 4, 8, 7, 9, 12, 13)
    assert len(post.names["val_dataset"].stages[0]) == 6
    assert post.run(14).value == ([(3, 224, 224)] * 4, [0, 1, 2, 3])
    assert np.isfinite(next(iter(post.names["val_dataset"]))[0].numpy()).all()
