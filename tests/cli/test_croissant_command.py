"""`wdspec croissant`: valid by MLCommons' own library, and true to the spec."""

import json

import mlcroissant
import pytest
from commandline import within as wdspec
from shardmaking import write_source

from wdspec.cli.croissant import CONTEXT, MANY, ONE, REQUIRED

SPEC = """
wdspec: 1
name: pages
description: Scanned pages and photos.
dataset:
  - {name: scans, shards: "shards/a-*.tar", weight: 3, extensions: jpg;png txt cls, samples: 6,
     license: CC-BY-4.0, homepage: https://example.org/scans, revision: v2, map: m:clean}
  - {name: photos, shards: "hf://datasets/o/photos/p-{0000..2999}.tar", weight: 1, rename: {image: jpg},
     license: https://example.org/terms}
"""
RAI = """
dataCollection: Scanned by hand.
dataBiases: [Only English books.]
rai:dataLimitations: [Not for handwriting.]
dataUseCases: Training of OCR.
personalSensitiveInformation: [None known.]
"""
GIVEN = ("--creator", "A lab", "--date", "2026-11-01", "--cite-as", "@misc{pages}", "--version", "2.1.0")


@pytest.fixture
def folder(tmp_path):
    write_source(tmp_path / "shards", "a", shards=2, samples=3)
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "rai.yaml").write_text(RAI)
    return tmp_path


def document(folder, *arguments):
    shown, said = wdspec("croissant", "spec.yaml", *arguments, folder=folder)
    return json.loads(shown), said


def test_it_is_valid_without_a_warning(folder):
    made, said = document(folder, "--rai", "rai.yaml", *GIVEN)
    assert said == ""
    (folder / "croissant.json").write_text(json.dumps(made))
    found = mlcroissant.Dataset(str(folder / "croissant.json"))
    issues = found.metadata.ctx.issues
    assert (issues.errors, issues.warnings) == (set(), set())
    assert str(found.metadata.ctx.conforms_to.value).endswith("/1.1")
    shares = {row["mixture/source"]: row["mixture/share"] for row in found.records("mixture")}
    assert shares == {"scans": 0.75, "photos": 0.25}
    assert found.metadata.data_biases == ["Only English books."]


def test_the_terms_are_those_of_croissant_1_1():
    from mlcroissant._src.core.rdf import make_context

    ctx = mlcroissant.Context(conforms_to="http://mlcommons.org/croissant/1.1")
    assert make_context(ctx) == {key: CONTEXT[key] for key in make_context(ctx)}


def test_it_describes_the_spec(folder):
    made, _ = document(folder, "--rai", "rai.yaml")
    assert made["name"] == "pages"
    assert made["url"] == "https://example.org/scans"
    assert made["license"] == ["https://spdx.org/licenses/CC-BY-4.0.html", "https://example.org/terms"]
    assert made["rai:dataPreprocessingProtocol"] == ["scans: map m:clean"]
    files = {each["@id"]: each for each in made["distribution"]}
    assert files["scans"]["contentUrl"] == "shards/"
    assert "revision v2" in files["scans"]["description"]
    assert files["scans/shards"]["includes"] == ["a-000.tar", "a-001.tar"]
    assert files["photos/shards"]["includes"] == ["p-{0000..2999}.tar"]
    assert files["scans/files/jpg"]["includes"] == ["*.jpg", "*.png"]
    kinds = {each["@id"]: each["field"][1]["dataType"] for each in made["recordSet"][1:]}
    assert kinds == {
        "scans/jpg": "sc:ImageObject",
        "scans/txt": "sc:Text",
        "scans/cls": "sc:Integer",
        "photos/image": "sc:ImageObject",
    }


def test_missing_facts_are_reported(folder):
    _, said = document(folder)
    assert said.splitlines() == [
        "note: `datePublished` is missing (--date)",
        "note: `creator` is missing (--creator)",
        "note: `citeAs` is missing (--cite-as)",
        *(f"note: `rai:{name}` is missing (--rai)" for name in REQUIRED),
    ]


def test_shards_can_come_from_a_lock(folder):
    (folder / "spec.yaml").write_text(SPEC.split("  - {name: photos")[0])
    wdspec("lock", "spec.yaml", folder=folder)
    write_source(folder / "shards", "a-later", shards=1, samples=1)
    made, _ = document(folder, "--lock", "spec.lock.json")
    assert made["distribution"][1]["includes"] == ["a-000.tar", "a-001.tar"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "dataBiasses: x",
            "`dataBiasses` is not a statement of Croissant's RAI vocabulary; did you mean `dataBiases`?",
        ),
        ("- x", "not a map of statements"),
        ("dataBiases: 3", "takes a text, or a list of texts"),
        ("dataCollection: [a, b]", "takes one text, not 2"),
        ("{", "this is not YAML"),
    ],
)
def test_invalid_statements_are_rejected(folder, text, says):
    (folder / "rai.yaml").write_text(text)
    assert says in wdspec("croissant", "spec.yaml", "--rai", "rai.yaml", folder=folder, code=1)[1]


def test_the_vocabulary_is_that_of_mlcroissant():
    from mlcroissant._src.core import constants

    known = {
        str(value).rpartition("/")[2]
        for name, value in vars(constants).items()
        if name.startswith("ML_COMMONS_RAI_")
    }
    ours = {*ONE, *MANY}
    assert known - ours == {"dataDataManipulationProtocol", "dataCollectionTimeFrame"}  # misspelt there
    assert ours - known == {"dataManipulationProtocol", "dataCollectionTimeframe"}
