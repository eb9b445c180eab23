"""Names of members and samples, as webdataset's readers take them apart."""

from __future__ import annotations

import re
from typing import Any

_BASE_AND_EXTENSIONS = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)


def base_plus_ext(path: str) -> tuple[str, str] | tuple[None, None]:
    """Key and suffix of a member: what stands before and behind the first dot of its name; None where there is none."""
    match = _BASE_AND_EXTENSIONS.fullmatch(path)
    return (match[1], match[2]) if match else (None, None)


def valid_sample(sample: Any) -> bool:
    """Whether it is a sample: a dict with something in it that is not marked as `__bad__`."""
    return isinstance(sample, dict) and bool(sample) and not sample.get("__bad__", False)
