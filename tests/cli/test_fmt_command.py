"""`wdspec fmt`: which files it writes, and what it says."""

import stat
import subprocess
import sys

import pytest
from commandline import PROGRAM, environment, within

UNTIDY = "seed: 1 # s\nwdspec: 1\ndataset: [{weight: 1, shards: a.tar}]\n"
TIDY = "wdspec: 1\nseed: 1 # s\ndataset: [{shards: a.tar, weight: 1}]\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.yaml").write_text(UNTIDY)
    (tmp_path / "b.wdspec.yaml").write_text(TIDY)
    (tmp_path / "compose.yaml").write_text("version: 3\nservices: {}\n")
    return tmp_path


def test_files_in_a_folder_are_rewritten_and_keep_their_mode(folder):
    (folder / "a.yaml").chmod(0o640)
    shown, said = within("fmt", ".", folder=folder)
    assert (shown, said) == ("changed ./a.yaml\n", "")
    assert (folder / "a.yaml").read_text() == TIDY
    assert stat.S_IMODE((folder / "a.yaml").stat().st_mode) == 0o640
    assert sorted(each.name for each in folder.iterdir()) == ["a.yaml", "b.wdspec.yaml", "compose.yaml"]
    assert within("fmt", ".", folder=folder) == ("", "nothing to change\n")


def test_check_and_diff_write_nothing(folder):
    assert within("fmt", "--check", ".", folder=folder, code=1)[0] == "would change ./a.yaml\n"
    shown, _ = within("fmt", "--diff", "a.yaml", folder=folder)
    assert "+dataset: [{shards: a.tar, weight: 1}]" in shown.splitlines()
    assert "-wdspec: 1" in shown.splitlines()
    assert (folder / "a.yaml").read_text() == UNTIDY
    within("fmt", "--check", "b.wdspec.yaml", folder=folder)


def test_a_link_stays_a_link(folder):
    (folder / "link.yaml").symlink_to("a.yaml")
    within("fmt", "link.yaml", folder=folder)
    assert (folder / "link.yaml").is_symlink()
    assert (folder / "a.yaml").read_text() == TIDY


def test_standard_input_goes_to_standard_output(folder):
    def piped(*arguments):
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, "fmt", *arguments],
            input=UNTIDY,
            env=environment(),
            cwd=folder,
            capture_output=True,
            text=True,
        )

    done = piped("-")
    assert (done.returncode, done.stdout, done.stderr) == (0, TIDY, "")
    assert piped("-", "--check").returncode == 1


def test_an_unformattable_file_is_reported_and_unchanged(folder):
    (folder / "broken.yaml").write_text("a: [1\n")
    (folder / "latin.yaml").write_bytes(b"name: \xe4\n")
    (folder / "alias.yaml").write_text("epoch: &e 3\nbatch: *e\n")
    _, said = within("fmt", "a.yaml", "broken.yaml", folder=folder, code=1)
    assert "broken.yaml:2:1: E0" in said or "broken.yaml:1:" in said
    assert "\\n" not in said, "the lines of a problem are lines"
    assert (folder / "a.yaml").read_text() == TIDY
    assert (folder / "broken.yaml").read_text() == "a: [1\n"
    _, said = within("fmt", "alias.yaml", folder=folder)
    assert "alias.yaml: not formatted: an alias would be before its anchor" in said
    assert "latin.yaml is not UTF-8" in within("fmt", "latin.yaml", folder=folder, code=2)[1]
    assert "no such file or directory: nowhere" in within("fmt", "nowhere", folder=folder, code=2)[1]
    assert "name the files or folders to format" in within("fmt", folder=folder, code=2)[1]


def test_pyproject_selects_the_files(folder):
    (folder / "pyproject.toml").write_text('[tool.wdspec]\npaths = ["."]\nexclude = ["a.yaml"]\n')
    assert within("fmt", folder=folder) == ("", "nothing to change\n")
