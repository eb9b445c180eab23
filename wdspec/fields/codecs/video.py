"""Films: bytes → (frames, samples, facts), as `torchvision.io.read_video` gave them.

| part | numpy | torch | shape |
|--|--|--|--|
| frames | uint8 | uint8 | (frames, height, width, 3), RGB |
| samples | float32 in -1..1 | float32 | (channels, samples); (1, 0) without sound |
| facts | | | ``video_fps`` (float) and, with sound, ``audio_fps`` (int), in Hz |

The first video and the first audio stream count, all frames are kept unless an option says which (`clipping`), and
rotation is not applied. PyAV reads them (`wdspec[video]`), in one thread, since each worker has its own core; or
torchcodec, when asked (`video+torchcodec`). `video+silent` gives the frames alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wdspec.decoders.decoder_options import split_decoder
from wdspec.decoders.libraries import library
from wdspec.decoders.table import BY_NAME

from wdspec.fields.codecs.clipping import Clipping, framed
from wdspec.fields.codecs.ffmpeg_streams import MAX_FRAME_BYTES, read_streams
from wdspec.fields.codecs.images.framing import Framing
from wdspec.fields.scale import Numbers

_RAW_STREAMS = frozenset({"h264", "mjpeg"})
"""Extensions of streams without a container, which their first bytes do not identify."""

Film = tuple[Any, Any, dict[str, Any]]


@dataclass(frozen=True)
class FilmDecoder:
    """Decodes films; see the table above.

    Args:
        torch: give tensors instead of arrays.
        suffix: the extension, which decides for streams without a container (h264, mjpeg).
        torchcodec: read by torchcodec instead of PyAV.
        clipping: which part of the film, and which frames.
        framing: which part of each frame, and its size.
        silent: give the frames alone.
    """

    torch: bool = False
    suffix: str = ""
    torchcodec: bool = False
    clipping: Clipping | None = None
    framing: Framing | None = None
    silent: bool = False

    def __call__(self, data: bytes, factor: float | None = None, numbers: Numbers | None = None) -> Any:
        """Decodes a film, and cuts it as the options say.

        Args:
            factor: has no effect: `scale` is for pictures.
            numbers: the sample's own, from which `clip` and `random_resized_crop` draw.

        Raises:
            ValueError: no film, or more than `MAX_FRAME_BYTES`. (What the libraries raise else.)
            UsageError: a library is not installed.
        """
        if self.torchcodec:
            frames, samples, about = _by_torchcodec(data)
            frames, samples = frames.numpy(), samples.numpy()
        else:
            frames, samples, about = read_streams(
                data, self.suffix if self.suffix in _RAW_STREAMS else None, with_sound=not self.silent
            )
        if self.clipping is not None:
            frames, samples, about = self.clipping.cut(frames, samples, about, numbers)
        if self.framing is not None:
            frames = framed(frames, self.framing, numbers)
        torch = library("torch", "the decoder torch_video") if self.torch else None
        if self.silent:
            return torch.from_numpy(frames) if torch else frames
        return (
            (torch.from_numpy(frames), torch.from_numpy(samples), about)
            if torch
            else (frames, samples, about)
        )


def film_decoder(decoder: str, field: str, suffix: str) -> FilmDecoder:
    """The reader of a field, by the name of its decoder (`torch_video+torchcodec`) and its suffix."""
    base, options = split_decoder(decoder)
    last = suffix.rpartition(".")[2]
    extension = last if last in BY_NAME["video"].extensions else base
    return FilmDecoder(
        base == "torch_video",
        extension,
        "torchcodec" in options,
        Clipping.of(decoder),
        Framing.of(decoder),
        "silent" in options,
    )


def _by_torchcodec(data: bytes) -> Film:
    codec = library("torchcodec.decoders", "`video+torchcodec`")
    torch = library("torch", "`video+torchcodec`")
    decoder = codec.VideoDecoder(data, dimension_order="NHWC", num_ffmpeg_threads=1)
    facts = decoder.metadata
    if len(decoder) * facts.height * facts.width * 3 > MAX_FRAME_BYTES:
        raise ValueError(
            f"its frames are more than {MAX_FRAME_BYTES:,} bytes; read it as `raw`"
        )
    frames = decoder.get_frames_in_range(0, len(decoder)).data
    about: dict[str, Any] = {"video_fps": facts.average_fps}
    try:
        sound = codec.AudioDecoder(data)
    except ValueError:  # there is none
        return frames, torch.zeros((1, 0)), about
    samples = sound.get_all_samples()
    about["audio_fps"] = int(samples.sample_rate)
    return frames, samples.data, about
