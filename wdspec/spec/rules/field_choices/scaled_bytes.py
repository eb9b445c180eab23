"""E309: what is rescaled is decoded."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.language.decoders import DEFAULT_IMAGE_DECODER, RAW
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import is_image


@rule(
    "E309",
    "scale without decoding",
    "Images that stay bytes cannot be rescaled.",
    bad="dataset:\n  - {shards: a.tar, scale: 0.5, decode: raw}\n",
    good="dataset:\n  - {shards: a.tar, scale: 0.5, decode: rgb8}\n",
)
def scaled_bytes(composed: Composed) -> Findings:
    """Sources that rescale images and leave them as bytes."""
    for leaf, source in composed.models:
        decode = source.decode
        if source.scale is None or decode is None:
            continue
        field = next((name for name, how in decode.fields.items() if how == RAW and is_image(name)), None)
        if RAW in decode.names or field is not None:
            what = f"`{field}: raw`" if field else "`raw`"
            hint = f"decode images, for example with `{DEFAULT_IMAGE_DECODER}`, or write `scale: 1`"
            message = f"{what} leaves images as bytes, but this source rescales them"
            yield Finding(leaf.node.entries["decode"].value, message, hint)
