"""The argument and options by which commands choose one spec: file, split, environment, variables, overrides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from wdspec.spec.language.models import Spec


@dataclass(frozen=True)
class Choice:
    """Which spec a command is about."""

    file: str
    split: str | None = None
    env: str | None = None
    variables: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()

    def load(self) -> Spec:
        """The spec, checked.

        Raises:
            SpecError: the spec has problems.
            click.UsageError: a `--var` or `--set` without `=`.
        """
        from wdspec.spec.loading import load

        assigned = _assigned(self.variables, "--var")
        _assigned(self.overrides, "--set")
        return load(
            self.file, split=self.split, env=self.env, vars=assigned or None, overrides=self.overrides or None
        )


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the argument SPEC and the options around it, and passes them as ``choice``."""

    @click.argument("file", metavar="SPEC")
    @click.option("--split", metavar="NAME", help="Split of the spec; SPEC#NAME chooses it too.")
    @click.option("--env", metavar="NAME", help="Environment of the spec (default: $WDSPEC_ENV).")
    @click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="Value of a ${variable}.")
    @click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, `a.b=value`."
    )
    @click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
    @functools.wraps(command)
    def with_choice(
        file: str,
        split: str | None,
        env: str | None,
        variables: tuple[str, ...],
        overrides: tuple[str, ...],
        **others: Any,
    ) -> Any:
        return command(choice=Choice(file, split, env, variables, overrides), **others)

    return with_choice


def _assigned(texts: Iterable[str], option: str) -> dict[str, str]:
    assigned = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} takes NAME=VALUE, but saw `{text}`")
        assigned[name] = value
    return assigned
