"""How an object store is reached: what a spec says of it, as the arguments of fsspec's file system."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from wdspec.errors import StoreError
from wdspec.spec.language.locations import ObjectStoreOptions
from wdspec.spec.language.models import Source, Spec
from wdspec.urls.schemes import FSSPEC, ROWS, store_key

_LONGEST = 64 * 1024
"""Characters of a file that holds a secret."""


@dataclass(frozen=True)
class ObjectLogin:
    """What `storage:` says. Describes only; pickles, without a secret: those are read where a file system is made."""

    said: ObjectStoreOptions
    home: str
    """The directory that `~` stands for."""

    @classmethod
    def of(cls, home: str, spec: Spec | None = None, source: Source | None = None) -> ObjectLogin | None:
        """That of a source, else that of the top level: as a whole, so that no login goes to another's server."""
        for holder in (source, spec):
            if holder is not None and "storage" in holder.model_fields_set:
                return None if holder.storage is None else cls(holder.storage, home)
        return None

    @property
    def variant(self) -> str:
        """What tells one store's objects from those of the same URL in another: all but whether it costs."""
        said = self.said.model_dump(exclude_defaults=True, exclude={"anonymous", "requester_pays"})
        return json.dumps(said, sort_keys=True, default=str) if said else ""

    def arguments(self, scheme: str) -> dict[str, Any]:
        """Those of the file system of a scheme.

        Raises:
            StoreError: the scheme has no such setting, or a secret is not where it should be.
        """
        found: dict[str, Any] = {}
        known = ROWS[scheme].settings if scheme in ROWS else {}
        for name in ("endpoint", "profile", "region", "anonymous", "requester_pays"):
            value = getattr(self.said, name)
            if value in (None, False):
                continue
            if name not in known:
                takes = ", ".join(f"`{each}`" for each in known) or "none of these settings"
                raise StoreError(
                    f"`storage.{name}` means nothing to {scheme}://, which takes {takes}; give what its file system "
                    "takes under `storage.options`, or write `storage:` at the sources that it is for"
                )
            argument, fixed = known[name]
            outer, _, inner = argument.partition(".")
            value = value if fixed is None else fixed
            _set(found, outer, {inner: value} if inner else value)
        for name, value in self.said.options.items():
            _set(found, name, value)
        for name, variable in self.said.env.items():
            _set(found, name, _of_variable(name, variable))
        for name, path in self.said.files.items():
            _set(found, name, self._of_file(name, path))
        return found

    def _of_file(self, name: str, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(_LONGEST).strip()
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or type(error).__name__
            raise StoreError(
                f"the file that holds `{name}` (`storage.files`) cannot be read: {said}; name one that each worker can "
                "read",
                location=path,
            ) from None
        if not text:
            raise StoreError(f"the file that should hold `{name}` (`storage.files`) is empty", location=path)
        return text


def uses_login(location: str) -> bool:
    """Whether a location is read by a store that `storage:` is for."""
    row = ROWS.get(store_key(location))
    return row is None or row.store == FSSPEC


def _of_variable(name: str, variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise StoreError(
            f"the variable {variable}, which should hold `{name}` (`storage.env`), is not set; set it, in every worker "
            "too"
        )
    return value


def _set(found: dict[str, Any], name: str, value: Any) -> None:
    """Sets an argument; maps are put together."""
    before = found.get(name)
    if isinstance(before, dict) and isinstance(value, dict) and not before.keys() & value.keys():
        value = {**before, **value}
    elif name in found:
        raise StoreError(f"`storage:` says the argument `{name}` twice; leave it in one place")
    found[name] = value
