"""`wdspec schema`: the JSON Schema of the language."""

from __future__ import annotations

import click

from wdspec.spec.schema import json_schema_text


@click.command()
def schema() -> None:
    """Print the JSON Schema of the spec language, for editors and other tools."""
    click.echo(json_schema_text(), nl=False)
