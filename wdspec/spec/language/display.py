"""How specs and sources are shown in one line and in notebooks: the keys that were written, in short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from wdspec.base.redaction import redacted_urls
from wdspec.spec.language.values import Model

_LONGEST = 60
_SPELT_APART = frozenset({"dataset", "description", "wdspec"})


def facts(model: BaseModel) -> Iterator[tuple[str, str]]:
    """The keys of a model that are not the default, each with its value in short."""
    for name, field in type(model).model_fields.items():
        key = field.alias or name
        value = getattr(model, name)
        if (
            field.description
            and key not in _SPELT_APART
            and value not in (_default(field), {"scaleprob": 0.0}.get(key, _default(field)))
        ):
            yield key, _short(value)


def _default(field: Any) -> object:
    return field.get_default(call_default_factory=True)


def _short(value: object) -> str:
    if isinstance(value, BaseModel):
        inner = list(facts(value)) or [
            (key, _short(held)) for key, held in value if held and key in value.model_fields_set
        ]
        text = inner[0][1] if len(inner) == 1 else "{" + ", ".join(f"{k}: {v}" for k, v in inner) + "}"
    elif isinstance(value, (tuple, list)):
        text = " ".join(map(_short, value)) if len(value) < 4 else f"{_short(value[0])} … ({len(value)})"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{k}: {_short(v)}" for k, v in value.items()) + "}"
    elif isinstance(value, float):
        text = f"{value:g}"
    elif isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}" if value < 10**9 else str(value)
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def in_a_line(model: BaseModel, more: list[tuple[str, str]]) -> str:
    """Show a model in one line: `<Source a: shards a-{0..9}.tar, weight 2>`."""
    shown = [f"{key} {value}".rstrip() for key, value in (*more, *facts(model)) if key != "name"]
    name = getattr(model, "name", None) or getattr(model, "file", None) or ""
    return f"<{type(model).__name__}{f' {name}' if name else ''}: {', '.join(shown) or 'defaults'}>"


def as_html(
    title: str, rows: list[tuple[str, str]], columns: tuple[str, ...], lines: list[tuple[str, ...]]
) -> str:
    """Make HTML of a heading, a line of facts, and a table."""
    from html import escape

    said = ", ".join(f"{escape(key)} <code>{escape(value)}</code>" for key, value in rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<b>{escape(title)}</b>{': ' if said else ''}{said}{table}"


def sources_as_html(title: str, top: BaseModel, sources: Iterable[Any]) -> str:
    """Make HTML of the keys of a spec's top level, and a table of its sources."""
    lines: list[tuple[str, ...]] = []
    for source in sources:
        said = dict(facts(source))
        share = next(
            (f"{key} {said[key]}" for key in ("probability", "weight", "upsample") if key in said), ""
        )
        lines.append((source.name, said.get("shards", ""), share, said.get("decode", "")))
    about = [fact for fact in facts(top) if fact[0] != "name"]
    return redacted_urls(as_html(title, about, ("source", "shards", "share", "decode"), lines))


class Discreet(Model):
    """A model that is shown in short and without the secrets of its URLs, since printed specs end up in logs."""

    def __repr__(self) -> str:
        return redacted_urls(in_a_line(self, []))

    def __str__(self) -> str:
        return repr(self)
