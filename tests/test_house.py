"""The rules of the house that no linter knows: names, sizes, and a page at each door."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1] / "wdspec"
FILES = sorted(HOUSE.rglob("*.py"))
MODULES = [path for path in FILES if path.name != "__init__.py"]
LONGEST = 300
"""Lines of a file."""


def folders():
    return sorted({path.parent for path in FILES})


def docstring(path):
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_no_two_modules_have_one_name():
    places = defaultdict(list)
    for path in MODULES:
        places[path.name].append(str(path.relative_to(HOUSE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(HOUSE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(HOUSE)))
def test_a_folder_holds_few_files_and_says_what_it_is_for(folder):
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= 15
    assert docstring(folder / "__init__.py"), (
        "what is it for, what flows in and out, which file to read first?"
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_a_file_is_short_and_says_what_it_is_for(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST
    assert docstring(path)
