"""The public names of wdspec: listed in the stub alone, where each one says, and nothing heavy until it is used.

That the names of the stub exist is checked by mypy too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
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
    found = getattr(wdspec, name)
    home = wdspec._HOMES.get(name)
    assert home is None or found.__module__ == home


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, wdspec; print(sorted(name for name in sys.modules if name.startswith('wdspec')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=STUB.parents[1], capture_output=True, text=True)
    assert done.stdout == "['wdspec']\n"
