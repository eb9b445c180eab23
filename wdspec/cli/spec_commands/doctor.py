"""`wdspec doctor`: what there is to know about this machine when something does not work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import click

from wdspec.base.progress import with_progress
from wdspec.cli.doctor.machine import Installed, Limit, installed, limits, programs
from wdspec.cli.doctor.reaching import Reached, reach
from wdspec.cli.doctor.variable_advice import Variable, set_variables
from wdspec.cli.support.json_output import print_json
from wdspec.cli.support.spec_options import SpecChoice, env_option, form_option, set_option, var_option
from wdspec.cli.support.tables import Part, Row, Table, Warning, counted, show, table_of

SUMMARY = "Show versions, limits, variables, and whether stores answer."


@click.command()
@click.argument("file", metavar="[SPEC]", required=False)
@click.option("--split", metavar="NAME", help="Split of the spec; SPEC#NAME chooses it too.")
@env_option
@var_option
@set_option
@form_option
def doctor(
    file: str | None,
    split: str | None,
    env: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    form: str,
) -> int:
    """Show versions, optional libraries, limits of this machine and the variables that matter.

    Given a SPEC, also opens the first shard of each of its sources, as training would, to see whether its store
    answers; that runs the command of a `pipe:`. Prints no secrets, so that it can go into a report. Exit code: 1 if a
    variable cannot be understood, or a store does not answer.
    """
    reached: list[Reached] = []
    if file is not None:
        spec = SpecChoice(file, split, env, variables, overrides).load()
        reached = list(with_progress(reach(spec), "opening a shard of each source"))
    libraries, machine, seen = list(installed()), list(limits()), list(set_variables())
    if form == "json":
        print_json(
            {
                "programs": programs(),
                "libraries": [each._asdict() for each in libraries],
                "limits": [each._asdict() for each in machine],
                "variables": [each._asdict() for each in seen],
                "sources": [each._asdict() for each in reached],
            }
        )
    else:
        show(*_parts(libraries, machine, seen, reached))
    return 1 if any(each.is_wrong for each in seen) or any(each.error for each in reached) else 0


def _parts(
    libraries: list[Installed], machine: list[Limit], seen: list[Variable], reached: list[Reached]
) -> Iterator[Part]:
    yield Table((), [*programs().items(), *((each.name, each.value) for each in machine)])
    yield Table(("extra", "libraries"), list(_extras(libraries)))
    if seen:
        columns = {
            "variable": lambda each: each.name,
            "value": lambda each: each.value,
            "what it does": lambda each: each.meaning,
        }
        yield table_of(seen, columns)
    else:
        yield "no variable that matters is set"
    if reached:
        yield table_of(
            reached,
            {
                "source": lambda each: each.source,
                "shards>": lambda each: f"{each.shards:,}",
                "first one": lambda each: each.url,
                "read from": lambda each: each.location,
                "answer>": lambda each: "none" if each.error else f"{1000 * each.seconds:,.0f} ms",
            },
        )
    yield from (Warning(f"{each.name}: {each.advice}") for each in machine if each.advice)
    yield from (Warning(f"{each.name}: {each.advice}") for each in seen if each.advice)
    wrong = [each for each in reached if each.error]
    for source in wrong:
        yield Warning(f"{source.source}: {source.error}")
    if wrong:
        yield f"{counted(len(wrong), 'source')} of {len(reached)} cannot be read"


def _extras(libraries: list[Installed]) -> Iterator[Row]:
    """`fast` with `isal 1.7.2, orjson not installed`."""
    ordered = sorted(libraries, key=lambda each: each.extra)
    for extra, group in groupby(ordered, key=lambda each: each.extra):
        shown = ", ".join(f"{each.library} {each.version or 'not installed'}" for each in group)
        yield (extra or "always", shown)
