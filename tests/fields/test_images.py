"""The image table, compared with webdataset where it is right, and with plain arithmetic where it is not."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from webdataset.autodecode import ImageHandler

import wdspec
from wdspec.base.errors import FieldError
from wdspec.fields.codecs import image_decoder
from wdspec.fields.codecs.image_decoder import ImageDecoder
from wdspec.fields.samples import SampleFields
from wdspec.spec.language.decoders import IMAGES

IMAGE_SPECS = {name: row.image for row in IMAGES for name in row.names}

RNG = np.random.default_rng(17)
COLOURS = RNG.integers(0, 256, (5, 7, 4), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (5, 7), dtype=np.uint16)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture(mode: str, kind: str = "PNG") -> bytes:
    """A small random picture of a mode."""
    return encoded(
        Image.fromarray(COLOURS, "RGBA").convert("RGB" if mode == "CMYK" else mode).convert(mode), kind
    )


PICTURES = {
    "png-rgb": picture("RGB"),
    "png-rgba": picture("RGBA"),
    "png-l": picture("L"),
    "png-la": picture("LA"),
    "png-p": picture("P"),
    "png-1": picture("1"),
    "jpeg-rgb": picture("RGB", "JPEG"),
    "jpeg-l": picture("L", "JPEG"),
    "jpeg-cmyk": picture("CMYK", "JPEG"),
    "gif": picture("P", "GIF"),
    "bmp": picture("RGB", "BMP"),
    "ppm": picture("RGB", "PPM"),
    "pgm": picture("L", "PPM"),
    "tiff-cmyk": picture("CMYK", "TIFF"),
    "webp": picture("RGBA", "WEBP"),
}

SHAPES = {"l": (5, 7), "rgb": (5, 7, 3), "rgba": (5, 7, 4)}


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("spec", [spec for spec in IMAGE_SPECS if IMAGE_SPECS[spec].dtype != "uint16"])
def test_every_image_spec_returns_the_same_as_webdataset(spec: str, name: str) -> None:
    found = ImageDecoder(spec)(PICTURES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # webdataset hands torch arrays that it may not write to
        expected = ImageHandler(spec)(".png", PICTURES[name])
    assert type(found) is type(expected)
    if isinstance(found, Image.Image):
        assert (found.mode, found.size) == (expected.mode, expected.size)
    else:
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("mode", SHAPES)
def test_shapes_types_and_ranges(mode: str) -> None:
    data = PICTURES["png-rgba"]
    exact, real = ImageDecoder(f"{mode}8")(data), ImageDecoder(mode)(data)
    assert (exact.dtype, exact.shape) == (np.uint8, SHAPES[mode])
    assert (real.dtype, real.shape) == (np.float32, SHAPES[mode])
    assert np.array_equal(real, exact / np.float32(255))
    deep = ImageDecoder(f"{mode}16")(data)
    assert (deep.dtype, deep.shape) == (np.uint16, SHAPES[mode])
    assert np.array_equal(deep, exact.astype(int) * 257)
    exact_tensor, real_tensor = ImageDecoder(f"torch{mode}8")(data), ImageDecoder(f"torch{mode}")(data)
    for array, tensor in ((exact, exact_tensor), (real, real_tensor)):
        assert tensor.is_contiguous()
        assert tensor.dtype == torch.from_numpy(array).dtype
        assert np.array_equal(tensor.numpy(), array if mode == "l" else array.transpose(2, 0, 1))
    pil = ImageDecoder(f"pil{mode}")(data)
    assert (type(pil), pil.mode, pil.size) == (Image.Image, mode.upper(), (7, 5))


@pytest.mark.parametrize("spec", [spec for spec in IMAGE_SPECS if IMAGE_SPECS[spec].container == "numpy"])
@pytest.mark.parametrize("factor", [None, 2.0])
def test_arrays_are_writable(spec: str, factor: float | None) -> None:
    for data in (PICTURES["png-rgb"], encoded(Image.fromarray(DEEP))):
        array = ImageDecoder(spec)(data, factor)
        assert array.flags.writeable
        assert array.flags.c_contiguous


def pgm(values: np.ndarray[Any, Any], top: int) -> bytes:
    height, width = values.shape
    return f"P5 {width} {height} {top}\n".encode() + values.astype(">u2").tobytes()


@pytest.mark.parametrize(
    "data",
    [encoded(Image.fromarray(DEEP), "PNG"), encoded(Image.fromarray(DEEP), "TIFF"), pgm(DEEP, 65535)],
    ids=["png", "tiff", "pgm"],
)
def test_sixteen_bits_are_scaled_to_eight_and_kept_by_float_specs(data: bytes) -> None:
    grey = np.rint(DEEP / 257)
    assert np.array_equal(ImageDecoder("l8")(data), grey)
    assert np.array_equal(ImageDecoder("rgb8")(data)[:, :, 2], grey)
    assert np.array_equal(np.asarray(ImageDecoder("pilrgba")(data))[0, 0], [grey[0, 0]] * 3 + [255])
    real = DEEP.astype(np.float32) / np.float32(65535)
    assert np.array_equal(ImageDecoder("l")(data), real)
    assert np.array_equal(ImageDecoder("rgb")(data)[:, :, 1], real)
    assert np.array_equal(ImageDecoder("torchrgba")(data)[3].numpy(), np.ones((5, 7), np.float32))


def test_a_ten_bit_pgm_spans_its_own_range() -> None:
    assert ImageDecoder("l")(pgm(np.full((2, 2), 1023), 1023)).max() == 1


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pixel_types_without_a_defined_range_are_rejected(kind: type) -> None:
    with pytest.raises(ValueError, match=r"range of its 32-bit .* is not defined"):
        ImageDecoder("rgb8")(encoded(Image.fromarray(DEEP.astype(kind)), "TIFF"))


def test_transparent_palettes_convert_without_a_warning() -> None:
    data = encoded(Image.fromarray(COLOURS, "RGBA").convert("P"), transparency=bytes(range(256)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ImageDecoder("rgb8")(data).shape == (5, 7, 3)
        assert len(np.unique(ImageDecoder("rgba8")(data)[:, :, 3])) > 1


WHOLE = {
    kind: encoded(Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)), kind)
    for kind in ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP")
}


@pytest.mark.filterwarnings("ignore:Truncated File Read")
@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("permissive", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9])
def test_a_truncated_image_is_an_error_even_if_pillow_accepts_it(
    kind: str, permissive: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", permissive)
    data = WHOLE[kind]
    assert ImageDecoder("rgb8")(data).shape == (64, 64, 3)
    with pytest.raises(Exception, match=r"\w"):
        ImageDecoder("rgb8")(data[: int(len(data) * share)])
    assert permissive is ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize("permissive", [False, True])
def test_a_png_with_a_flipped_bit_is_an_error(permissive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", permissive)
    data = bytearray(WHOLE["PNG"])
    data[len(data) // 2] ^= 1
    with pytest.raises(Exception, match=r"\w"):
        ImageDecoder("rgb8")(bytes(data))


def test_data_that_is_not_an_image_is_described() -> None:
    with pytest.raises(ValueError, match=r"12 bytes that start with b'%!PS-Ado'"):
        ImageDecoder("rgb8")(b"%!PS-Adobe-3")
    with pytest.raises(ValueError, match="an empty file"):
        ImageDecoder("rgb8")(b"")


@pytest.mark.parametrize("pillow_limit", [None, 10**9])
def test_a_too_large_image_is_rejected_before_its_pixels_are_read(
    pillow_limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pillow_limit)
    monkeypatch.setattr(image_decoder, "MAX_PIXELS", 100)
    assert ImageDecoder("l8")(encoded(Image.new("L", (10, 10)))).shape == (10, 10)
    for kind in ("PNG", "JPEG"):
        with pytest.raises(ValueError, match="11×10 is more than 100 pixels"):
            ImageDecoder("l8")(encoded(Image.new("L", (11, 10)), kind))


def test_an_absurd_factor_is_rejected_before_memory_is_allocated() -> None:
    with pytest.raises(ValueError, match="rescaling 7×5 by 1e\\+06"):
        ImageDecoder("l8")(PICTURES["png-l"], 1e6)


@pytest.mark.parametrize("spec", IMAGE_SPECS)
def test_rescaling_gives_the_rounded_size(spec: str) -> None:
    for data in (PICTURES["png-rgb"], encoded(Image.fromarray(DEEP))):
        result = ImageDecoder(spec)(data, 0.5)
        container = IMAGE_SPECS[spec].container
        if container == "pil":
            assert result.size == (4, 2)
        else:
            assert tuple(result.shape[:2] if container == "numpy" else result.shape[-2:]) == (2, 4)


@pytest.mark.parametrize("name", PICTURES)
def test_a_factor_that_keeps_the_size_changes_nothing(name: str) -> None:
    assert np.array_equal(ImageDecoder("rgb8")(PICTURES[name], 1.05), ImageDecoder("rgb8")(PICTURES[name]))


def test_smooth_rescaling_keeps_means_and_stays_in_range() -> None:
    board = (np.indices((32, 32)).sum(0) % 2).astype(np.uint8) * 255
    smooth = ImageDecoder("l8")(encoded(Image.fromarray(board)), 0.25)
    assert abs(float(smooth.mean()) - 127.5) < 3
    assert smooth[2:-2, 2:-2].std() < 3  # not aliased to black or white
    deep = ImageDecoder("l")(encoded(Image.fromarray(board.astype(np.uint16) * 257)), 3.0)
    assert deep.min() >= 0
    assert deep.max() <= 1


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_nearest_neighbour_invents_no_values(factor: float) -> None:
    labels = RNG.integers(0, 3, (20, 20), dtype=np.uint8) * 100
    found = ImageDecoder("l8", nearest=True)(encoded(Image.fromarray(labels)), factor)
    assert set(np.unique(found)) <= {0, 100, 200}
    deep = ImageDecoder("l8", nearest=True)(encoded(Image.fromarray(labels.astype(np.uint16) * 257)), factor)
    assert np.array_equal(found, deep)


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_palette_images_never_mix_their_colours(factor: float) -> None:
    image = Image.fromarray(RNG.integers(0, 3, (20, 20), dtype=np.uint8), "P")
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    found = ImageDecoder("rgb8")(encoded(image), factor)
    assert {tuple(colour) for colour in found.reshape(-1, 3).tolist()} <= {
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
    }


def test_image_decoders_work_in_spawned_workers() -> None:
    decoder = pickle.loads(pickle.dumps(ImageDecoder("rgb", nearest=True)))
    assert repr(decoder) == "ImageDecoder('rgb', nearest=True)"
    assert decoder(PICTURES["png-rgb"]).shape == (5, 7, 3)


@pytest.mark.parametrize(
    ("suffix", "mode"),
    [
        ("tga", "RGBA"),
        ("tga", "P"),
        ("sgi", "RGB"),
        ("pcx", "P"),
        ("dds", "RGBA"),
        ("ico", "RGBA"),
        ("xbm", "1"),
    ],
)
def test_less_common_formats_are_decoded_as_by_pillow(suffix, mode):
    image = Image.effect_noise((32, 32), 90).convert("RGB").convert(mode)
    data = encoded(image, suffix.upper())
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.array_equal(SampleFields(names=("rgb8",))({"__key__": "k", suffix: data})[suffix], expected)


@pytest.mark.parametrize(("suffix", "kind"), [("tga", "TGA"), ("pcx", "PCX")])
def test_a_format_without_magic_bytes_needs_its_extension(suffix, kind):
    data = encoded(Image.new("RGB", (5, 7)), kind)
    assert SampleFields(names=("rgb8",))({"__key__": "k", f"left.{suffix}": data})[
        f"left.{suffix}"
    ].shape == (7, 5, 3)
    with pytest.raises(FieldError, match="damaged, or not an image of a supported format"):
        SampleFields(names=("rgb8",))({"__key__": "k", "png": data})
    with pytest.raises(FieldError):
        SampleFields(names=("rgb8",))({"__key__": "k", suffix: data[:20]})


@pytest.mark.parametrize("name", ["img", "image", "left.img"])
def test_img_and_image_are_read_as_they_are_written(tmp_path, name):
    pixels = np.full((8, 8, 3), 128, np.uint8)
    with wdspec.TarWriter(tmp_path / "a.tar") as writer:
        writer.write({"__key__": "0", name: pixels})
    [sample] = wdspec.WebDataset(str(tmp_path / "a.tar")).decode("rgb8")
    assert sample[name].shape == (8, 8, 3)
    assert abs(sample[name].astype(int) - pixels).max() <= 2
    shard = str(tmp_path / "a.tar")
    source = {"shards": shard, "decode": "rgb8", "where": f'fields["{name}"].width == 8', "extensions": name}
    [sample] = wdspec.compile({"wdspec": 1, "dataset": [source], "epoch": "pass"})
    assert sample[name].shape == (8, 8, 3)


def write_tiff(bands, dtype, kind):
    """A TIFF that Pillow cannot write: 4 by 3 pixels of some bands."""
    pixels = np.arange(12 * bands).astype(dtype).tobytes()
    bits, directory = np.dtype(dtype).itemsize * 8, 8 + len(pixels)
    wide = directory + 2 + 12 * 11 + 4
    rows = {
        256: 4,
        257: 3,
        259: 1,
        262: 2 if bands > 2 else 1,
        273: 8,
        277: bands,
        278: 3,
        279: len(pixels),
        339: kind,
    }
    entries = [(tag, 4, 1, value) for tag, value in rows.items()]
    entries.append((258, 3, bands, wide if bands > 2 else bits | (bits << 16 if bands > 1 else 0)))
    extra = max(0, bands - (3 if bands > 2 else 1))
    entries.append((338, 3, extra, 0 if extra < 3 else wide + 2 * bands))
    table = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    head = b"II*\0" + struct.pack("<I", directory)
    return (
        head + pixels + struct.pack("<H", 11) + table + bytes(4) + struct.pack(f"<{bands}H", *[bits] * bands)
    )


@pytest.mark.parametrize(
    ("bands", "dtype", "kind", "named"),
    [
        (5, "u1", 1, "5 bands of uint8"),
        (1, "f2", 3, "1 band of float16"),
        (3, "f4", 3, "3 bands of float32"),
        (2, "i2", 2, "2 bands of int16"),
    ],
)
def test_pixels_of_a_tiff_that_are_not_supported_are_named(bands, dtype, kind, named):
    with pytest.raises(
        Exception, match=f"a TIFF of {named} is not supported; decode it with a user function"
    ):
        ImageDecoder("rgb8")(write_tiff(bands, dtype, kind))
