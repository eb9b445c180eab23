"""Opening local shards under any name, and what is said where there is none."""

import builtins
import os
import pickle

import pytest

from wdspec.base.errors import MissingShardError, ShardError
from wdspec.storage.storage import Storage


@pytest.mark.parametrize("name", ["a.tar", "a#1?%20 b.tar", "new\nline.tar", "caf\udce9.tar", "a:b.tar", "-"])
def test_a_file_with_any_name_is_opened_unbuffered(tmp_path, name):
    path = os.path.join(tmp_path, name)
    with open(path, "wb") as file:
        file.write(b"bytes")
    with Storage().open_location(path) as file:
        assert file.read() == b"bytes"
        assert file.seekable()
        assert not hasattr(file, "peek")


def test_a_file_url_is_decoded(tmp_path):
    (tmp_path / "a b#.tar").write_bytes(b"bytes")
    with Storage().open_location(f"file://{tmp_path}/a%20b%23.tar") as file:
        assert file.read() == b"bytes"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shard-0.ta", "no such file: `{0}` has no `shard-0.ta`; did you mean `shard-0.tar`?"),
        (
            "other",
            "no such file: `{0}` has no `other`; correct the path, or rewrite it with WDS_REWRITE or, in a spec, "
            "`rewrite:`",
        ),
        ("sup/x/y.tar", "no such file: `{0}` has no `sup`; did you mean `sub`?"),
        ("shard-0.tar/x", "no such file: `{0}/shard-0.tar` is not a directory"),
        ("broken.tar", "a symbolic link to `gone`, which does not exist; correct the link"),
        ("gs:/b/x.tar", "no such file; if `gs` is the scheme of a URL, it needs two slashes: `gs://…`"),
    ],
)
def test_a_missing_file_is_an_error_that_says_how_far_its_path_exists(tmp_path, name, message):
    (tmp_path / "shard-0.tar").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "broken.tar").symlink_to("gone")
    with pytest.raises(MissingShardError) as caught:
        Storage().open_location(f"{tmp_path}/{name}")
    assert caught.value.message == message.format(tmp_path)
    assert caught.value.place == {"location": f"{tmp_path}/{name}"}
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), FileNotFoundError)


def test_other_os_errors_are_shard_errors(tmp_path, monkeypatch):
    with pytest.raises(ShardError, match="a directory, not a file; end its name with `/`"):
        Storage().open_location(str(tmp_path))
    with pytest.raises(ShardError, match="cannot be opened: File name too long"):
        Storage().open_location(str(tmp_path / ("x" * 300)))
    with pytest.raises(ShardError, match="cannot be opened: embedded null byte"):
        Storage().open_location("/a\0b")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ShardError, match="cannot be opened: Too many levels of symbolic links"):
        Storage().open_location(str(tmp_path / "loop"))


def test_an_unreadable_file_is_a_shard_error(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")  # root may read everything, so chmod would not do

    (tmp_path / "a.tar").touch()
    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(ShardError, match="no permission to read it"):
        Storage().open_location(str(tmp_path / "a.tar"))
