"""A spec in the making: its keys, the names of its sources, and a note for each thing that it cannot say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wdspec.base.errors import UrlError
from wdspec.convert.given import number
from wdspec.urls.urls import is_relative, parse_shards

_VARIABLE = re.compile(r"\$(?:\{(?:oc\.env:)?([A-Za-z_]\w*)(?:(?:,|:-)([^{}]*))?\}|([A-Za-z_]\w*))")
_NUMBER_AT_END = re.compile(r"[-_.]*(?:\{[^{}]*\}|[*?]|[-_.]?\d+)+$")


class NewSpec:
    """What a converter fills.

    Args:
        folder: absolute; where the new spec will stand, at which its relative paths start.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.spec: dict[str, Any] = {}
        self.notes: list[str] = []
        self._names: set[str] = set()

    def note(self, text: str) -> None:
        """Says what the new spec does not say, or says otherwise; each thing once."""
        if text not in self.notes:
            self.notes.append(text)

    def note_keys(self, given: Mapping[Any, Any], meanings: Mapping[str, str], where: str = "") -> None:
        """Notes the keys that are there and mean something which cannot be said: key -> what to do, or why."""
        for key, why in meanings.items():
            if key in given and given[key] not in (None, False):
                self.note(f"{where}{': ' if where else ''}`{key}: {given[key]}` is left out: {why}")

    def whole(self, given: Mapping[Any, Any], key: str, least: int = 0) -> int | None:
        """The whole number under a key; None where there is none, noted where there is something else."""
        value = given.get(key)
        if value is None:
            return None
        found = number(value)
        if found is not None and found >= least and found == int(found):
            return int(found)
        self.note(f"`{key}: {value}` is left out: it is no whole number from {least} on")
        return None

    def note_unknown(self, given: Mapping[Any, Any], known: Iterable[str], where: str) -> None:
        """Notes the keys that nobody has looked at."""
        for key in given:
            if key not in known:
                self.note(
                    f"{where}: `{key}` is left out: wdspec has no such thing, or it says nothing of mixing"
                )

    def source(self, wanted: str, shards: str | Sequence[str], **keys: Any) -> dict[str, Any]:
        """A source of a unique name; keys that are None or empty are left out."""
        texts = [shards] if isinstance(shards, str) else list(shards)
        given = {key: value for key, value in keys.items() if value is not None and value != {}}
        name = self.name(wanted or _stem(texts[0] if texts else ""))
        return {"name": name, "shards": texts[0] if len(texts) == 1 else texts, **given}

    def name(self, wanted: str) -> str:
        """A name of its own for a source, as near as can be to what the tool calls it."""
        plain = re.sub(r"[^\w.+-]+", "-", wanted).strip("-.") or "source"
        name, turn = plain, 2
        while name in self._names:
            name, turn = f"{plain}-{turn}", turn + 1
        self._names.add(name)
        return name

    def variables(self, text: str) -> str:
        """A text with `$NAME`, `${NAME}` and `${oc.env:NAME}` as variables of the spec.

        Their values are not looked up, since what is in an environment may be secret.
        """
        is_command = text.lstrip().startswith("pipe:")

        def replaced(match: re.Match[str]) -> str:
            name = match[1] or match[3]
            if is_command:
                return f"$${{{name}}}"  # the shell's own
            own = re.sub(r"^WDS_", "", name)
            self.spec.setdefault("vars", {}).setdefault(own, match[2] or f"unset-{own}")
            if not match[2]:
                self.note(
                    f"`${name}` was taken from the environment: it is the variable `{own}` now; set WDS_{own}, give "
                    f"--var {own}=…, or write its value under `vars:`"
                )
            return f"${{{own}}}"

        return _VARIABLE.sub(replaced, text)

    def path(self, text: str, start: str | None = None) -> str:
        """A path as the new spec spells it; URLs and absolute paths stay as they are.

        Args:
            start: the folder that a relative path starts at, absolute; None: wherever the tool was started, which
                nobody knows, so that it is kept.
        """
        text = self.variables(os.path.expanduser(text) if text.startswith("~") else text)
        if not is_relative(text) or text.startswith("$"):
            return text
        if start is None:
            self.note(
                "relative paths started where the tool was started; now they start at the folder of the spec"
            )
            return text
        slash = "/" if text.endswith("/") else ""
        return os.path.relpath(os.path.join(start, text), self.folder) + slash


def count_shards(texts: Iterable[str]) -> int | None:
    """How many shards texts with braces stand for; None where a store would have to be asked."""
    try:
        parts = parse_shards(list(texts), "/")
    except UrlError:
        return None
    return sum(len(part.run.texts) for part in parts) if not any(part.listed for part in parts) else None


def _stem(shards: str) -> str:
    """A name from that of shards: `coco` of `s3://b/coco-{000..099}.tar`."""
    folder, _, name = shards.rstrip("/").rpartition("/")
    for suffix in (".gz", ".zst", ".bz2", ".tar", ".tgz", ".jsonl", ".json", ".npy", ".parquet"):
        name = name.removesuffix(suffix)
    stem = _NUMBER_AT_END.sub("", name)
    return stem if re.search(r"[^\W\d]", stem) else folder.rpartition("/")[2] or name
