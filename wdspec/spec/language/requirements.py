"""`requires: wdspec >= 0.2`: the version of wdspec that a file needs, which is read before its other keys."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, WithJsonSchema

from wdspec.spec.language import values
from wdspec.spec.problems import Problems, describe
from wdspec.spec.tree import MapNode, Scalar

KEY = "requires"
_FORM = re.compile(r"\s*wdspec\s*>=\s*(\d{1,6}(?:\.\d{1,6}){0,3})\s*")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_HINT = "write `requires: wdspec >= 0.2`"


class Version(NamedTuple):
    """The number of a release, without zeros at its end."""

    parts: tuple[int, ...]

    def __str__(self) -> str:
        return ".".join(map(str, (*self.parts, 0, 0)[: max(2, len(self.parts))]))


def parse_requirement(text: str) -> Version | None:
    """The earliest version that satisfies a requirement; None if the text is none."""
    match = _FORM.fullmatch(text)
    return _version(match[1]) if match else None


def _version(text: str) -> Version:
    parts = [int(part) for part in text.split(".")]
    while parts and not parts[-1]:
        del parts[-1]
    return Version(tuple(parts))


@lru_cache(maxsize=1)
def installed_version() -> Version:
    """The version of this package. A development version or a candidate counts as the release that it leads to."""
    from importlib.metadata import version

    release = _RELEASE.match(version("wdspec"))
    return _version(release[0] if release else "0")


def needs_newer(top: MapNode, problems: Problems) -> bool:
    """Whether a file requires a later version than the installed one; then this is the only problem to report."""
    node = top.get(KEY)
    needed = (
        parse_requirement(node.value) if isinstance(node, Scalar) and isinstance(node.value, str) else None
    )
    if node is None or needed is None or needed <= installed_version():
        return False
    message = f"this file needs wdspec {needed} or later, and this is wdspec {installed_version()}"
    problems.add("E392", node, message, f"update it: `pip install --upgrade 'wdspec>={needed}'`")
    return True


def read_requirement(value: Any) -> Any:
    """Read `wdspec >= 0.2`."""
    text = values.read_text(value)
    needed = parse_requirement(text)
    if needed is None:
        values.refuse("E203", f"{describe(text)} is not a version of wdspec", _HINT)
    if needed > installed_version():  # in a split, an environment or an override
        values.refuse(
            "E392", f"this needs wdspec {needed} or later, and this is wdspec {installed_version()}"
        )
    return f"wdspec >= {needed}"


Requirement = Annotated[
    str,
    BeforeValidator(read_requirement),
    WithJsonSchema(values.text_form(r"\s*wdspec\s*>=\s*[0-9]{1,6}(\.[0-9]{1,6}){0,3}\s*")),
]
