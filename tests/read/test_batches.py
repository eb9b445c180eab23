"""The values of a batch: tensors, or an error that says why not; and the results of `ragged` and `collate`."""

import pickle
import warnings

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import FieldError, SpecError
from wdspec.fields.values import Audio
from wdspec.read.batch import BatchMaker
from wdspec.read.padding import Padded, pad
from wdspec.spec.language.batch import Batch, Padding


def samples(*values, field="x", source="a"):
    return [
        {"__key__": f"k{i}", "__url__": "u.tar", "__source__": source, field: value}
        for i, value in enumerate(values)
    ]


def batch_of(*values, field="x", **options):
    return BatchMaker(Batch(size=len(values), **options), None)(samples(*values, field=field))[field]


UNEVEN = [
    ([1, 2.5], "int: a: k0.*float: a: k1"),
    ([None, 1], "NoneType.*int"),
    ([np.zeros(2), np.zeros(3)], r"\(2\) float64.*\(3\) float64"),
    ([np.zeros(2), np.zeros(2, np.float32)], r"\(2\) float64.*\(2\) float32"),
    ([torch.zeros(2, 3), torch.zeros(2, 4)], r"\(2, 3\) float32.*\(2, 4\) float32"),
    ([1 << 70, 1], "int"),
    ([np.zeros((2, 2, 3), np.uint8), b"jpeg"], "bytes"),
    ([Image.new("RGB", (4, 3)), Image.new("RGB", (4, 3))], "PIL image of 3 x 4"),
    ([(np.zeros((1, 5)), 8000), (np.zeros((1, 7)), 8000)], r"\(1, 5\).*\(1, 7\)"),
    ([(1, 2), (1, 2, 3)], "tuple of 2.*tuple of 3"),
]


@pytest.mark.parametrize(("values", "said"), UNEVEN)
def test_values_that_do_not_stack_are_an_error_unless_lists_are_requested(values, said):
    with pytest.raises(
        FieldError, match=f"(?s)`x` in a batch of 2 do not stack.*{said}.*collate: {{x: list}}"
    ):
        batch_of(*values)
    for options in (
        {"ragged": "list"},
        {"collate": {"x": "list"}},
    ):
        assert batch_of(*values, **options) == values or options == {"ragged": "list"}


def test_a_missing_value_is_not_to_be_padded():
    with pytest.raises(FieldError, match="leave out samples without a value, `where: x != none`") as caught:
        batch_of(None, 1)
    assert "pad" not in str(caught.value)


def test_the_error_names_source_field_keys_shapes_and_remedies():
    values = [np.zeros((4, 4, 3), np.uint8)] * 4 + [np.zeros((5, 4, 3), np.uint8)]
    with pytest.raises(FieldError) as caught:
        batch_of(*values, field="jpg")
    said = str(caught.value)
    assert "(4, 4, 3) uint8: a: k0, k1, k2 and 1 more\n" in said
    assert "(5, 4, 3) uint8: a: k4\n" in said
    assert "decode: {jpg: rgb8+random_resized_crop=224}" in said
    assert "collate: {jpg: pad}" in said
    assert said.endswith("[source a, field jpg]")


ROWS_OF = {
    "ids": ([[5, 6], [7]], "{pad: {value: 0, mask: ids_mask}}", [[5, 6], [7, 0]]),
    "labels": ([[5, 6], [7]], "{pad: {value: -100}}", [[5, 6], [7, -100]]),
    "targets": ([[-100, 6], [7]], "{pad: {value: -100}}", [[-100, 6], [7, -100]]),
    "scores": ([[0.5, 1.0], [2.0]], "pad", [[0.5, 1.0], [2.0, 0.0]]),
    "grid": ([[[1, 2], [3, 4]], [[5]]], "{pad: {axis: [0, 1]}}", [[[1, 2], [3, 4]], [[5, 0], [0, 0]]]),
    "rows": ([[[1, 2]], [[5]]], "{pad: {axis: 1}}", [[[1, 2]], [[5, 0]]]),
}


@pytest.mark.parametrize("field", ROWS_OF)
def test_the_first_remedy_for_lists_of_several_lengths_works_as_it_is_written(field):
    rows, way, expected = ROWS_OF[field]
    values = [np.array(row) for row in rows]
    with pytest.raises(FieldError) as caught:
        batch_of(*values, field=field)
    assert f"\npad them, `batch: {{collate: {{{field}: {way}}}}}`" in str(caught.value)
    column = batch_of(*values, field=field, collate={field: yaml.safe_load(way)})
    assert (column.values if isinstance(column, Padded) else column).tolist() == expected


@pytest.mark.parametrize("values", [["a", 3], [1, 2.5], [1, True], [np.arange(2), np.arange(3.0)], [b"a", 1]])
def test_values_of_several_types_are_not_to_be_padded(values):
    with pytest.raises(FieldError, match="make the values equal in type") as caught:
        batch_of(*values)
    assert "pad" not in str(caught.value)


@pytest.mark.parametrize(
    "values", [["a", "b"], [b"a", b"b"], [{"a": 1}, {"b": 2}], [[1], [2, 3]], [None, "a"], [None, None]]
)
def test_text_bytes_dicts_and_lists_are_lists(values):
    assert batch_of(*values) == values


def test_requested_lists_stay_lists_even_if_values_stack():
    assert batch_of(1, 2, collate={"x": "list"}) == [1, 2]
    assert batch_of(1, 2, ragged="list").tolist() == [1, 2]


def test_big_endian_arrays_stack():
    assert batch_of(np.array([1], ">i4"), np.array([2], ">i4")).tolist() == [[1], [2]]


def test_tuples_become_tuples_of_columns():
    sound, rates = batch_of((np.zeros((1, 4), np.float32), 8000), (np.ones((1, 4), np.float32), 16000))
    assert sound.shape == (2, 1, 4)
    assert rates.tolist() == [8000, 16000]


def test_padding_gives_values_mask_and_lengths():
    padded = batch_of([1, 2, 3], [4], [], collate={"x": "pad"})
    assert isinstance(padded, Padded)
    assert padded.values.tolist() == [[1, 2, 3], [4, 0, 0], [0, 0, 0]]
    assert padded.mask.tolist() == [[True, True, True], [True, False, False], [False] * 3]
    assert padded.lengths.tolist() == [3, 1, 0]
    assert padded.values.dtype == padded.lengths.dtype == torch.int64


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, [[1, 2, 3], [4, 0, 0]]),
        ({"side": "left", "value": -100}, [[1, 2, 3], [-100, -100, 4]]),
        ({"multiple": 4}, [[1, 2, 3, 0], [4, 0, 0, 0]]),
        ({"limit": 2}, [[1, 2], [4, 0]]),
        ({"multiple": 2, "limit": 2}, [[1, 2], [4, 0]]),
        ({"length": 5}, [[1, 2, 3, 0, 0], [4, 0, 0, 0, 0]]),
        ({"length": 2, "side": "left"}, [[1, 2], [0, 4]]),
    ],
)
def test_tokens_are_padded_as_requested(options, rows):
    values = [torch.tensor([1, 2, 3]), torch.tensor([4])]
    padded = batch_of(*values, collate={"x": {"pad": options}})
    assert padded.values.tolist() == rows
    for row, mask, length in zip(padded.values, padded.mask, padded.lengths, strict=True):
        assert int(mask.sum()) == length
        assert set(row[mask].tolist()) <= {1, 2, 3, 4}


def test_a_length_that_cuts_values_is_a_warning_with_what_to_write():
    cut = r"`x: \{pad: \{length: 2\}\}` cuts longer .* one of 3; .*\{limit: 2, multiple: 2\}.*`where: x.length <= 2`"
    values = [torch.tensor([1, 2, 3]), torch.tensor([4])]
    with pytest.warns(UserWarning, match=cut):
        found = batch_of(*values, collate={"x": {"pad": {"length": 2, "side": "left"}}})
    assert found.values.tolist() == [[1, 2], [0, 4]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch_of(*values, collate={"x": {"pad": {"length": 3}}})
        batch_of(*values, collate={"x": {"pad": {"limit": 2, "multiple": 2}}})


def test_audio_is_padded_and_keeps_its_sample_rates():
    values = [(np.ones((2, 5), np.float32), 8000), (np.ones((2, 3), np.float32), 8000)]
    sound, rates = batch_of(*values, collate={"x": {"pad": {"axis": -1}}})
    assert sound.values.shape == (2, 2, 5)
    assert sound.lengths.tolist() == [5, 3]
    assert sound.values[1, :, 3:].sum() == 0
    assert rates.tolist() == [8000, 8000]


def test_an_image_without_boxes_is_padded():
    padded = batch_of([[0, 0, 1, 1], [0.5, 0, 1, 1]], [], collate={"x": {"pad": {"value": -1}}})
    assert padded.values.shape == (2, 2, 4)
    assert padded.mask.tolist() == [[True, True], [False, False]]
    assert padded.values[1].unique().tolist() == [-1]


def test_variable_numbers_of_images_are_padded():
    image = np.full((6, 5, 3), 9, np.uint8)
    padded = batch_of([image, image], [image], collate={"x": "pad"})
    assert padded.values.shape == (2, 2, 6, 5, 3)
    assert padded.values.dtype == torch.uint8
    assert padded.lengths.tolist() == [2, 1]


def test_two_axes_are_padded_together():
    padded = batch_of(np.ones((2, 3, 1)), np.ones((4, 1, 1)), collate={"x": {"pad": {"axis": [0, 1]}}})
    assert padded.values.shape == (2, 4, 3, 1)
    assert padded.lengths.tolist() == [[2, 3], [4, 1]]
    assert torch.equal(padded.values[..., 0] == 1, padded.mask)


def test_nested_tensors_keep_lengths():
    nested = batch_of([1, 2, 3], [4], collate={"x": "nested"})
    assert nested.is_nested
    assert [row.tolist() for row in nested.unbind()] == [[1, 2, 3], [4]]


def join(values):
    return "+".join(values)


def count(samples):
    return len(samples)


def test_functions_can_collate_a_field_or_the_whole_batch():
    assert batch_of("a", "b", collate={"x": f"{__name__}:join"}) == "a+b"
    maker = BatchMaker(Batch(size=2, collate=f"{__name__}:count"), None)
    assert pickle.loads(pickle.dumps(maker))(samples(1, 2)) == 2


def test_collate_keys_match_the_first_alternative_of_a_field():
    maker = BatchMaker(Batch(size=2, collate={"x": "pad"}), ("x;y", "__key__"))
    padded, keys = maker(samples([1, 2], [3]))
    assert padded.lengths.tolist() == [2, 1]
    assert keys == ["k0", "k1"]


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        (["a", "bc"], {}, "a str in the field does not hold numbers"),
        ([1, 2], {}, "single numbers have no length"),
        (
            [np.zeros((2, 3)), np.zeros((2, 4))],
            {},
            r"pads axis 0, but the values differ in axis 1: .*`{pad: {axis: 1}}",
        ),
        ([np.zeros(2), np.zeros(3, np.uint8)], {}, "differ in type"),
        ([[1], [2, 3]], {"value": 0.5}, "fills with 0.5, but the values are int64"),
        ([np.zeros(2, np.uint8), np.zeros(3, np.uint8)], {"value": -1}, "which uint8 cannot hold"),
        ([[1], [2, 3]], {"axis": 1}, "names axis 1, but the values have 1 axes"),
        ([[[1], [2, 3]], [[1]]], {}, "not an array of numbers"),
    ],
)
def test_values_that_cannot_be_padded_are_explained(values, options, said):
    with pytest.raises(FieldError, match=said) as caught:
        batch_of(*values, collate={"x": {"pad": options}})
    assert caught.value.place == {"source": "a", "key": "k0, k1", "field": "x"}


def test_values_that_fit_no_nested_tensor_are_explained():
    with pytest.raises(FieldError, match=r"torch cannot make a nested tensor of \(2, 3\)"):
        batch_of(np.zeros((2, 3)), np.zeros((3, 4)), collate={"x": "nested"})


@pytest.mark.parametrize("options", [{"collate": {"y": "pad"}}, {"collate": {"y": "list"}}])
def test_an_unknown_field_is_reported(options):
    with pytest.raises(SpecError, match="names the field `y`, but a sample has x"):
        batch_of(1, 2, **options)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_delivers_padded_and_nested_fields(tmp_path, workers):
    texts = [b"[1, 2]", b"[3]", b"[4, 5, 6]", b"[7]"]
    write_shard(
        tmp_path / "a.tar", [(f"{i}", {"a.json": text, "b.json": text}) for i, text in enumerate(texts)]
    )
    spec = {
        "dataset": [{"shards": str(tmp_path / "a.tar"), "order": "sequential", "shuffle": 0}],
        "batch": {"size": 4, "collate": {"a.json": "pad", "b.json": "nested"}},
        "epoch": {"batches": 1},
    }
    with wdspec.loader(spec, num_workers=workers) as loader:
        (batch,) = loader
    assert batch["a.json"].lengths.tolist() == [2, 1, 3, 1]
    assert isinstance(batch["a.json"], Padded)
    assert batch["b.json"].is_nested
    assert [len(row) for row in batch["b.json"].unbind()] == [2, 1, 3, 1]


SOUND = Audio(np.zeros((1, 5), np.float32), 8000)
IMAGE, PAD_SOUND = (
    "as in `decode: {x: rgb8+random_resized_crop=224}`",
    "{pad: {axis: -1, lengths: x_lengths}}",
)


@pytest.mark.parametrize(
    ("values", "remedies"),
    [
        ([SOUND, SOUND._replace(samples=np.zeros((1, 7), np.float32))], ["add `+clip=5s`", PAD_SOUND]),
        (
            [Audio(torch.zeros(2, 5), 8000), Audio(torch.zeros(2, 7), 8000)],
            ["add `+clip=5s`", PAD_SOUND],
        ),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((5, 4, 3), np.uint8)], [IMAGE]),
        ([torch.zeros(3, 4, 4), torch.zeros(3, 5, 4)], [IMAGE]),
        ([Image.new("L", (4, 3)), Image.new("L", (4, 4))], [IMAGE]),
        ([np.zeros((4, 4), np.uint8), np.zeros((5, 4), np.uint8)], [IMAGE]),
        ([torch.zeros(8, 80), torch.zeros(9, 80)], ["{x: pad}"]),  # a spectrogram, or boxes
        ([torch.zeros(8, 80, 5), torch.zeros(9, 80, 5)], ["{x: pad}"]),
        ([torch.zeros(4, 8, 8, 3), torch.zeros(5, 8, 8, 3)], ["decode: {x: video+frames=8+"]),
        ([torch.zeros(4), torch.zeros(5)], ["{x: pad}"]),
    ],
)
def test_the_remedy_for_values_that_do_not_stack_fits_what_they_are(values, remedies):
    with pytest.raises(FieldError) as caught:
        batch_of(*values)
    said = caught.value.message
    assert all(remedy in said for remedy in remedies), said
    assert ("rgb8" in said) == (IMAGE in remedies)
    assert ("clip=5s" in said) == isinstance(values[0], Audio)
    assert ("video" in said) == any("video" in remedy for remedy in remedies)


def pad_lists_in_plain_python(values, side, most, fill):
    """(values, mask) of lists of lists of numbers, padded along both axes."""
    cut = [[list(item[:most]) for item in value[:most]] for value in values]
    items = max(len(value) for value in cut)
    longest = max(len(item) for value in cut for item in value)

    def spread(found, size, blank):
        blanks = [blank] * (size - len(found))
        return blanks + found if side == "left" else found + blanks

    padded = [
        spread([spread(item, longest, fill) for item in value], items, [fill] * longest) for value in cut
    ]
    ones = [[[1] * len(item) for item in value] for value in cut]
    mask = [spread([spread(item, longest, 0) for item in value], items, [0] * longest) for value in ones]
    return padded, mask


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("most", [None, 2, 100])
def test_lists_whose_items_differ_are_padded_item_by_item(side, most):
    rng = np.random.default_rng(5)
    for _ in range(30):
        values = [
            [rng.integers(1, 9, rng.integers(0, 5)).tolist() for _ in range(rng.integers(0, 4))]
            for _ in range(rng.integers(1, 4))
        ]
        if not any(item for value in values for item in value):
            continue
        found = pad(values, Padding(axis=(0, 1), side=side, value=-1, limit=most))
        expected, mask = pad_lists_in_plain_python(values, side, most, -1)
        assert found.values.tolist() == expected
        assert found.mask.int().tolist() == mask
        assert found.lengths.tolist() == [
            [min(len(value), most or 9), row]
            for value, row in zip(values, found.lengths[:, 1].tolist(), strict=True)
        ]


def test_lists_of_images_of_any_size_are_padded_to_the_largest():
    images = [
        [np.full((2, 3, 3), 7, np.uint8), np.full((4, 1, 3), 8, np.uint8)],
        [np.full((1, 1, 3), 9, np.uint8)],
    ]
    found = pad(images, Padding(axis=(0, 1, 2)))
    assert found.values.shape == (2, 2, 4, 3, 3)
    assert found.values.dtype == torch.uint8
    assert found.mask.sum() == 2 * 3 + 4 * 1 + 1
    for row, sample in enumerate(images):
        for at, image in enumerate(sample):
            high, wide, _ = image.shape
            assert (found.values[row, at, :high, :wide] == torch.from_numpy(image)).all()
            assert found.mask[row, at, :high, :wide].all()


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        ([[(3, 4, 5), (3, 6, 4)], [(3, 4, 4)]], [0, 2, 3]),
        ([[(3, 4, 5)], [(3, 6, 4)]], [2, 3]),
        ([[(3, 4, 5)], [(3, 4, 4), (3, 4, 4)]], [0, 3]),
        ([[(3, 4, 5), (3, 4, 4)]], [0, 3]),
        ([(4, 5), (6, 2)], [0, 1]),
    ],
)
def test_the_remedy_for_values_that_differ_names_all_axes_whatever_was_named(shapes, axes):
    def array_of(shape):
        return np.ones(shape, np.float32) if isinstance(shape, tuple) else [array_of(each) for each in shape]

    values = [array_of(shape) for shape in shapes]
    for wrong in ((0,), (1,), (0, 1), (0, 2)):
        if not set(axes) <= set(wrong) and (max(wrong) < 2 or isinstance(shapes[0], list)):
            with pytest.raises(FieldError) as caught:
                pad(values, Padding(axis=wrong))
            assert f"`{{pad: {{axis: {axes}}}}}`" in caught.value.message
    assert len(pad(values, Padding(axis=tuple(axes))).values) == len(values)


def test_items_that_are_cut_off_are_reported_and_uneven_lists_need_their_axes():
    reported = []
    cut = pad([[[1, 2, 3], [4]]], Padding(axis=(0, 1), length=2), reported.append)
    assert cut.values.tolist() == [[[1, 2], [4, 0]]]
    assert reported == [3]
    with pytest.raises(FieldError, match="name all axes that differ"):
        pad([[[1, 2, 3], [4]]], Padding())
    with pytest.raises(FieldError, match="write an empty list in the data"):
        pad([[1], None], Padding())
    with pytest.raises(FieldError, match="differ in type or in their number of axes"):
        pad([[[1], 2]], Padding(axis=(0, 1), length=2), reported.append)
