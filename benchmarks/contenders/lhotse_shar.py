"""lhotse Shar: cuts of audio in tars with manifests, written beforehand from the same audio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contenders.shared import Contender, Counts, again_and_again, members, of_kinds
from benchmarks.rows import Row


def audio(row: Row, folder: Path) -> Counts:
    from lhotse import CutSet, Recording
    from lhotse.shar import SharWriter

    out = folder / f"shar-{row.data}"
    if not out.exists():
        out.mkdir()
        with SharWriter(str(out), fields={"recording": "original"}, shard_size=100) as writer:
            for number, sample in enumerate(members(row, folder)):
                recording = Recording.from_bytes(sample["flac"], recording_id=f"{number:08}")
                cut = recording.to_cut()
                cut.custom = {"json": sample["json"].decode()}
                writer.write(cut)
    cuts = CutSet.from_shar(in_dir=str(out))

    def epoch() -> Any:
        return (cut.load_audio() for cut in cuts)

    return again_and_again(epoch)


LHOTSE = {"lhotse Shar, converted": Contender("lhotse", of_kinds(audio=audio), converts=True)}
