"""Progress bars count dropped and skipped samples if the spec allows any."""

import re

import pytest
from commandline import within
from shardmaking import write_shard

import wdspec.base.progress


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(wdspec.base.progress, "is_terminal", lambda: True)
    fields = [{"cls": b"x"}, {"txt": b"t"}, {"cls": b"1"}, {"cls": b"2"}]
    write_shard(tmp_path / "a.tar", [(f"k{n:02d}", fields[n % 4]) for n in range(20)])
    return tmp_path


def bars(folder, command, *arguments, code=0, **keys):
    said = "".join(f", {key}: {value}" for key, value in keys.items())
    (folder / "s.yaml").write_text(
        f"wdspec: 1\ndataset: [{{name: a, shards: a.tar, extensions: cls{said}}}]\n"
    )
    _, shown = within(command, "s.yaml", *arguments, folder=folder, code=code, FORCE_COLOR="1")
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_check_counts_samples_that_training_would_not_get(folder):
    shown = bars(folder, "check", "--all", "--jobs", "0", code=1, errors="skip", missing="skip")
    assert "5 skipped 5 dropped" in shown
    shown = bars(folder, "check", "--all", "--jobs", "0", code=1)
    assert "20 samples" in shown
    assert "skipped" not in shown
    assert "dropped" not in shown


def test_head_counts_dropped_samples_and_shows_no_empty_progress_bar(folder):
    shown = bars(folder, "head", "-n", "9", errors="skip", missing="skip", shuffle=0, order="sequential")
    last = shown.rstrip().rpartition("samples ")[2]
    assert re.search(r"9/9 .*[45] skipped [45] dropped", last)
    assert "\r" not in bars(folder, "head", "-n", "2", missing="none")
