"""The reference of the spec language as Markdown, made from the models' descriptions and the list of codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wdspec.spec.key_order import documented_keys
from wdspec.spec.language.effects import affects_of
from wdspec.spec.language.json_schema import Document, SourceEntry
from wdspec.spec.language.known_keys import maps_of
from wdspec.spec.language.model import Model
from wdspec.spec.language.models import Source, Spec
from wdspec.spec.rules.code_pages import all_codes

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
