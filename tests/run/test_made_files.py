"""What is in the files of `make` is part of what a run reads: of the order only if the order reads the field."""

import json
import warnings

import pytest
from click.testing import CliRunner
from shardmaking import write_shard

import wdspec
from wdspec.cli.main import cli
from wdspec.planning.digest import describe_order, describe_samples, differences, digest
from wdspec.shards.shards import list_shards

ANIMALS = ["cat", "dog", "bird"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "a.tar", [(f"{n:03}", {"txt": ANIMALS[n * n % 3].encode()}) for n in range(40)])
    (tmp_path / "names.txt").write_text("cat\ndog\nbird\n")
    (tmp_path / "m.py").write_text("def yes(sample):\n    return True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


WINDOWS = {"cost": "kind + 1", "max_cost": 6, "window": 12}
READERS = {
    "nothing": {},
    "where": {"where": "kind < 2"},
    "where through another": {"where": "twin < 2"},
    "subset": {"subset": {"of": "kind", "part": "60%"}},
    "select": {"select": "m:yes"},
    "cost": {"batch": WINDOWS},
    "group": {"batch": {"size": 2, "group_by": "kind", "window": 12, "incomplete": "merge"}},
    "another cost": {"batch": WINDOWS | {"cost": "txt.length"}},
}
IN_ORDER = {name: name not in ("nothing", "another cost") for name in READERS}


def spec_of(name="names.txt", batch=None, **keys):
    make = {"kind": {"label": "txt", "file": name}, "twin": {"label": "kind", "names": ["0", "1", "2"]}}
    return {"dataset": [{"name": "a", "shards": "a.tar", "make": make, **keys}], "batch": batch or 2}


def digests(spec):
    loaded = wdspec.load(spec)
    files = list_shards(loaded).files
    return digest(describe_order(loaded, wdspec.plan(loaded), files)), describe_samples(loaded, files)


@pytest.mark.parametrize("reader", READERS)
def test_other_contents_change_the_order_only_if_it_reads_the_field(reader, folder):
    before = digests(spec_of(**READERS[reader]))
    (folder / "names.txt").write_text("dog\ncat\nbird\n")
    order, samples = digests(spec_of(**READERS[reader]))
    assert samples != before[1]
    assert (order != before[0]) is IN_ORDER[reader]


@pytest.mark.parametrize("reader", READERS)
def test_another_name_of_the_same_contents_is_no_change(reader, folder):
    before = digests(spec_of(**READERS[reader]))
    (folder / "moved").mkdir()
    (folder / "names.txt").rename(folder / "moved" / "classes.txt")
    assert digests(spec_of("moved/classes.txt", **READERS[reader])) == before


@pytest.mark.parametrize("reader", READERS)
def test_a_run_that_resumes_says_which_field_has_changed(reader, folder):
    spec = spec_of(**READERS[reader])
    with wdspec.loader(spec, num_workers=0) as loader:
        next(iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
    (folder / "names.txt").write_text("dog\ncat\nbird\n")
    with wdspec.loader(spec, num_workers=0) as loader:
        if IN_ORDER[reader]:
            with pytest.raises(
                wdspec.UsageError,
                match=r"\n  the file \S*/names\.txt of `make: kind` has other contents\nundo",
            ):
                loader.load_state_dict(state)
        else:
            with pytest.warns(
                UserWarning,
                match=r"was saved, the file \S*/names\.txt of `make: kind` changed: the order is the same",
            ):
                loader.load_state_dict(state)


@pytest.mark.parametrize("reader", ["where", "nothing"])
def test_diff_compares_the_contents(reader, folder):
    (folder / "old.txt").write_text("cat\ndog\nbird\n")
    (folder / "new.txt").write_text("dog\ncat\nbird\n")
    for name in ("old", "new", "same"):
        file = "names.txt" if name == "same" else f"{name}.txt"
        (folder / f"{name}.yaml").write_text(json.dumps(spec_of(file, **READERS[reader])))
    changed = CliRunner().invoke(cli, ["diff", "old.yaml", "new.yaml"]).output
    if reader == "where":
        assert "new.txt of `make: kind` has other contents" in " ".join(changed.split())
    else:
        assert "new.txt of `make: kind` changed" in " ".join(changed.split())
    assert "both runs read the same, in the same order" not in changed
    with warnings.catch_warnings():
        same = CliRunner().invoke(cli, ["diff", "old.yaml", "same.yaml"]).output
    assert "other contents" not in same


def state_of(spec, steps=1):
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = iter(loader)
        for _ in range(steps):
            next(batches)
        return json.loads(json.dumps(loader.state_dict()))


def refusal(spec, state):
    with wdspec.loader(spec, num_workers=0) as loader, pytest.raises(wdspec.UsageError) as refused:
        loader.load_state_dict(state)
    return str(refused.value)


def warnings_of(spec, state, **options):
    with wdspec.loader(spec, num_workers=0) as loader, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader.load_state_dict(state, **options)
    return [str(each.message) for each in caught]


def test_a_file_that_several_sources_read_is_named_once(folder):
    spec = spec_of(batch=WINDOWS)
    spec["dataset"].append(spec["dataset"][0] | {"name": "b"})
    state = state_of(spec)
    (folder / "names.txt").write_text("dog\ncat\nbird\n")
    assert refusal(spec, state).count("names.txt") == 1


@pytest.mark.parametrize("reader", ["cost", "where"])
def test_a_window_that_cannot_be_finished_says_which_file_is_the_reason(reader, folder):
    spec = spec_of(**{"batch": WINDOWS} | READERS[reader])
    state = state_of(spec)
    (folder / "names.txt").write_text("dog\ncat\nbird\n")
    said = warnings_of(spec, state, allow_changed=True)
    why = "because a file of `make: kind` has other contents: they resume at its start"
    assert any(why in each for each in said)
    assert not any("rename" in each or "another order" in each for each in said)


def test_other_files_of_two_sources_are_a_change_of_the_field(folder):
    (folder / "b.txt").write_text("dog\ncat\nbird\n")
    spec = spec_of() | {"fields": ["kind"]}
    make = {"kind": {"label": "txt", "file": "b.txt"}}
    spec["dataset"].append(spec["dataset"][0] | {"name": "b", "make": make})
    state = state_of(spec)
    (folder / "b.txt").rename(folder / "c.txt")
    (folder / "names.txt").rename(folder / "b.txt")
    (folder / "c.txt").rename(folder / "names.txt")
    (said,) = warnings_of(spec, state)
    assert said.startswith("since the state was saved, a file of `make: kind` changed")


def test_other_options_of_a_step_are_not_said_to_be_files(folder):
    spec = spec_of()
    state = state_of(spec)
    spec["dataset"][0]["make"]["kind"]["aliases"] = {"kitty": "cat"}
    (said,) = warnings_of(spec, state)
    assert "`make`" in said
    assert "names.txt" not in said


def test_shares_that_changed_are_printed_as_percentages(folder):
    spec = spec_of()
    spec["dataset"].append(spec["dataset"][0] | {"name": "b"})
    long = "68153002101704675821129151075984206914607037430/443230390640175058500000000000000000000000000001"
    state = state_of(spec)
    spec["dataset"][0]["weight"], spec["dataset"][1]["weight"] = 2, 1
    assert "sources.a.share: was 1/2, now 2/3" in refusal(spec, state)
    for source in spec["dataset"]:
        del source["weight"]
    spec["mix"] = {
        "schedule": [{"at": 0, "shares": {"a": 1, "b": 3}}, {"at": 99, "shares": {"a": 9, "b": 1}}]
    }
    assert "sources.a.share (the largest, as shares change): was 1/2, now 9/10" in refusal(spec, state)
    lines = [*differences({"share": long}, {"share": "1/8"}, "sources.a")]
    assert lines == ["sources.a.share: was 15.38%, now 1/8"]
    near = [*differences({"share": "50001/100000"}, {"share": "500012/1000000"}, "sources.a")]
    assert near == ["sources.a.share: was 50.001%, now 50.0012%"]


def measured_spec(shares_in="cost", **keys):
    """A spec with shares of the cost, whose `stats` are measured."""
    spec = spec_of(batch=WINDOWS, **keys) | {"mix": {"shares_in": shares_in}, "stats": "stats.json"}
    with open("measured.yaml", "w", encoding="utf-8") as file:
        json.dump(spec, file)
    with warnings.catch_warnings(action="ignore"):  # there is no file yet
        assert CliRunner().invoke(cli, ["stats", "measured.yaml", "--jobs", "0"]).exit_code == 0
    return spec


def validated(spec):
    with open("changed.yaml", "w", encoding="utf-8") as file:
        json.dump(spec, file)
    return " ".join(CliRunner().invoke(cli, ["validate", "changed.yaml"]).output.split())


def test_costs_that_were_measured_with_another_field_name_it(folder):
    spec = measured_spec()
    spec["dataset"][0]["make"]["kind"]["aliases"] = {"kitty": "cat"}
    assert "W108 sources whose costs were measured with another `make: kind`: `a`" in validated(spec)
    with pytest.raises(wdspec.UsageError, match=r"costs were measured with another `make: kind`; run"):
        wdspec.loader(spec)


def test_a_field_that_the_cost_does_not_read_leaves_the_costs_as_they_are(folder):
    spec = measured_spec()
    spec["dataset"][0]["make"]["other"] = {"label": "txt", "names": ANIMALS}
    del spec["dataset"][0]["make"]["twin"]
    assert "W108" not in validated(spec)
    with wdspec.loader(spec, num_workers=0) as loader:
        assert "other" in next(iter(loader))


@pytest.mark.parametrize("part", [{"where": "other < 2"}, {"missing": "skip"}])
def test_a_field_that_may_leave_samples_out_makes_costs_stale(part, folder):
    spec = measured_spec(**part, make={"kind": {"label": "txt", "file": "names.txt"}, "other": OTHER})
    assert "W108" not in validated(spec)
    spec["dataset"][0]["make"] |= {"other": OTHER | {"aliases": {"kitty": "cat"}}}
    assert "measured with another `make: other`" in validated(spec)


OTHER = {"label": "txt", "names": ANIMALS}


@pytest.mark.parametrize("unit", ["cost", "tokens"])
def test_shares_of_costs_of_another_file_warn(unit, folder):
    spec = measured_spec(unit)
    (folder / "names.txt").write_text("dog\ncat\nbird\n")
    with pytest.warns(UserWarning, match="measured with other files or tables"):
        list_shards(wdspec.load(spec))


def test_a_missing_file_is_an_error_with_its_source_and_field(folder):
    with pytest.raises(wdspec.SpecError, match=r"nope\.txt of `make` does not exist") as refused:
        wdspec.loader(spec_of("nope.txt"))
    assert "source a" in str(refused.value)
    assert "field kind" in str(refused.value)
