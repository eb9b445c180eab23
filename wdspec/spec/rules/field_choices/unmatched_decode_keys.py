"""E315: a key of `decode` matches a field, as far as the spec alone shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wdspec.base.errors import did_you_mean
from wdspec.spec.draft import Composed, Draft
from wdspec.spec.language.values import PACKINGS
from wdspec.spec.problems import listed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import MAGIC, right_sources
from wdspec.spec.spec import Source
from wdspec.spec.tree import MapNode, locate


@rule(
    "E315",
    "a key of decode that no field matches",
    "The keys of `decode` are names of fields, or suffixes of files, whole or from a dot on. With "
    "`extensions` given all fields are known, and a key that matches none of them does nothing: most often it"
    " is misspelt.",
    bad="dataset:\n  - {shards: a.tar, extensions: jpg txt, decode: {jgp: rgb8}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: jpg txt, decode: {jpg: rgb8}}\n",
)
def unmatched_decode_keys(composed: Composed) -> Findings:
    """Keys that decide nothing: in the source that has them, or in `defaults` if no source uses them."""
    inherited: dict[str, tuple[Draft, Sequence[str]] | None] = {}
    for draft, source in right_sources(composed, "extensions", "rename", "decode"):
        names = _field_names(source)
        own = draft.own.get("decode")
        for key in source.decode.fields if source.decode is not None else ():
            unused = None if names is None or _matches(key, names, source) else (draft, names)
            if isinstance(own, MapNode) and own.get(key) is not None:
                if unused is not None:
                    yield _finding(key, *unused)
            elif unused is None:
                inherited[key] = None
            else:
                inherited.setdefault(key, unused)
    yield from (_finding(key, *unused) for key, unused in inherited.items() if unused is not None)


def _field_names(source: Source) -> tuple[str, ...] | None:
    """What the fields of a source may be called once they are renamed; None where its files decide."""
    if source.extensions is None or any(MAGIC.intersection(entry) for entry in source.extensions):
        return None
    return tuple(dict.fromkeys((*source.rename, *(entry.split(";")[0] for entry in source.extensions))))


def _matches(key: str, names: Sequence[str], source: Source) -> bool:
    suffixes = [part.lower() for entry in source.extensions or () for part in entry.split(";")]
    return key in names or any(key.lower() in _endings(suffix) for suffix in suffixes)


def _endings(suffix: str) -> Iterator[str]:
    """A suffix whole and from each dot on, also without what it is packed by."""
    while True:
        parts = suffix.split(".")
        yield from (".".join(parts[start:]) for start in range(len(parts)))
        if parts[-1] not in PACKINGS:
            return
        suffix = ".".join(parts[:-1])


def _finding(key: str, draft: Draft, names: Sequence[str]) -> Finding:
    at = locate(draft.node.entries["decode"].value, (key,))
    hint = did_you_mean(key, names) or "name a field or a suffix that `extensions` keeps"
    return Finding(at, f"no field is called `{key[:60]}`: `{draft.name}` has {listed(names, 8)}", hint)
