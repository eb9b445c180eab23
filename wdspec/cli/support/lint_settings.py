"""`[tool.wdspec]` in pyproject.toml: how the specs of a repository are checked."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from wdspec.base.errors import did_you_mean


class LintSettings(NamedTuple):
    """What pyproject.toml says; the fields are its keys, options of `validate` go before them."""

    paths: tuple[str, ...] = ()
    """What is checked where a command names nothing."""
    exclude: tuple[str, ...] = ()
    """Patterns as in `.gitignore` of what is left out."""
    ignore: tuple[str, ...] = ()
    """Codes of warnings that are not reported."""
    strict: bool = False
    """Whether warnings fail a check as errors do."""
    env: str | None = None
    """The environment to check."""
    root: str = "."
    """Where pyproject.toml stands; no key."""


_KEYS = tuple(name for name in LintSettings._fields if name != "root")


def lint_settings(start: str = ".") -> LintSettings:
    """The settings of the nearest pyproject.toml with `[tool.wdspec]`, from a folder upwards.

    Raises:
        click.UsageError: it cannot be read, or has other keys or kinds of values.
    """
    folder = os.path.abspath(start)
    while True:
        path = os.path.join(folder, "pyproject.toml")
        table = _table(path)
        if table is not None:
            return _checked(table, path)._replace(root=folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            return LintSettings()
        folder = parent


def _table(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file).get("tool", {}).get("wdspec")
    except FileNotFoundError:
        return None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {path}: {error}") from None


def _checked(table: Any, path: str) -> LintSettings:
    where = f"[tool.wdspec] in {path}"
    if not isinstance(table, Mapping):
        raise click.UsageError(f"{where} is no table")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f"its keys: {', '.join(_KEYS)}"
            raise click.UsageError(f"{where}: unknown key {key!r}; {hint}")
        kind, is_right = {
            "strict": ("true or false", isinstance(value, bool)),
            "env": ("a text", isinstance(value, str)),
        }.get(
            key, ("a list of texts", isinstance(value, list) and all(isinstance(item, str) for item in value))
        )
        if not is_right:
            raise click.UsageError(f"{where}: {key} takes {kind}, not {value!r}")
        values[key] = tuple(value) if isinstance(value, list) else value
    return LintSettings(**values)
