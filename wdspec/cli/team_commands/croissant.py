"""`wdspec croissant`: a spec as metadata for catalogues and reviewers, in MLCommons' Croissant 1.1."""

from __future__ import annotations

import json

import click

from wdspec.cli.croissant.croissant_document import croissant_of
from wdspec.cli.croissant.responsible_ai import REQUIRED, read_statements
from wdspec.cli.explain.survey_spec import explain_spec
from wdspec.cli.support.spec_options import SpecChoice, choosing_spec
from wdspec.shards.lock import Lock
from wdspec.stores.outputs import save

SUMMARY = "Describe a mixture in MLCommons' Croissant format."


@click.command()
@choosing_spec
@click.option(
    "--lock", "lock_file", metavar="FILE", help="Take the shards from a lock, instead of listing them."
)
@click.option(
    "--rai", "rai_file", metavar="FILE", help="YAML with statements of the RAI vocabulary (dataBiases, …)."
)
@click.option("--url", help="Page of the data set; by default the first `homepage` of a source.")
@click.option("--license", "licence", help="Licence of the whole; by default those of its sources.")
@click.option("--creator", help="Who made it.")
@click.option("--version", "revision", help="Its version, as 1.0.0.")
@click.option("--date", "date_published", metavar="YYYY-MM-DD", help="When it was published.")
@click.option("--cite-as", help="How to cite it, as BibTeX.")
@click.option("--output", "-o", metavar="FILE", help="Where to write; by default standard output.")
def croissant(
    choice: SpecChoice,
    lock_file: str | None,
    rai_file: str | None,
    url: str | None,
    licence: str | None,
    creator: str | None,
    revision: str | None,
    date_published: str | None,
    cite_as: str | None,
    output: str | None,
) -> None:
    """Describe a mixture in Croissant 1.1 (JSON-LD): its sources, shards, fields, licences and shares.

    `name` and `description` of the spec and `license`, `homepage` and `revision` of its sources go into it; what only
    people know, such as biases and personal data, is given by --rai. What is missing that catalogues or reviewers want
    is said on standard error. Lists globs and directories as `wdspec explain` does; reads no samples.
    """
    spec = choice.load()
    frozen = None if lock_file is None else Lock.read(lock_file).shards(spec, lock_file)
    explanation = explain_spec(spec, None, None, 1, probe=False, frozen=frozen)
    statements = {} if rai_file is None else read_statements(rai_file)
    given = {
        "url": url,
        "license": licence,
        "creator": creator,
        "version": revision,
        "date_published": date_published,
        "cite_as": cite_as,
    }
    document = croissant_of(explanation, statements, given)
    wanted = {
        "url": "--url",
        "license": "--license, or `license:` of the sources",
        "datePublished": "--date",
        "creator": "--creator",
        "citeAs": "--cite-as",
        **{f"rai:{name}": "--rai" for name in REQUIRED},
    }
    for key, where in wanted.items():
        if key not in document:
            click.echo(f"note: `{key}` is missing ({where})", err=True)
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    save(output, text.encode())
