"""What `scale` and `scaleprob` come to, and what they make of the decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wdspec.spec.compose.source_list import Draft
from wdspec.spec.language.models import Source
from wdspec.spec.language.options import Decode
from wdspec.spec.language.vocabulary import (
    DEFAULT_IMAGE_DECODER,
    DEFAULT_SCALE,
    IMAGE_DECODERS,
    IMAGE_FIELDS,
    RAW,
    split_decoder,
)
from wdspec.spec.problems.problems import Problems


def settle_scales(leaves: Sequence[Draft], problems: Problems) -> None:
    """Replaces what the sources say by what takes effect.

    Without a range `scaleprob` alone means the default one; a probability of 0 or a factor of 1 means never.
    If any source of the mix rescales, images are decoded in all of them.
    """
    for draft in leaves:
        if draft.model is not None:
            draft.model = draft.model.model_copy(update=_effective(draft))
    scaled = any(draft.model is not None and draft.model.scale is not None for draft in leaves)
    for draft in leaves:
        model = draft.model
        if model is None or not scaled:
            continue
        if model.scale is not None:
            _refuse_raw(draft, model, problems)
        draft.model = model.model_copy(update={"decode": _with_images(model.decode)})


def _effective(draft: Draft) -> dict[str, Any]:
    model = draft.model
    assert model is not None
    stated = [
        key for key in ("scale", "scaleprob") if draft.node.get(key) is not None and key not in draft.bad
    ]
    scale = model.scale if "scale" in stated else DEFAULT_SCALE if "scaleprob" in stated else None
    if scale is None or scale == (1.0, 1.0) or model.scaleprob == 0:
        return {"scale": None, "scaleprob": 0.0}
    return {"scale": scale, "scaleprob": model.scaleprob}


def _refuse_raw(draft: Draft, model: Source, problems: Problems) -> None:
    decode = model.decode
    if decode is None:
        return
    field = next((name for name, how in decode.fields.items() if how == RAW and is_image(name)), None)
    if RAW in decode.names or field is not None:
        what = f"`{field}: raw`" if field else "`raw`"
        hint = f"decode images, for example with `{DEFAULT_IMAGE_DECODER}`, or write `scale: 1`"
        message = f"{what} leaves images as bytes, but this source rescales them"
        problems.add("E309", draft.node.entries["decode"].value, message, hint)


def _with_images(decode: Decode | None) -> Decode:
    """The same, with images decoded where nothing is said about them."""
    if decode is None:
        return Decode(names=(DEFAULT_IMAGE_DECODER,))
    if RAW in decode.names or any(split_decoder(name)[0] in IMAGE_DECODERS for name in decode.names):
        return decode
    return decode.model_copy(update={"names": (*decode.names, DEFAULT_IMAGE_DECODER)})


def is_image(field: str) -> bool:
    """Whether a field of this name holds a picture, as far as its name tells."""
    return field.rsplit(".", 1)[-1].lower() in IMAGE_FIELDS
