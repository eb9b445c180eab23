"""`wdspec.Decoder`, for samples (without torch) and for datasets, and handlers for pictures, sound and films."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wdspec.base.errors import DecodingError as DecodingError
from wdspec.base.errors import SpecError
from wdspec.base.user_code import secure_mode
from wdspec.fields.codecs.audio import read_torch_audio
from wdspec.fields.codecs.video import FilmDecoder
from wdspec.fields.decode import DecodeRules
from wdspec.spec.language.decoders import BY_NAME, FORMAT_OF
from wdspec.webdataset.decoding import ForExtensions, SampleDecoder, extension_of
from wdspec.webdataset.decoding import handle_extension as handle_extension


class Decoder(SampleDecoder):
    __doc__ = f"""{SampleDecoder.__doc__}
    Called on a dataset instead of a sample it gives the pipeline that decodes it.
    """

    def __call__(self, sample: Any) -> Any:
        """The sample, decoded into a new dict; or, for a dataset, the pipeline that decodes each of its samples."""
        if isinstance(sample, Mapping):
            return super().__call__(sample)
        from wdspec.webdataset.mapping import map
        from wdspec.webdataset.pipeline import DataPipeline

        return DataPipeline(sample, map(super().__call__))


def imagehandler(spec: str, extensions: Sequence[str] = tuple(sorted(FORMAT_OF))) -> ForExtensions:
    """A handler for images.

    Args:
        spec: what they become, such as ``rgb8`` or ``torchrgb+upright``; see docs/decoders.md.
        extensions: the extensions it takes.

    Raises:
        SpecError: there is no such spec, or no extension.
    """
    decoder = DecodeRules((spec,), secure=secure_mode()).decoder_of("jpg", "jpg")
    if decoder is None or decoder.rescale is None:
        raise SpecError(f"{spec!r} is no image decoder; write for example 'rgb8'")
    return ForExtensions(extensions, decoder.decode)


def torch_audio(key: str, data: bytes) -> Any:
    """A handler that turns sound into (samples, rate): a float32 tensor (channels, samples), and Hz."""
    return read_torch_audio(data) if extension_of(key) in BY_NAME["audio"].extensions else None


def torch_video(key: str, data: bytes) -> Any:
    """A handler that turns films into (frames, samples, facts); see `wdspec.fields.codecs.video`."""
    suffix = extension_of(key)
    return FilmDecoder(torch=True, suffix=suffix)(data) if suffix in BY_NAME["video"].extensions else None


ImageHandler = imagehandler
imagespecs = {
    name: (row.image.container, row.image.dtype, row.image.mode.lower())
    for name, row in BY_NAME.items()
    if row.image and row.image.dtype != "uint16"
}
