"""`wdspec diff`: what a change to a spec does to the mixture, the order, and runs that have begun.

A comparison of two specs as tables, as markdown for a pull request, and as JSON.

The shares of both specs as bars, in an SVG file.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import click

from wdspec.base.errors import SpecError, UsageError
from wdspec.base.redaction import printable
from wdspec.cli.diff_facts import KeyChange, Side, SourceChange, SpecDiff, StateFate, fate_of_state
from wdspec.cli.explain_facts import PER_UNENDING, ExplainedSource, explain_spec
from wdspec.cli.report import Part, Table, Warning, counted, number, percent, print_json, show, table_of
from wdspec.cli.revisions import GitFiles, RevisionStorage, split_revision
from wdspec.cli.spec_options import SpecChoice, env_option, set_option, topology_options, var_option
from wdspec.shards.lock import Lock, lock_name
from wdspec.spec.files import MOST_BESIDE, ReadFile, read_from_disk
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import save

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


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--split", metavar="NAME", help="Split of both specs; SPEC#NAME chooses one's own.")
@env_option
@var_option
@set_option
@topology_options
@click.option("--state", "state_file", metavar="FILE", help="Also say what becomes of this saved state.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True
)
@click.option("--chart", metavar="FILE.svg", help="Also draw the shares before and after.")
@click.option("--exit-code", is_flag=True, help="End with 1 if anything differs.")
def diff(
    old: str,
    new: str,
    split: str | None,
    env: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    ranks: int | None,
    workers: int | None,
    state_file: str | None,
    form: str,
    chart: str | None,
    exit_code: bool,
) -> None:
    """Show what changes from one spec to another: settings, sources, shares, shards, passes, order.

    OLD and NEW are files, or files at a revision of git, as in `wdspec diff main:train.yaml train.yaml`. What the spec
    extends and the lists it names are read from that revision too; globs and folders are looked up as they are now, or
    stand in the lock beside the spec (`wdspec lock`), which also tells of shards that were written anew.
    With the order the answer to the question is given whether a saved state can go on, of --state FILE for its sources.
    """
    sides = [
        _side(name, SpecChoice(name, split, env, variables, overrides), ranks, workers) for name in (old, new)
    ]
    found = SpecDiff(*sides)
    fate = fate_of_state(found, state_file)
    if form == "json":
        print_json(as_json(found, fate))
    elif form == "markdown":
        click.echo(as_markdown(found, fate))
    else:
        show(*parts_of(found, fate))
    if chart is not None:
        # REMOVED IMPORT

        draw(found, chart)
    if exit_code and not found.is_empty:
        click.get_current_context().exit(1)


def _file(path: str) -> str:
    """The absolute path of a spec, without the split that may follow it."""
    return os.path.abspath(path.partition("#")[0])


def _side(name: str, choice: SpecChoice, ranks: int | None, workers: int | None) -> Side:
    at = split_revision(name)
    if at is None:
        return _explained(name, choice.load(), choice, ranks, workers, read_from_disk)
    revision, path = at
    files = GitFiles.at(revision, os.getcwd())
    if not path.startswith("./"):
        here, path = path, os.path.join(os.path.relpath(files.root), path)
        if not files.has(_file(path)) and files.has(_file(here)):
            raise UsageError(f"paths start at the repository's top folder; write `{revision}:./{here}`")
    try:
        choice = replace(choice, file=os.path.normpath(path))
        spec = choice.load(files.read)
    except SpecError as error:
        raise SpecError(f"at {revision}: {error}", error.problems) from None

    def storage_of(environment: Environment, spec: Spec, source: Source) -> Storage:
        storage = RevisionStorage.of(environment, spec, source)
        assert isinstance(storage, RevisionStorage)
        return replace(storage, files=files)

    return _explained(name, spec, choice, ranks, workers, files.read, storage_of)


def _explained(
    name: str,
    spec: Spec,
    choice: SpecChoice,
    ranks: int | None,
    workers: int | None,
    read: ReadFile,
    storage_of: Callable[[Environment, Spec, Source], Storage] = Storage.of,
) -> Side:
    """A side, whose shards are those of the lock beside its spec, if there is one that fits."""
    lock, stale = None, ""
    path = lock_name(choice.file, choice.split)
    try:
        lock = Lock.of_text(read(os.path.abspath(path), True, MOST_BESIDE), path)
        frozen = lock.shards(spec, path)
    except UsageError as error:
        lock, frozen, stale = None, None, f"shards are looked up as they are now: {error}"
    except OSError:
        frozen = None
    explained = explain_spec(spec, ranks, workers, 1, storage_of=storage_of, frozen=frozen)
    return Side(name, explained, lock, stale)


_MOST = 40


def draw(diff: SpecDiff, file: str) -> None:
    """Writes the chart; the sources whose shares differ most come first.

    Raises:
        UsageError: matplotlib is not installed, or the file is no SVG.
    """
    if not file.endswith(".svg"):
        raise UsageError(f"--chart draws SVG; name a file that ends in .svg, not {file}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--chart needs matplotlib: pip install 'wdspec[charts]'") from None
    shares = [
        (each.name, each.old.share if each.old else 0.0, each.new.share if each.new else 0.0)
        for each in diff.sources
        if not (each.new or each.old).nested  # type: ignore[union-attr]
    ]
    shares = sorted(shares, key=lambda row: -abs(row[1] - row[2]))[:_MOST][::-1]
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(shares)), layout="constrained")
    axes = figure.subplots()
    places = range(len(shares))
    for side, colour, shift, at in ((diff.old, "#9aa5b1", 0.2, 1), (diff.new, "#1f6feb", -0.2, 2)):
        bars = axes.barh(
            [place + shift for place in places],
            [100 * row[at] for row in shares],
            0.38,
            color=colour,
            label=side.label,
        )
        axes.bar_label(bars, fmt="%.2f %%", padding=3, fontsize=8)
    axes.set_yticks(list(places), [row[0] for row in shares])
    axes.set_xlabel("share of the samples, %")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    save(file, drawn.getvalue())
