"""Which library resizes an image, and that its pixels do not depend on the processor, threads or memory."""

import hashlib
import io
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from wdspec.base.errors import UsageError
from wdspec.fields.codecs import resizing
from wdspec.fields.codecs.image_decoder import ImageDecoder
from wdspec.fields.codecs.resizing import Fit, resize
from wdspec.planning.keys import uniform

KINDS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def picture(width, height, channels=3, seed=0):
    """Noise of several scales."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, channels))
    for step in (1, 4, 16):
        small = rng.normal(0, 8 * step**0.5, (-(-height // step), -(-width // step), channels))
        total += small.repeat(step, 0).repeat(step, 1)[:height, :width]
    pixels = (total + 128).clip(0, 255).astype(np.uint8)
    return pixels[:, :, 0] if channels == 1 else pixels


def draw_case(seed):
    """An image, perhaps a view, and a step to resize it or a part of it."""
    rng = np.random.default_rng(seed)
    wide, high, *size = (int(np.exp(rng.uniform(0, 5.5))) for _ in range(4))
    pixels = picture(wide + 2, high + 2, (1, 3, 4)[seed % 3], seed)[1:-1, 1:-1]
    edges = np.sort(rng.uniform(0, 1, (2, 2)), axis=0) * (wide, high)
    part = tuple(float(edge) for edge in edges.reshape(-1)) if seed % 4 == 3 else None
    return pixels, Fit(tuple(size), None, part, list(KINDS.values())[seed % 2])


def digest_cases(count):
    return hashlib.sha256(
        b"".join(fit(pixels).tobytes() for pixels, fit in map(draw_case, range(count)))
    ).hexdigest()


@pytest.mark.parametrize("interpolation", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("size", "side"), [((60, 45), 24), ((500, 375), (224, 224)), ((20, 30), 64), ((1, 9), 16), ((3000, 7), 5)]
)
def test_the_default_is_the_torch_kernel_and_nearly_matches_pillow(size, side, channels, interpolation):
    pixels = picture(*size, channels)
    whole = side if isinstance(side, tuple) else (side, side)
    found, pillow = (
        Fit(whole, smooth=KINDS[interpolation], resizer=each)(pixels) for each in ("torch", "pillow")
    )
    planes = torch.from_numpy(pixels.reshape(*pixels.shape[:2], channels)).permute(2, 0, 1)[None]
    expected = interpolate(planes, whole[::-1], mode=interpolation, antialias=True)[0].permute(1, 2, 0)
    assert np.array_equal(found, expected.numpy().reshape(found.shape))
    assert np.array_equal(pillow, np.asarray(Image.fromarray(pixels).resize(whole, KINDS[interpolation])))
    assert abs(found.astype(int) - pillow).max() <= (1 if interpolation == "bilinear" else 3)


def test_resize_and_center_crop_match_torchvision_on_tensors():
    pixels = picture(50, 37)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    resized = interpolate(planes, (20, 27), mode="bilinear", antialias=True)[0]
    found = ImageDecoder("torchrgb8+resize=20+center_crop=16")(file.getvalue())
    assert torch.equal(found, resized[:, 2:18, 6:22])


@pytest.mark.parametrize("interpolation", KINDS)
@pytest.mark.parametrize(("side", "crop"), [(256, 224), (73, 64)])
def test_a_center_crop_is_that_of_the_resized_image_whatever_its_size(side, crop, interpolation):
    """Also if the kernel needs as many pixels as it makes, as of 252 pixels for `resize=256+center_crop=224`."""
    for length in range(side - 10, side + 10):
        pixels, step, first = picture(length, length), length / side, (side - crop) // 2
        part = (first * step, first * step, (first + crop) * step, (first + crop) * step)
        found = Fit((crop, crop), None, part, KINDS[interpolation])(pixels)
        whole = Image.fromarray(pixels).resize((side, side), KINDS[interpolation])
        expected = np.asarray(whole)[first : first + crop, first : first + crop]
        assert abs(found.astype(int) - expected).max() <= 12, length


def test_a_subpixel_region_is_resized_as_by_pillow():
    by_torch = 0
    for seed in range(60):
        pixels, fit = draw_case(4 * seed + 3)
        if (pixels.ndim == 3 and pixels.shape[2] == 4) or min(fit.size) < 2 or min(pixels.shape[:2]) < 4:
            continue
        smooth = np.asarray(Image.fromarray(pixels).resize((8, 8)).resize(pixels.shape[1::-1], fit.smooth))
        found, pillow = (
            Fit(fit.size, None, fit.part, fit.smooth, resizer=each)(smooth) for each in ("torch", "pillow")
        )
        assert abs(found.astype(int) - pillow).max() <= 8  # a twentieth of a pixel
        by_torch += not np.array_equal(found, pillow)
    assert by_torch > 5


@pytest.mark.parametrize(
    ("fit", "channels"),
    [
        (Fit((20, 20)), 4),
        (Fit((1, 20)), 3),
        (Fit((20, 20), smooth=Image.Resampling.LANCZOS), 3),
        (Fit((20, 20), smooth=Image.Resampling.BOX), 1),
        (Fit((20, 20), antialias=False), 3),
        (Fit((20, 20), resizer="pillow"), 3),
    ],
)
def test_pillow_resizes_images_that_the_kernel_cannot(fit, channels, monkeypatch):
    monkeypatch.setattr(resizing, "_find_kernel", lambda name: pytest.fail("torch was used"))
    assert fit(picture(50, 40, channels)).shape[:2] == fit.size[::-1]


def run_without_avx2(call):
    """What a function of this file returns in another process."""
    folders = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import test_resizing; print(test_resizing.{call})"],
        env={
            **os.environ,
            "PYTHONPATH": folders,
            "ATEN_CPU_CAPABILITY": "default",
            "OMP_NUM_THREADS": "2",  # in one thread, a child would have nothing to wait for
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_pixels_are_equal_on_processors_without_avx2():
    assert run_without_avx2("digest_cases(400)") == digest_cases(400)


def resize_in_a_child():
    pixels, fit = picture(1280, 960), Fit((224, 224))
    fit(pixels)
    child = os.fork()
    if not child:
        signal.alarm(200)
        fit(pixels)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_resizes_on_processors_without_avx2():
    assert run_without_avx2("resize_in_a_child()") == "0"


def test_pixels_are_equal_in_any_number_of_threads():
    before, threads = digest_cases(40), torch.get_num_threads()
    try:
        torch.set_num_threads(5 - min(threads, 4))
        assert digest_cases(40) == before
    finally:
        torch.set_num_threads(threads)


def test_results_are_writable_contiguous_and_hold_no_larger_image():
    pixels = picture(60, 50)
    for fit in (Fit((24, 20)), Fit((24, 20), crop=(3, 4, 27, 24)), Fit((24, 20), part=(2.5, 3, 50.25, 40))):
        result = fit(pixels)
        assert result.flags.writeable
        assert result.flags.c_contiguous
        assert not np.shares_memory(result, pixels)
    pixels.flags.writeable = False
    assert np.array_equal(resize(pixels, [Fit((24, 20))]), Fit((24, 20))(picture(60, 50)))


def test_an_image_with_a_gigabyte_intermediate_is_rejected():
    with pytest.raises(ValueError, match="more than 178,956,970 pixels in between"):
        Fit((8192, 8))(np.zeros((30_000, 1), np.uint8))


def test_all_containers_get_the_same_pixels():
    file = io.BytesIO()
    Image.fromarray(picture(60, 50)).save(file, "png")
    names = ("rgb8", "torchrgb8", "pil", "rgb", "torch")
    found = [
        ImageDecoder(f"{name}+random_resized_crop=24")(file.getvalue(), None, lambda i: uniform(3, i))
        for name in names
    ]
    bytes_ = np.asarray(found[0])
    assert np.array_equal(found[1].permute(1, 2, 0), bytes_)
    assert np.array_equal(np.asarray(found[2]), bytes_)
    assert np.array_equal(found[3], bytes_ / np.float32(255))
    assert np.array_equal(found[4].permute(1, 2, 0), bytes_ / np.float32(255))


def test_without_torch_the_error_names_the_extra_and_the_alternative(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    resizing._find_kernel.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"resizer=pillow.*\[torch\]"):
            Fit((20, 20))(picture(50, 40))
        assert Fit((20, 20), resizer="pillow")(picture(50, 40)).shape == (20, 20, 3)
    finally:
        monkeypatch.undo()
        resizing._find_kernel.cache_clear()
