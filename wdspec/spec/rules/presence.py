"""Keys that need or exclude others: the rows that fields declare, and the problems that follow from them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel

from wdspec.spec.build import Composition, Holder
from wdspec.spec.language.effects import Excludes, Needs, Row, Which, inner_model, mark_of, rows_of
from wdspec.spec.language.values import Model
from wdspec.spec.problems import advise_stats
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.sources import TOP_MIX_ONLY
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import MapNode, Node, Scalar, locate, plain


class _Term(NamedTuple):
    """A key, perhaps with a value, that a row needs to know of."""

    is_top: bool
    """Whether it is at the top level; otherwise it belongs to the same holder as the key with the row."""
    keys: tuple[str, ...]
    """Its path as it is written."""
    attributes: tuple[str, ...]
    """Its path in the models."""
    values: tuple[Any, ...]
    """Its values that count; empty: all."""
    shown: str
    """How messages write it."""
    which: str
    """The same with the reason why others cannot go with it."""


class _Row(NamedTuple):
    """A mark of a key that needs or excludes others."""

    mark: Needs | Excludes
    key: _Term
    others: list[_Term]
    unless: list[_Term]
    only: list[_Term]


def find_misfits(code: str, composition: Composition) -> Findings:
    """Keys without another one that they need, or next to one that they exclude, as they declare."""
    top = composition.holders[0]
    companions = {id(draft.model) for draft in composition.companions}
    for holder in composition.holders:
        above = _outside_epochs(top) if id(holder.model) in companions else top
        for row in _ROWS.get((code, type(holder.model)), ()):
            if _holds(row.key, holder, above):
                yield from _apply(row, holder, above)


def _outside_epochs(top: Holder) -> Holder:
    """The top level as companions see it, which are read as often as samples need them, and never in passes."""
    return top if top.model is None else top._replace(model=top.model.model_copy(update={"epoch": None}))


def _apply(row: _Row, holder: Holder, top: Holder) -> Findings:
    """The problem of a key that is there, if there is one."""
    if any(_holds(term, holder, top) is not False for term in row.unless):
        return
    if row.only and not any(_holds(term, holder, top) for term in row.only):
        return
    needs = isinstance(row.mark, Needs)
    counts = (True, None) if needs else (True,)  # what is unknown may be what it needs
    other = next((term for term in row.others if _holds(term, holder, top) in counts), None)
    if (other is None) is needs:
        yield _describe(row, holder, top, other)


def _describe(row: _Row, holder: Holder, top: Holder, other: _Term | None) -> Finding:
    """The problem of a key that lacks all others, or has one that it excludes."""
    mark, key = row.mark, row.key.keys[-1]
    if other is None:
        names = [term.shown for term in row.others]
        verb, others = "needs", " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    else:
        verb = "has no effect with" if mark.code.startswith("W") else "cannot go with"
        others = other.which
    node = locate(holder.node, row.key.keys[:-1])
    written = node.value_or_self(key)
    value = plain(written)
    shown = row.key.shown if mark.value is None else f"{row.key.shown}: {str(value).lower()}"
    inherited = ""
    if other is not None and not other.is_top and other.keys[:-1] == row.key.keys[:-1]:
        inherited = _describe_inherited(node, key, other.keys[-1])
    split = getattr(top.model, "split", None)
    place = f" in the split `{split}`" if split else ""
    hint = mark.hint.format(key=key, value=value, others=others, place=place, measure=advise_stats(split))
    at = written if mark.at_value else node.key_or_self(key)
    return Finding(at, f"`{shown}` {verb} {others}", inherited or hint)


def _describe_inherited(node: Node, *keys: str) -> str:
    """How to remove one of two keys of a map, if the other one was laid over it; empty if neither was."""
    if not isinstance(node, MapNode):
        return ""
    start = (node.line, node.column)
    below = [
        at
        for at in map(node.key_or_self, keys)
        if at.origin is not node.origin or (at.line, at.column) < start
    ]
    if len(below) != 1 or not isinstance(below[0], Scalar):
        return ""
    [other] = (key for key in keys if key != below[0].value)
    return (
        f"`{below[0].value}` is inherited from {below[0].position}: to remove it, write `{below[0].value}: null` next "
        f"to `{other}`"
    )


def _holds(term: _Term, holder: Holder, top: Holder) -> bool | None:
    """Whether a key is set, perhaps to one of some values; None if that is unknown, since its value is wrong."""
    inside, _, bad = top if term.is_top else holder
    if term.keys[0] in bad:
        return None
    held: Any = inside
    for attribute in term.attributes:
        if not isinstance(held, Model) or attribute not in held.model_fields_set:
            return False
        held = getattr(held, attribute)
    text = str(held).lower() if isinstance(held, bool) else held
    return text in term.values if term.values else held is not None


def _parse(text: str, model: type[BaseModel], above: Row, values: tuple[Any, ...] = ()) -> _Term:
    """Read a key that a row in a map names."""
    path, _, value = text.partition("=")
    is_top, parts = path[0] == "/", path.removeprefix("/").split(".")
    keys, attributes = ([], []) if is_top else ([*above.keys[:-1]], [*above.attributes[:-1]])
    holder = Spec if is_top else model
    for part in parts:
        name, field = next(each for each in holder.model_fields.items() if part in (each[1].alias, each[0]))
        keys, attributes = [*keys, part], [*attributes, name]
        holder = inner_model(field) or holder
    which = mark_of(field, Which) or Which("")
    shown = f"`{which.shown or parts[-1]}{f': {value}' if value else ''}`"
    said = f"{shown}, which {which.why}" if which.why and (which.value is None or value) else shown
    return _Term(is_top, tuple(keys), tuple(attributes), (value,) if value else values, shown, said)


def _read(row: Row, model: type[BaseModel]) -> _Row:
    """Read the keys that a row names."""
    for attribute in row.attributes[:-1]:
        model = inner_model(model.model_fields[attribute]) or model
    mark = row.mark
    values = () if mark.value is None else mark.value if isinstance(mark.value, tuple) else (mark.value,)
    key = _parse(row.keys[-1], model, row, values)
    others, unless, only = (
        [_parse(term, model, row) for term in terms.split()]
        for terms in (mark.others, mark.unless, mark.only)
    )
    return _Row(mark, key._replace(shown=key.shown.strip("`")), others, unless, only)


_ROWS: dict[tuple[str, type], list[_Row]] = {}
_KEYS: dict[str, set[str]] = {}
"""Code -> the keys of which a spec has one if it has the problem: a key that needs others, or that others exclude."""
for _model in (Spec, Source):
    for _declared in rows_of(_model):
        if _model is Source and _declared.keys[-1] in TOP_MIX_ONLY:  # E216 reports it
            continue
        _row = _read(_declared, _model)
        _ROWS.setdefault((_row.mark.code, _model), []).append(_row)
        if isinstance(_row.mark, Needs):  # only the first key of its path is written if it has a short form
            _wanted = {_row.key.keys[0], _row.key.keys[-1]}
        else:
            _wanted = {term.keys[-1] for term in _row.others}
        _KEYS.setdefault(_row.mark.code, set()).update(_wanted)
for _code, _wanted in _KEYS.items():
    rule(_code, keys=" ".join(_wanted))(partial(find_misfits, _code))
