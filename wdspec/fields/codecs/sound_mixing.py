"""`add_noise` and `convolve`: steps that mix two recordings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wdspec.base.errors import FieldError
from wdspec.fields.audio_file import AudioFile
from wdspec.fields.values import Audio, describe
from wdspec.spec.language.decoder_options import read_span

Array = np.ndarray[Any, Any]
Numbers = Callable[[int], float]
"""0, 1, 2, … → the random numbers of a sample, in [0, 1)."""


def make_add_noise(*, snr: float | str) -> Callable[[Any, Any, Numbers], Any]:
    """Return a function that adds noise to recordings.

    Args:
        snr: the signal-to-noise ratio in decibels: a number, or a range such as ``"5..20"``.

    Returns:
        (recording, noise, numbers) → the recording with the noise; as it is if the noise is None. Recordings are pairs
        of samples (channels, samples) and a rate in Hz. Number 0 of the sample decides the ratio, and number 1 where
        the noise starts. It raises FieldError if rates or channels do not match.

    Raises:
        ValueError: `snr` is neither.

    Example:
        >>> import numpy as np
        >>> from wdspec.steps import make_add_noise
        >>> add_noise = make_add_noise(snr=0)
        >>> audio, rate = add_noise((np.ones((1, 4), "f4"), 8000), (np.full((1, 2), 5, "f4"), 8000), lambda n: 0.0)
        >>> audio.tolist()
        [[2.0, 2.0, 2.0, 2.0]]
    """
    low, high = read_span(
        str(snr).removesuffix("dB").strip(), "a range of decibels such as `5..20`, or a number"
    )

    def add_noise(recording: Any, noise: Any, numbers: Numbers) -> Any:
        if noise is None:
            return recording
        own = _as_array("add_noise", recording)
        other = _take(noise, own[0].shape[1], numbers(1))
        _check_pair("add_noise", own, other, "noise")
        samples, part = own[0], other[0]
        signal, disturbance = _power(samples), _power(part)
        if not signal or not disturbance:
            return recording
        ratio = low + numbers(0) * (high - low)
        factor = np.float32((signal / disturbance) ** 0.5 * 10 ** (-ratio / 20))
        return _like(recording, samples + part * factor)

    return add_noise


def _take(noise: Any, count: int, place: float) -> tuple[Array, int]:
    """Return a number of samples of noise from a random place on, and their rate; shorter noise is repeated.

    Of noise that is still in its file, only these are decoded.
    """
    if isinstance(noise, AudioFile):
        start = _start(noise.length, count, place)
        part = None if start is None else noise.part(start, start + count)
        if part is not None:
            return _as_array("add_noise", part)
        noise = noise.whole()
    samples, rate = _as_array("add_noise", noise)
    length = samples.shape[1]
    start = _start(length, count, place)
    if start is not None:
        return samples[:, start : start + count], rate
    start = int(place * length)
    return np.take(samples, np.arange(start, start + count) % length, axis=1), rate


def _start(length: int, count: int, place: float) -> int | None:
    """Return where a number of samples starts in noise; None if it has fewer."""
    return int(place * (length - count + 1)) if length >= count else None


def make_convolve() -> Callable[[Any, Any], Any]:
    """Return a function that convolves recordings with the impulse responses of rooms.

    Returns:
        (recording, impulse) → the recording in the room, with its length, level and direct sound as before; as it is if
        the impulse is None. It raises FieldError if rates or channels do not match, or if the impulse is silent.

    Example:
        >>> import numpy as np
        >>> from wdspec.steps import make_convolve
        >>> convolve = make_convolve()
        >>> audio, rate = convolve((np.array([[1, 0, 0, 0]], "f4"), 8000), (np.array([[0, 1, 1]], "f4"), 8000))
        >>> audio.round(3).tolist()
        [[0.707, 0.707, 0.0, 0.0]]
    """

    def convolve(recording: Any, impulse: Any) -> Any:
        if impulse is None:
            return recording
        own, other = _as_array("convolve", recording), _as_array("convolve", impulse)
        _check_pair("convolve", own, other, "impulse")
        samples, response = own[0], other[0]
        before = _power(samples)
        if not _power(response):
            raise FieldError("`convolve` needs an impulse response, and this one is silent; leave it out")
        delay = int(np.abs(response).max(axis=0).argmax())
        count = samples.shape[1]
        size = 1 << (count + response.shape[1] - 2).bit_length()
        spectrum = np.fft.rfft(samples.astype(np.float64), size) * np.fft.rfft(
            response.astype(np.float64), size
        )
        made = np.fft.irfft(spectrum, size)[:, delay : delay + count]
        after = _power(made)
        return _like(recording, made * (before / after) ** 0.5 if after else made)

    return convolve


def _as_array(step: str, value: Any) -> tuple[Array, int]:
    """Return the samples of a recording as an array (channels, samples), and its rate.

    Raises:
        FieldError: it is no recording, or it has no samples.
    """
    pair: Any = value if isinstance(value, tuple) and len(value) == 2 else (None, 0)
    samples, rate = pair
    samples = samples.numpy() if hasattr(samples, "numpy") else samples
    if not isinstance(samples, np.ndarray) or samples.ndim != 2 or not isinstance(rate, int):
        hint = "decode it, `decode: {wav: audio+rate=16000+mono}`"
        raise FieldError(f"`{step}` needs a recording, and this is {describe(value)}; {hint}")
    if not samples.shape[1]:
        raise FieldError(f"`{step}` needs a recording, and this one has no samples; leave it out")
    return samples, rate


def _check_pair(step: str, own: tuple[Array, int], other: tuple[Array, int], name: str) -> None:
    """Check that another recording, the noise or the impulse, fits to a recording. Raises FieldError if not."""
    if own[1] != other[1]:
        raise FieldError(
            f"`{step}` needs one sample rate: the recording has {own[1]:,} Hz, and the {name} {other[1]:,} Hz; "
            "resample both while decoding, `audio+rate=16000`",
            code="D231",
        )
    if len(other[0]) not in (1, len(own[0])):
        raise FieldError(
            f"`{step}` needs as many channels: the recording has {len(own[0])}, and the {name} {len(other[0])}; write "
            "`audio+mono` in `decode`",
            code="D232",
        )


def _power(samples: Array) -> float:
    """The mean power of samples."""
    return float(np.square(samples, dtype=np.float64).mean())


def _like(value: Any, samples: Array) -> Audio:
    """Return a recording with other samples, in a tensor if those of `value` are in one."""
    samples = np.ascontiguousarray(samples, dtype=np.float32)
    if hasattr(value[0], "numpy"):
        import torch

        return Audio(torch.from_numpy(samples), value[1])
    return Audio(samples, value[1])
