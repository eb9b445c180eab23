"""W371: what a batch holds is decoded, and stacks."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.language.decoders import BY_NAME
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import is_image, right_sources
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import Node


@rule(
    "W371",
    "pictures or sound that do not stack",
    "A batch stacks arrays and tensors of one shape. Pictures of PIL are an error there, unless `ragged` or `collate` "
    "says what to do; pictures, sound and films that nothing decodes stay a list of bytes.",
    bad="batch: 8\ndataset:\n  - {shards: a.tar, extensions: jpg cls, decode: pil}\n",
    good="batch: 8\ndataset:\n  - {shards: a.tar, extensions: jpg cls, decode: rgb8}\n",
)
def unstackable_images(composed: Composed) -> Findings:
    """Sources of a batch that decode pictures to `pil`, or ask for pictures, sound or films and leave them encoded."""
    spec, batch = composed.spec, composed.spec.batch
    if (
        batch is None
        or any(call.field is None for call in spec.map)
        or batch.ragged == "list"
        or (batch.collate and batch.collate.call)
    ):
        return
    for leaf, source in right_sources(composed, "extensions", "decode", "scale"):
        if any(call.field is None for call in source.map):
            continue
        written = leaf.node.get("decode")
        if written is not None and _gives_pil(source, spec):
            hint = "decode to an array (`rgb8`) or a tensor (`torchrgb`), or make one in `map`"
            yield Finding(written, "pictures of `pil` do not stack to a batch", hint)
        elif (field := _encoded(source, spec)) is not None:
            at: Node = leaf.node.value_or_self("extensions")
            decoder = "rgb8" if is_image(field) else _medium(field)
            hint = f"add `decode: {decoder}`, or make a tensor of it in `map`"
            yield Finding(at, f"nothing decodes `{field}`: the batch holds a list of bytes", hint)


def _gives_pil(source: Source, spec: Spec) -> bool:
    decode = source.decode
    if decode is None:
        return False
    told = {name for field, name in decode.fields.items() if not _collated(field, source, spec)}
    general = () if decode.names and _all_told(source, spec) else decode.names
    return any(name.partition("+")[0].startswith("pil") for name in (*general, *told))


def _all_told(source: Source, spec: Spec) -> bool:
    """Whether something is said of every picture that the source asks for."""
    names = [entry.split(";")[0] for entry in source.extensions or ()]
    pictures = [name for name in names if is_image(name)]
    return bool(pictures) and all(_collated(name, source, spec) for name in pictures)


def _encoded(source: Source, spec: Spec) -> str | None:
    """A picture, sound or film that `extensions` asks for by name, in a source that decodes and rescales nothing."""
    decodes = source.decode is not None and (source.decode.names or source.decode.fields)
    if decodes or source.scale is not None or source.extensions is None:
        return None
    names = (entry.split(";")[0] for entry in source.extensions)
    found = (name for name in names if is_image(name) or _medium(name))
    return next((name for name in found if not _collated(name, source, spec)), None)


def _medium(field: str) -> str:
    """`audio` or `video`, by the field's name; empty for others."""
    last = field.rsplit(".", 1)[-1].lower()
    return next((name for name in ("audio", "video") if last in BY_NAME[name].extensions), "")


def _collated(field: str, source: Source, spec: Spec) -> bool:
    """Whether `map`, `ragged` or `collate` says something of a field, by this name or one that it is renamed to."""
    batch = spec.batch
    if batch is None:
        return True
    said = {call.field for call in (*source.map, *spec.map)}
    said |= {*(batch.ragged if isinstance(batch.ragged, tuple) else ())}
    said |= {
        name for name, how in (batch.collate.fields if batch.collate else {}).items() if how.way != "stack"
    }
    return field in said or any(new in said for new, olds in source.rename.items() if field in olds)
