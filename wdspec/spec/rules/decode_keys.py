"""Keys of `decode` that no field of a source can match, as far as the spec alone shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wdspec.spec.compose.source_list import Draft
from wdspec.spec.language.models import Source
from wdspec.spec.language.vocabulary import PACKINGS
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, locate
from wdspec.suggestions import did_you_mean

_MAGIC = frozenset("*?[")


def check_decode_keys(leaves: Sequence[Draft], problems: Problems) -> None:
    """A key that decides nothing is a mistake: in the source that has it, or in `defaults` if no source uses it."""
    inherited: dict[str, Draft | None] = {}
    for draft in leaves:
        if (
            draft.model is None
            or draft.model.decode is None
            or {"extensions", "rename", "decode"} & draft.bad
        ):
            continue
        names = field_names(draft.model)
        own = draft.own.get("decode")
        for key in draft.model.decode.fields:
            used = names is None or _matches(key, names, draft.model)
            if isinstance(own, MapNode) and own.get(key) is not None:
                if not used and names is not None:
                    _note(draft, key, names, problems)
            elif used:
                inherited[key] = None
            else:
                inherited.setdefault(key, draft)
    for key, unused in inherited.items():
        names = field_names(unused.model) if unused is not None and unused.model is not None else None
        if unused is not None and names is not None:
            _note(unused, key, names, problems)


def field_names(source: Source) -> tuple[str, ...] | None:
    """What the fields of a source may be called once they are renamed; None where its files decide."""
    if source.extensions is None or any(_MAGIC.intersection(entry) for entry in source.extensions):
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


def _note(draft: Draft, key: str, names: Sequence[str], problems: Problems) -> None:
    at = locate(draft.node.entries["decode"].value, (key,))
    listed = ", ".join(f"`{name}`" for name in names[:8]) + (", …" if len(names) > 8 else "")
    hint = did_you_mean(key, names) or "name a field or a suffix that `extensions` keeps"
    problems.add("E315", at, f"no field is called `{key[:60]}`: `{draft.name}` has {listed}", hint)
