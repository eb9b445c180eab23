"""`roi_decoding`: only the crop of a JPEG is decoded, with the pixels that decoding all of it gives."""

import io
import sys

import numpy as np
import pytest
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import SpecError, UsageError
from wdspec.fields.codecs import image_decoder
from wdspec.fields.codecs.image_decoder import ImageDecoder
from wdspec.planning.keys import uniform


def photo(size, seed=0, mode="RGB", **options):
    """A JPEG of soft noise."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    values = np.asarray(small.resize(size, Image.Resampling.BICUBIC)).astype(int)
    values = (values + random.integers(-9, 9, values.shape)).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(values).convert(mode).save(file, "jpeg", **options)
    return file.getvalue()


def numbers(key):
    return lambda i: uniform(key, i)


@pytest.fixture
def parts(monkeypatch):
    """The parts that were decoded alone."""
    found, read = [], image_decoder.read_region
    monkeypatch.setattr(image_decoder, "read_region", lambda *given: found.append(given[2]) or read(*given))
    return found


def compare(count, parts):
    random = np.random.default_rng(count)
    for case in range(count):
        size = tuple(map(int, random.integers(17, 500, 2)))
        mode = "L" if case % 7 == 0 else "RGB"
        options = {
            "quality": int(random.integers(30, 96)),
            "progressive": case % 3 == 0,
            "restart_marker_rows": 2 * (case % 5 == 0),
            **({"subsampling": case % 3} if mode == "RGB" else {}),
        }
        data = photo(size, case, mode, **options)
        decoder = ("rgb8", "torchrgb", "rgba8")[case % 3 if case % 9 else 0] if mode == "RGB" else "l8"
        crop = f"random_resized_crop={int(random.integers(4, 99))}+scale=0.01..0.6+ratio=1/3..3"
        if case % 4 == 0:
            crop = f"center_crop={max(1, min(size) // 2)}"
        whole = ImageDecoder(f"{decoder}+{crop}")(data, None, numbers(case))
        part = ImageDecoder(f"{decoder}+roi_decoding+{crop}")(data, None, numbers(case))
        assert np.array_equal(np.asarray(whole), np.asarray(part)), (size, options, decoder, crop)
    return len(parts)


def test_pixels_equal_those_of_whole_images(parts):
    assert compare(120, parts) > 40


@pytest.mark.long
def test_pixels_of_10_000_crops_equal_those_of_whole_images(parts):
    assert compare(10_000, parts) > 4_000


def test_only_crops_below_half_of_the_image_are_decoded_separately(parts):
    data = photo((90, 80))
    for side, is_part in ((60, True), (61, False), (90, False)):
        assert ImageDecoder(f"rgb8+roi_decoding+center_crop={side}")(data).shape == (side, side, 3)
        assert parts == [(15, 10, 75, 70)] * is_part
        parts.clear()


def test_damaged_files_are_decoded_as_a_whole(parts):
    data = photo((200, 160), quality=95)
    for option in ("", "+roi_decoding"):
        with pytest.raises(OSError, match="truncated"):
            ImageDecoder(f"rgb8{option}+center_crop=60")(data[: len(data) // 3])
        with pytest.raises(Exception, match="Truncated File Read"):
            ImageDecoder(f"rgb8{option}+center_crop=60")(data[:100])
    assert len(parts) == 1  # not of the second file, whose size is not known


def test_other_formats_are_decoded_as_a_whole(parts):
    file = io.BytesIO()
    Image.open(io.BytesIO(photo((90, 80)))).save(file, "png")
    assert ImageDecoder("rgb8+roi_decoding+center_crop=20")(file.getvalue()).shape == (20, 20, 3)
    assert not parts


def test_workers_and_threads_read_the_same(tmp_path):
    write_shard(tmp_path / "a.tar", [(f"{i}", {"jpg": photo((90, 80), i)}) for i in range(12)])
    decode = "rgb8+roi_decoding+random_resized_crop=16+scale=0.05..0.2"
    spec = {
        "dataset": [{"shards": f"{tmp_path}/a.tar", "decode": decode}],
        "batch": 4,
        "epoch": 12,
        "elastic": {"ranks": 1, "workers": 2},
    }
    found = []
    for kind, workers in (("processes", 0), ("processes", 2), ("threads", 2)):
        with wdspec.loader({**spec, "loader": {"kind": kind}}, num_workers=workers) as loader:
            found.append([batch["jpg"].numpy().tobytes() for batch in loader])
    assert found[0] == found[1] == found[2]


def test_a_missing_library_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", None)
    monkeypatch.setattr("wdspec.fields.codecs.nvimgcodec._own.value", type("Own", (), {})())
    with pytest.raises(UsageError, match=r"`roi_decoding` needs nvidia.*\[roi\]"):
        ImageDecoder("rgb8+roi_decoding+center_crop=20")(photo((90, 80)))


@pytest.mark.parametrize(
    ("decoder", "said"),
    [
        ("rgb8+roi_decoding", "needs `random_resized_crop`, or `center_crop` without `resize`"),
        ("rgb8+roi_decoding+resize=64+center_crop=32", "`center_crop` without `resize`"),
        ("rgb8+roi_decoding+pillow+center_crop=32", "remove it, or `roi_decoding`"),
        ("rgb8+roi_decoding=true+center_crop=32", "takes no value"),
    ],
)
def test_mistakes_are_reported_on_load(decoder, said):
    with pytest.raises(SpecError, match="E209") as caught:
        wdspec.load({"dataset": [{"shards": "a.tar", "decode": decoder}]})
    assert said in str(caught.value)
