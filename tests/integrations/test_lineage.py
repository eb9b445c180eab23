"""`wdspec report` over all starts of a run, and its documents: a training-content summary, SPDX 3 and OpenLineage."""

import io
import json
from collections import Counter
from itertools import islice
from pathlib import Path

import jsonschema
import pytest
import spdx_python_model
from commandline import within
from referencing import Registry, Resource
from shardmaking import write_source

import wdspec
from wdspec.cli.report_facts import ReadReport, Start
from wdspec.cli.report_summary import summary_of

SCHEMAS = Path(__file__).parent / "openlineage"
SECTIONS = [
    *("## 1. General information", "### 1.1 Provider identification", "### 1.2 Model identification"),
    "### 1.3 Modalities, overall training data size and other characteristics",
    *("## 2. List of data sources", "### 2.1 Publicly available datasets"),
    "### 2.2 Private non-publicly available datasets obtained from third parties",
    "#### 2.2.1 Datasets commercially licensed by rightsholders or their representatives",
    "#### 2.2.2 Private datasets obtained from other third parties",
    *("### 2.3 Data crawled and scraped from online sources", "### 2.4 User data", "### 2.5 Synthetic data"),
    *("### 2.6 Other sources of data", "## 3. Data processing aspects"),
    "### 3.1 Respect of reservation of rights from the text and data mining exception or limitation",
    *("### 3.2 Removal of illegal content", "### 3.3 Other information"),
]
"""The headings of the template, in order."""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    write_source(tmp_path, "a")
    write_source(tmp_path, "b")
    monkeypatch.chdir(tmp_path)
    source = {
        "license": "CC-BY-4.0",
        "homepage": "https://example.org/a",
        "revision": "v2",
    }
    return {
        "name": "mine",
        "dataset": [
            {"name": "a", "shards": "a-{000..003}.tar", "weight": 3, **source},
            {"name": "b", "shards": "b-{000..003}.tar", "weight": 1, "where": "txt != 'x'"},
        ],
        "seed": 3,
        "batch": 4,
        "epoch": 80,
    }


def start(spec, state, steps, *records):
    """Read some steps in a new start of a run, with a record before and after; returns the state and what came."""
    received = Counter()
    with wdspec.loader(spec, num_workers=0) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for record in records[:1]:
            wdspec.log_run(loader, record)
        for batch in islice(loader, steps):
            received.update(batch["__source__"])
        for record in records[1:]:
            wdspec.log_run(loader, record)
        read = sum(each.bytes for each in loader.stats().sources.values())
        return loader.state_dict(), received, read


def report(*files, form="json", **options):
    return within("report", *files, "--format", form, folder=".", **options)[0]


def test_samples_and_bytes_are_those_of_all_starts(spec):
    state, first, read = start(spec, None, 6, "0.json", "1.json")
    _, second, more = start(spec, state, 5, "2.json", "3.json")
    found = json.loads(report("0.json", "1.json", "2.json", "3.json"))
    assert {name: each["samples"] for name, each in found["sources"].items()} == first + second
    assert sum(each["bytes"] for each in found["sources"].values()) == read + more
    assert [(each["first"], each["last"], each["bytes"]) for each in found["starts"]] == [
        (0, 6, read),
        (6, 11, more),
    ]
    assert found["batches"] == 11
    text = report("1.json", "3.json", form="text")
    assert "starts" in text
    assert "warning" not in text


def test_a_start_that_left_no_record_is_named(spec):
    state, first, read = start(spec, None, 6, "0.json", "1.json")
    state, lost, _ = start(spec, state, 3)
    _, last, more = start(spec, state, 2, "2.json", "3.json")
    files = ("0.json", "1.json", "2.json", "3.json")
    found = json.loads(report(*files))
    assert {name: each["samples"] for name, each in found["sources"].items()} == first + lost + last
    assert sum(each["bytes"] for each in found["sources"].values()) == read + more
    for form in ("text", "summary"):
        assert "he steps 6 to 9 of ranks 0 of 1 were read in a start that left no record" in report(
            *files, form=form
        )


def test_a_start_that_was_killed_after_its_first_record_is_named(spec):
    """It is resumed from the same step, so no step lacks a record."""
    state, first, read = start(spec, None, 6, "0.json", "1.json")
    start(spec, state, 3, "killed.json")
    _, last, more = start(spec, state, 5, "2.json", "3.json")
    files = ("0.json", "1.json", "2.json", "3.json")
    found = json.loads(report(*files, "killed.json"))
    assert {name: each["samples"] for name, each in found["sources"].items()} == first + last
    assert sum(each["bytes"] for each in found["sources"].values()) == read + more
    for form in ("text", "summary"):
        assert "he start of rank 0 at step 6 left no record after its first one" in report(
            *files, "killed.json", form=form
        )
        assert "left no record" not in report(*files, form=form)


def start_ranks(spec, state, ranks, steps, name):
    """Read some steps on a number of ranks, with a record of each; returns the state, what came, and the bytes."""
    received, read, states = Counter(), 0, []
    for rank in range(ranks):
        with wdspec.loader(spec, num_workers=0, rank=rank, world_size=ranks) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for batch in islice(loader, steps):
                received.update(batch["__source__"])
            wdspec.log_run(loader, f"{name}-{rank}.json")
            read += sum(each.bytes for each in loader.stats().sources.values())
            states.append(loader.state_dict())
    return wdspec.merge_states(states), received, read


def test_starts_may_have_other_numbers_of_processes(spec):
    spec |= {"elastic": {"ranks": 2, "workers": 1}, "epoch": 400}
    state, total, read = None, Counter(), 0
    for name, ranks, steps in (("a", 2, 6), ("b", 1, 3), ("c", 2, 2)):
        state, received, more = start_ranks(spec, state, ranks, steps, name)
        total, read = total + received, read + more
    files = sorted(path.name for path in Path().glob("[abc]-*.json"))
    found = json.loads(report(*files))
    assert {name: each["samples"] for name, each in found["sources"].items()} == total
    assert sum(each["bytes"] for each in found["sources"].values()) == read
    text = report(*files, form="text")
    assert "left no record" not in text
    assert "without those" not in text
    without = [file for file in files if file != "b-0.json"]
    assert "the steps 6 to 9 of ranks 0 to 1 of 2" in report(*without, form="text")
    assert "bytes are without those of 1 process " in report(*(set(files) - {"a-1.json"}), form="text")
    said = within("report", *(set(files) - {"c-1.json"}), folder=".", code=1)[1]
    assert "name the last records of all ranks" in said


def test_events_follow_the_schema_of_openlineage(spec):
    state, first, _ = start(spec, None, 6, "0.json", "1.json")
    _, second, _ = start(spec, state, 5, "2.json", "3.json")
    lines = report("3.json", "0.json", "1.json", "2.json", form="openlineage").splitlines()
    events = [json.loads(line) for line in lines]
    assert [each["eventType"] for each in events] == ["START", *["RUNNING"] * 3, "COMPLETE"]
    assert len({each["run"]["runId"] for each in events}) == 1
    names = ("OpenLineage", "InputStatisticsInputDatasetFacet")
    loaded = [json.loads((SCHEMAS / f"{name}.json").read_text()) for name in names]
    registry = Registry().with_resources((each["$id"], Resource.from_contents(each)) for each in loaded)
    checks = jsonschema.FormatChecker()
    event = jsonschema.Draft202012Validator(loaded[0], registry=registry, format_checker=checks)
    facets = jsonschema.Draft202012Validator(loaded[1], registry=registry, format_checker=checks)
    for each in events:
        event.validate(each)
        for dataset in each["inputs"]:
            facets.validate(dataset["inputFacets"])
    counts = {each["inputFacets"]["wdspec_source"]["source"]: each for each in events[-1]["inputs"]}
    assert {
        name: each["inputFacets"]["inputStatistics"]["rowCount"] for name, each in counts.items()
    } == first + second
    assert counts["a"]["inputFacets"]["wdspec_source"]["license"] == "CC-BY-4.0"
    assert "inputStatistics" not in events[0]["inputs"][0]["inputFacets"]


def test_a_dataset_in_a_bucket_is_named_as_openlineage_names_it(spec):
    start(spec, None, 1, "0.json")
    record = json.loads(Path("0.json").read_text())
    record["spec"]["dataset"][0]["shards"] = ["s3://key:secret@bucket/x/a-{000..003}.tar"]
    Path("0.json").write_text(json.dumps(record))
    text = report("0.json", form="openlineage")
    assert "secret" not in text
    [first, second] = json.loads(text.splitlines()[0])["inputs"]
    assert first["namespace"].startswith("s3://")
    assert first["name"] == "x/a-{000..003}.tar"
    assert (second["namespace"], second["name"]) == ("file", "b-{000..003}.tar")


def test_the_document_of_spdx_has_the_model_and_what_it_was_trained_on(spec):
    start(spec, None, 6, "0.json", "1.json")
    text = report("0.json", "1.json", "--model", "tiny", form="spdx")
    model = spdx_python_model.v3_0_1
    objects = model.SHACLObjectSet()
    model.JSONLDDeserializer().read(io.BytesIO(text.encode()), objects)
    [package] = objects.foreach_type(model.ai_AIPackage)
    assert package.name == "tiny"
    datasets = {each.name: each for each in objects.foreach_type(model.dataset_DatasetPackage)}
    assert datasets.keys() == {"a", "b"}
    assert datasets["a"].software_packageVersion == "v2"
    relations = {
        each.relationshipType.rpartition("/")[2]: each for each in objects.foreach_type(model.Relationship)
    }
    assert relations["trainedOn"].from_ is package
    assert [*relations["trainedOn"].to] == [datasets["a"], datasets["b"]]
    [license] = relations["hasDeclaredLicense"].to
    assert license.simplelicensing_licenseExpression == "CC-BY-4.0"
    [document] = objects.foreach_type(model.SpdxDocument)
    assert "b: license (`license`)" in document.comment
    assert not objects.missing_ids


def test_the_summary_has_the_sections_of_the_template_and_says_what_is_missing(spec):
    _, received, _ = start(spec, None, 6, "0.json", "1.json")
    text = report("0.json", "1.json", "--model", "tiny", form="summary")
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert [each for each in headings if each in SECTIONS] == SECTIONS
    assert text.count("**To be filled in.**") >= 12
    assert "not a statement of compliance" in text
    assert "- Model and versions: tiny" in text
    assert f"- Data of this run: {received.total():,} samples" in text
    assert "| a | https://example.org/a | CC-BY-4.0 | v2 |" in text
    assert "`b`: the spec leaves out samples (`where`)" in text
    record = json.loads(Path("1.json").read_text())
    record["spec"]["dataset"][0]["meta"] = {"origin": "public"}
    Path("1.json").write_text(json.dumps(record))
    text = report("1.json", form="summary")
    before, _, after = text.partition("### 2.2 ")
    assert "| a | https://example.org/a |" in before
    assert "| a |" not in after
    assert "| b | ? | ? | ? |" in after.partition("### Sources without an origin")[2]


def test_documents_have_the_sources_of_nested_mixes_and_companions(spec, tmp_path):
    write_source(tmp_path, "noise")
    plain, other = spec["dataset"]
    public = {"meta": {"origin": "public"}}
    nested = {"name": "group", "dataset": [plain | public], "weight": 3}
    noise = {
        "shards": "noise-{000..003}.tar",
        "license": "MIT",
        "homepage": "https://example.org/noise",
        **public,
    }
    mixed = {"dataset": [nested, other | {"companions": {"sound": "noise"}}], "companions": {"noise": noise}}
    start(spec | mixed, None, 6, "0.json", "1.json")
    graph = json.loads(report("1.json", form="spdx"))["@graph"]
    assert {each["name"] for each in graph if each["type"] == "dataset_DatasetPackage"} == {"a", "b", "noise"}
    events = [json.loads(line) for line in report("1.json", form="openlineage").splitlines()]
    assert len(events[-1]["inputs"]) == 3
    summary = report("1.json", form="summary").partition("### 2.2")[0]
    assert "| a | https://example.org/a | CC-BY-4.0 |" in summary
    assert "| noise | https://example.org/noise | MIT |" in summary


def test_shares_of_the_summary_are_of_one_kind():
    sources = {"text": {"samples": 60, "tokens": 6000}, "images": {"samples": 40}}
    made = ReadReport("s", "d", 1, (0,), 1, sources, 1, ())
    record = {"spec": {}, "read": {"stats": {"sources": {}}}}
    lines = [line for line in summary_of(made, record).splitlines() if line[:3] in ("| t", "| i")]
    assert [line.split(" | ")[-1] for line in lines] == ["60.00% |", "40.00% |"]


def test_after_a_rollback_only_what_the_last_start_received_counts(spec):
    state, *_ = start(spec, None, 4, "0.json")
    start(spec, state, 10, "1.json", "2.json")
    start(spec, state, 2, "3.json", "4.json")
    for name, second in (("1", 1), ("2", 2), ("3", 3), ("4", 4)):  # they have the same second here
        record = json.loads(Path(f"{name}.json").read_text())
        Path(f"{name}.json").write_text(json.dumps(record | {"time": f"2999-01-01T00:00:0{second}+00:00"}))
    found = json.loads(report(*(f"{number}.json" for number in range(5))))
    assert sum(each["samples"] for each in found["sources"].values()) == (4 + 2) * 4


def test_starts_from_the_same_step_are_told_apart_by_their_ranks():
    def begun(rank):
        return Start(rank, 8, (rank,), 0, 5, "t", 1)

    made = ReadReport("s", "d", 5, (0,), 1, {}, 5, (begun(0), *map(begun, range(8))))
    assert made.silent == 7


def test_a_record_that_lacks_something_is_damaged(spec):
    start(spec, None, 2, "0.json")
    record = json.loads(Path("0.json").read_text())
    for name in ("digest", "time"):
        Path("1.json").write_text(json.dumps({key: each for key, each in record.items() if key != name}))
        assert f"the record is damaged: `{name}` is missing" in within("report", "1.json", code=1)[1]


def test_a_record_of_another_version_is_an_error(spec):
    start(spec, None, 2, "0.json")
    record = json.loads(Path("0.json").read_text())
    for version in (0, 2, "1", None):
        Path("1.json").write_text(json.dumps({**record, "version": version}))
        for command in (["report", "0.json", "1.json"], ["diff", "0.json", "1.json"]):
            said = within(*command, code=1)[1]
            assert f"the record has version {version}, this wdspec reads version 1" in said
            assert "1.json" in said
