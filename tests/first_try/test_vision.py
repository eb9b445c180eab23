"""The jobs of vision, in one spec each and without Python: the first batches are those of plain Python.

Each test writes data as people have it, and a spec as its user would, and compares what arrives with the same files
that the bare libraries read.
"""

import io
import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from firsttrydata import train_tokenizer
from PIL import Image
from shardmaking import write_shard

import wdspec

CLASSES = ["tench", "goldfish", "great white shark"]


def encode(pixels, kind="png"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@pytest.fixture
def photos(tmp_path):
    """Shards of 60 images with the name of a class, and a list of the classes."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (60, 12, 16, 3), np.uint8)
    for shard in range(6):
        numbers = range(10 * shard, 10 * shard + 10)
        write_shard(
            tmp_path / f"train-{shard}.tar",
            [(f"{n:03}", {"png": encode(pixels[n]), "txt": CLASSES[n % 3].encode()}) for n in numbers],
        )
    (tmp_path / "classes.txt").write_text("".join(name + "\n" for name in CLASSES))
    return tmp_path, pixels


TRAINING = """
dataset:
  - name: imagenet
    shards: train-*.tar
    decode: rgb8
    make: {label: {label: txt, file: classes.txt}}
fields: [png, label]
batch: 4
epoch: {pass: drop, reshuffle: true}
"""


def test_an_epoch_for_training_has_every_image_once_and_a_new_order_each_time(photos):
    folder, pixels = photos
    (folder / "train.yaml").write_text(TRAINING)
    epochs = []
    with wdspec.loader(folder / "train.yaml", num_workers=0) as loader:
        for _ in range(3):
            epoch = []
            for batch in loader:
                for key, image, label in zip(batch["__key__"], batch["png"], batch["label"], strict=True):
                    number = int(key.split("/")[-1])
                    assert np.array_equal(image.numpy(), pixels[number])
                    assert int(label) == number % 3
                    epoch.append(number)
            epochs.append(epoch)
    assert all(sorted(epoch) == list(range(60)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_an_epoch_for_training_resumes_in_its_middle_on_other_ranks(photos):
    folder, _ = photos
    (folder / "train.yaml").write_text(TRAINING + "elastic: {ranks: 2, workers: 1}\n")
    options = {"num_workers": 0}
    unbroken = []
    with wdspec.loader(folder / "train.yaml", rank=0, world_size=1, **options) as loader:
        for _ in range(2):
            unbroken += [sorted(batch["__key__"]) for batch in loader]
    with wdspec.loader(folder / "train.yaml", rank=0, world_size=1, **options) as loader:
        first = [sorted(batch["__key__"]) for batch in islice(loader, 3)]
        state = loader.state_dict()
    ranks = []
    for rank in range(2):
        with wdspec.loader(folder / "train.yaml", rank=rank, world_size=2, **options) as loader:
            loader.load_state_dict(state)
            ranks.append([batch["__key__"] for _ in range(2) for batch in loader])
    rest = [sorted(one + other) for one, other in zip(*ranks, strict=True)]
    assert first + rest == unbroken


def test_the_names_of_the_classes_are_there_for_the_training_script(photos):
    folder, _ = photos
    (folder / "train.yaml").write_text(TRAINING)
    assert wdspec.load(folder / "train.yaml").class_names("label") == CLASSES


def test_one_crop_and_flip_is_for_an_image_its_mask_boxes_and_points(tmp_path):
    rows, columns = np.mgrid[0:32, 0:48]
    image = np.stack([rows * 7 % 256, columns * 5 % 256, rows * 0], -1).astype(np.uint8)
    mask = ((rows // 4 + columns // 4) % 7).astype(np.uint8)
    targets = {"boxes": [[4, 4, 20, 28], [40, 2, 46, 10]], "points": [[10, 10], [30, 20]]}
    sample = {"jpg.png": encode(image), "mask.png": encode(mask), "json": json.dumps(targets).encode()}
    write_shard(tmp_path / "a.tar", [(f"{n}", sample) for n in range(20)])
    (tmp_path / "crop.yaml").write_text("""
dataset:
  - name: scenes
    shards: a.tar
    rename: {photo: jpg.png, labels: mask.png}
    decode: {photo: rgb8, labels: l8}
    make:
      image:
        crop: photo
        size: 32
        hflip: 0.5
        masks: {mask: labels}
        boxes: {boxes: json.boxes}
        kept: kept
        points: {points: json.points}
fields: [image, mask, boxes, points, kept]
epoch: pass
""")
    flipped = Counter()
    with wdspec.loader(tmp_path / "crop.yaml", num_workers=0) as loader:
        for sample in loader:
            image_out, mask_out = np.asarray(sample["image"]), np.asarray(sample["mask"])
            assert image_out.shape == (32, 32, 3)
            assert mask_out.shape == (32, 32)
            # The red and the green channel say from where a pixel is: their directions say whether it was flipped.
            is_flipped = image_out[:, 1, 1].mean() > image_out[:, -2, 1].mean()
            flipped[is_flipped] += 1
            left, right = (sample["points"][k][0] for k in (0, 1))
            assert (left > right) == is_flipped
            for x0, y0, x1, y1 in np.asarray(sample["boxes"]).reshape(-1, 4):
                assert 0 <= x0 < x1 <= 32
                assert 0 <= y0 < y1 <= 32
    assert min(flipped[True], flipped[False]) >= 3


def test_a_caption_is_chosen_anew_in_each_epoch_and_tokenized(tmp_path):
    captions = {f"{n:02}": [f"a photo of {n}", f"picture number {n}", f"{n}!"] for n in range(12)}
    write_shard(
        tmp_path / "a.tar",
        [
            (
                key,
                {
                    "png": encode(np.zeros((4, 4, 3), np.uint8)),
                    "json": json.dumps({"captions": texts}).encode(),
                },
            )
            for key, texts in captions.items()
        ],
    )
    tokenizer = train_tokenizer(
        [t for texts in captions.values() for t in texts], tmp_path / "tokenizer.json"
    )
    (tmp_path / "clip.yaml").write_text("""
dataset:
  - name: pairs
    shards: a.tar
    decode: rgb8
    make:
      caption: {choose: json.captions}
      ids: {tokenize: caption, file: tokenizer.json}
fields: [png, caption, ids]
batch: {size: 4, collate: {ids: {pad: {length: 16, mask: attention_mask}}}}
epoch: {pass: drop, reshuffle: true}
""")
    seen = {key: set() for key in captions}
    with wdspec.loader(tmp_path / "clip.yaml", num_workers=0) as loader:
        for _ in range(6):
            for batch in loader:
                for key, caption, ids, mask in zip(
                    *(batch[name] for name in ("__key__", "caption", "ids", "attention_mask")), strict=True
                ):
                    key = key.split("/")[-1]
                    assert caption in captions[key]
                    assert ids[: int(mask.sum())].tolist() == tokenizer.encode(caption).ids
                    seen[key].add(caption)
    assert sum(map(len, seen.values())) / len(seen) > 2.2
