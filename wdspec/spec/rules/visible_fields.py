"""Which fields the samples of a source will have, as far as the spec alone shows, for the rules that ask."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.draft import Composed, Draft
from wdspec.spec.language.decoders import IMAGE_FIELDS
from wdspec.spec.spec import Source

MAGIC = frozenset("*?[")
"""What makes an entry of `extensions` a pattern of several fields."""


def right_sources(composed: Composed, *keys: str) -> Iterator[tuple[Draft, Source]]:
    """The sources in which none of these keys has a wrong value."""
    return ((leaf, source) for leaf, source in composed.models if not leaf.bad.intersection(keys))


def visible_fields(source: Source) -> tuple[str, ...] | None:
    """The names of the fields of every sample; None where data or user code decide."""
    if (
        source.extensions is None
        or any(call.field is None for call in source.map)
        or any(MAGIC.intersection(e) for e in source.extensions)
    ):
        return None
    fields = dict.fromkeys(entry.split(";")[0] for entry in source.extensions)
    if len(fields) != len(source.extensions):
        return None
    for new, olds in source.rename.items():
        for old in olds:
            fields.pop(old, None)
        fields.setdefault(new)
    return tuple(dict.fromkeys((*fields, *source.tags)))


def is_image(field: str) -> bool:
    """Whether a field of this name holds a picture, judged by its name."""
    return field.rsplit(".", 1)[-1].lower() in IMAGE_FIELDS
