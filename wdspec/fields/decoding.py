"""Which decoder a field gets: the meaning of `decode`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wdspec.fields.basic import BASIC, PICKLES, gunzip
from wdspec.fields.images import IMAGE_SPECS, IMAGE_SUFFIXES, ImageDecoder
from wdspec.fields.matching import endings
from wdspec.fields.user import UserDecoder
from wdspec.spec.errors import SpecError
from wdspec.spec.vocabulary import DEFAULT_IMAGE_DECODER, RAW

LABELS = frozenset({"seg", "mask"})
"""Parts of a field's name, between dots, that mark an image of labels: rescaled by nearest neighbour."""


@dataclass(frozen=True)
class Decoder:
    """How one field becomes a value."""

    label: str
    """What to call it in a message: ``jpeg``, ``json``, ``mylib:read``."""
    decode: Callable[[bytes], Any]
    """Bytes → value, at the image's own size."""
    rescale: Callable[[bytes, float], Any] | None = None
    """For images: bytes and a factor → value."""


@dataclass(frozen=True)
class Gunzipped:
    """A decoder behind gzip, as for ``json.gz``."""

    inner: Callable[..., Any] | None

    def __call__(self, data: bytes, *factor: float) -> Any:
        data = gunzip(data)
        return self.inner(data, *factor) if self.inner else data


@dataclass(frozen=True)
class DecodeRules:
    """The `decode` of a source, with what it may use.

    A field's decoder is that of the key which is the field's name; else of the longest key which is the
    original suffix, whole or from a dot on; else the first of ``names`` that fits (an image decoder fits
    image suffixes, a basic one its own suffix, ``raw`` and functions everything); else it goes by the
    suffix. Letter case counts in names of fields, not in suffixes. A suffix's ``.gz`` is undone before all
    decoders but ``raw``.

    Raises:
        SpecError: an unknown decoder; pickle that is not allowed; a function though WDS_SECURE=1; an image
            that the rules leave undecoded though `scale` is on.
    """

    names: tuple[str, ...] = ()
    """Decoders for the whole sample."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Decoders by field name or suffix."""
    scales: bool = False
    """Whether images may be rescaled: then all of them are decoded."""
    allow_pickle: bool = False
    secure: bool = False
    """Forbid functions and pickle (WDS_SECURE=1)."""

    def __post_init__(self) -> None:
        if self.secure and self.allow_pickle:
            raise SpecError("WDS_SECURE=1 forbids `allow: [pickle]`; take one of them away")
        for name in (*self.names, *self.fields.values()):
            self._check(name)
        if self.scales:
            self._refuse_unscalable("images", self._general("jpg") or DEFAULT_IMAGE_DECODER)
        for key in self.fields:
            self.check(key, key)

    def check(self, name: str, suffix: str) -> None:
        """Raises the SpecError that a field of this name and suffix would raise, before there is one."""
        self._choose(name, suffix.lower(), _unzipped(suffix.lower())[0])

    def decoder_of(self, name: str, suffix: str) -> Decoder | None:
        """The decoder of a field, or None where it stays bytes.

        Args:
            name: what the field is called now.
            suffix: the suffix its file had.
        """
        suffix = suffix.lower()
        plain, layers = _unzipped(suffix)
        chosen = self._choose(name, suffix, plain)
        if chosen == RAW:
            return None
        decoder = self._build(chosen, name, plain)
        for _ in range(layers):
            decoder = _behind_gzip(decoder)
        return decoder

    def _choose(self, name: str, suffix: str, plain: str) -> str | None:
        """The name of the decoder for a field; None where nothing decodes it."""
        last = plain.rpartition(".")[2]
        chosen = self._explicit(name, suffix, plain) or self._general(last)
        if self.scales and last in IMAGE_SUFFIXES:
            chosen = chosen or DEFAULT_IMAGE_DECODER
            self._refuse_unscalable(repr(name), chosen)
        if chosen is None and (last in BASIC or (last in PICKLES and self.allow_pickle)):
            chosen = last
        return chosen

    def _explicit(self, name: str, suffix: str, plain: str) -> str | None:
        for key in (name, *endings(suffix), *endings(plain)):
            if key in self.fields:
                return self.fields[key]
        lowered = {key.lower(): value for key, value in self.fields.items()}
        return next((lowered[e] for e in (*endings(suffix), *endings(plain)) if e in lowered), None)

    def _general(self, last: str) -> str | None:
        def fits(name: str) -> bool:
            return last in IMAGE_SUFFIXES if name in IMAGE_SPECS else name in (RAW, last) or ":" in name

        return next(filter(fits, self.names), None)

    def _build(self, chosen: str | None, name: str, plain: str) -> Decoder | None:
        last = plain.rpartition(".")[2]
        if chosen is None:
            return None
        if chosen in IMAGE_SPECS:
            parts = {*name.lower().split("."), *plain.split(".")}
            image = ImageDecoder(chosen, nearest=bool(LABELS & parts))
            return Decoder(IMAGE_SUFFIXES.get(last, f"image ({chosen})"), image, image)
        if ":" in chosen:
            return Decoder(chosen, UserDecoder(chosen))
        return Decoder(chosen, BASIC.get(chosen) or PICKLES[chosen])

    def _refuse_unscalable(self, what: str, chosen: str) -> None:
        if chosen not in IMAGE_SPECS:
            raise SpecError(
                f"`scale` needs {what} decoded by wdspec, but `decode` says {chosen!r}; use an image decoder "
                f"such as {DEFAULT_IMAGE_DECODER!r} there, or switch scaling off with `scale: 1`"
            )

    def _check(self, name: str) -> None:
        if name in PICKLES and not self.allow_pickle:
            raise SpecError(
                f"the decoder {name!r} runs what the data says; if you trust it, add `allow: [pickle]`"
            )
        if ":" in name and self.secure:
            raise SpecError(f"WDS_SECURE=1 forbids the decoder {name}: it is code that the spec names")
        if not (name in BASIC or name in PICKLES or name in IMAGE_SPECS or name == RAW or ":" in name):
            raise SpecError(f"there is no decoder {name!r}")


def _unzipped(suffix: str) -> tuple[str, int]:
    """A suffix without the ``.gz`` at its end, and how many there were."""
    layers = 0
    while suffix == "gz" or suffix.endswith(".gz"):
        suffix, layers = suffix[:-3], layers + 1
    return suffix, layers


def _behind_gzip(decoder: Decoder | None) -> Decoder:
    if decoder is None:
        return Decoder("gz", Gunzipped(None))
    rescale = Gunzipped(decoder.rescale) if decoder.rescale else None
    return Decoder(f"{decoder.label}.gz", Gunzipped(decoder.decode), rescale)
