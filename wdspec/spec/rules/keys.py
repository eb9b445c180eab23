"""Rules for keys that need or exclude others, or have no effect next to them."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel

from wdspec.spec.build import Composition, Holder
from wdspec.spec.language.effects import Excludes, Needs, Row, Which, inner_model, mark_of, rows_of
from wdspec.spec.language.values import MASK, Model
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shares import positive_names, steps_with_shares
from wdspec.spec.sources import TOP_MIX_ONLY
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import Scalar, locate, plain, scalars


@rule(
    "E218",
    "an unknown version",
    "This release supports version 1 of the spec language.",
    keys="wdspec",
    bad="wdspec: 2\ndataset:\n  - shards: a.tar\n",
    good="wdspec: 1\ndataset:\n  - shards: a.tar\n",
)
def format_version(composition: Composition) -> Findings:
    """Any version except 1."""
    version = composition.spec.wdspec
    if version != 1:
        at = composition.top.entries["wdspec"].value
        yield Finding(
            at, f"version {version} of the spec language is unknown", "this release supports `wdspec: 1`"
        )


@rule("E206", keys="by")
def shares_without_sizes(composition: Composition) -> Findings:
    """Sources without the number of samples or bytes that sets their shares."""
    if composition.top.get("stats") is not None:
        return  # W108 reports what the file lacks; it may not exist where a spec is checked
    for sources in composition.lists:
        by = sources.mix.get("by") if sources.mix is not None and not sources.scheduled else None
        if not isinstance(by, Scalar) or by.value not in ("samples", "bytes"):
            continue
        for leaf in sources.leaves if sources.share_kinds[:1] == [None] else ():
            if leaf.node.get(by.value) is None:
                message = f"`mix.by: {by.value}` needs the number of {by.value} of each source"
                hint = f"run `wdspec stats SPEC` and add `stats: FILE`, or add `{by.value}: n`"
                yield Finding(leaf.node, message, hint)


@rule(
    "E312",
    "a key that a pass cannot have",
    "`epoch: pass` returns every sample once, source after source, so it cannot have shares, `mix`, `skip`, or shards "
    "drawn with replacement. Padding in the last batch is marked in `__mask__`, which tuples must include.",
    keys="pass",
    bad="epoch: pass\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    good="epoch: pass\ndataset:\n  - {shards: a.tar}\n",
)
def against_a_pass(composition: Composition) -> Findings:
    """Tuples that do not show padding; the keys that a pass cannot have are rows."""
    spec, top = composition.spec, composition.top
    if not spec.is_pass or spec.epoch is None:
        return
    # Padding fills the last batch, and takes the place of dropped samples.
    may_pad = spec.epoch.remainder == "pad" or any(source.drops_samples for _, source in composition.models)
    if spec.to_tuple is not None and MASK not in spec.to_tuple and may_pad:
        message = "with `epoch: pass`, some tuples are padding, and only `__mask__` shows which ones"
        yield Finding(top.entries["to_tuple"].value, message, "add `__mask__` to `to_tuple`")


@rule(
    "W102",
    "a key without effect",
    "This key has no effect because of another key.",
    keys="by cap temperature",
    bad="mix: {by: equal}\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    good="mix: {by: equal}\ndataset:\n  - {shards: a.tar}\n",
)
def unused_sizes(composition: Composition) -> Findings:
    """Keys of `mix` about sizes, if sources state their shares."""
    for sources in composition.lists:
        kind = sources.share_kinds[0] if sources.drafts and not sources.scheduled else None
        for key in ("by", "cap", "temperature") if kind and sources.mix is not None else ():
            if sources.mix is not None and sources.mix.get(key) is not None:
                message = f"`mix.{key}` has no effect if sources state their `{kind}`"
                yield Finding(sources.mix.key(key), message, f"remove it, or remove `{kind}`")


@rule("E207", keys="schedule")
def shares_next_to_a_schedule(composition: Composition) -> Findings:
    """Shares of sources together with a schedule."""
    for sources in composition.lists:
        for draft in sources.drafts if sources.scheduled else ():
            for key in draft.stated_shares:
                message = f"`mix.schedule` sets the share of each source, but this one also has a `{key}`"
                yield Finding(draft.node.key(key), message, "remove one of the two")


@rule("W102", keys="schedule")
def unscheduled_sources(composition: Composition) -> Findings:
    """Sources that no step of a schedule reads."""
    read = set().union(*map(positive_names, steps_with_shares(composition)))
    for draft in composition.drafts if read else ():
        if draft.name not in read:
            message = f"no step of the schedule has a share for `{draft.name[:60]}`, so it is never read"
            yield Finding(draft.own, message, "name it in a step, or remove it")


@rule("W102", keys="interleave")
def interleaved_passes(composition: Composition) -> Findings:
    """`interleave` in a pass."""
    for leaf, source in composition.models if composition.spec.is_pass else ():
        if source.interleave > 1:
            message = "`interleave` has no effect with `epoch: pass`, which reads shard by shard"
            yield Finding(leaf.node.key("interleave"), message, "remove it")


_LED_BY_ZEROS = re.compile(r"[-+]?0[0-9_]+")


@rule(
    "W106",
    "a number with a leading zero",
    "In YAML 1.2, `017` is 17. In YAML 1.1, which many other programs use, it is the octal number 15.",
    bad="batch: 017\ndataset:\n  - shards: a.tar\n",
    good="batch: 17\ndataset:\n  - shards: a.tar\n",
)
def leading_zeros(composition: Composition) -> Findings:
    """Whole numbers that start with a zero."""
    for node in scalars(composition.top):
        if type(node.value) is int and node.text and _LED_BY_ZEROS.fullmatch(node.text):
            yield Finding(node, f"`{node.text}` is the number {node.value}", f"write `{node.value}`")


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
    for holder in composition.holders:
        for row in _ROWS.get((code, type(holder.model)), ()):
            if _holds(row.key, holder, top):
                yield from _apply(row, holder, top)


def _apply(row: _Row, holder: Holder, top: Holder) -> Findings:
    """The problem of a key that is there, if there is one."""
    mark, key = row.mark, row.key.keys[-1]
    if any(_holds(term, holder, top) is not False for term in row.unless):
        return
    if row.only and not any(_holds(term, holder, top) for term in row.only):
        return
    held = [_holds(term, holder, top) for term in row.others]
    if isinstance(mark, Needs):
        names = [term.shown for term in row.others]
        verb, others = "needs", " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        if any(is_held is not False for is_held in held):
            return
    else:
        verb = "has no effect with" if mark.code.startswith("W") else "cannot go with"
        others = next((term.which for term, is_held in zip(row.others, held, strict=True) if is_held), "")
        if not others:
            return
    node = locate(holder.node, row.key.keys[:-1])
    written = node.value_or_self(key)
    value = plain(written)
    shown = row.key.shown if mark.value is None else f"{row.key.shown}: {value}"
    at = written if mark.at_value else node.key_or_self(key)
    hint = mark.hint.format(key=key, value=value, others=others)
    yield Finding(at, f"`{shown}` {verb} {others}", hint)


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
    # E216 reports what a nested mix cannot have.
    _rows = [each for each in rows_of(_model) if _model is Spec or each.keys[-1] not in TOP_MIX_ONLY]
    for _row in (_read(each, _model) for each in _rows):
        _ROWS.setdefault((_row.mark.code, _model), []).append(_row)
        _terms = [_row.key] if isinstance(_row.mark, Needs) else _row.others
        _KEYS.setdefault(_row.mark.code, set()).update(
            key for term in _terms for key in (term.keys[-1], *term.keys[: isinstance(_row.mark, Needs)])
        )
for _code, _keys in _KEYS.items():
    rule(_code, keys=" ".join(_keys))(partial(find_misfits, _code))
