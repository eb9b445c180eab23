"""The tables of docs/decoders.md, made from the table of decoders; the text around them is written in that file.

python -m wdspec.decoders.documentation docs/decoders.md    # makes them anew
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from wdspec.decoders.image_formats import FORMAT_OF
from wdspec.decoders.row import DecoderRow
from wdspec.decoders.table import BASIC, IMAGES, MEDIA

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with its tables as they are now: what lies between `<!-- table: basic -->` and `<!-- end -->`, say."""
    return _TABLE.sub(lambda found: found[1] + "".join(_TABLES[found[2]]()), page)


def _images() -> Iterator[str]:
    yield "| decoder | value | shape |\n|--|--|--|\n"
    for row in IMAGES:
        shape = f" {row.image.shape}".rstrip() if row.image else ""
        yield from (f"| `{name}` | {row.gives} |{shape} |\n" for name in row.names)


def _rows(first: str, rows: Iterable[DecoderRow]) -> Iterator[str]:
    """A table, with one line for all decoders that give the same and need the same."""
    lines: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        needs = " ".join(f"`wdspec[{extra}]`" for extra in dict.fromkeys(row.needs.values()))
        lines.setdefault((row.gives, needs), []).extend(row.names)
    yield f"| {first} | value | needs |\n|--|--|--|\n"
    yield from (f"| {_listed(names)} | {gives} | {needs} |\n" for (gives, needs), names in lines.items())


def _listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


_TABLES: dict[str, Callable[[], Iterable[str]]] = {
    "basic": lambda: _rows("extension", BASIC),
    "images": _images,
    "formats": lambda: [f"Extensions: {_listed(sorted(FORMAT_OF))}.\n"],
    "media": lambda: _rows("decoder", MEDIA),
}

if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(with_tables(file.read_text(encoding="utf-8")), encoding="utf-8")
