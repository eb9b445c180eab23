"""Files by their URLs."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from wdspec.fluent.foreign.expanded_urls import gopen as gopen
from wdspec.fluent.foreign.expanded_urls import rewrite_url as rewrite_url
from wdspec.fluent.replacements import hint_for


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("gopen", name))


class _Opening(ModuleType):
    """`wdspec.gopen` is a function too, which importing this module would hide."""

    __module__ = gopen.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return gopen(*args, **kwargs)


sys.modules[__name__].__class__ = _Opening
