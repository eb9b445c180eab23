"""Outputs appear whole or not at all."""

import os
import subprocess
import sys

import pytest

from wdspec.base.errors import ShardError, UrlError, UsageError
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import LocalOutput
from wdspec.urls.urls import ROWS


def open_output(url, **options):
    return Storage.of(Environment.read()).output(str(url), **options)


def put(path, data=b"data", **options):
    output = open_output(path, **options)
    output.write(data)
    output.commit()


def test_an_output_appears_only_at_commit(tmp_path):
    output = LocalOutput(str(tmp_path / "a.tar"))
    output.write(b"x" * 3_000_000)
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == []
    output.commit()
    assert os.listdir(tmp_path) == ["a.tar"]
    assert (tmp_path / "a.tar").stat().st_size == 3_000_000


def test_abort_leaves_the_old_file_unchanged(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"old")
    output = LocalOutput(str(tmp_path / "a.tar"))
    output.write(b"new")
    output.abort()
    output.abort()
    assert os.listdir(tmp_path) == ["a.tar"]
    assert (tmp_path / "a.tar").read_bytes() == b"old"


def test_a_second_concurrent_writer_of_a_file_is_rejected(tmp_path):
    path = str(tmp_path / "a.tar")
    first = LocalOutput(path)
    with pytest.raises(UsageError, match="another writer is writing this file now"):
        LocalOutput(path)
    first.write(b"first")
    first.commit()
    put(path, b"second")
    assert (tmp_path / "a.tar").read_bytes() == b"second"


def test_leftovers_of_a_killed_writer_are_overwritten(tmp_path):
    path = tmp_path / "a.tar"
    code = (
        "import os, sys; from wdspec.stores.outputs import LocalOutput\n"
        f"out = LocalOutput({str(path)!r}); out.write(b'x' * 5_000_000); out._file.flush()\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert os.listdir(tmp_path) == [".a.tar.partial"]
    put(str(path), b"whole")
    assert os.listdir(tmp_path) == ["a.tar"]
    assert path.read_bytes() == b"whole"


def test_a_file_written_meanwhile_by_another_process_is_not_replaced(tmp_path):
    first = LocalOutput(str(tmp_path / "a-0.tar"))
    put(str(tmp_path / "a-1.tar"), b"theirs")
    os.utime(tmp_path / "a-1.tar", ns=(first.born + 1, first.born + 1))
    with pytest.raises(UsageError, match="another writer has written this file meanwhile"):
        LocalOutput(str(tmp_path / "a-1.tar"), since=first.born)
    first.abort()


def test_overwriting_can_be_forbidden(tmp_path):
    put(tmp_path / "a.tar", overwrite=False)
    with pytest.raises(UsageError, match="a file of this name exists"):
        put(tmp_path / "a.tar", overwrite=False)


def test_folders_are_created_and_a_directory_is_an_error(tmp_path):
    put(tmp_path / "new" / "folder" / "a.tar")
    with pytest.raises(UsageError, match="there is a directory of this name"):
        put(tmp_path / "new")


def test_a_full_disk_leaves_nothing(tmp_path):
    output = LocalOutput(str(tmp_path / "a.tar"))
    output._file.close()
    output._file = open("/dev/full", "wb")  # noqa: SIM115
    output.write(b"x")
    with pytest.raises(OSError, match="No space left"):
        output.commit()
    assert os.listdir(tmp_path) == []


def test_a_pipe_without_a_command_is_an_error():
    for url in ("pipe:", "pipe:  "):
        with pytest.raises(ShardError, match="`pipe:` without a command"):
            Storage.of(Environment.read()).output(url)


def test_a_missing_package_is_named_with_the_url_in_every_operation(monkeypatch):
    monkeypatch.setitem(sys.modules, "smbprotocol", None)
    monkeypatch.setitem(sys.modules, "smbclient", None)
    storage, url = Storage.of(Environment.read()), "smb://host/share/a.tar"
    for ask in (storage.is_written, storage.delete, storage.output):
        with pytest.raises(ShardError, match=rf"smbprotocol.*location {url}"):
            ask(url)


def test_fsspec_urls_are_written_atomically():
    import fsspec

    store = fsspec.filesystem("memory")
    put("memory://out/folder/a.tar", b"in memory")
    assert store.cat("/out/folder/a.tar") == b"in memory"
    output = open_output("memory://out/folder/b.tar")
    output.write(b"never")
    output.abort()
    assert not store.exists("/out/folder/b.tar")
    with pytest.raises(UsageError, match="an object of this name exists"):
        open_output("memory://out/folder/a.tar", overwrite=False)


def test_visible_uploads_use_a_temporary_name(monkeypatch):
    import fsspec

    store = fsspec.filesystem("memory")
    names = []
    put_file = type(store).put_file
    monkeypatch.setitem(ROWS, "memory", ROWS["memory"]._replace(uploads_whole=False))
    monkeypatch.setattr(
        type(store), "put_file", lambda self, a, b, **k: (names.append(b), put_file(self, a, b, **k))[1]
    )
    put("memory://moved/a.tar", b"data")
    assert store.cat("/moved/a.tar") == b"data"
    assert len(names) == 1
    assert names[0].endswith(".partial")
    assert list(store.ls("/moved", detail=False)) == ["/moved/a.tar"]


def test_an_unwritable_url_is_rejected():
    with pytest.raises(UsageError, match="cannot be written"):
        open_output("nosuchscheme://bucket/a.tar")


def test_http_urls_need_a_program_to_write():
    with pytest.raises(UsageError, match=r"pipe:curl -fsS -T - URL"):
        open_output("https://host/a.tar")


def test_a_pipe_gets_the_bytes_and_its_exit_code_is_checked(tmp_path):
    put(f"pipe:cat > {tmp_path}/a.tar", b"piped")
    assert (tmp_path / "a.tar").read_bytes() == b"piped"
    with pytest.raises(OSError, match="ended with code 7"):
        put("pipe:cat > /dev/null; exit 7")


def test_an_aborted_pipe_is_killed(tmp_path):
    output = open_output(f"pipe:cat > /dev/null; touch {tmp_path}/finished")
    output.write(b"x")
    output.abort()
    assert not (tmp_path / "finished").exists()


def test_wds_secure_forbids_pipes(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(UrlError, match="WDS_SECURE forbids `pipe:`"):
        open_output("pipe:cat > /dev/null")


def test_rewriting_applies_to_outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_REWRITE", f"gs://bucket/={tmp_path}/")
    put("gs://bucket/a.tar", b"local")
    assert (tmp_path / "a.tar").read_bytes() == b"local"


def test_a_failed_notebook_cell_can_be_run_again(tmp_path, monkeypatch):
    import sys

    import wdspec as wds

    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # what a prompt and a notebook's kernel have
    first = wds.TarWriter(tmp_path / "a.tar")
    first.write({"__key__": "0", "txt": "old"})
    again = wds.TarWriter(tmp_path / "a.tar")  # the cell fails before `close`, and is run again
    with pytest.raises(wds.UsageError, match="a newer writer of the same file has replaced this one"):
        first.write({"__key__": "1", "txt": "old"})
    again.write({"__key__": "0", "txt": "new"})
    again.close()
    assert [sample["txt"] for sample in wds.WebDataset(str(tmp_path / "a.tar")).decode()] == ["new"]
    shards = wds.ShardWriter(f"{tmp_path}/s-%02d.tar", maxcount=1)
    shards.write({"__key__": "0", "txt": "old"})
    shards.write({"__key__": "1", "txt": "old"})
    with wds.ShardWriter(f"{tmp_path}/s-%02d.tar", maxcount=1) as more:
        more.write({"__key__": "0", "txt": "new"})
    with pytest.raises(wds.UsageError):  # noqa: PT012  # either says so
        shards.write({"__key__": "2", "txt": "old"})
        shards.close()
