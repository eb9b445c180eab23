"""Tables for notebooks: what IPython shows of specs, plans, pipelines and loaders."""

from __future__ import annotations

from html import escape
from typing import Any

from wdspec.base.amounts import largest_places
from wdspec.base.redaction import redacted_urls
from wdspec.planning.plan import Plan
from wdspec.spec.language.display import facts
from wdspec.spec.spec import Spec


def as_html(thing: Any) -> str:
    """Return a spec, a plan, or what reads a plan (a pipeline, a loader) as a line of facts and a table of sources."""
    if isinstance(thing, Spec):
        return _of_spec(thing)
    if isinstance(thing, Plan):
        return _of_plan(thing, "plan", [])
    return _of_plan(thing.plan, type(thing).__name__, [("batches read", f"{thing.stream.step:,}")])


def _of_spec(spec: Spec) -> str:
    """The keys of the top level, and the sources."""
    lines: list[tuple[str, ...]] = []
    for source in spec.sources:
        said = dict(facts(source))
        share = next(
            (f"{key} {said[key]}" for key in ("probability", "weight", "upsample") if key in said), ""
        )
        lines.append((source.name, said.get("shards", ""), share, said.get("decode", "")))
    about = [fact for fact in facts(spec) if fact[0] != "name"]
    title = spec.name or spec.file or "spec"
    shares = [float(each.probability or each.weight or each.upsample or 0) for each in spec.sources]
    return redacted_urls(_table(title, about, ("source", "shards", "share", "decode"), lines, shares))


def _of_plan(plan: Plan, title: str, more: list[tuple[str, str]]) -> str:
    """The topology, the batches, and the sources with a share above 0."""
    topology, batching, steps = plan.topology, plan.batching, plan.timeline.epoch_steps
    about = [*more, ("ranks", f"{topology.ranks}"), ("workers", f"{topology.workers}")]
    if batching.windowed:
        about.append(("window", f"{batching.per_slot:,} samples"))
    elif batching.batched:
        about.append(("global batch", f"{batching.global_size:,}"))
    if steps is not None and batching.windowed:
        about.append(("epoch", f"{steps:,} batches of each canonical rank"))
    elif steps is not None:
        about.append(("epoch", f"{steps * batching.global_size:,} samples"))
    columns = ("source", "shards", "share", "held for shuffling", "shards in turn")
    rows: list[tuple[str, ...]] = [
        (
            source.name,
            f"{len(source.shards):,}",
            f"{float(source.share):.2%}",
            f"{source.delays.size:,}",
            f"{source.interleave}",
        )
        for source in plan.sources
    ]
    return _table(title, about, columns, rows, [float(source.share) for source in plan.sources])


def _table(
    title: str,
    about: list[tuple[str, str]],
    columns: tuple[str, ...],
    rows: list[tuple[str, ...]],
    shares: list[float],
) -> str:
    """Make HTML of a heading, a line of facts, and a table; of many rows, of those with the largest shares."""
    shown = [rows[place] for place in largest_places(shares)]
    if more := len(rows) - len(shown):
        shown.append((f"… and {more:,} more", *[""] * (len(columns) - 1)))
    said = ", ".join(f"{escape(key)} <code>{escape(value)}</code>" for key, value in about)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in shown)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<b>{escape(title)}</b>{': ' if said else ''}{said}{table}"
