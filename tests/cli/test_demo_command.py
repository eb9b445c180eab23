"""`wdspec demo`: a small project, written, checked, explained and read."""

import os
import shlex

import pytest
from click.testing import CliRunner
from commandline import NO_TORCH, on_terminal, wdspec, within

import wdspec as library
from wdspec.base.errors import install_command
from wdspec.cli.demo import COLLECTIONS, demo, write_project


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder in which the program ran, and what it printed."""
    folder = tmp_path_factory.mktemp("made")
    return folder, wdspec("demo", folder=folder)[0]


def test_it_writes_a_project_that_works_with_the_requested_shares(made):
    folder, shown = made
    assert (folder / "wdspec-demo" / "spec.yaml").exists()
    assert "1 file checked: no problems" in shown
    assert "digits    50.00%       4     ~800      1,024" in shown
    assert "  1,024 of 2,048 samples" in shown
    rows = [line.split() for line in shown[shown.index("realised") :].splitlines()]
    differences = {
        row[0]: float(row[-1]) for row in rows if row and row[0] in ("digits", "shapes", "patterns")
    }
    assert set(differences) == {"digits", "shapes", "patterns"}
    assert max(map(abs, differences.values())) < 2
    assert "samples/s" in shown
    assert "with wdspec.loader(" in shown
    assert "\x1b" not in shown


def test_the_suggested_next_commands_work(made):
    folder, shown = made
    commands = [shlex.split(line) for line in shown.splitlines() if line.startswith("  wdspec ")]
    assert [command[1] for command in commands] == ["head", "resolve", "explain", "explain"]
    for command in commands:
        within(*command[1:], folder=folder)


def test_the_same_bytes_are_written_each_time_and_batch_into_tensors(tmp_path):
    write_project(str(tmp_path / "one"))
    write_project(str(tmp_path / "two"))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    with library.loader(str(tmp_path / "one" / "spec.yaml"), rank=0, world_size=1) as loader:
        assert len(loader) == 64
        batch = next(iter(loader))
    assert tuple(batch["image"].shape) == (32, 32, 32, 3)
    assert tuple(batch["label"].shape) == (32,)


def test_every_kind_of_picture_has_its_own_classes(tmp_path):
    import random

    for collection, classes in zip(COLLECTIONS, (range(10), range(10, 13), range(13, 16)), strict=True):
        source = random.Random(0)
        assert {collection.draw(source)[1] for _ in range(200)} == set(classes)


def refused(*arguments):
    result = CliRunner().invoke(demo, arguments)
    assert result.exit_code == 2
    return result.output


def test_a_foreign_or_edited_folder_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "mine is not empty, and not from `wdspec demo`" in refused("mine")
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]
    wdspec("demo", "mine", "--force", folder=tmp_path, before=NO_TORCH)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    spec = tmp_path / "mine" / "spec.yaml"
    spec.write_text(spec.read_text() + "# a thought\n")
    assert "spec.yaml has been edited" in refused("mine")
    assert "is a file; name a folder" in refused("mine/thesis.txt")


def test_without_torch_it_reads_samples_and_says_that_batches_need_it(tmp_path):
    shown, _ = wdspec("demo", folder=tmp_path, before=NO_TORCH, WDSPEC_ENV="cluster")
    assert "unbatched, since torch is not installed" in shown
    assert install_command("wdspec[torch]") in shown
    assert "2,048 samples in" in shown


def test_on_a_terminal_it_shows_a_progress_bar(tmp_path):
    shown = on_terminal("demo", folder=tmp_path, before=NO_TORCH)
    assert "━━━" in shown
    assert "2048/2048" in shown
