"""Images resized as they are decoded, compared with torchvision's formulas, applied by Pillow step by step."""

import io
import math
import random

import numpy as np
import pytest
import torch
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import SpecError, UsageError
from wdspec.fields.codecs.framing import random_crop
from wdspec.fields.codecs.image_decoder import ImageDecoder
from wdspec.planning.keys import uniform

SIZES = [(40, 30), (30, 40), (33, 33), (17, 61)]


def picture(size, kind="png"):
    width, height = size
    down, across = np.mgrid[:height, :width]
    waves = np.stack([down * 5 + across, across * 7, down * across], axis=2) % 256
    file = io.BytesIO()
    Image.fromarray(waves.astype(np.uint8)).save(file, kind, **({"quality": 95} if kind == "jpeg" else {}))
    return file.getvalue()


def numbers(key=7):
    return lambda i: uniform(key, i)


def resized(image, side):
    """torchvision.transforms.v2.Resize, for one side."""
    short, long = sorted(image.size)
    longer = int(side * long / short)
    size = (side, longer) if image.width <= image.height else (longer, side)
    return image.resize(size, Image.Resampling.BILINEAR)


def cropped(image, side):
    """torchvision.transforms.v2.CenterCrop."""
    left, top = round((image.width - side) / 2), round((image.height - side) / 2)
    return image.crop((left, top, left + side, top + side))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_resize_and_center_crop_match_torchvision(size, kind):
    data = picture(size, kind)
    with Image.open(io.BytesIO(data)) as image:
        expected = resized(image.convert("RGB"), 20)
    found = ImageDecoder("rgb8+resize=20+resizer=pillow")(data)
    assert np.array_equal(found, np.asarray(expected))
    both = ImageDecoder("rgb8+resize=20+center_crop=16+resizer=pillow")(data).astype(int)
    assert both.shape == (16, 16, 3)
    assert abs(both - np.asarray(cropped(expected, 16)).astype(int)).max() <= 1


def test_height_comes_before_width():
    assert ImageDecoder("rgb8+resize=10x20")(picture((40, 30))).shape == (10, 20, 3)
    assert ImageDecoder("torchrgb+center_crop=10x20")(picture((40, 30))).shape == (3, 10, 20)


def test_a_crop_beyond_the_image_is_padded_with_black():
    whole = ImageDecoder("rgb8")(picture((9, 7)))
    found = ImageDecoder("rgb8+center_crop=11")(picture((9, 7)))
    assert np.array_equal(found[2:9, 1:10], whole)
    assert found.sum() == whole.sum()


def reference_crop(size, scale, ratio, draw):
    """torchvision.transforms.v2.RandomResizedCrop.make_params, with our numbers."""
    wide, high = size
    for attempt in range(10):
        first = 8 + 4 * attempt
        area = high * wide * (scale[0] + draw(first) * (scale[1] - scale[0]))
        aspect = math.exp(math.log(ratio[0]) + draw(first + 1) * (math.log(ratio[1]) - math.log(ratio[0])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= wide and 0 < h <= high:
            top, left = (
                math.floor(draw(first + 2) * (high - h + 1)),
                math.floor(draw(first + 3) * (wide - w + 1)),
            )
            return left, top, left + w, top + h
    w, h = wide, high
    if wide / high < min(ratio):
        h = round(w / min(ratio))
    elif wide / high > max(ratio):
        w = round(h * max(ratio))
    top, left = (high - h) // 2, (wide - w) // 2
    return left, top, left + w, top + h


@pytest.mark.parametrize("size", [*SIZES, (2, 300), (1, 1)])
def test_random_resized_crop_matches_torchvision(size):
    for key in range(30):
        box = random_crop(size, (0.08, 1.0), (3 / 4, 4 / 3), numbers(key))
        assert box == reference_crop(size, (0.08, 1.0), (3 / 4, 4 / 3), numbers(key))
        assert 0 <= box[0] < box[2] <= size[0]
        assert 0 <= box[1] < box[3] <= size[1]
    data = picture(size)
    with Image.open(io.BytesIO(data)) as image:
        expected = image.crop(random_crop(size, (0.5, 1), (1, 2), numbers())).resize(
            (24, 24), Image.Resampling.BICUBIC
        )
    decode = ImageDecoder(
        "rgb8+random_resized_crop=24+scale=0.5..1+ratio=1..2+interpolation=bicubic+resizer=pillow"
    )
    assert np.array_equal(decode(data, None, numbers()), np.asarray(expected))


def test_crops_are_distributed_over_area_and_shape():
    boxes = [random_crop((400, 300), (0.08, 1.0), (3 / 4, 4 / 3), numbers(key)) for key in range(2000)]
    areas = np.array([(right - left) * (low - top) / 120_000 for left, top, right, low in boxes])
    shapes = np.log([(right - left) / (low - top) for left, top, right, low in boxes])
    assert 0.07 < areas.min() < 0.1
    assert areas.max() > 0.95
    free = random.Random(1)
    others = [
        reference_crop((400, 300), (0.08, 1.0), (3 / 4, 4 / 3), lambda i: free.random()) for _ in range(2000)
    ]
    expected = np.mean([(right - left) * (low - top) / 120_000 for left, top, right, low in others])
    assert abs(areas.mean() - expected) < 0.025  # four standard deviations
    assert abs(shapes.mean()) < 0.05


def test_labels_use_nearest_neighbour_and_keep_their_depth():
    labels = np.zeros((30, 40), np.uint8)
    labels[:, 20:] = 200
    file = io.BytesIO()
    Image.fromarray(labels).save(file, "png")
    decode = wdspec.fields.codecs.image_decoder.image_decoder("l8+resize=7", "seg.png", "seg.png")
    assert set(np.unique(decode(file.getvalue()))) == {0, 200}
    deep = io.BytesIO()
    Image.fromarray((labels.astype(np.uint16) + 1) * 257).save(deep, "png")
    found = ImageDecoder("l16+center_crop=10")(deep.getvalue())
    assert found.dtype == np.uint16
    assert set(np.unique(found)) == {257, 201 * 257}


def test_without_antialiasing_pixels_are_skipped():
    lines = np.tile(np.array([0, 255], np.uint8), (32, 16))
    file = io.BytesIO()
    Image.fromarray(lines).save(file, "png")
    smooth = ImageDecoder("l8+resize=8")(file.getvalue())
    rough = ImageDecoder("l8+resize=8+interpolation=nearest")(file.getvalue())
    point = ImageDecoder("l8+resize=8+antialias=false+interpolation=nearest")(file.getvalue())
    assert abs(smooth.astype(int) - 127).max() < 16
    assert set(np.unique(rough)) <= {0, 255}
    assert np.array_equal(rough, point)


@pytest.mark.parametrize(
    ("decoder", "said"),
    [
        ("rgb8+resize", "needs a value: `resize=256`"),
        ("rgb8+resize=0", "a side such as `224`"),
        ("rgb8+resize=big", "a side such as `224`"),
        ("rgb8+upright=1", "takes no value"),
        ("rgb8+rezise=224", "did you mean `resize`"),
        (
            "rgb8+random_resized_crop=224+resize=256",
            "`random_resized_crop` and `resize` both set the size of images",
        ),
        ("rgb8+scale=0.5..1", "use the key `scale:`"),
        ("rgb8+random_resized_crop=224+scale=0.5..2", "parts of the image"),
        ("rgb8+random_resized_crop=224+ratio=2..1", "a range above 0"),
        ("rgb8+resize=224+interpolation=cubic", "one of nearest, bilinear"),
        (
            "rgb8+center_crop=224+interpolation=bicubic",
            "`interpolation` needs `resize` or `random_resized_crop`",
        ),
        ("rgb8+resize=224+antialias=false+interpolation=box", "nearest, bilinear and bicubic"),
        ("rgb8+resize=224+resizer=cv2", "one of torch, pillow"),
        ("rgb8+hflip=2", "a probability such as `0.5`"),
        ("rgb8+hflip", "needs a value: `hflip=0.5`"),
        ("rgb8+normalize=imagenet", "needs floats with as many channels"),
        ("rgba+normalize=imagenet", "needs floats with as many channels"),
        ("l+normalize=imagenet", "needs floats with as many channels"),
        ("rgb+normalize=half", "`imagenet`, `clip`, or means and deviations"),
        ("rgb+normalize=0.5..0", "or means and deviations"),
        ("rgb+normalize=0.5/0.5/0.5..0.5", "or means and deviations"),
        ("json+resize=224", 'no option "resize"'),
        ("rgb8+center_crop=32+resize=48", "write `resize` first"),
        ("rgb8+center_crop=32+upright+interpolation=bicubic+resize=48", "write `resize` first"),
        ("rgb8+resize=48+resize=64", "`resize` is given twice"),
    ],
)
def test_mistakes_in_options_are_reported_at_once(decoder, said):
    with pytest.raises(SpecError, match="E209") as caught:
        wdspec.load({"dataset": [{"shards": "a.tar", "decode": decoder}]})
    assert said in str(caught.value)


def test_a_decoder_with_random_numbers_names_where_it_works():
    with pytest.raises(UsageError, match="needs random numbers, which only samples of a spec have"):
        ImageDecoder("rgb8+random_resized_crop=24")(picture((9, 9)))


@pytest.fixture
def spec(tmp_path):
    shard = [(f"{i}", {"jpg": picture((40, 30), "jpeg"), "seg.png": picture((40, 30))}) for i in range(12)]
    write_shard(tmp_path / "a.tar", shard)
    decode = "rgb8+random_resized_crop=16"
    return {
        "dataset": [{"shards": str(tmp_path / "a.tar"), "decode": {"jpg": decode, "seg.png": decode}}],
        "batch": 4,
        "epoch": {"batches": 3},
        "elastic": {"ranks": 1, "workers": 1},
    }


def test_runs_reproduce_batches_and_passes_differ(spec):
    with wdspec.loader(spec, num_workers=0) as loader:
        first, second = list(loader), list(loader)
        state = None
    with wdspec.loader(spec, num_workers=0) as loader:
        stream = iter(loader)
        again = [next(stream)]
        state = loader.state_dict()
    with wdspec.loader(spec, num_workers=1) as loader:
        loader.load_state_dict(state)
        again += list(loader)
    assert first[0]["jpg"].shape == (4, 16, 16, 3)
    for one, other in zip(first, again, strict=True):
        assert one["__key__"] == other["__key__"]
        assert one["jpg"].equal(other["jpg"])
    by_key = [
        {key: image for b in epoch for key, image in zip(b["__key__"], b["jpg"], strict=True)}
        for epoch in (first, second)
    ]
    assert sum(not by_key[0][key].equal(by_key[1][key]) for key in by_key[0]) >= 11


def test_all_images_of_a_sample_get_the_same_crop(spec, tmp_path):
    data = picture((40, 30))
    write_shard(tmp_path / "a.tar", [(f"{i}", {"a.png": data, "b.png": data}) for i in range(4)])
    spec["dataset"][0].update(decode="rgb8+random_resized_crop=16")
    with wdspec.loader(spec, num_workers=0) as loader:
        batch = next(iter(loader))
    assert batch["a.png"].equal(batch["b.png"])
    assert len({image.numpy().tobytes() for image in batch["a.png"]}) == 4


@pytest.mark.parametrize("decoder", ["rgb8", "torchrgb8", "l8", "torchl", "rgb", "torch", "rgba16", "pil"])
def test_each_sample_is_flipped_independently(decoder):
    data, flipped = picture((40, 30)), 0
    for key in range(40):
        plain, found = (
            ImageDecoder(f"{decoder}+random_resized_crop=16{more}")(data, None, numbers(key))
            for more in ("", "+hflip=0.5")
        )
        axis = 2 if decoder.startswith("torchrgb") or decoder == "torch" else 1
        is_flipped = numbers(key)(3) < 0.5
        assert np.array_equal(
            np.flip(np.asarray(plain), axis) if is_flipped else np.asarray(plain), np.asarray(found)
        )
        flipped += is_flipped
    assert 10 < flipped < 30
    with pytest.raises(UsageError, match="`hflip` needs random numbers"):
        ImageDecoder(f"{decoder}+hflip=1")(data)


@pytest.mark.parametrize(
    ("option", "means", "deviations"),
    [
        ("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("0.5..0.25", (0.5,), (0.25,)),
        ("0.1/0.2/0.3..1/2/3", (0.1, 0.2, 0.3), (1, 2, 3)),
    ],
)
def test_normalization_matches_torchvision(option, means, deviations):
    data = picture((40, 30))
    pixels = torch.from_numpy(ImageDecoder("rgb8+resize=20x24")(data)).permute(2, 0, 1)
    expected = pixels.float().div(255)
    expected.sub_(torch.tensor(means)[:, None, None]).div_(torch.tensor(deviations)[:, None, None])
    assert torch.equal(ImageDecoder(f"torchrgb+resize=20x24+normalize={option}")(data), expected)
    last = ImageDecoder(f"rgb+resize=20x24+normalize={option}")(data)
    assert np.array_equal(last, expected.permute(1, 2, 0))
    assert last.flags.c_contiguous
    if len(means) == 1:
        grey = ImageDecoder("l8+resize=20x24")(data).astype(np.float32) / np.float32(255)
        for name in ("l", "torchl"):
            found = np.asarray(ImageDecoder(f"{name}+resize=20x24+normalize={option}")(data))
            assert np.array_equal(found, (grey - np.float32(means[0])) / np.float32(deviations[0]))


def test_batches_of_normalized_flipped_images_equal_single_images(spec):
    spec["dataset"][0]["decode"] = {"jpg": "torchrgb+random_resized_crop=16+hflip=0.5+normalize=clip"}
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = [batch["jpg"].clone() for batch in loader]
    del spec["batch"]
    spec["epoch"] = 12
    with wdspec.loader(spec, num_workers=0) as loader:
        singles = [sample["jpg"] for sample in loader]
    assert torch.equal(torch.cat(batches), torch.stack(singles))
