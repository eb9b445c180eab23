"""Users' code by name: one importer, whose errors say what was asked, by which key, and what failed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wdspec.errors import FieldError, SpecError
from wdspec.importing import import_function


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "kit_i": "NUMBER = 1\nclass Readers:\n    shout = staticmethod(bytes.upper)\n",
        "broken_i": "import nowhere_i\n",
        "odd_i": "raise AttributeError('a slip of its own')\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_attributes_of_attributes_are_found() -> None:
    assert import_function("kit_i:Readers.shout", "map")(b"a") == b"A"
    assert import_function("os.path:basename", "map")("a/b") == "b"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kit_i:nothing", "^`select: kit_i:nothing`: module `kit_i` has no `nothing`$"),
        ("kit_i:Readers.whisper", "module `kit_i` has no `Readers.whisper`"),
        ("kit_i:NUMBER", "^`select: kit_i:NUMBER` is a int, which cannot be called$"),
        (
            "nowhere_i:f",
            "^cannot import `nowhere_i` for `select: nowhere_i:f`: ModuleNotFoundError: .*PYTHONPATH",
        ),
        ("broken_i:f", "cannot import `broken_i` for .*: ModuleNotFoundError: No module named 'nowhere_i'"),
        ("odd_i:f", "cannot import `odd_i` for .*: AttributeError: a slip of its own"),
        ("kit_i:no name", "cannot import `kit_i` for .*it is written `package.module:function`"),
    ],
)
def test_what_failed_is_said_and_is_no_mistake_of_a_sample(name: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        import_function(name, "select")
    assert not isinstance(caught.value, FieldError)
    assert caught.value.__cause__ is not None
