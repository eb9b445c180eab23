"""JPEGs decoded at a reduced size: the same size as before, nearly the same pixels, in both libraries."""

import io
import math

import numpy as np
import pytest
from PIL import Image

from wdspec.fields.codecs.framing import Fit
from wdspec.fields.codecs.image_decoder import ImageDecoder, choose_reduction, image_decoder
from wdspec.planning.keys import uniform


def encoded(image, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, **options)
    return file.getvalue()


def load_sample_images():
    from sklearn.datasets import load_sample_images  # takes a second to import

    return load_sample_images().images


@pytest.fixture(scope="module")
def photographs():
    """Two, one of them of a size that blocks do not divide."""
    first, second = (Image.fromarray(image) for image in load_sample_images())
    return [encoded(first), encoded(second.resize((1003, 617), Image.Resampling.LANCZOS))]


def difference(one, other):
    """PSNR in decibels."""
    assert one.shape == other.shape
    error = ((one.astype(float) - other) ** 2).mean()
    return math.inf if not error else 10 * math.log10(255**2 / error)


@pytest.mark.parametrize("stray", [0, 3])
def test_files_of_several_images_are_reduced_equally_by_both_libraries(photographs, stray):
    file = io.BytesIO()
    picture = Image.open(io.BytesIO(photographs[0]))
    picture.save(file, "MPO", save_all=True, append_images=[picture.resize((64, 48))], quality=90)
    data = file.getvalue()
    end = data.index(b"\xff\xd9")
    data = data[:end] + bytes(stray) + data[end:]  # simplejpeg starts to decode such a file and then gives up
    whole = ImageDecoder("rgb8+resize=64+dct_scaling=false")(data)
    assert difference(ImageDecoder("rgb8+resize=64")(data), whole) > 40


OPTIONS = [
    "random_resized_crop=48",
    "random_resized_crop=48+interpolation=bicubic",
    "resize=64+center_crop=56",
    "resize=50x80",
    "resize=60+interpolation=lanczos",
]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["rgb8", "l8", "rgba8"])
def test_a_reduced_image_is_nearly_the_same_by_both_libraries(photographs, option, kind):
    changed = 0
    for data in photographs:
        for key in range(8):
            arguments = (data, None, lambda i, key=key: uniform(key, i))
            found, pillow, exact = (
                ImageDecoder(f"{kind}+{option}{more}")(*arguments)
                for more in ("", "+pillow", "+dct_scaling=false")
            )
            assert difference(found, exact) > 38
            assert abs(found.astype(int) - pillow).max() <= 1
            changed += not np.array_equal(found, exact)
    assert changed > 4


@pytest.mark.parametrize("decoder", ["pilrgb", "torchrgb", "rgb16", "rgb"])
def test_scale_reduces_for_all_containers(photographs, decoder):
    factor = 0.19
    found, exact = (
        np.asarray(ImageDecoder(decoder + more)(photographs[1], factor), float)
        for more in ("", "+dct_scaling=false")
    )
    assert not np.array_equal(found, exact)
    assert difference(found * 255 / exact.max(), exact * 255 / exact.max()) > 38


@pytest.mark.parametrize(
    "decoder", ["rgb8+resize=40+interpolation=nearest", "rgb8+resize=40+antialias=false"]
)
def test_selected_pixels_equal_those_of_the_whole_image(photographs, decoder):
    for data in photographs:
        assert np.array_equal(ImageDecoder(decoder)(data), ImageDecoder(f"{decoder}+dct_scaling=false")(data))


def test_labels_and_rotated_images_are_decoded_at_full_size(photographs):
    labels = [
        image_decoder(f"l8+resize=40{more}", "seg.jpg", "seg.jpg") for more in ("", "+dct_scaling=false")
    ]
    assert np.array_equal(labels[0](photographs[0]), labels[1](photographs[0]))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(Image.open(io.BytesIO(photographs[0])), exif=exif)
    found, exact = (
        ImageDecoder(f"rgb8+upright+resize=40{more}")(turned) for more in ("", "+dct_scaling=false")
    )
    assert np.array_equal(found, exact)
    assert found.shape[0] > found.shape[1]


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
def test_every_kind_of_jpeg_is_reduced(subsampling, progressive):
    whole = Image.fromarray(load_sample_images()[0])
    data = encoded(whole, subsampling=subsampling, progressive=progressive)
    found, exact = (ImageDecoder(f"rgb8+resize=50{more}")(data) for more in ("", "+dct_scaling=false"))
    assert difference(found, exact) > 38
    cmyk = encoded(whole.convert("CMYK"))
    found, exact = (ImageDecoder(f"rgb8+resize=50{more}")(cmyk) for more in ("", "+dct_scaling=false"))
    assert difference(found, exact) > 36


@pytest.mark.parametrize(
    ("size", "fit", "by"),
    [
        ((640, 480), Fit((100, 100)), 2),  # 4.8 times as high
        ((640, 480), Fit((50, 50)), 4),
        ((640, 480), Fit((20, 20)), 8),
        ((640, 480), Fit((300, 400)), 1),
        ((640, 480), Fit((100, 100), crop=(7, 9, 307, 409)), 2),
        ((640, 480), Fit((100, 100), crop=(7, 9, 306, 409)), 1),
        ((640, 480), Fit((100, 100), crop=(-1, 0, 640, 480)), 1),
        ((640, 480), Fit((10, 10), antialias=False), 1),
        ((3, 3), Fit((1, 1)), 2),
    ],
)
def test_the_decoded_size_is_at_least_1_5_times_the_result(size, fit, by):
    found, [first] = choose_reduction(size, [fit])
    assert found == by
    assert first.size == fit.size
    if by == 1:
        assert first == fit
    else:  # the same part of the picture
        left, top = (first.crop or (0, 0))[:2]
        box = [by * edge for edge in np.add(first.part, (left, top, left, top))]
        assert box == pytest.approx(fit.crop or (0, 0, *size))
