"""A missing field: the error names the files that samples have, and those of the same format."""

import io
import json
import tarfile

import pytest

import wdspec
from wdspec.spec.load import check


def read(folder, files, *, batch=1, **source):
    with tarfile.open(folder / "a.tar", "w") as tar:
        for name in files:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    spec = {
        "dataset": [{"name": "a", "shards": f"{folder}/a.tar", "decode": "raw", **source}],
        "batch": batch,
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        return next(iter(loader))


@pytest.mark.parametrize(
    ("files", "source", "says"),
    [
        (["0.jpeg", "0.json"], {"extensions": "jpg"},
         r"; write `jpg;jpeg` in `extensions` to take `jpeg` as well, or set `missing: skip` or `missing: none`. "
         r"Samples also have jpeg, json, which `extensions` leaves out"),
        (["0.tiff", "0.cls"], {"extensions": "tif cls"}, r"write `tif;tiff` in `extensions` to take `tiff` as well"),
        (["0.jpeg", "0.cls"], {"rename": {"image": "jpg"}}, r"write `image: jpg;jpeg` in `rename`"),
    ],
)  # fmt: skip
def test_an_error_for_a_missing_file_names_the_suffix_of_the_same_format(tmp_path, files, source, says):
    with pytest.raises(wdspec.FieldError, match=says):
        read(tmp_path, files, **source)


def test_an_image_of_another_format_is_suggested_where_samples_have_both(tmp_path):
    says = (
        "this sample lacks it, or has null; write `image: jpg;png` in `rename` and `jpg;png` in `extensions` to take "
        "`png` as well, or set `missing: skip`"
    )
    files = ["0.jpg", "0.cls", "1.png", "1.cls"]
    with pytest.raises(wdspec.FieldError, match=says):
        read(
            tmp_path,
            files,
            batch=2,
            extensions="jpg cls",
            rename={"image": "jpg"},
            order="sequential",
            shuffle=0,
        )


@pytest.mark.parametrize("source", [{"extensions": "jpg;jpeg"}, {"rename": {"image": "jpg;jpeg"}}])
def test_the_suffix_that_the_error_names_is_read(tmp_path, source):
    assert {"jpg", "image"} & read(tmp_path, ["0.jpeg"], **source).keys()


def test_other_formats_are_not_suggested(tmp_path):
    with pytest.raises(wdspec.FieldError, match="Samples also have png, which") as said:
        read(tmp_path, ["0.png"], extensions="jpg")
    assert "as well" not in str(said.value)


@pytest.mark.parametrize(
    ("extensions", "hint"),
    [
        ("jpg;JPG", "write `jpg`, as letter case is ignored"),
        ("txt jpg;png;Jpg", "write `jpg;png`, as letter case is ignored"),
    ],
)
def test_an_alternative_that_differs_in_letter_case_alone_is_a_warning(extensions, hint):
    problems = check({"dataset": [{"shards": "a.tar", "extensions": extensions}]})[1]
    assert [(each.code, each.hint) for each in problems] == [("W375", hint)]


def test_other_alternatives_are_no_problem():
    assert not check({"dataset": [{"shards": "a.tar", "extensions": "jpg;jpeg;png txt"}]})[1]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"extensions": "png"}, "`png;other` in `extensions`"),
        (
            {"extensions": "png", "rename": {"image": "png"}},
            "`image: png;other` in `rename` and `png;other` in `extensions`",
        ),
    ],
)
def test_an_alternative_is_written_in_each_key_that_names_the_field(tmp_path, keys, said):
    files = ["0.jpg", "0.cls"]
    with pytest.raises(wdspec.WdspecError, match=f"write {said}, or set"):
        read(tmp_path, files, **keys)
    assert read(
        tmp_path,
        files,
        **{key: json.loads(json.dumps(each).replace("png", "png;jpg")) for key, each in keys.items()},
    )
