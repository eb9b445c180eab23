"""Speech: resampling compared with the bare library, and batches by seconds compared with lhotse on the same files.

    python benchmarks/speech.py [--lhotse PYTHON]

`PYTHON` is the interpreter of an environment with lhotse. The contenders take turns, each in a process of its own on
one core. Times are CPU times, and each figure is a median.
"""

import argparse
import gzip
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

SHARDS, CUTS, RATE = 8, 60, 16000
BATCHES, SECONDS = 40, 120


def write_shar(folder):
    """A directory of lhotse's: recordings of log-normal durations from 0.8 to 15 seconds, and their cuts."""
    import numpy as np
    import soundfile

    rng = np.random.default_rng(0)
    for shard in range(SHARDS):
        cuts = []
        with tarfile.open(f"{folder}/recording.{shard:06}.tar", "w") as tar:
            for number in range(CUTS):
                count = int(np.clip(rng.lognormal(1.4, 0.6), 0.8, 15) * RATE)
                samples = 0.1 * rng.standard_normal(count) + 0.3 * np.sin(np.arange(count) / (5 + number % 9))
                file = io.BytesIO()
                soundfile.write(file, samples, RATE, format="FLAC")
                name, seconds = f"cut{shard}-{number}", count / RATE
                about = {
                    "id": name,
                    "sources": [{"type": "shar", "channels": [0], "source": ""}],
                    "sampling_rate": RATE,
                    "num_samples": count,
                    "duration": seconds,
                    "channel_ids": [0],
                }
                for ending, data in (("flac", file.getvalue()), ("json", json.dumps(about).encode())):
                    member = tarfile.TarInfo(f"{name}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                words = {"id": name, "recording_id": name, "start": 0, "duration": seconds, "text": "a text"}
                cut = {"id": name, "start": 0, "duration": seconds, "channel": 0, "type": "MonoCut"}
                cuts.append({**cut, "supervisions": [{**words, "channel": 0}], "recording": about})
        lines = "".join(json.dumps(cut) + "\n" for cut in cuts)
        Path(f"{folder}/cuts.{shard:06}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


def wdspec_batches(folder):
    import wdspec

    spec = {
        "dataset": [
            {
                "name": "speech",
                "shards": f"{folder}/cuts.*.jsonl.gz",
                "format": "jsonl",
                "key": "last_dot",
                "join": {"shards": f"{folder}/recording.*.tar", "on": "id"},
                "make": {"audio": {"segment": "flac", "duration": "duration", "decode": "torch_audio"}},
            }
        ],
        "fields": ["audio", "supervisions"],
        "batch": {
            "cost": "audio.seconds",
            "max_cost": SECONDS,
            "window": 1000,
            "collate": {"audio": {"pad": {"axis": -1}}},
        },
        "epoch": {"batches": 100_000},
    }
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        for batch in loader:
            (samples, _, lengths), _ = batch["audio"]
            yield samples, lengths


def lhotse_batches(folder):
    import torch
    from lhotse import CutSet
    from lhotse.dataset import DynamicBucketingSampler
    from lhotse.dataset.collation import collate_audio
    from lhotse.dataset.iterable_dataset import IterableDatasetWrapper

    class Speech(torch.utils.data.Dataset):
        def __getitem__(self, cuts):
            return *collate_audio(cuts), [cut.supervisions[0].text for cut in cuts]

    cuts = CutSet.from_shar(in_dir=folder, shuffle_shards=True, seed=0).repeat()
    sampler = DynamicBucketingSampler(
        cuts, max_duration=SECONDS, num_buckets=10, shuffle=True, seed=0, buffer_size=2000
    )
    for samples, lengths, _ in torch.utils.data.DataLoader(
        IterableDatasetWrapper(Speech(), sampler), batch_size=None, num_workers=0
    ):
        yield samples, lengths


def measure(contender, folder):
    """Print samples per second of CPU, the share of padding, and the memory."""
    import torch

    torch.set_num_threads(1)
    batches = {"wdspec": wdspec_batches, "lhotse": lhotse_batches}[contender](folder)
    for _ in range(3):
        next(batches)
    start, count, total, real = time.process_time(), 0, 0, 0
    for _ in range(BATCHES):
        samples, lengths = next(batches)
        count, total, real = count + len(lengths), total + samples.numel(), real + int(lengths.sum())
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([count / seconds, 100 * (1 - real / total), peak]))


def compare_resampling():
    import numpy as np
    import soundfile
    import soxr

    from wdspec.fields.codecs.audio import audio_decoder

    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(8 * 44100) / 20) / 2, 44100, format="FLAC")
    data, decode = file.getvalue(), audio_decoder("audio+rate=16000+mono")

    def bare():
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
        soxr.resample(samples.mean(axis=1), rate, 16000, quality="HQ")

    def spend(function):
        start = time.process_time()
        for _ in range(8):
            function()
        return time.process_time() - start

    ratios = [spend(bare) / spend(lambda: decode(data)) for _ in range(15)]
    print(
        f"resampling 8 s from 44.1 to 16 kHz: {statistics.median(ratios):.2f} of the speed of soundfile and soxr"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lhotse", metavar="PYTHON")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return
    compare_resampling()
    with tempfile.TemporaryDirectory() as folder:
        write_shar(folder)
        pythons = {"wdspec": sys.executable} | ({"lhotse": options.lhotse} if options.lhotse else {})
        found = {name: [] for name in pythons}
        for _ in range(5):
            for name, python in pythons.items():
                command = [python, "-W", "ignore", __file__, "--measure", name, folder]
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                found[name].append(json.loads(done.stdout))
        for name, figures in found.items():
            speed, padding, peak = (statistics.median(column) for column in zip(*figures, strict=True))
            print(f"{name}: {speed:.0f} samples/s, {padding:.1f}% padding, {peak:.0f} MB")


if __name__ == "__main__":
    main()
