"""Pipes and devices in place of files: reading them could wait forever, so they are refused, and say so."""

import os
import signal

import pytest
from commandline import within
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import ShardError
from wdspec.cli.croissant import read_statements
from wdspec.steps import make_label

SPEC = "wdspec: 1\ndataset:\n  - shards: {shards}\n    extensions: txt\n{more}epoch: pass\n"


@pytest.fixture(autouse=True)
def no_test_waits_forever():
    def stop(*_):
        raise TimeoutError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(200)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"a"})])
    (tmp_path / "good.yaml").write_text(SPEC.format(shards="a.tar", more=""))
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.tar")
    os.mkfifo(tmp_path / "pipe.yaml")
    os.mkfifo(tmp_path / "pipe.csv")
    return tmp_path


COMMANDS = {
    "validate pipe.yaml": 1,
    "validate .": 1,
    "fmt --check .": 2,
    "fmt pipe.yaml": 2,
    "explain pipe.yaml": 1,
}


@pytest.mark.parametrize("arguments", COMMANDS)
@pytest.mark.parametrize("secure", ["", "1"])
def test_a_pipe_is_no_spec(folder, arguments, secure):
    text = "".join(within(*arguments.split(), code=COMMANDS[arguments], WDS_SECURE=secure))
    assert "pipe.yaml" in text
    assert "it is a pipe, not a regular file" in text


def test_an_endless_device_is_no_spec(folder):
    assert "it is a device, not a regular file" in "".join(within("validate", "/dev/zero", code=1))


@pytest.mark.parametrize(
    ("shards", "more"),
    [
        ("pipe.tar", ""),
        ("'*.tar'", ""),
        ("'@pipe'", ""),
        ("a.tar", "    keys: '@pipe'\n"),
        ("a.tar", "    exclude: '@pipe'\n"),
        ("a.tar", "    lookup: {table: pipe.csv, on: __key__, fields: [x]}\n"),
        ("a.tar", "    join: pipe.tar\n"),
        ("/dev/zero", ""),
    ],
)
@pytest.mark.parametrize("secure", ["", "1"])
def test_a_pipe_or_device_is_neither_shard_nor_list_nor_table(folder, monkeypatch, shards, more, secure):
    monkeypatch.setenv("WDS_SECURE", secure)
    (folder / "s.yaml").write_text(SPEC.format(shards=shards, more=more))
    with pytest.raises(wdspec.WdspecError, match=r"it is a (pipe|device), not a regular file.*pipe:cat"):
        list(wdspec.compile("s.yaml"))


def test_commands_on_shards_refuse_a_pipe(folder):
    for command in ("ls", "cat", "head"):
        text = "".join(within(command, "pipe.tar", code=1))
        assert "it is a pipe, not a regular file" in text, command


@pytest.mark.parametrize("kind", ["recipe", "manifest"])
def test_a_pipe_is_no_list_of_what_to_create(folder, kind):
    text = "".join(within("create", "pipe", "--as", kind, "-o", "new.tar", code=1))
    assert "it is a pipe, not a regular file" in text


def test_a_pipe_is_no_file_of_statements(folder):
    with pytest.raises(OSError, match="it is a pipe, not a regular file"):
        read_statements("pipe")


def test_a_pipe_is_no_list_of_classes(folder):
    with pytest.raises(wdspec.WdspecError, match="it is a pipe, not a regular file"):
        make_label(file="pipe")


def test_a_command_reads_a_pipe_where_that_is_meant(folder):
    (folder / "s.yaml").write_text(SPEC.format(shards="'pipe:cat a.tar'", more=""))
    assert [sample["txt"] for sample in wdspec.compile("s.yaml")] == ["a"]
    with pytest.raises(ShardError, match="not a regular file"):
        list(wdspec.WebDataset("pipe.tar"))


def test_a_spec_may_come_from_an_open_descriptor(folder):
    readable, writable = os.pipe()
    os.write(writable, (folder / "good.yaml").read_bytes())
    os.close(writable)
    assert wdspec.load(f"/dev/fd/{readable}").sources[0].shards == ("a.tar",)
    os.close(readable)
