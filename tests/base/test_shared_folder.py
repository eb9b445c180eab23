"""The folder that the processes of a user on one machine share."""

import os
import stat

import pytest

import wdspec
from wdspec.base.files import shared_folder


def test_only_the_user_can_access_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = shared_folder("keys")
    assert folder == shared_folder("keys") == str(tmp_path / f"wdspec-{os.getuid()}" / "keys")
    for path in (folder, os.path.dirname(folder)):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


def test_a_folder_or_link_of_another_user_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"wdspec-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(wdspec.UsageError, match="not a folder that you own; set TMPDIR"):
        shared_folder("keys")


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(wdspec.UsageError, match="cannot be made: Not a directory; set TMPDIR"):
        shared_folder("keys")
