"""Decoders as a spec names them: accepted, refused, and at work."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from fieldfiles import FRAMES, SOUND, whole_files

import wdspec
from wdspec.base.errors import SpecError
from wdspec.spec.language.values import DECODERS, PICKLE_DECODERS


def spec(decode: Any, **keys: Any) -> dict[str, Any]:
    return {"dataset": [{"name": "a", "shards": "a.tar", "decode": decode}], **keys}


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_every_decoder_can_be_named(name: str) -> None:
    allow = ["pickle"] if name in PICKLE_DECODERS else []
    for decode in (name, [name, "raw"], {"field": name}):
        checked = wdspec.load(spec(decode, allow=allow)).sources[0].decode
        assert checked is not None
        assert name in (*checked.names, *checked.fields.values())


@pytest.mark.parametrize(
    "name", ["rgb8+upright", "torch+pillow+upright", "video+torchcodec", "mp4+torchcodec"]
)
def test_options_follow_a_plus(name: str) -> None:
    assert wdspec.load(spec({"field": name})).sources[0].decode is not None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rgb8+uprigth", "did you mean `upright`"),
        ("rgb8+", "its options are .*`rgb8\\+pillow`, .*`rgb8\\+resize=256`, .*`rgb8\\+upright`"),
        ("json+upright", "it has no options"),
        ("ten", "intentionally not supported"),
        ("mpp", "did you mean `mp`"),
    ],
)
def test_unknown_decoders_are_rejected_with_a_hint(name: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        wdspec.load(spec(name))


@pytest.mark.parametrize("name", ["pkl", "pth", "mylib:read"])
def test_secure_mode_rejects_decoders_that_run_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(SpecError, match=f"the decoder `{name}` may run programs or user code"):
        wdspec.load(spec({"x": name}))


def test_scale_sees_image_decoders_with_options() -> None:
    both = [
        {"name": "a", "shards": "a.tar", "decode": "l8+upright", "scale": 0.5},
        {"name": "b", "shards": "b.tar"},
    ]
    decoders = [source.decode.names for source in wdspec.load({"dataset": both}).sources if source.decode]
    assert decoders == [("l8+upright",), ("rgb8",)]


def test_a_spec_decodes_audio_video_and_packed_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = ["flac", "mp4", "mp", "cbor", "json.zst", "safetensors", "avif", "html"]
    with tarfile.open("a.tar", "w") as tar:
        for index in range(4):
            for suffix in wanted:
                member = tarfile.TarInfo(f"{index:04d}.{suffix}")
                member.size = len(whole_files()[suffix])
                tar.addfile(member, io.BytesIO(whole_files()[suffix]))
    keys = spec(["rgb8+upright", "audio", "torch_video"], batch=4, epoch={"batches": 1})
    batch = next(iter(wdspec.loader(keys)))
    assert (batch["flac"][0][0].shape, batch["mp4"][0][0].shape) == (SOUND.shape, (FRAMES, 48, 64, 3))
    assert tuple(batch["avif"].shape) == (4, 12, 20, 3)
    assert batch["mp"] == batch["cbor"] == batch["json.zst"]
    assert batch["html"] == ["héllo\n"] * 4
