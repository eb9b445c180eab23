"""`wdspec schema`: the spec language, or that of policies, as JSON Schema, or as a reference page."""

from __future__ import annotations

import click

from wdspec.cli.spec_options import format_option


@click.command()
@format_option("json", "markdown")
@click.option("--policies", is_flag=True, help="Print the schema of policy files.")
def schema(form: str, policies: bool) -> None:
    """Print the spec language: a JSON Schema for editors and other tools, or a reference in Markdown."""
    if policies and form == "markdown":
        raise click.UsageError("--policies has no reference in Markdown; docs/policies.md describes all keys")
    if policies:
        from wdspec.policies.schema import policy_schema_text as text
    elif form == "markdown":
        from wdspec.spec.reference import reference_text as text
    else:
        from wdspec.spec.schema import json_schema_text as text
    click.echo(text(), nl=False)
