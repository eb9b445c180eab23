"""`crop`: one crop and flip of an image and all that belongs to it, compared with plain geometry."""

from __future__ import annotations

import io
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from wdspec.base.errors import FieldError
from wdspec.fields.codecs.cropping import make_crop
from wdspec.fields.codecs.framing import random_crop
from wdspec.fields.codecs.image_decoder import image_decoder
from wdspec.planning.keys import key64, uniform

HEIGHT, WIDTH = 40, 60


def numbers_of(at: int) -> Any:
    """The random numbers of a sample."""
    return partial(uniform, key64("crop", at))


def ramp(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray[Any, Any]:
    """An image whose colours say where a pixel is: red is x, green is y."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 4, y * 6, np.zeros_like(x)], axis=2).astype(np.uint8)


def geometry(at: int, hflip: float, size: tuple[int, int] = (WIDTH, HEIGHT)) -> tuple[Any, bool]:
    """The crop of a sample in an image of a size (width, height), and whether it is flipped; as for decoders."""
    numbers = numbers_of(at)
    return random_crop(size, (0.08, 1.0), (3 / 4, 4 / 3), numbers), numbers(3) < hflip


def moved(points: Any, at: int, hflip: float, width: int, height: int) -> list[list[float]]:
    """Points after crop, resizing and flip, one by one."""
    (left, top, right, bottom), is_flipped = geometry(at, hflip)
    found = []
    for x, y in points:
        x, y = (x - left) / (right - left) * width, (y - top) / (bottom - top) * height
        found.append([width - x if is_flipped else x, y])
    return found


@pytest.mark.parametrize("at", range(12))
def test_an_image_is_cropped_as_by_its_decoder(at: int) -> None:
    file = io.BytesIO()
    Image.fromarray(ramp()).save(file, "PNG")
    decoder = image_decoder("rgb8+random_resized_crop=16x24+hflip=0.5", "png", "png")
    found = make_crop(size=(16, 24), hflip=0.5)(ramp(), numbers_of(at))
    assert found.image.tolist() == decoder(file.getvalue(), None, numbers_of(at)).tolist()


@pytest.mark.parametrize("at", range(12))
def test_a_pixel_its_mask_a_point_and_a_box_at_one_place_stay_at_one_place(at: int) -> None:
    image, point = ramp(), (30.5, 20.5)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[18:23, 27:34] = 7
    found = make_crop(size=(80, 120), hflip=0.5)(
        image,
        numbers_of(at),
        masks={"mask": mask},
        boxes={"boxes": [[27, 18, 34, 23]]},
        points={"at": [point]},
    )
    (x, y), (left, top, right, bottom) = found.points["at"][0], found.boxes["boxes"][0]
    assert found.image.shape == (80, 120, 3)
    if not (0 <= x < 120 and 0 <= y < 80):
        return
    assert found.masks["mask"][int(y), int(x)] == 7
    assert abs(int(found.image[int(y), int(x), 0]) - 30 * 4) <= 5
    assert abs(int(found.image[int(y), int(x), 1]) - 20 * 6) <= 7
    rows, columns = np.nonzero(found.masks["mask"])
    edges = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert (
        np.abs(np.array(edges) - [left, top, right, bottom]).max() <= 1
    )  # a pixel is in the mask by its centre


def test_a_mask_has_the_nearest_pixel_of_the_same_crop() -> None:
    labels = np.arange(HEIGHT * WIDTH, dtype=np.int64).reshape(HEIGHT, WIDTH) << 32
    for at in range(12):
        (left, top, right, bottom), is_flipped = geometry(at, 0.5)
        found = make_crop(size=(20, 30), hflip=0.5)(ramp(), numbers_of(at), masks={"mask": labels}).masks[
            "mask"
        ]
        assert (found.dtype, found.shape) == (np.int64, (20, 30))
        rows, columns = np.divmod(found >> 32, WIDTH)
        for row in range(20):
            for column in range(30):
                from_left = 30 - 1 - column if is_flipped else column
                x = left + (from_left + 0.5) * (right - left) / 30
                y = top + (row + 0.5) * (bottom - top) / 20
                assert abs(rows[row, column] + 0.5 - y) <= 0.5 + 1e-9
                assert abs(columns[row, column] + 0.5 - x) <= 0.5 + 1e-9


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(lambda: np.eye(HEIGHT, WIDTH).astype(bool), id="boolean"),
        pytest.param(lambda: ramp(), id="colours"),
        pytest.param(lambda: np.stack([np.eye(HEIGHT, WIDTH, dtype=np.uint8)] * 4), id="one per object"),
        pytest.param(lambda: torch.eye(HEIGHT, WIDTH)[:, :WIDTH], id="tensor"),
        pytest.param(lambda: torch.stack([torch.eye(HEIGHT, WIDTH, dtype=torch.uint8)] * 2), id="tensor per object"),
        pytest.param(lambda: Image.fromarray(ramp()[:, :, 0]), id="Pillow"),
    ],
)  # fmt: skip
def test_masks_of_all_kinds_have_only_values_that_they_had_and_keep_their_kind(mask: Any) -> None:
    given = mask()
    found = make_crop(size=16, hflip=0.5)(ramp(), numbers_of(1), masks={"mask": given}).masks["mask"]
    assert type(found) is type(given)
    before, after = np.asarray(given), np.asarray(found)
    assert after.dtype == before.dtype
    assert {*np.unique(after)} <= {*np.unique(before)}
    sides = [16 if side in (HEIGHT, WIDTH) else side for side in before.shape]
    assert list(after.shape) == sides


def test_a_mask_with_a_palette_keeps_its_numbers_and_its_palette() -> None:
    mask = Image.fromarray(np.eye(HEIGHT, WIDTH, dtype=np.uint8) * 3, "L")
    mask.putpalette(list(range(30)))
    found = make_crop(size=16)(ramp(), numbers_of(1), masks={"mask": mask}).masks["mask"]
    assert found.mode == "P"
    assert {*np.unique(np.asarray(found))} <= {0, 3}
    assert found.getpalette()[:30] == list(range(30))


def test_an_image_with_a_palette_has_only_colours_that_it_had() -> None:
    image = Image.fromarray(ramp()).quantize(7)
    found = make_crop(size=32)(image, numbers_of(1)).image
    assert {*map(tuple, np.asarray(found.convert("RGB")).reshape(-1, 3).tolist())} <= {
        *map(tuple, np.asarray(image.convert("RGB")).reshape(-1, 3).tolist())
    }


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize(
    "decoder",
    ["rgb8", "rgb16", "rgb", "l8", "l16", "l", "rgba8", "torchrgb8", "torchrgb", "torchl8", "torchl", "torchrgba",
     "pilrgb", "pill", "pilrgba", "torchrgb+normalize=imagenet"],
)  # fmt: skip
def test_images_of_all_decoders_are_cropped_alike_and_keep_their_kind(decoder: str, at: int) -> None:
    file = io.BytesIO()
    Image.fromarray(ramp()).save(file, "PNG")
    value = image_decoder(decoder, "png", "png")(file.getvalue())
    framed = image_decoder(f"{decoder}+random_resized_crop=24+hflip=0.5", "png", "png")
    wanted = framed(file.getvalue(), None, numbers_of(at))
    found = make_crop(size=24, hflip=0.5)(value, numbers_of(at)).image
    assert type(found) is type(wanted)
    one, two = np.asarray(found), np.asarray(wanted)
    assert (one.dtype, one.shape) == (two.dtype, two.shape)
    # Floats are resized as floats here, and as bytes by the decoder: two grey levels of 255.
    level = {"u2": 257, "f4": (1 / 255) / 0.22 if "normalize" in decoder else 1 / 255}.get(
        one.dtype.str[1:], 1
    )
    assert np.abs(one.astype(float) - two.astype(float)).max() <= 2 * level


@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
def test_boxes_are_moved_clipped_and_dropped_in_their_format(form: str) -> None:
    def written(left: float, top: float, right: float, bottom: float) -> list[float]:
        wide, high = right - left, bottom - top
        if form == "cxcywh":
            return [left + wide / 2, top + high / 2, wide, high]
        return [left, top, wide, high] if form == "xywh" else [left, top, right, bottom]

    corners = [(0, 0, WIDTH, HEIGHT), (2, 3, 20, 30), (50, 30, 58, 39), (0, 0, 5, 5), (29.5, 0, 30.5, 40)]
    for at in range(20):
        wanted, inside = [], []
        for number, (left, top, right, bottom) in enumerate(corners):
            points = moved([(left, top), (right, bottom)], at, 0.5, 32, 32)
            xs, ys = (sorted(min(max(point[axis], 0), 32) for point in points) for axis in (0, 1))
            wanted.append(written(xs[0], ys[0], xs[1], ys[1]))
            if xs[0] < xs[1] and ys[0] < ys[1]:
                inside.append(number)
        given = [written(*each) for each in corners]
        clipped = make_crop(size=32, hflip=0.5, box_format=form)(ramp(), numbers_of(at), boxes={"a": given})
        dropped = make_crop(size=32, hflip=0.5, box_format=form, drop=True)(
            ramp(), numbers_of(at), boxes={"a": given}
        )
        assert clipped.boxes["a"] == pytest.approx(np.array(wanted), abs=1e-4)
        assert clipped.kept["a"].tolist() == dropped.kept["a"].tolist() == inside
        assert dropped.boxes["a"].tolist() == clipped.boxes["a"][inside].tolist()
        assert clipped.boxes["a"].dtype == np.float32


def test_relative_boxes_and_points_are_fractions_of_the_image_and_of_its_crop() -> None:
    pixels = np.array([[2, 3, 20, 30], [50, 30, 58, 39]], float)
    for at in range(12):
        crop = partial(make_crop, size=(16, 32), hflip=0.5, box_format="cxcywh")
        centres = np.hstack([(pixels[:, :2] + pixels[:, 2:]) / 2, pixels[:, 2:] - pixels[:, :2]])
        points = np.array([[2, 3, 2], [50, 30, 2]], float)
        wanted = crop()(ramp(), numbers_of(at), boxes={"b": centres}, points={"p": points})
        inside = centres / [WIDTH, HEIGHT, WIDTH, HEIGHT], points / [WIDTH, HEIGHT, 1]
        found = crop(relative=True)(ramp(), numbers_of(at), boxes={"b": inside[0]}, points={"p": inside[1]})
        assert found.boxes["b"] * [32, 16, 32, 16] == pytest.approx(wanted.boxes["b"], abs=1e-4)
        assert found.points["p"] * [32, 16, 1] == pytest.approx(wanted.points["p"], abs=1e-4)
        assert found.kept["b"].tolist() == wanted.kept["b"].tolist()


@pytest.mark.parametrize("given", [{"boxes": {"b": [[10, 10, 30, 20]]}}, {"points": {"p": [[0, 2], [1, 1]]}}])
def test_pixels_in_place_of_fractions_are_an_error(given: dict[str, Any]) -> None:
    with pytest.raises(FieldError, match=r"no fraction of the image but pixels; remove `relative: true`"):
        make_crop(size=8, relative=True)(ramp(), numbers_of(0), **given)


def test_a_box_or_point_that_reaches_over_the_edge_is_a_fraction() -> None:
    given = {"boxes": {"b": [[0.2, 0.5, 1.04, 1]]}, "points": {"p": [[1.5, 0.5, 2]]}}
    found = make_crop(size=8, relative=True)(ramp(), numbers_of(0), **given)
    assert found.boxes["b"].max() <= 1


def test_an_image_without_boxes_or_points_has_none_after_it() -> None:
    found = make_crop(size=8)(ramp(), numbers_of(0), boxes={"boxes": []}, points={"points": []})
    assert found.boxes["boxes"].shape == (0, 4)
    assert (found.kept["boxes"].size, found.points["points"].size) == (0, 0)


def test_a_flip_exchanges_left_and_right_points_and_points_outside_are_invisible() -> None:
    points = [[10.0, 10, 2], [50, 10, 1], [30, 20, 2], [1, 39, 2], [0, 0, 0]]
    crop = make_crop(size=32, hflip=0.5, flip_points=[(0, 1)])
    flips = set()
    for at in range(20):
        found = crop(ramp(), numbers_of(at), points={"points": [points, points]}).points["points"]
        is_flipped = geometry(at, 0.5)[1]
        flips.add(is_flipped)
        wanted = []
        for (x, y), (*_, seen) in zip(
            moved([each[:2] for each in points], at, 0.5, 32, 32), points, strict=True
        ):
            wanted.append([x, y, seen if 0 <= x <= 32 and 0 <= y <= 32 else 0])
        if is_flipped:
            wanted[0], wanted[1] = wanted[1], wanted[0]
        assert found == pytest.approx(np.array([wanted, wanted]), abs=1e-3)
        plain = crop(ramp(), numbers_of(at), points={"points": [each[:2] for each in points]}).points[
            "points"
        ]
        assert plain == pytest.approx(np.array(wanted)[:, :2], abs=1e-3)
    assert flips == {False, True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image": b"\xff\xd8"}, "needs an image or a mask, and this is bytes; decode it"),
        ({"image": Image.new("CMYK", (8, 8))}, "needs an image or a mask, and this is PIL image of 8 x 8"),
        ({"masks": {"m": np.zeros((9, 8), np.uint8)}}, "mask `m` has 8×9 pixels, and the image 60×40"),
        ({"masks": {"m": [[0]]}}, "needs an image or a mask, and this is list of 1"),
        ({"boxes": {"b": [[1, 2, 3]]}}, r"four numbers each \(`xyxy`\), and this has shape \(1, 3\)"),
        ({"boxes": {"b": [[1, 2, 3, 4], [1, 2]]}}, "boxes are a list with four numbers"),
        ({"boxes": {"b": [[0, 0, 9, 9], [30, 20, 10, 10]]}}, r"box 2 of 2, \[30.0, .* ends before it begins; `box_"),
        ({"boxes": {"b": [[0, 0, 0.5, 1]]}}, r"all boxes are within 0 and 1, such as .* Write `relative: true`"),
        ({"boxes": {"b": [[1, 2, 3, float("nan")]]}}, "boxes have a number that is not finite"),
        ({"points": {"p": [1, 2]}}, r"points are lists of x and y, .* and this has shape \(2,\)"),
        ({"points": {"p": [[1] * 51]}}, r"and this has shape \(1, 51\)"),
        ({"points": {"p": [["a", "b"]]}}, "points are lists of x and y"),
        ({"points": {"p": [[1, 2]]}}, "`flip_points` exchanges point 1, and there are 1, counted from 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_cropped_is_an_error_that_says_what_it_is(given: dict[str, Any], message: str) -> None:
    image = given.pop("image", ramp())
    with pytest.raises(FieldError, match=message):
        make_crop(size=8, hflip=1, flip_points=[(0, 1)])(image, numbers_of(0), **given)


def test_a_box_format_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="`box_format` is one of xyxy, xywh, cxcywh, not 'yolo'"):
        make_crop(size=8, box_format="yolo")


def in_format(corners: Any, form: str) -> Any:
    """Boxes of corners (left, top, right, bottom) in a format."""
    first, second = corners[:, :2], corners[:, 2:]
    if form == "cxcywh":
        return np.hstack([(first + second) / 2, second - first])
    return np.hstack([first, second - first]) if form == "xywh" else corners


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
@pytest.mark.parametrize("meant", ["xyxy", "xywh", "cxcywh"])
def test_boxes_of_another_format_are_an_error_or_a_warning(form: str, meant: str, relative: bool) -> None:
    rng = np.random.default_rng(0)
    crop = make_crop(size=16, hflip=0.5, box_format=form, relative=relative)
    said, errors = [], 0
    for at in range(30):
        sides = np.array((WIDTH, HEIGHT))
        first = rng.uniform(0, 0.7, (3, 2))
        second = first + rng.uniform(0.05, 1, (3, 2)) * (1 - first)
        corners = np.hstack([first, second]) * (1 if relative else [*sides, *sides])
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            try:
                crop(ramp(), numbers_of(at), boxes={"boxes": in_format(corners, meant).tolist()})
            except FieldError as error:
                errors += "`box_format` is" in str(error)
        said += [str(each.message) for each in found]
    if form == meant:
        assert not errors
        assert not said
    else:
        assert errors or said
        assert all(f"`box_format` is `{form}`, and may have to be another one" in each for each in said)
        assert len(said) <= 1


def crop_in_turn(boxes: list[list[list[float]]], form: str) -> list[str]:
    """Crop an image with each of these boxes, and return the warnings."""
    crop = make_crop(size=16, box_format=form)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for at, each in enumerate(boxes):
            crop(ramp(), numbers_of(at), boxes={"boxes": each})
    return [str(each.message) for each in found]


def test_small_boxes_of_another_format_are_a_mistake_if_all_of_them_are_inside_in_that() -> None:
    at_the_edge, inside = [[1, 20, 30, 10], [5, 12, 8, 9]], [[31, 22, 20, 10]]
    (message,) = crop_in_turn([at_the_edge, inside, inside] * 7, "cxcywh")
    assert (
        "7 of 20 samples have a box that is partly outside the image, such as [1.0, 20.0, 30.0, 10.0]"
        in message
    )
    assert message.endswith("all boxes are inside with `xywh`")


def test_objects_that_all_sides_of_the_image_cut_off_are_no_mistake() -> None:
    left, right, inside = [[1, 20, 30, 10]], [[WIDTH - 1, 20, 30, 10]], [[31, 22, 20, 10]]
    assert not crop_in_turn([left, right, inside, inside] * 5, "cxcywh")


def test_a_few_boxes_of_objects_that_the_image_cuts_off_are_no_mistake(recwarn: Any) -> None:
    crop = make_crop(size=16)
    for at in range(40):
        box = [30, 20, 70, 30] if at % 4 == 0 else [1, 1, WIDTH + 2, HEIGHT]
        crop(ramp(), numbers_of(at), boxes={"boxes": [box]})
    assert not [each for each in recwarn if "outside the image" in str(each.message)]
