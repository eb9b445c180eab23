"""wdspec: describe WebDataset training data in one YAML file, and train from it anywhere.

    import wdspec

    with wdspec.loader("train.yaml", num_workers=4) as loader:
        for batch in loader:
            ...

Heavy imports happen on first use: validating a spec needs neither torch nor numpy. `__init__.pyi` lists the public
names.
"""

from __future__ import annotations

import re
import sys
from typing import Any


def _public_names() -> dict[str, str]:
    """Return name → the module that defines it, from the stub that type checkers read too."""
    stub = __loader__.get_data(f"{__path__[0]}/__init__.pyi").decode()
    return {
        name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)
    }


_HOMES = _public_names()

__all__ = sorted([*_HOMES, "handlers"])


_WEBDATASET_MODULES = re.compile(
    r"wdspec\.(autodecode|compat|filters|gopen|handlers|mix|pipeline|shardlists|tariterators|utils|writer)"
)


class _WebdatasetModules:
    """Imports `wdspec.filters` as `wdspec.webdataset.filters`, and so on: the modules that webdataset also has.

    If a name is missing there, the error says what to use instead.
    """

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> Any:
        if not _WEBDATASET_MODULES.fullmatch(name):
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, cls)

    @staticmethod
    def create_module(spec: object) -> None:
        return None

    @staticmethod
    def exec_module(module: Any) -> None:
        from functools import partial
        from importlib import import_module

        from wdspec.base.replacements import WebdatasetModule, missing_name

        package, _, name = module.__name__.rpartition(".")
        sys.modules[module.__name__] = found = import_module(f"{package}.webdataset.{name}")
        vars(found).setdefault("__getattr__", partial(missing_name, name))
        if not isinstance(found, WebdatasetModule):
            found.__class__ = WebdatasetModule


sys.meta_path.append(_WebdatasetModules)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    import importlib

    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("wdspec")
    if name not in _HOMES:
        import difflib
        from importlib.util import find_spec

        if name.isidentifier() and not name.startswith("_") and find_spec(f"wdspec.{name}") is not None:
            return importlib.import_module(f"wdspec.{name}")

        from wdspec.base.replacements import NAMES

        if name in NAMES:
            raise AttributeError(f"module 'wdspec' has no attribute {name!r}; use {NAMES[name]}")
        close = difflib.get_close_matches(name, __all__, 1)
        hint = f"; did you mean {close[0]!r}?" if close and not name.startswith("_") else ""
        raise AttributeError(f"module 'wdspec' has no attribute {name!r}{hint}")
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "torch":
            importlib.import_module("wdspec.api").require_torch(f"wdspec.{name}")
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
