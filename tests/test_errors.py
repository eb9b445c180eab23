"""What errors say of the place where they arose, also those of other libraries."""

import io
import pickle

import pytest

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
def test_an_error_keeps_its_type_and_says_its_place_without_secrets(error):
    before, kind = str(error), type(error)
    tell_place(error, **PLACE)
    tell_place(error, **PLACE)
    for told in (error, pickled(error)):
        assert type(told) is kind
        assert str(told).count("key k1]") == 1
        assert "source a, url s3://" in str(told)
        assert "hush" not in str(told)
        assert str(told).startswith(before[:4])


def test_an_error_that_makes_its_own_text_says_its_place_in_a_note():
    error = SilentError("x")
    tell_place(error, **PLACE)
    assert error.args == ("x",)
    assert "key k1" in error.__notes__[0]


def test_nothing_is_added_if_nothing_is_known():
    error = ValueError("odd")
    tell_place(error, url=None)
    assert error.args == ("odd",)
