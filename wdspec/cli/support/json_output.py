"""The JSON that commands print for other programs."""

from __future__ import annotations

import json
from typing import Any

import click

from wdspec.redaction import redacted_urls


def print_json(document: Any) -> None:
    """Prints a document, without the secrets of the URLs in it: what commands print ends up in logs."""
    click.echo(json.dumps(_without_secrets(document), indent=2))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return redacted_urls(value)
    if isinstance(value, dict):
        return {name: _without_secrets(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(each) for each in value]
    return value
