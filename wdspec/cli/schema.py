"""`wdspec schema`: the spec language as JSON Schema, or as a reference page."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--format", "form", type=click.Choice(["json", "markdown"]), default="json", help="Output format."
)
def schema(form: str) -> None:
    """Print the spec language: a JSON Schema for editors and other tools, or a reference in Markdown."""
    if form == "markdown":
        from wdspec.spec.reference import reference_text

        click.echo(reference_text(), nl=False)
    else:
        from wdspec.spec.schema import json_schema_text

        click.echo(json_schema_text(), nl=False)
