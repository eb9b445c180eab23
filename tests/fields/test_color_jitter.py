"""Colours changed by factors that are drawn for each sample, compared with Pillow, colorsys and torchvision."""

import colorsys
import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import SpecError, UsageError
from wdspec.fields.codecs.color_jitter import ColorJitter
from wdspec.fields.codecs.image_decoder import ImageDecoder
from wdspec.planning.keys import uniform

ALL = "brightness=0.4+contrast=0.4+saturation=0.4+hue=0.1"
ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}


def numbers(key=7):
    return lambda i: uniform(key, i)


def pixels(mode="RGB", size=(40, 30), seed=0):
    """Noise, with grey, black and white parts."""
    width, height = size
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 4), dtype=np.uint8)
    values[:3] = values[:3, :, :1]
    values[3], values[4] = 0, 255
    return np.asarray(Image.fromarray(values).convert(mode))


def png(values):
    file = io.BytesIO()
    Image.fromarray(values).save(file, "png")
    return file.getvalue()


@pytest.mark.parametrize("option", ENHANCERS)
@pytest.mark.parametrize("factor", [0, 0.3, 1, 1.7])
def test_factors_match_pillow(option, factor):
    values = pixels()
    expected = np.asarray(ENHANCERS[option](Image.fromarray(values)).enhance(factor)).astype(int)
    found = ColorJitter({option: (factor, factor)})(values, 255, numbers())
    # Pillow cuts off fractions, of grey, too.
    assert abs(found - expected).max() <= (2 if option == "saturation" else 1)
    assert found.dtype == np.uint8


@pytest.mark.parametrize("turn", [-0.5, -0.21, 0, 0.1, 0.37])
def test_hues_rotate_as_in_hsv(turn):
    values = pixels()
    found = ColorJitter({"hue": (turn, turn)})(values, 255, numbers())
    for pixel, result in zip(values.reshape(-1, 3) / 255, found.reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        expected = np.array(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)) * 255
        assert abs(result - expected).max() < 0.51


def test_steps_match_torchvision_in_a_random_order():
    functional = pytest.importorskip(
        "torchvision.transforms.v2.functional", exc_type=(ImportError, RuntimeError)
    )
    jitter = ColorJitter.of(f"rgb8+{ALL}")
    for key in range(20):
        image = torch.from_numpy(pixels(seed=key)).permute(2, 0, 1).float() / 255
        for option, factor in jitter.draw(numbers(key)):
            image = getattr(functional, f"adjust_{option}")(image, factor)
        found = jitter(pixels(seed=key), 255, numbers(key))
        assert abs(found - image.permute(1, 2, 0).numpy() * 255).max() < 0.51


def test_orders_and_factors_are_uniform():
    jitter = ColorJitter.of(f"rgb8+{ALL}")
    draws = [jitter.draw(numbers(key)) for key in range(2400)]
    orders = [tuple(option for option, _ in steps) for steps in draws]
    assert min(orders.count(order) for order in set(orders)) > 60  # of 100 on average
    assert len(set(orders)) == 24
    for option, (low, high) in {"contrast": (0.6, 1.4), "hue": (-0.1, 0.1)}.items():
        factors = [dict(steps)[option] for steps in draws]
        assert low <= min(factors) < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < max(factors) < high
    assert ColorJitter.of("rgb8+brightness=2").ranges == {"brightness": (0, 3)}
    assert ColorJitter.of("rgb8+contrast=1/2..3/2").ranges == {"contrast": (0.5, 1.5)}


@pytest.mark.parametrize("decoder", ["rgb8", "torchrgb8", "rgb", "torch", "rgb16", "pil", "rgba8"])
def test_each_kind_of_value_has_the_same_colours(decoder):
    values = pixels("RGBA" if "rgba" in decoder else "RGB")
    found = np.asarray(ImageDecoder(f"{decoder}+{ALL}")(png(values), None, numbers()))
    expected = ColorJitter.of(f"{decoder}+{ALL}")(values, 255, numbers())
    if decoder in ("torchrgb8", "torch"):
        expected = expected.transpose(2, 0, 1)
    white = {"uint8": 1, "uint16": 257, "float32": 1 / np.float32(255)}[str(found.dtype)]
    assert np.allclose(found, expected.astype(float) * white, rtol=1e-6)
    assert not np.allclose(found, np.asarray(ImageDecoder(decoder)(png(values))))
    assert np.array_equal(values[..., 3:], expected[..., 3:]) or decoder != "rgba8"


def test_images_of_16_bits_keep_their_depth():
    values = (np.arange(30 * 40).reshape(30, 40) * 50).astype(np.uint16)
    data = png(values)
    found = ImageDecoder("l16+brightness=0.5..0.5")(data, None, numbers())
    assert abs(found - values / 2).max() <= 0.51
    assert len(np.unique(found)) > 256


def test_labels_keep_their_values(tmp_path):
    values = pixels()
    write_shard(tmp_path / "a.tar", [("1", {"png": png(values), "seg.png": png(values)})])
    source = {"shards": f"{tmp_path}/a.tar", "decode": "rgb8+brightness=0.5..0.6"}
    with wdspec.loader({"dataset": [source], "epoch": 1}, num_workers=0) as loader:
        sample = next(iter(loader))
    assert np.array_equal(sample["seg.png"], values)
    assert sample["png"].mean() < values.mean() * 0.7


def test_colours_are_reproducible_in_batches_and_workers(tmp_path):
    write_shard(tmp_path / "a.tar", [(f"{i}", {"png": png(pixels())}) for i in range(12)])
    spec = {
        "dataset": [{"shards": f"{tmp_path}/a.tar", "decode": f"torchrgb8+resize=16x16+{ALL}"}],
        "batch": 4,
        "epoch": 12,
        "elastic": {"ranks": 1, "workers": 2},
    }
    found = []
    for workers in (0, 2):
        with wdspec.loader(spec, num_workers=workers) as loader:
            found.append(torch.cat([batch["png"].clone() for batch in loader]))
    assert torch.equal(*found)
    assert len({image.numpy().tobytes() for image in found[0]}) == 12


def test_colours_need_random_numbers():
    with pytest.raises(UsageError, match="`brightness` needs random numbers"):
        ImageDecoder(f"rgb8+{ALL}")(png(pixels()))


@pytest.mark.parametrize(
    ("decoder", "said"),
    [
        ("rgb8+brightness", "needs a value: `brightness=0.4`"),
        ("rgb8+brightness=0", "how far a factor may be from 1"),
        ("rgb8+contrast=-0.5", "its range, such as `0.6..1.4`"),
        ("rgb8+saturation=1.4..0.6", "a range above 0"),
        ("rgb8+hue=0.6", "a part of a turn up to 0.5"),
        ("rgb8+hue=0.1..0.2", "a part of a turn up to 0.5"),
        ("torchl+hue=0.1", "`hue` changes colours, which `torchl` does not have"),
        ("l8+saturation=0.4", "`saturation` changes colours, which `l8` does not have"),
    ],
)
def test_mistakes_are_reported_on_load(decoder, said):
    with pytest.raises(SpecError, match="E209") as caught:
        wdspec.load({"dataset": [{"shards": "a.tar", "decode": decoder}]})
    assert said in str(caught.value)
