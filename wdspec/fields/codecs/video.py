"""Films: bytes → (frames, samples, facts), as `torchvision.io.read_video` gave them.

| part | numpy | torch | shape |
|--|--|--|--|
| frames | uint8 | uint8 | (frames, height, width, 3), RGB |
| samples | float32 in -1..1 | float32 | (channels, samples); (1, 0) without sound |
| facts | | | ``video_fps`` (float) and, with sound, ``audio_fps`` (int), in Hz |

The first video and the first audio stream count, all frames are kept, and rotation is not applied. PyAV reads them
(`wdspec[video]`), in one thread, since each worker has its own core; or torchcodec, when asked (`video+torchcodec`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wdspec.decoders.libraries import library
from wdspec.decoders.table import BY_NAME, split_decoder
from wdspec.fields.codecs import ffmpeg_streams
from wdspec.fields.codecs.ffmpeg_streams import read_streams

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
    """

    torch: bool = False
    suffix: str = ""
    torchcodec: bool = False

    def __call__(self, data: bytes) -> Film:
        """Decodes a film.

        Raises:
            ValueError: no film, or more than `MAX_FRAME_BYTES`. (What the libraries raise else.)
            UsageError: a library is not installed.
        """
        if self.torchcodec:
            frames, samples, about = _by_torchcodec(data)
            return (frames, samples, about) if self.torch else (frames.numpy(), samples.numpy(), about)
        torch = library("torch", "the decoder torch_video") if self.torch else None
        frames, samples, about = read_streams(data, self.suffix if self.suffix in _RAW_STREAMS else None)
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
    return FilmDecoder(base == "torch_video", extension, "torchcodec" in options)


def _by_torchcodec(data: bytes) -> Film:
    codec = library("torchcodec.decoders", "`video+torchcodec`")
    torch = library("torch", "`video+torchcodec`")
    decoder = codec.VideoDecoder(data, dimension_order="NHWC", num_ffmpeg_threads=1)
    facts = decoder.metadata
    if len(decoder) * facts.height * facts.width * 3 > ffmpeg_streams.MAX_FRAME_BYTES:
        raise ValueError(
            f"its frames are more than {ffmpeg_streams.MAX_FRAME_BYTES:,} bytes; read it as `raw`"
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
