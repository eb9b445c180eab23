"""Stores that installed packages offer as entry points, imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wdspec.errors import ShardError
from wdspec.importing import import_function
from wdspec.redaction import harmless
from wdspec.system.per_process import KeyedValues, PerProcess

GROUPS = ("wdspec.stores", "wdspec.openers")
"""Groups of entry points; the second is the older name."""


@lru_cache(maxsize=1)
def package_offers() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """What installed packages offer: scheme -> (package, `module:function`) pairs."""
    from importlib.metadata import entry_points

    found: dict[str, tuple[tuple[str, str], ...]] = {}
    entries = [entry for group in GROUPS for entry in entry_points(group=group)]
    for entry in sorted(entries, key=lambda entry: (entry.name, entry.value)):
        known = found.get(entry.name.lower(), ())
        if all(value != entry.value for _, value in known):
            package = entry.dist.name if entry.dist else "a package"
            found[entry.name.lower()] = (*known, (package, entry.value))
    return found


@dataclass(frozen=True)
class Offered:
    """What packages offer for a scheme, imported when first used."""

    scheme: str
    offers: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " and ".join(f"`{value}` of {package}" for package, value in self.offers)

    def load(self, url: str) -> Any:
        """The function or store: the same one for a process, as a store may keep connections."""
        return _loaded.value.get(self, lambda: self._import(url))

    def _import(self, url: str) -> Any:
        if len(self.offers) > 1:
            raise ShardError(
                f"several packages open {self.scheme}://: {self}; uninstall all but one, or choose with "
                f'`@wdspec.opener("{self.scheme}")`',
                location=url,
            )
        try:
            found = import_function(self.offers[0][1].partition("[")[0].replace(" ", ""), "opener")
            return found() if isinstance(found, type) else found
        except Exception as error:  # whatever the package's code raises
            cause = error.__cause__ or error
            raise ShardError(
                f"the opener {self} cannot be imported: {type(cause).__name__}: {cause}; mend or uninstall that "
                "package",
                location=url,
            ) from harmless(cause)


_loaded: PerProcess[KeyedValues[Offered, Any]] = PerProcess(KeyedValues)
