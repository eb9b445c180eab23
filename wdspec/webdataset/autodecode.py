"""`wdspec.Decoder`, for samples (without torch) and for datasets, and handlers for images, audio and video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from wdspec.base.errors import DecodingError as DecodingError
from wdspec.base.errors import SpecError
from wdspec.base.user_code import secure_mode
from wdspec.fields.codecs.audio import read_torch_audio
from wdspec.fields.codecs.video import FilmDecoder
from wdspec.fields.decode import DecodeRules
from wdspec.spec.language.decoders import BY_NAME, IMAGE_FIELDS
from wdspec.webdataset.decoding import ForExtensions, SampleDecoder, extension_of
from wdspec.webdataset.decoding import handle_extension as handle_extension


class Decoder(SampleDecoder):
    __doc__ = f"""{SampleDecoder.__doc__}
    Called on a dataset, it returns a pipeline that decodes the samples.
    """

    def __call__(self, sample: Any) -> Any:
        """Decode a sample into a new dict; for a dataset, return a pipeline that decodes its samples."""
        if isinstance(sample, Mapping):
            return super().__call__(sample)
        from wdspec.webdataset.mapping import map
        from wdspec.webdataset.pipeline import DataPipeline

        return DataPipeline(sample, map(super().__call__))


def imagehandler(spec: str, extensions: Sequence[str] = tuple(sorted(IMAGE_FIELDS))) -> ForExtensions:
    """Return a handler for images.

    Args:
        spec: an image decoder, such as ``rgb8`` or ``torchrgb+upright``; see docs/decoders.md.
        extensions: the extensions to decode.

    Raises:
        SpecError: the decoder is unknown, or there is no extension.
    """
    decoder = DecodeRules((spec,), secure=secure_mode()).decoder_of("jpg", "jpg")
    if decoder is None or decoder.rescale is None:
        raise SpecError(f"{spec!r} is not an image decoder; write for example 'rgb8'")
    return ForExtensions(extensions, decoder.decode)


def torch_audio(key: str, data: bytes) -> Any:
    """Decode audio into (samples, rate): a float32 tensor (channels, samples), and Hz."""
    return read_torch_audio(data) if extension_of(key) in BY_NAME["audio"].extensions else None


def torch_video(key: str, data: bytes) -> Any:
    """Decode video into (frames, samples, facts); see `wdspec.fields.codecs.video`."""
    suffix = extension_of(key)
    return FilmDecoder(torch=True, suffix=suffix)(data) if suffix in BY_NAME["video"].extensions else None


ImageHandler = imagehandler
imagespecs = MappingProxyType(
    {
        name: (row.image.container, row.image.dtype, row.image.mode.lower())
        for name, row in BY_NAME.items()
        if row.image and row.image.dtype != "uint16"
    }
)
"""The image decoders: name → (container, dtype, mode). Read-only: `handle_extension` adds decoders."""
