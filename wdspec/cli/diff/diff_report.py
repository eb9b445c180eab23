"""A comparison of two specs as tables, as markdown for a pull request, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from wdspec.base.redaction import printable
from wdspec.cli.diff.saved_states import StateFate
from wdspec.cli.diff.spec_diff import KeyChange, SourceChange, SpecDiff
from wdspec.cli.explain.explanation import PER_UNENDING, ExplainedSource
from wdspec.cli.support.tables import Part, Table, Warning, counted, number, percent, table_of

_GOES_ON = {
    "exactly": "A saved state goes on exactly",
    "other samples": "A saved state goes on, with other samples",
    "if allowed": "A saved state goes on only with `allow_changed=True`",
    "no": "A saved state does not go on",
}
_MOST_LINES = 40
_SPECIAL = re.compile(r"[\\|*_<>\[\]~]")


def parts_of(diff: SpecDiff, fate: StateFate) -> Iterator[Part]:
    """The report, for a terminal or a pipe."""
    yield f"{diff.old.label} → {diff.new.label}"
    yield from (Warning(f"{side.label}: {side.stale}") for side in (diff.old, diff.new) if side.stale)
    if diff.is_empty:
        yield "nothing differs"
    else:
        yield from _tables(diff)
        for old, new in diff.renamed():
            yield Warning(
                f"`{new}` has the shards of `{old}`: a source is known by its name, so its order begins anew"
            )
        for side in (diff.old, diff.new):
            yield from (Warning(f"{side.label}: {error}") for error in side.explanation.found)
    yield f"{_GOES_ON[fate.goes_on]}: {fate.why}."
    if fate.sources:
        yield Table(("source", "what becomes of it"), list(fate.sources.items()))
    if fate.state is not None:
        given = {each["source"]: number(each["samples"]) for each in fate.state["sources"]}
        yield Table(("source", "samples given, or left out>"), list(given.items()), _standing(fate.state))


def as_markdown(diff: SpecDiff, fate: StateFate) -> str:
    """The report as GitHub shows it in a comment."""
    return "\n\n".join(map(_in_markdown, parts_of(diff, fate)))


def as_json(diff: SpecDiff, fate: StateFate) -> dict[str, Any]:
    """Everything, as JSON values; `null` where a side has no such thing."""
    return {
        "old": diff.old.label,
        "new": diff.new.label,
        "same": diff.is_empty,
        "epoch_samples": [side.explanation.plan.epoch_samples for side in (diff.old, diff.new)],
        "settings": [asdict(each) for each in diff.settings],
        "sources": [
            {
                "source": each.name,
                "change": each.change,
                "old": _values(each.old),
                "new": _values(each.new),
                "added_shards": each.added_shards,
                "removed_shards": each.removed_shards,
                "rewritten_shards": each.rewritten_shards,
                "keys": [asdict(key) for key in each.keys],
            }
            for each in diff.sources
        ],
        "renamed": [{"old": old, "new": new} for old, new in diff.renamed()],
        "order": {"same": not diff.order_changes, "changes": list(diff.order_changes)},
        "samples": {"same": not diff.samples_change},
        "state": {
            "goes_on": fate.goes_on,
            "why": fate.why,
            "sources": dict(fate.sources),
            "saved": None if fate.state is None else dict(fate.state),
        },
    }


def _tables(diff: SpecDiff) -> Iterator[Part]:
    changed = [each for each in diff.sources if each.change != "same"]
    settings = [("", each) for each in diff.settings]
    rows = [*settings, *((source.name, key) for source in changed for key in source.keys)]
    if rows:
        yield Table(("source", "key", "before", "after"), [_key_row(name, key) for name, key in rows])
    if changed:
        yield _mixture(diff, changed)
        alike = len(diff.sources) - len(changed)
        if alike:
            yield f"{counted(alike, 'source')} as before"
    lines = [*diff.order_changes[:_MOST_LINES]]
    if len(diff.order_changes) > _MOST_LINES:
        lines.append(f"and {len(diff.order_changes) - _MOST_LINES:,} more")
    if lines:
        yield Table((), [(line,) for line in lines], "the order changes by")


def _mixture(diff: SpecDiff, changed: list[SourceChange]) -> Table:
    endless = not all(side.explanation.plan.epoch_samples for side in (diff.old, diff.new))
    per = f"per {PER_UNENDING:,}" if endless else "per epoch"
    columns: dict[str, Callable[[SourceChange], str]] = {
        "source": lambda each: "  " * len((each.new or each.old or _NOTHING).path) + each.name,
        "change": lambda each: each.change,
        "share>": _both(lambda each: percent(each.share)),
        "shards>": lambda each: _both(lambda side: number(side.shards or 0))(each) + _moved(each),
        "samples>": _both(lambda each: "?" if each.samples is None else number(round(each.samples))),
        f"{per}>": _both(lambda each: number(each.expected)),
    }
    if not endless:
        columns["passes>"] = _both(lambda each: "?" if each.passes is None else f"{each.passes:.3g}")
    return table_of(changed, columns, "the mixture, before → after")


_NOTHING = ExplainedSource("")


def _both(cell: Callable[[ExplainedSource], str]) -> Callable[[SourceChange], str]:
    """`before → after`, or one of them where they are the same or only one is there."""

    def show(each: SourceChange) -> str:
        old, new = (None if side is None else cell(side) for side in (each.old, each.new))
        if old is None or new is None or old == new:
            return old if new is None else new  # type: ignore[return-value]
        return f"{old} → {new}"

    return show


def _moved(each: SourceChange) -> str:
    rewritten = f" ({each.rewritten_shards:,} rewritten)" if each.rewritten_shards else ""
    return _added_and_removed(each) + rewritten


def _added_and_removed(each: SourceChange) -> str:
    if each.added_shards is None:
        return " (others)"
    if each.change != "changed" or not (each.added_shards or each.removed_shards):
        return ""
    return f" (+{each.added_shards:,} −{each.removed_shards:,})"


def _key_row(source: str, change: KeyChange) -> tuple[str, ...]:
    return (source, change.key, *(_cut(text) for text in (change.old, change.new)))


def _cut(text: str | None) -> str:
    if text is None:
        return "–"
    return text if len(text) <= 60 else f"{text[:57]}…"


def _values(source: ExplainedSource | None) -> dict[str, Any] | None:
    if source is None:
        return None
    return {
        "share": source.share,
        "shards": source.shards,
        "samples": source.samples,
        "estimated": source.estimated,
        "expected": source.expected,
        "passes": source.passes,
    }


def _standing(state: Any) -> str:
    return f"the state: after {counted(state['batch'], 'global batch', 'global batches')}, {state['samples']:,} samples"


def _in_markdown(part: Part) -> str:
    if isinstance(part, Table):
        if not part.headings:
            return "\n".join(
                [f"**{_escaped(part.title)}**", "", *(f"- {_escaped(row[0])}" for row in part.rows if row)]
            )
        lines = [f"**{_escaped(part.title)}**", ""] if part.title else []
        lines.append("| " + " | ".join(heading.removesuffix(">") for heading in part.headings) + " |")
        lines.append(
            "|" + "|".join("--:" if heading.endswith(">") else "--" for heading in part.headings) + "|"
        )
        lines += ["| " + " | ".join(map(_escaped, row)) + " |" for row in part.rows if row is not None]
        return "\n".join(lines)
    return f"> ⚠ {_escaped(part.text)}" if isinstance(part, Warning) else _escaped(part)


def _escaped(text: str) -> str:
    """Text in which nothing is markup but what stands between backquotes, as names do in our messages."""
    pieces = printable(text).split("`")
    plain = [_SPECIAL.sub(r"\\\g<0>", piece) for piece in pieces[::2]]
    code = [piece.replace("|", r"\|") for piece in pieces[1::2]]
    pieces[::2], pieces[1::2] = plain, code
    marked = "`".join(pieces)
    return marked.replace("  ", "&nbsp;&nbsp;") if marked.startswith("  ") else marked
