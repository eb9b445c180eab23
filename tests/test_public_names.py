"""The public names of wdspec: one table, a stub in step with it for type checkers, and nothing heavy until it is used.

That the names of the stub exist is checked by mypy. To write it anew: python tests/test_public_names.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import wdspec

STUB = Path(wdspec.__file__).with_suffix(".pyi")


def stub() -> str:
    """What the stub has to say."""
    lines = ["from wdspec.fluent import error_handlers as handlers"]
    for module, names in wdspec._NAMES.items():
        lines += [
            f"from {module} import {name} as {name}" for name in sorted(names.split(), key=constants_first)
        ]
    lines.sort(key=lambda line: line.split(" ")[1])
    named = [f'    "{name}",' for name in wdspec.__all__]
    return "\n".join([f'"""{wdspec.__doc__}"""', "", *lines, "", "__all__ = [", *named, "]", ""])


def constants_first(name: str) -> tuple[bool, str]:
    """Sorts as ruff does."""
    return not name.isupper(), name


def test_the_stub_says_what_the_table_says() -> None:
    assert STUB.read_text() == stub(), "run `python tests/test_public_names.py`"


@pytest.mark.parametrize("name", wdspec.__all__)
def test_each_name_is_where_the_table_says(name: str) -> None:
    found = getattr(wdspec, name)
    home = wdspec._HOMES.get(name)
    assert home is None or found.__module__ == home


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, wdspec; print(sorted(name for name in sys.modules if name.startswith('wdspec')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=STUB.parents[1], capture_output=True, text=True)
    assert done.stdout == "['wdspec']\n"


if __name__ == "__main__":
    STUB.write_text(stub())
