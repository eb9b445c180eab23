"""Writes the list of all files into docs/architecture.md, from the first line of each file."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- files -->\n", "<!-- end of files -->\n"


def listed() -> str:
    """A heading for each folder, and a line for each file in it."""
    lines = []
    house = ROOT / "wdspec"
    for folder in sorted({path.parent for path in house.rglob("*.py")}):
        lines += [f"\n**`{folder.relative_to(ROOT)}/`** {_summary(folder / '__init__.py')}\n\n"]
        for path in sorted(folder.glob("*.py")):
            if path.name != "__init__.py":
                lines.append(f"- `{path.name}`: {_summary(path)}\n")
    return "".join(lines) + "\n"


def page() -> str:
    """The page as it has to be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + listed() + END + rest.partition(END)[2]


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
