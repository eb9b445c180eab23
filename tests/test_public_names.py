"""The public names of wdspec: listed only in the stub, each in its module, and nothing heavy is imported early.

That the names of the stub exist is checked by mypy too.
"""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import wdspec

STUB = Path(wdspec.__file__).with_suffix(".pyi")


def test_every_line_of_the_stub_is_a_public_name() -> None:
    imports = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)]
    said = {(node.module, alias.name, alias.asname) for node in imports for alias in node.names}
    homes = {(module, name, name) for name, module in wdspec._HOMES.items()}
    assert said == homes | {("wdspec.webdataset", "handlers", "_handlers")}
    assert len(homes) > 70
    assert set(wdspec.__all__) == {*wdspec._HOMES, "handlers"} == {*dir(wdspec)}


def test_the_stub_is_part_of_the_package() -> None:
    assert 'wdspec = ["py.typed", "*.pyi"]' in (STUB.parents[1] / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", wdspec.__all__)
def test_each_name_is_where_the_table_says(name: str) -> None:
    found = wdspec.__getattr__(name)  # an import of the module `wdspec.gopen` would hide the function
    home = wdspec._HOMES.get(name)
    is_error = isinstance(found, type) and issubclass(found, wdspec.WdspecError)
    assert home is None or found.__module__ == ("wdspec" if is_error else home)
    assert home is None or getattr(sys.modules[home], name) is found


def test_errors_are_shown_and_pickled_by_their_public_names() -> None:
    error = wdspec.UsageError("a mistake", url="a.tar")
    assert traceback.format_exception_only(error) == ["wdspec.UsageError: a mistake [url a.tar]\n"]
    assert b"wdspec.base.errors" not in pickle.dumps(wdspec.UsageError)
    code = "import pickle, sys; print(repr(pickle.load(sys.stdin.buffer)))"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(error), capture_output=True)
    assert done.stdout == b"UsageError('a mistake')\n"


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, wdspec; print(sorted(name for name in sys.modules if name.startswith('wdspec')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=STUB.parents[1], capture_output=True, text=True)
    assert done.stdout == "['wdspec']\n"
