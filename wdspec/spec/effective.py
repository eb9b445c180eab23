"""The values that take effect where sources say less, or something else: scaling, and the defaults of a pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wdspec.spec.draft import Draft
from wdspec.spec.language.aistore import Etl
from wdspec.spec.language.decoder_options import split_decoder
from wdspec.spec.language.decoders import DEFAULT_IMAGE_DECODER, RAW
from wdspec.spec.language.samples import Decode
from wdspec.spec.language.values import DEFAULT_SCALE, IMAGE_DECODERS
from wdspec.spec.spec import Source, Spec


def fill_in_effective_values(spec: Spec, leaves: Iterable[Draft]) -> None:
    """Replaces what the models of sources with shards say by what takes effect.

    If any source of the mix rescales, images are decoded in all of them. In a pass sources are read as they are
    listed, unless they say otherwise; and what is sequential is read shard after shard.
    """
    made = [(leaf, leaf.model) for leaf in leaves if leaf.model is not None]
    scalings = [_scaling(leaf, model) for leaf, model in made]
    scaled = any(scaling["scale"] is not None for scaling in scalings)
    is_pass = spec.epoch is not None and spec.epoch.remainder is not None
    for (leaf, model), effective in zip(made, scalings, strict=True):
        if scaled:
            effective["decode"] = _with_images(model.decode)
        if is_pass:
            listed = {"order": "sequential", "shuffle": 0, "interleave": 1}
            effective |= {key: value for key, value in listed.items() if leaf.node.get(key) is None}
        elif model.order == "sequential" and leaf.node.get("interleave") is None:
            effective["interleave"] = 1
        leaf.model = model.model_copy(update=effective)


def effective_etl(spec: Spec, source: Source) -> Etl | None:
    """The ETL of AIStore whose answers a source reads: its own, or that of the spec, where nothing switches it off."""
    for holder in (source, spec):
        if "aistore" in holder.model_fields_set:
            if holder.aistore is None:
                return None
            if "etl" in holder.aistore.model_fields_set:
                return holder.aistore.etl
    return None


def _scaling(leaf: Draft, model: Source) -> dict[str, Any]:
    """`scaleprob` alone means the default range; a probability of 0 or a factor of 1 means never."""
    stated = [key for key in ("scale", "scaleprob") if leaf.node.get(key) is not None and key not in leaf.bad]
    scale = model.scale if "scale" in stated else DEFAULT_SCALE if "scaleprob" in stated else None
    if scale is None or scale == (1.0, 1.0) or model.scaleprob == 0:
        return {"scale": None, "scaleprob": 0.0}
    return {"scale": scale, "scaleprob": model.scaleprob}


def _with_images(decode: Decode | None) -> Decode:
    """The same, with images decoded where nothing else is asked for."""
    if decode is None:
        return Decode(names=(DEFAULT_IMAGE_DECODER,))
    if RAW in decode.names or any(split_decoder(name)[0] in IMAGE_DECODERS for name in decode.names):
        return decode
    return decode.model_copy(update={"names": (*decode.names, DEFAULT_IMAGE_DECODER)})
