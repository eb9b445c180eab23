"""A key of `decode` without effect: a problem of the spec if visible there, else a warning in the first samples."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import SpecError
from wdspec.fields import samples as module
from wdspec.fields.samples import TRIAL, SampleFields
from wdspec.formats.compression import BY_NAME
from wdspec.spec.language.decoders import PACKINGS
from wdspec.spec.load import load


def problems(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    try:
        load(file)
    except SpecError as error:
        return [(problem.line, f"{problem.code} {problem.message}") for problem in error.problems]
    return []


def source(**keys: Any) -> str:
    return "".join(f"    {key}: {value}\n" for key, value in keys.items())


def test_a_misspelt_key_is_reported_at_its_place(tmp_path: Path) -> None:
    text = "dataset:\n  - shards: a.tar\n    name: a\n" + source(
        extensions="jpg;png txt", rename="{image: jpg}", decode="{imgae: rgb8, txt: raw}"
    )
    assert problems(tmp_path, text) == [(6, "E315 no field is called `imgae`: `a` has `image`, `jpg`, `txt`")]


@pytest.mark.parametrize("key", ["image", "jpg", "png", "seg.png", "SEG.png", "json", "json.gz", "txt", "y"])
def test_every_spelling_that_matches_a_field_is_accepted(key: str, tmp_path: Path) -> None:
    keys = source(
        extensions="jpg;seg.png meta.json.gz txt", rename="{image: jpg, y: txt}", decode=f"{{{key}: raw}}"
    )
    assert problems(tmp_path, "dataset:\n  - shards: a.tar\n" + keys) == []


@pytest.mark.parametrize("extensions", [None, '"*.jpg txt"', '"jpg s?g.png"'])
def test_nothing_is_reported_if_the_match_depends_on_files(extensions: str | None, tmp_path: Path) -> None:
    keys = source(**({"extensions": extensions} if extensions else {}), decode="{any: raw}")
    assert problems(tmp_path, "dataset:\n  - shards: a.tar\n" + keys) == []


def test_defaults_are_checked_against_all_sources_together(tmp_path: Path) -> None:
    text = "defaults:\n  decode: {jpg: rgb8, txt: raw}\ndataset:\n" + "".join(
        f"  - {{name: {name}, shards: {name}.tar, extensions: {extensions}}}\n"
        for name, extensions in {"a": "jpg", "b": "txt"}.items()
    )
    assert problems(tmp_path, text) == []
    found = problems(tmp_path, text.replace("extensions: txt", "extensions: json"))
    assert [line for line, _ in found] == [2]
    assert "`txt`" in found[0][1]


def fields(**options: Any) -> SampleFields:
    return SampleFields(secure=False, **options)


def test_a_key_that_matches_no_sample_causes_one_warning() -> None:
    decode = fields(fields={"imgae": "txt", "jpg": "raw"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in range(3 * TRIAL):
            assert decode({"__key__": str(index), "jpg": b"x", "txt": b"y"}) is not None
            assert bool(caught) == (index >= TRIAL - 1)
    assert [str(each.message) for each in caught] == [
        "`decode` has `imgae`, but no field matched in 100 samples; the fields of the last one are: jpg, txt. "
        "Keys are names of fields, or suffixes of files"
    ]


@pytest.mark.filterwarnings("error")
def test_keys_that_match_sometimes_are_accepted_and_then_free(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = fields(fields={"txt": "raw", "seg.jpg": "raw"})
    for index in range(TRIAL):
        decode({"txt": b""} if index % 2 else {"a.seg.jpg": b""})
    monkeypatch.setattr(module.SampleFields, "_study", lambda *names: pytest.fail("studied again"))
    decode({"txt": b""})


def warnings_of(folder: Path, **more: Any) -> list[str]:
    """The warnings about keys of `decode` in 300 samples with a png and a txt, of which the last one has a cls."""
    samples = [(f"k{n:03d}", {"txt": b"x", "png": b"y"}) for n in range(300)]
    samples[-1][1]["cls"] = b"1"
    write_shard(folder / "a.tar", samples)
    spec = {"dataset": [{"name": "a", "shards": str(folder / "a.tar"), **more.pop("source")}], **more}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with wdspec.loader({"epoch": "pass", **spec}, num_workers=0) as loader:
            for _ in loader:
                pass
    return [str(each.message) for each in caught if "`decode` has" in str(each.message)]


@pytest.mark.parametrize(
    "more",
    [
        {"fields": "txt", "source": {"decode": {"png": "raw"}}},
        {"to_tuple": "txt __mask__", "source": {"decode": {"png": "raw"}}},
        {"fields": "txt", "source": {"decode": {"image": "raw"}, "rename": {"image": "png"}}},
        {"source": {"decode": {"png": "raw"}, "extensions": "png cls", "missing": "skip"}},
        {"source": {"decode": {"png": "raw"}, "extensions": "png cls", "errors": "skip"}},
    ],
    ids=str,
)
def test_a_key_whose_field_is_left_out_or_skipped_causes_no_warning(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    assert warnings_of(tmp_path, **more) == []


@pytest.mark.parametrize("source", [{}, {"extensions": "*.txt;txt"}], ids=str)
def test_a_misspelled_key_causes_a_warning_also_if_fields_are_left_out(
    tmp_path: Path, source: dict[str, Any]
) -> None:
    (said,) = warnings_of(tmp_path, fields="txt", source={"decode": {"pgn": "raw"}, **source})
    assert "`decode` has `pgn`" in said


def test_each_worker_checks_keys_again() -> None:
    decode = pickle.loads(pickle.dumps(fields(fields={"nothing": "raw"})))
    with pytest.warns(UserWarning, match="nothing"):
        all(decode({"txt": b""}) for _ in range(TRIAL))


def test_language_and_decoders_know_the_same_packings() -> None:
    assert set(BY_NAME) == PACKINGS
