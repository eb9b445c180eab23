"""The jobs of speech, in one spec each and without Python: the first batches are those of plain Python.

Each test writes recordings as people have them, and a spec as its user would, and compares what arrives with what
soundfile and soxr make of the same files.
"""

import gzip
import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from commandline import within
from firsttrydata import train_tokenizer
from shardmaking import write_shard
from speechdata import KINDS, encode, plain_audio, voice, write_lines, write_tar

import wdspec

TEXTS = [f"turn the {thing} {way}" for thing in ("light", "heater", "radio") for way in ("on", "off")]


@pytest.fixture
def speech(tmp_path):
    """Shards of 24 recordings in all formats with their transcripts, and a tokenizer."""
    files = {}
    for number in range(24):
        kind, rate, channels = KINDS[number % len(KINDS)]
        data = encode(voice(number, rate, channels, 0.3 + 0.1 * (number % 7)), rate, kind)
        files[f"{number:03}"] = (kind, data, TEXTS[number % len(TEXTS)])
    for shard in range(4):
        rows = [
            (key, {kind: data, "txt": text.encode()})
            for key, (kind, data, text) in files.items()
            if int(key) // 6 == shard
        ]
        write_shard(tmp_path / f"speech-{shard}.tar", rows)
    tokenizer = train_tokenizer(TEXTS, tmp_path / "tokenizer.json")
    return tmp_path, {key: (data, text) for key, (_, data, text) in files.items()}, tokenizer


SPEECH = """
dataset:
  - name: speech
    shards: speech-*.tar
    rename: {audio: wav;flac;mp3;opus, text: txt}
    decode: {audio: audio+rate=16000+mono}
    make: {ids: {tokenize: text, file: tokenizer.json}}
fields: [audio, ids]
batch:
  cost: audio.seconds
  max_cost: 4
  window: 24
  collate: {audio: {pad: {axis: -1, lengths: audio_length}}, ids: {pad: {mask: ids_mask}}}
epoch: {batches: 6}
"""


def test_recordings_of_all_formats_are_one_rate_in_batches_by_seconds_with_their_tokens(speech):
    folder, files, tokenizer = speech
    (folder / "train.yaml").write_text(SPEECH)
    seen = set()
    with wdspec.loader(folder / "train.yaml", num_workers=0) as loader:
        for batch in loader:
            (samples, rates), lengths = batch["audio"], batch["audio_length"]
            assert rates.tolist() == [16000] * len(batch["__key__"])
            assert samples.shape[2] * len(samples) <= 4 * 16000 + len(samples), "padding counts"
            for row, key in enumerate(batch["__key__"]):
                data, text = files[key.rpartition("/")[2]]
                expected = plain_audio(data, 16000)
                assert int(lengths[row]) == len(expected)
                assert np.allclose(samples[row, 0, : len(expected)].numpy(), expected, rtol=0, atol=1e-6)
                assert not samples[row, 0, len(expected) :].any()
                ids = tokenizer.encode(text).ids
                assert batch["ids"][row][: len(ids)].tolist() == ids
                assert int(batch["ids_mask"][row].sum()) == len(ids)
                seen.add(key)
    assert len(seen) > 12


def test_resampled_speech_is_the_same_in_every_bit_on_other_ranks_and_workers(speech):
    folder, _, _ = speech
    spec = SPEECH.replace("mono}", "mono+speed=0.9..1.1+gain=-6..6+clip=0.4s}")
    (folder / "train.yaml").write_text(spec + "elastic: {ranks: 2, workers: 2}\n")

    def read(ranks, **options):
        found = Counter()
        for rank in range(ranks):
            with wdspec.loader(folder / "train.yaml", rank=rank, world_size=ranks, **options) as loader:
                for batch in loader:
                    (samples, _), lengths = batch["audio"], batch["audio_length"]
                    for row, key in enumerate(batch["__key__"]):
                        found[key, samples[row, 0, : int(lengths[row])].numpy().tobytes()] += 1
        return found

    one, two = read(1, num_workers=0), read(2, num_workers=1)
    assert one == two
    assert len({data for _, data in one}) > 12


def nemo(folder):
    """Tars and manifests as NeMo's convert_to_tarred_audio_dataset.py writes them, and the segments in them."""
    rng, segments = random.Random(0), {}
    for shard in range(2):
        entries, files, count = [], [], Counter()
        records = [(f"talk_{shard}_{number % 4}", number) for number in range(12)]
        rng.shuffle(records)
        for name, number in records:
            recording = encode(voice(10 * shard + int(name[-1]), 22050, 1, 2.0), 22050, "flac")
            later = count[name]
            count[name] += 1
            if not later:
                files.append((f"{name}.flac", recording))
            offset, duration = round(0.1 * (number // 4) + 0.013, 3), round(0.4 + 0.05 * number, 3)
            written = f"{name}-sub{later}.flac" if later else f"{name}.flac"
            text = f"words {shard} {number}"
            entry = {"audio_filepath": written, "offset": offset, "duration": duration, "text": text}
            entries.append({**entry, "shard_id": shard})
            first = math.floor(offset * 22050 + 0.5)
            stop = first + math.floor(duration * 22050 + 0.5)
            segments[text] = plain_audio(recording, 16000, first, stop)
        write_tar(folder / f"audio_{shard}.tar", files)
        (folder / "sharded_manifests").mkdir(exist_ok=True)
        write_lines(folder / "sharded_manifests" / f"manifest_{shard}.json", entries)
    (folder / "input.yaml").write_text(
        f"""
train_ds:
  use_lhotse: true
  sample_rate: 16000
  input_cfg:
    - type: nemo_tarred
      manifest_filepath: {folder}/sharded_manifests/manifest__OP_0..1_CL_.json
      tarred_audio_filepaths: {folder}/audio__OP_0..1_CL_.tar
  batch_duration: 4
  use_bucketing: true
  seed: 3
"""
    )
    return segments


def shar(folder):
    """Cuts and recordings as lhotse's `CutSet.to_shar` writes them, and the recordings."""
    segments = {}
    for shard in range(2):
        cuts, files = [], []
        for number in range(8):
            name, seconds = f"talk.{shard}-{number}", 0.5 + 0.1 * number
            data = encode(voice(number, 16000, 1, seconds), 16000, "flac")
            text = f"words {shard} {number}"
            about = {"id": f"talk.{shard}", "sampling_rate": 16000, "duration": seconds}
            files += [(f"{name}.flac", data), (f"{name}.json", json.dumps(about).encode())]
            cuts.append(
                {
                    "id": name,
                    "start": 0,
                    "duration": seconds,
                    "channel": 0,
                    "supervisions": [{"id": name, "text": text}],
                    "recording": about,
                    "type": "MonoCut",
                }
            )
            segments[text] = plain_audio(data, 16000)
        write_tar(folder / f"recording.{shard:06}.tar", files)
        lines = "".join(json.dumps(cut) + "\n" for cut in cuts)
        (folder / f"cuts.{shard:06}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "input.yaml").write_text(
        f"input_cfg:\n  - {{type: lhotse_shar, shar_path: {folder}}}\nbatch_duration: 4\nuse_bucketing: true\nseed: 3\n"
    )
    return segments


@pytest.mark.parametrize("write", [nemo, shar])
def test_data_of_nemo_and_lhotse_train_from_the_spec_that_convert_writes(write, tmp_path):
    segments = write(tmp_path)
    spec, _ = within("convert", "input.yaml", folder=tmp_path)
    (tmp_path / "train.yaml").write_text(spec.replace("batch:\n", "epoch: pass\nbatch:\n"))
    seen = Counter()
    with wdspec.loader(tmp_path / "train.yaml", num_workers=0) as loader:
        for batch in loader:
            (samples, _, lengths), rates = batch["audio"]
            assert rates.tolist() == [16000] * len(lengths)
            assert max(lengths.tolist()) * int(batch["__mask__"].sum()) <= 4 * 16000 + len(lengths)
            texts = batch.get("text") or [each[0]["text"] for each in batch["supervisions"]]
            for row, text in enumerate(texts):
                if batch["__mask__"][row]:
                    expected = segments[text]
                    assert int(lengths[row]) == len(expected)
                    assert np.array_equal(samples[row, 0, : len(expected)].numpy(), expected)
                    seen[text] += 1
    assert seen == dict.fromkeys(segments, 1), "each segment once"


def test_convert_says_that_recordings_in_files_of_their_own_are_not_read(tmp_path):
    (tmp_path / "input.yaml").write_text(
        "input_cfg:\n  - {type: nemo, manifest_filepath: /data/train.json}\nbatch_size: 8\n"
    )
    spec, said = within("convert", "input.yaml", folder=tmp_path)
    assert "the recordings of `type: nemo` are files of their own, which a spec cannot read" in said
    assert "wdspec create" in said
    assert "shards: unknown.tar" in spec


def test_convert_says_that_one_manifest_cannot_be_for_all_tars(tmp_path):
    (tmp_path / "input.yaml").write_text(
        "input_cfg:\n  - type: nemo_tarred\n    manifest_filepath: /d/tarred_audio_manifest.json\n"
        "    tarred_audio_filepaths: /d/audio__OP_0..3_CL_.tar\nbatch_size: 8\n"
    )
    _, said = within("convert", "input.yaml", folder=tmp_path)
    assert "one manifest is for all tars" in said
    assert "without `--no_shard_manifests`" in said
