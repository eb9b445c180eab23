"""A spec that a program made, as the text of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from wdspec.spec.format import formatted
from wdspec.spec.yaml import parse_scalar


class _Dumper(yaml.SafeDumper):
    """Writes what YAML 1.2 reads as the same: its numbers are not quite those of yaml's own YAML 1.1."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None if parse_scalar(value) == value else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def spec_text(spec: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """The text of a spec, its keys in the documented order, below comments."""
    body = yaml.dump({"wdspec": 1, **spec}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    lines = [line for comment in comments for line in comment.splitlines()]
    above = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return above + formatted(body, "spec").text
