"""Jobs with companions, in one spec each and without Python: the first batches are those of plain Python.

Each test writes data as people have it, and a spec as its user would, and compares what arrives with the same files.
"""

import io
import json

import numpy as np
import pytest
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.steps.image_mixing import _beta, make_cutmix


def encode(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


CUTMIX = """
companions:
  drawings: {shards: drawings-*.tar, decode: rgb8}
dataset:
  - name: photos
    shards: photos-*.tar
    decode: rgb8
    companions:
      partner: {source: drawings, chance: 0.5}
    make:
      image: {cutmix: png, other: partner.png, target: cls, other_target: partner.cls, classes: 4, soft_target: labels}
fields: [image, labels]
batch: 8
"""


@pytest.fixture
def images(tmp_path):
    """Shards of 40 photos of the classes 0 and 1, and of 12 drawings of the classes 2 and 3; pixels tell the number."""
    for kind, count, shards, first in (("photos", 40, 4, 0), ("drawings", 12, 3, 100)):
        each = count // shards
        for shard in range(shards):
            numbers = range(each * shard, each * (shard + 1))
            write_shard(
                tmp_path / f"{kind}-{shard}.tar",
                [
                    (
                        f"{kind}{n:03}",
                        {
                            "png": encode(np.full((8, 10, 3), first + n, np.uint8)),
                            "cls": str(n % 2 + (2 if first else 0)).encode(),
                        },
                    )
                    for n in numbers
                ],
            )
    return tmp_path


def test_half_of_the_images_have_a_box_of_another_source_and_labels_in_its_proportion(images):
    (images / "cutmix.yaml").write_text(CUTMIX)
    mixed = total = 0
    with wdspec.loader(images / "cutmix.yaml", num_workers=0) as loader:
        for _, batch in zip(range(12), loader, strict=False):
            assert batch["image"].shape == (8, 8, 10, 3)
            assert batch["labels"].shape == (8, 4)
            partners = []
            for key, image, target in zip(batch["__key__"], batch["image"], batch["labels"], strict=True):
                own, values = int(key[-3:]), np.unique(image.numpy()).tolist()
                others = [value - 100 for value in values if value >= 100]
                assert {value for value in values if value < 100} <= {own}
                share = float((image.numpy() == own).mean())
                expected = np.zeros(4, np.float32)
                expected[own % 2] = share
                if others:
                    [partner] = others
                    partners.append(partner)
                    expected[2 + partner % 2] = 1 - share
                np.testing.assert_allclose(target.numpy(), expected, atol=1e-6)
                mixed, total = mixed + bool(others), total + 1
    assert 0.25 < mixed / total < 0.6  # half have a partner, and some boxes are empty


def test_the_box_is_the_one_of_torchvision():
    rng = np.random.default_rng(0)
    for _ in range(50):
        drawn = rng.random(200)
        numbers = lambda n, drawn=drawn: float(drawn[n])  # noqa: E731
        black, white = np.zeros((20, 30, 3), np.uint8), np.ones((20, 30, 3), np.uint8)
        found = make_cutmix(classes=2)(black, numbers, white, 0, 1)
        left = iter(drawn[1:])
        share = _beta(1.0, left)
        column, row = int(next(left) * 30), int(next(left) * 20)
        # As `CutMix.make_params` of torchvision computes the box.
        half = 0.5 * (1 - share) ** 0.5
        x1, x2 = max(column - int(half * 30), 0), min(column + int(half * 30), 30)
        y1, y2 = max(row - int(half * 20), 0), min(row + int(half * 20), 20)
        expected = np.zeros((20, 30, 3), np.uint8)
        expected[y1:y2, x1:x2] = 1
        assert np.array_equal(found.image, expected)
        area = 1 - (x2 - x1) * (y2 - y1) / 600
        assert found.label.tolist() == pytest.approx([area, 1 - area])


RETRIEVAL = """
companions:
  answers: {shards: answers.jsonl}
dataset:
  - name: questions
    shards: questions.jsonl
    companions:
      wrong: {source: answers, count: 3}
    make: {negatives: {take: wrong.text}}
fields: [question, answer, negatives]
batch: {size: 4, collate: {negatives: list}}
"""


def test_each_question_has_three_wrong_answers_of_a_pool_that_is_used_evenly(tmp_path):
    questions = [{"question": f"q{n}", "answer": f"a{n}"} for n in range(20)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in questions))
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps({"text": f"n{n}"}) + "\n" for n in range(24)))
    (tmp_path / "train.yaml").write_text(RETRIEVAL)
    with wdspec.loader(tmp_path / "train.yaml", num_workers=0) as loader:
        batches = [batch for _, batch in zip(range(4), loader, strict=False)]
    given = [text for batch in batches for texts in batch["negatives"] for text in texts]
    assert all(len(texts) == 3 for batch in batches for texts in batch["negatives"])
    assert all(
        answer == question.replace("q", "a")
        for b in batches
        for question, answer in zip(b["question"], b["answer"], strict=True)
    )
    assert sorted(given[:24]) == sorted(f"n{n}" for n in range(24))
    assert sorted(given[24:]) == sorted(f"n{n}" for n in range(24))
