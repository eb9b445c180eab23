"""Errors name the place where they occurred, also those of other libraries."""

import io
import json
import pickle
from pathlib import Path

import pytest

import wdspec
from wdspec.base import errors
from wdspec.base.errors import FieldError, tell_place

PLACE = {"source": "a", "url": "s3://u:hush@b/a.tar", "key": "k1"}


def pickled(error):
    """An error as another process gets it, whatever libraries that tests import register for pickling."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    pickler.dispatch_table = {}  # Dask's, which tblib installs, lose the text of a UnicodeDecodeError
    pickler.dump(error)
    return pickle.loads(file.getvalue())


class SilentError(Exception):
    def __str__(self):
        return "always the same"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd"),
        ValueError(),
        ValueError("odd", 3),
        KeyError("x"),
        KeyError(3),
        ZeroDivisionError("by zero"),
        OSError("broken"),
        FileNotFoundError(2, "No such file", "x.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        FieldError("no cls"),
    ],
    ids=repr,
)
def test_an_error_keeps_its_type_and_shows_its_place_without_secrets(error):
    before, kind = str(error), type(error)
    tell_place(error, **PLACE)
    tell_place(error, **PLACE)
    for shown in (error, pickled(error)):
        assert type(shown) is kind
        assert str(shown).count("key k1]") == 1
        assert "source a, url s3://" in str(shown)
        assert "hush" not in str(shown)
        assert str(shown).startswith(before[:4])


def test_an_error_with_its_own_text_shows_its_place_in_a_note():
    error = SilentError("x")
    tell_place(error, **PLACE)
    assert error.args == ("x",)
    assert "key k1" in error.__notes__[0]


def test_nothing_is_added_if_nothing_is_known():
    error = ValueError("odd")
    tell_place(error, url=None)
    assert error.args == ("odd",)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({}, "pip install 'wdspec[s3]'"),
        ({"url": "file:///a%20b/w", "dir_info": {"editable": True}}, "pip install -e '/a b/w[s3]'"),
        ({"url": "file:///w", "dir_info": {}}, "pip install '/w[s3]'"),
        (
            {"url": "https://h/w.git", "vcs_info": {"vcs": "git", "commit_id": "1f"}},
            "pip install 'wdspec[s3] @ git+https://h/w.git@1f'",
        ),
        (
            {"url": "https://h/w-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'wdspec[s3] @ https://h/w-1-py3-none-any.whl'",
        ),
        (None, f"pip install -e '{Path(wdspec.__file__).parents[1]}[s3]'"),
    ],
    ids=["index", "editable", "folder", "git", "wheel", "not installed"],
)
def test_an_extra_is_installed_from_where_wdspec_came_from(origin, command, monkeypatch):
    class Distribution:
        @staticmethod
        def read_text(name):
            return json.dumps(origin) if origin else None

    class Metadata:
        """What a build leaves in a checkout."""

        @staticmethod
        def read_text(name):
            return None

    found = [] if origin is None else [Metadata, Distribution]
    monkeypatch.setattr("importlib.metadata.distributions", lambda name: found)
    errors._find_origin.cache_clear()
    try:
        assert errors.install_command("wdspec[s3]") == f"`{command}`"
        assert errors.install_command("paramiko") == "`pip install 'paramiko'`"
    finally:
        errors._find_origin.cache_clear()
