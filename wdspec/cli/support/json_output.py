"""The JSON that commands print for other programs."""

from __future__ import annotations

import json
from typing import Any

import click

from wdspec.base.redaction import redacted_urls


def print_json(document: Any) -> None:
    """Prints a document, without the secrets of the URLs in it: what commands print ends up in logs."""
    click.echo(json.dumps(without_secrets(document), indent=2))


def without_secrets(value: Any) -> Any:
    """The same with its texts redacted: before it is written as JSON or cut, since both hide where a secret ends."""
    if isinstance(value, str):
        return redacted_urls(value)
    if isinstance(value, dict):
        return {name: without_secrets(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(each) for each in value]
    return value
