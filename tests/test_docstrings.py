"""Every room and every file says what it is for."""

import ast
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1] / "wdspec"
FILES = sorted(HOUSE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_every_file_states_its_purpose(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_every_folder_has_its_own_page():
    folders = {path.parent for path in FILES}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []
