"""How specs and sources are shown in one line: the keys that were written, in short."""

from __future__ import annotations

from collections.abc import Iterator
from pkgutil import resolve_name
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


class Discreet(Model):
    """A model that is shown in short and without the secrets of its URLs, since printed specs end up in logs."""

    def __repr__(self) -> str:
        return redacted_urls(in_a_line(self, []))

    def __str__(self) -> str:
        return repr(self)


class Tabular:
    """What notebooks show as a table, which `integrations/notebooks.py` makes."""

    def _repr_html_(self) -> str:
        html: str = resolve_name("wdspec.integrations.notebooks:as_html")(self)
        return html
