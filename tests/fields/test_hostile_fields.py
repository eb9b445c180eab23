"""Any bytes in any field: a value, or a FieldError that names the place; never another error, a crash or a hang."""

from __future__ import annotations

import random
import resource
import time
import warnings
from collections.abc import Iterator

import pytest
from decoded import PLACE
from fieldfiles import whole_files

from wdspec.base.errors import FieldError
from wdspec.fields.samples import SampleFields

SECONDS = 20
"""No field of a few KB may take so long; on an idle machine none takes 0.2 s."""
MEBIBYTE = 1024
"""In KiB, as the system counts memory."""
DECODERS = [
    SampleFields(names=("rgb8", "audio", "video"), secure=False),
    SampleFields(names=("rgb16+upright", "torch_audio", "torch_video", "torch_safetensors"), secure=False),
]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The data cut, flipped, stretched or overwritten, mostly near its start; or other bytes altogether."""
    way = rng.randrange(6)
    if way == 0:
        return rng.randbytes(rng.randrange(200))
    if way == 1:
        return data[: rng.randrange(len(data) + 1)]
    spoilt = bytearray(data)
    for _ in range(rng.choice([1, 2, 5, 20])):
        place = rng.randrange(len(spoilt) if rng.random() < 0.5 else min(len(spoilt), 128))
        if way == 2:
            spoilt[place] = rng.randrange(256)
        elif way == 3:
            spoilt[place] ^= 1 << rng.randrange(8)
        elif way == 4:
            spoilt[place:place] = rng.randbytes(rng.randrange(9))
        else:
            spoilt[place : place + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\x7f" * 4])
    return bytes(spoilt)


def variants(suffix: str, count: int) -> Iterator[bytes]:
    rng = random.Random(suffix)
    yield b""
    for _ in range(count):
        yield damaged(rng, whole_files()[suffix])


def judge(suffix: str, count: int) -> None:
    """Raise if a field gives anything but a value or a FieldError, takes long, or much memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for index, data in enumerate(variants(suffix, count)):
        start = time.process_time()
        error = error_of(DECODERS[index % 2], suffix, data)
        assert time.process_time() - start < SECONDS
        if error is not None:
            assert error.place == {"source": "a", "url": "a.tar", "key": "0001", "field": suffix}
            assert error.message.startswith("cannot decode as "), error.message
            assert 20 < len(error.message) < 400, error.message
            assert error.__cause__ is not None
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1024 * MEBIBYTE, f"{grown} KiB more"


def error_of(decode: SampleFields, suffix: str, data: bytes) -> FieldError | None:
    try:
        decode({**PLACE, suffix: data})
    except FieldError as error:
        return error
    return None


@pytest.mark.parametrize("suffix", whole_files())
def test_an_undamaged_file_is_decoded(suffix: str) -> None:
    for decode in DECODERS:
        sample = decode({**PLACE, suffix: whole_files()[suffix]})
        assert sample is not None
        assert not isinstance(sample[suffix], bytes)


@pytest.mark.parametrize("suffix", whole_files())
def test_damage_is_a_field_error_or_a_value(suffix: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge(suffix, 25)


@pytest.mark.long
@pytest.mark.parametrize("suffix", whole_files())
def test_much_damage_is_a_field_error_or_a_value(suffix: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge(suffix, 3000)
