"""docs/architecture.md: the files and definitions it names exist, and every room is on it, in its circle."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "wdspec"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOMS = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def files_named_on_the_page() -> set[str]:
    """Paths such as `run/stream.py`; in the table of rooms, file names are relative to the room of their row."""
    named = set()
    for line in PAGE.splitlines():
        room = re.match(r"\| `(\w+)/` \|", line)
        for path in re.findall(r"`([\w/]+\.py)`", line):
            named.add(path if not room or (PACKAGE / path).exists() else f"{room[1]}/{path}")
    return named


def definitions_named_on_the_page() -> set[tuple[str, str]]:
    """Names and the files that follow them: `Environment.locate` (`storage/environment.py`)."""
    text = re.sub(r"\s+", " ", PAGE)
    return set(re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?` \(`([\w/]+\.py)`", text))


def circles() -> dict[str, tuple[set[str], int]]:
    """The circles on the page: core and tools -> their rooms, and their lines of code."""
    rows = re.findall(r"^\| (?:the )?\*\*(\w+)\*\*.*?\| (.*?) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    return {
        name: (set(re.findall(r"`([\w.]+)`", rooms)), int(lines.replace(",", "")))
        for name, rooms, lines in rows
    }


def test_every_file_on_the_page_exists():
    named = files_named_on_the_page()
    places = {path: ROOT if path.startswith(("tests/", "scripts/")) else PACKAGE for path in named}
    assert [path for path, place in sorted(places.items()) if not (place / path).exists()] == []


@pytest.mark.parametrize(("name", "path"), sorted(definitions_named_on_the_page()))
def test_every_definition_on_the_page_is_in_its_file(name, path):
    text = (PACKAGE / path).read_text(encoding="utf-8")
    for part in name.split("."):
        assert re.search(rf"^\s*(def|class) {part}\b|^\s*{part}\b.* = ", text, re.MULTILINE)


def test_every_room_is_on_the_page():
    assert {room for room in ROOMS if f"| `{room}/` |" not in PAGE} == set()


def test_the_circles_are_those_of_the_import_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = next(each for each in contracts if "the core imports no tool" in each["name"])
    expected = {
        "core": {name.split(".")[1] for name in found["source_modules"]},
        "tools": {name.split(".")[1] for name in found["forbidden_modules"]},
    }
    assert {
        name: {room.removesuffix(".py") for room in rooms} for name, (rooms, _) in circles().items()
    } == expected
    assert expected["core"] | expected["tools"] == ROOMS | {"api", "testing"}


def test_the_sizes_of_the_circles_are_right(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    from count_lines import count_checkout

    counted = count_checkout(ROOT)
    for rooms, lines in circles().values():
        assert lines == pytest.approx(sum(counted[room] for room in rooms), rel=0.1)
