"""`wdspec state FILE`: a saved state in words, wherever in a file it is."""

import itertools
import json
import re

import pytest
import torch
from click.testing import CliRunner
from shardmaking import write_source

import wdspec
from wdspec.cli.state import describe_state
from wdspec.cli.state import state as command
from wdspec.run.state import read_entry
from wdspec.run.stats import samples_given


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return {
        "seed": 7,
        "dataset": [
            {"name": name, "shards": write_source(folder, name, 3, 20), "weight": weight, "shuffle": 5}
            for name, weight in (("a", 3), ("b", 1))
        ],
        "batch": 4,
        "epoch": {"batches": 5},
        "elastic": {"ranks": 4, "workers": 2},
    }


def saved(spec, batches=8, **seat):
    with wdspec.loader(spec, **(seat or {"rank": 0, "world_size": 1})) as loader:
        for _ in range(2):
            batches -= len(list(itertools.islice(loader, batches)))
        return loader.state_dict()


def run(file, *arguments):
    done = CliRunner().invoke(command, [str(file), *arguments], catch_exceptions=True)
    return " ".join(done.output.split()) or str(done.exception)


def test_it_shows_the_position_and_the_legal_topologies(spec, tmp_path):
    file = tmp_path / "state.json"
    file.write_text(json.dumps(saved(spec)))
    said = run(file)
    assert "8 global batches yielded, 128 samples" in said
    assert "epoch 1, 3 of its 5 batches" in said
    assert "resumes on 4 ranks x 2 workers with elastic on 1, 2, 4, 8 ranks (up to 16), with" in said
    assert "0, 1, 2 workers each, if the spec has `elastic: {ranks: 4, workers: 2}` version" in said
    assert "holds all canonical ranks" in said
    assert "shares set" not in said
    assert re.search(r"a 3/4 9\d ", said)


def test_a_share_that_changes_is_named_the_largest(spec, tmp_path):
    """Both shares are not those of now: `a` has ended, and `b` has its part."""
    limited = {**spec["dataset"][0], "samples": 60, "max_passes": 1, "on_exhausted": "drop"}
    file = tmp_path / "state.json"
    file.write_text(json.dumps(saved(spec | {"dataset": [limited, spec["dataset"][1]]})))
    assert "source largest share samples" in run(file)
    file.write_text(json.dumps(saved(spec)))
    assert "source share samples" in run(file)


def test_sample_counts_of_sources_match_what_was_read(spec):
    with wdspec.loader(spec, rank=0, world_size=1) as loader:
        counts = {"a": 0, "b": 0}
        for epoch in range(3):
            for batch in loader:
                for source in batch["__source__"]:
                    counts[source] += 1
                report = describe_state(loader.state_dict())["sources"]
                assert {each["source"]: each["samples"] for each in report} == counts, epoch


def test_slots_counted_together_equal_slots_counted_one_by_one(spec):
    """Over ends of passes, and where the size of the shuffle has changed on the way."""
    larger = {
        **spec,
        "dataset": [{**source, "shuffle": 40} for source in spec["dataset"]],
        "batch": 3,
        "elastic": {"ranks": 2, "workers": 2},
    }
    smaller = {**larger, "dataset": [{**source, "shuffle": 9} for source in spec["dataset"]]}
    with (
        wdspec.loader(larger, rank=0, world_size=1) as loader,
        wdspec.loader(smaller, rank=0, world_size=1) as changed,
    ):
        for number in range(30):
            next(iter(loader))
            check_counts(loader)
            if number % 10 == 5:
                changed.load_state_dict(loader.state_dict(), allow_changed=True)
                check_counts(changed)


def check_counts(loader):
    state = loader.state_dict()
    delays = [source.delays for source in loader.plan.sources]
    wanted = {name: [] for name in state["sources"]}
    for rank in range(2):
        for k, slot in enumerate(read_entry(state, rank, 2)):
            for each, stream, name in zip(delays, slot or (), wanted, strict=False):
                wanted[name].append(stream.given(2 * rank + k, each))
    found = samples_given(state)
    assert {name: sorted(counts.tolist()) for name, counts in found.items()} == {
        name: sorted(counts) for name, counts in wanted.items()
    }


def test_a_long_fraction_is_shown_as_a_percentage(spec, tmp_path):
    weights = {"a": 1.234567, "b": 1}
    for weight, expected in ((1.234567, "a 55.25%"), (2, "a 2/3")):
        weights["a"] = weight
        sources = [source | {"weight": weights[source["name"]]} for source in spec["dataset"]]
        (tmp_path / "state.json").write_text(json.dumps(saved(spec | {"dataset": sources})))
        assert f" {expected} " in run(tmp_path / "state.json")


def test_an_unshared_batch_resumes_only_on_divisors(spec):
    whole = {**spec, "batch": {"size": 4, "accumulate": True}}
    assert describe_state(saved(whole))["legal_ranks"] == [1, 2, 4]
    assert describe_state(saved({**spec, "batch": None, "epoch": {"samples": 40}}))["legal_ranks"] == [
        1,
        2,
        4,
    ]


def test_shares_set_at_run_time_are_shown(spec, tmp_path):
    file = tmp_path / "state.json"
    with wdspec.loader(spec, rank=0, world_size=1) as loader:
        loader.set_shares({"a": 1, "b": 4}, after=3)
        file.write_text(json.dumps(loader.state_dict()))
    assert "shares set from global batch 3: a 1, b 4" in run(file)


def test_the_state_of_one_rank_is_identified_as_such(spec, tmp_path):
    file = tmp_path / "state.json"
    file.write_text(json.dumps(saved(spec, rank=1, world_size=2)))
    said = run(file)
    assert "holds canonical ranks 2, 3" in said
    assert "once the states of all ranks are merged" in said


def test_states_are_found_anywhere_in_a_torch_checkpoint(spec, tmp_path):
    file = tmp_path / "run.pt"
    torch.save({"model": {"w": torch.zeros(3)}, "loaders": [saved(spec), {"val": saved(spec, 2)}]}, file)
    report = json.loads(CliRunner().invoke(command, [str(file), "--format", "json"]).output)
    assert [(each["at"], each["batch"]) for each in report] == [("loaders.0", 8), ("loaders.1.val", 2)]
    assert report[0]["sources"][0]["slots"] == 8


def test_a_pass_has_no_slots_to_show(spec, tmp_path):
    finite = {**spec, "epoch": "pass", "dataset": [{"name": "a", "shards": spec["dataset"][0]["shards"]}]}
    file = tmp_path / "state.json"
    file.write_text(json.dumps(saved(finite, 2)))
    assert "Slots of a pass have no state" in run(file)


class Unpicklable:
    pass


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda file: None, "cannot be read: No such file"),
        (lambda file: file.mkdir(), "format_utils dcp_to_torch"),
        (lambda file: file.write_text("{}"), "no state of wdspec"),
        (lambda file: file.write_text("[" * 100_000), "is neither JSON nor a checkpoint of torch"),
        (lambda file: file.write_text("{"), "is neither JSON nor a checkpoint"),
        (lambda file: file.write_text('{"format": "wdspec-state"}'), "`version` is missing"),
        (lambda file: torch.save({"x": Unpicklable()}, file), "without unpickling"),
    ],
)
def test_a_file_without_a_state_is_rejected(tmp_path, write, says):
    file = tmp_path / "state"
    write(file)
    assert says in run(file)


def test_it_shows_past_and_future_skips(spec, tmp_path):
    file = tmp_path / "state.json"
    with wdspec.loader({**spec, "skip": ["2..3", 9]}, rank=0, world_size=1) as loader:
        list(itertools.islice(loader, 3))
        loader.skip_steps(7, 8)
        file.write_text(json.dumps(loader.state_dict()))
    said = run(file)
    assert "3 global batches yielded, 48 samples" in said
    assert "skipped 2 more: 2 to 3" in said
    assert "to be skipped 7 to 8, as set by the training loop" in said
    report = json.loads(run(file, "--format", "json"))[0]
    assert (report["skipped"], report["to_skip"]) == ([[2, 3]], [[7, 8]])
