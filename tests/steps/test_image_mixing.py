"""`cutmix` and `mixup`: pixels, labels and shares are those of plain numpy, and what does not fit is an error."""

import numpy as np
import pytest
import torch

from wdspec.base.errors import FieldError
from wdspec.steps.image_mixing import _beta, make_cutmix, make_mixup
from wdspec.steps.take import make_take


def numbers_of(seed):
    drawn = np.random.default_rng(seed).random(1000)
    return lambda number: float(drawn[number])


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (2, 12, 16, 3), np.uint8)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_shares_have_the_beta_distribution_of_numpy(alpha):
    rng = np.random.default_rng(1)
    found = np.sort([_beta(alpha, iter(rng.random(300).tolist())) for _ in range(2000)])
    expected = np.sort(np.random.default_rng(2).beta(alpha, alpha, 2000))
    grid = np.linspace(0, 1, 101)
    distance = np.abs(np.searchsorted(found, grid) - np.searchsorted(expected, grid)).max() / 2000
    assert distance < 1.95 * (2 / 2000) ** 0.5  # Kolmogorov and Smirnov, 0.1%


def test_mixup_is_the_weighted_sum_of_both_images_and_of_their_labels(images):
    first, second = images
    found = make_mixup(alpha=0.4, classes=3)(first, numbers_of(0), second, 0, 2)
    expected = np.rint(found.share * first.astype(float) + (1 - found.share) * second.astype(float))
    assert 0 < found.share < 1
    assert np.abs(found.image.astype(int) - expected).max() <= 1  # float32 beside float64
    assert (found.image != expected).mean() < 0.01
    np.testing.assert_allclose(found.label, [found.share, 0, 1 - found.share], atol=1e-6)


@pytest.mark.parametrize("make", [make_cutmix, make_mixup])
def test_tensors_are_mixed_as_arrays_are(make, images):
    first, second = images
    array = make(classes=2)(first, numbers_of(5), second, 0, 1)
    tensors = [torch.from_numpy(each).permute(2, 0, 1) for each in images]
    tensor = make(classes=2)(tensors[0], numbers_of(5), tensors[1], 0, 1)
    assert tensor.image.dtype == torch.uint8
    assert np.array_equal(tensor.image.permute(1, 2, 0).numpy(), array.image)
    assert np.array_equal(tensor.label, array.label)


def test_cutmix_changes_neither_of_its_images(images):
    before = images.copy()
    make_cutmix()(images[0], numbers_of(3), images[1])
    assert np.array_equal(images, before)


@pytest.mark.parametrize("make", [make_cutmix, make_mixup])
def test_without_another_image_the_image_and_its_label_stay(make, images):
    image = images[0]
    found = make(classes=2)(image, numbers_of(0), None, 1, None)
    assert found.image is image
    assert found.label.tolist() == [0, 1]
    assert found.share == 1


def test_a_probability_mixes_that_part_of_the_images(images):
    cutmix, image = make_cutmix(probability=0.3), images[0]
    mixed = sum(cutmix(image, numbers_of(seed), images[1]).image is not image for seed in range(1000))
    assert abs(mixed - 300) < 5 * (1000 * 0.3 * 0.7) ** 0.5


def test_labels_may_be_shares(images):
    found = make_mixup()(images[0], numbers_of(0), images[1], [0.5, 0.5, 0], np.array([0.0, 0, 1]))
    np.testing.assert_allclose(found.label, [found.share / 2, found.share / 2, 1 - found.share], atol=1e-6)


@pytest.mark.parametrize(
    ("other", "label", "other_label", "message"),
    [
        (
            np.zeros((4, 4, 3), np.uint8),
            0,
            1,
            "mixes images of one shape and type, not 12×16×3 uint8 and 4×4×3 uint8",
        ),
        (np.zeros((12, 16, 3), np.float32), 0, 1, "not 12×16×3 uint8 and 12×16×3 float32"),
        (b"jpeg", 0, 1, "needs decoded images, not 4 bytes; write `decode: rgb8`"),
        ("same", 0, 7, "cannot mix the class 7: `classes` is 3"),
        ("same", 0, None, "needs the label of the companion, which is null"),
        ("same", "cat", 1, "takes labels that are numbers or lists of shares, not 'cat'"),
        ("same", [1.0, 0.0], 1, "mixes labels of 2 and 3 classes"),
    ],
)
def test_what_cannot_be_mixed_is_an_error(images, other, label, other_label, message):
    other = images[1] if isinstance(other, str) else other
    with pytest.raises(FieldError, match=message):
        make_cutmix(classes=3)(images[0], numbers_of(0), other, label, other_label)


def test_a_class_without_the_number_of_classes_is_an_error(images):
    with pytest.raises(FieldError, match="`classes`, their number, is missing"):
        make_mixup()(images[0], numbers_of(0), images[1], 0, 1)


def test_take_gives_the_value_or_the_default():
    assert make_take(default=3)(None) == 3
    assert make_take()("text") == "text"
