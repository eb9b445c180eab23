"""The reference of the spec language as Markdown, made from the models' descriptions and the list of codes.

The tables of docs/decoders.md, made from the table of decoders; the text around them is written in that file.

python -m wdspec.spec.reference docs/decoders.md    # makes them anew
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from wdspec.spec.format import documented_keys
from wdspec.spec.language.decoders import BASIC, FORMAT_OF, IMAGES, MEDIA, DecoderRow
from wdspec.spec.language.effects import affects_of
from wdspec.spec.language.values import Model
from wdspec.spec.rules import all_codes
from wdspec.spec.schema import Document, SourceEntry
from wdspec.spec.spec import Source, Spec
from wdspec.spec.validation import maps_of

_INTRODUCTION = """\
# The wdspec language: reference

Made by `wdspec schema --format markdown` from the descriptions in the code; do not edit it by hand.

Keys have a fixed meaning, whatever order they are written in. Unknown keys are errors. `${name}` and
`${name:-default}` may stand in any value. Maps merge, lists and scalars replace, `null` removes: base files
(`extends`) first, then the file, its split, its environment, and overrides.

A saved state goes on with a spec that differs in keys that affect nothing, warns of a difference in one that affects
`samples`, and does not fit one that affects the `order` (which samples come, and when).
"""


def reference_text() -> str:
    """The whole page, as it is published in `docs/spec.md`."""
    parts = [
        _INTRODUCTION,
        "## Top level\n",
        *_table(Document, [key for key in documented_keys(Document) if key != "sources"]),
    ]
    parts += ["\n## In an environment, a split or an override, also\n", *_table(Document, ["sources"])]
    parts += ["\n## A source\n", *_table(SourceEntry, list(documented_keys(SourceEntry)))]
    for name, model in {**dict(_maps(Spec)), **dict(_maps(Source))}.items():
        parts += [f"\n## `{name}`\n", f"{model.__doc__}\n", *_table(model, None)]
    parts += ["\n## Codes of problems\n", "`wdspec rule E302` explains one at the command line.\n"]
    for code, about in all_codes().items():
        parts += [f"\n### {code}: {about.title}\n", f"{about.explanation}"]
        if 0 < len(about.bad) < 400 and about.bad.replace("\n", "").isprintable():
            parts += [f"\n```yaml\n{about.bad}```"]
        if about.good:
            parts += [f"\nWithout the problem:\n\n```yaml\n{about.good}```"]
    return "\n".join(parts) + "\n"


def _maps(model: type[Model], prefix: str = "") -> Iterator[tuple[str, type[Model]]]:
    for key, inner in maps_of(model).items():
        yield f"{prefix}{key}", inner
        yield from _maps(inner, f"{prefix}{key}.")


def _table(model: type[Model], keys: list[str] | None) -> Iterator[str]:
    yield "| key | default | affects | meaning |\n|--|--|--|--|"
    fields = {field.alias or name: field for name, field in model.model_fields.items() if field.description}
    for key in keys if keys is not None else fields:
        field = fields[key]
        default = "required" if field.is_required() else _shown(field.get_default(call_default_factory=True))
        mark = affects_of(field)
        affects = "its keys" if key in maps_of(model) else str(mark) if mark is not None else ""
        affects = "" if affects == "neither" else affects
        yield f"| `{key}` | {default} | {affects} | {(field.description or '').replace('|', chr(92) + '|')} |"


def _shown(default: Any) -> str:
    if default is None or default in ((), {}) or isinstance(default, Model):
        return ""
    return f"`{json.dumps(default)}`" if not isinstance(default, str) else f"`{default}`" if default else ""


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
