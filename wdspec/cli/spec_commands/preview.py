"""`wdspec preview`: a page to look at: the mixture, and real samples of each source before and after its steps."""

from __future__ import annotations

import os

import click

from wdspec.base.progress import progress
from wdspec.base.redaction import printable
from wdspec.cli.explain.survey_spec import explain_spec
from wdspec.cli.support.spec_options import SpecChoice, env_option, set_option, topology_options, var_option
from wdspec.cli.support.tables import counted, size
from wdspec.stores.outputs import save

SUMMARY = "Write a page with the mixture and real samples of each source."


@click.command()
@click.argument("files", metavar="SPEC [OTHER]", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="PAGE.html", default="preview.html", show_default=True, help="The page."
)
@click.option(
    "-n",
    "cards",
    type=click.IntRange(0, 100),
    default=6,
    show_default=True,
    help="Samples shown of each source.",
)
@click.option(
    "--samples",
    "count",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Samples read of each source, for the charts.",
)
@click.option("--split", metavar="NAME", help="Split of the specs; SPEC#NAME chooses one's own.")
@env_option
@var_option
@set_option
@topology_options
def preview(
    files: tuple[str, ...],
    output: str,
    cards: int,
    count: int,
    split: str | None,
    env: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    ranks: int | None,
    workers: int | None,
) -> None:
    """Write a page of HTML that shows a spec, or two side by side: shares asked for and given, which source each sample
    of the first batches comes from, and of each source real samples, as its shards hold them and as training gets them,
    with the distributions of sizes, lengths and classes.

    Everything is in the one file, which loads nothing and runs no script. Reads shards and runs the functions that the
    spec names (`map`, `select`, decoders); WDS_SECURE=1 forbids them. Needs `pip install 'wdspec[charts]'`.
    """
    from wdspec.cli.preview.preview_page import check_libraries, page
    from wdspec.cli.preview.spec_preview import MEDIA, preview_of

    if len(files) > 2:
        raise click.UsageError(f"a page shows one spec, or two side by side; here are {len(files)}")
    check_libraries()
    choices = [SpecChoice(file, split, env, variables, overrides) for file in files]
    found = [explain_spec(choice.load(), ranks, workers, 1) for choice in choices]
    with progress("reading sources", sum(len(each.active) for each in found)) as bar:
        previews = [
            preview_of(file, each, count=count, cards=cards, media=MEDIA // len(found), advance=bar.advance)
            for file, each in zip(files, found, strict=True)
        ]
    data = page(previews).encode()
    save(output, data)
    problems = sum(len(each.all_problems) for each in previews)
    said = "no problems" if not problems else counted(problems, "problem")
    click.echo(printable(f"{output}: {size(len(data))}, {said}; open {os.path.abspath(output)} in a browser"))
