"""Speech: resampling compared with the bare library, and a job of speech recognition compared with lhotse.

    python benchmarks/speech.py [--lhotse PYTHON]

The job: batches of 120 seconds of audio with little padding, noise from other files at a random ratio for half of the
recordings, texts as ids of tokens, both padded with their lengths. `SPEC` is the whole job, and so is
`lhotse_batches`; their lines are counted. `PYTHON` is the interpreter of an environment with lhotse. The contenders
take turns on the same files, each in a process of its own on one core. Times are CPU times, and each figure is a
median. Samples per second favor who happens to draw short samples in these batches; minutes of sound per second do not.
"""

import argparse
import gzip
import inspect
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
BATCHES = 40
WORDS = [f"word{number}" for number in range(40)]


def write_shar(folder, count, seconds, seed):
    """A directory of lhotse's: recordings of log-normal durations around some seconds, at most 15, and their cuts."""
    import numpy as np
    import soundfile

    rng = np.random.default_rng(seed)
    os.mkdir(folder)
    for shard in range(count):
        cuts = []
        with tarfile.open(f"{folder}/recording.{shard:06}.tar", "w") as tar:
            for number in range(CUTS):
                size = int(np.clip(seconds * rng.lognormal(0, 0.6), 0.8, 15) * RATE)
                samples = 0.1 * rng.standard_normal(size) + 0.3 * np.sin(np.arange(size) / (5 + number % 9))
                file = io.BytesIO()
                soundfile.write(file, samples, RATE, format="FLAC")
                name, length = f"cut{shard}-{number}", size / RATE
                about = {
                    "id": name,
                    "sources": [{"type": "shar", "channels": [0], "source": ""}],
                    "sampling_rate": RATE,
                    "num_samples": size,
                    "duration": length,
                    "channel_ids": [0],
                }
                for ending, data in (("flac", file.getvalue()), ("json", json.dumps(about).encode())):
                    member = tarfile.TarInfo(f"{name}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                text = " ".join(WORDS[: 1 + int(2 * length)])
                words = {"id": name, "recording_id": name, "start": 0, "duration": length, "text": text}
                cut = {"id": name, "start": 0, "duration": length, "channel": 0, "type": "MonoCut"}
                cuts.append({**cut, "supervisions": [{**words, "channel": 0}], "recording": about})
        lines = "".join(json.dumps(cut) + "\n" for cut in cuts)
        Path(f"{folder}/cuts.{shard:06}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


def write_tokenizer(path):
    """A tokenizer that knows the words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(path)


SPEC = """
wdspec: 1
name: asr
seed: 1
companions:
  noise: {shards: noise/recording.*.tar, extensions: flac, decode: torch_audio}
dataset:
  - name: speech
    shards: speech/cuts.*.jsonl.gz
    format: jsonl
    key: last_dot
    join: {shards: speech/recording.*.tar, on: id}
    companions: {noise: {source: noise, chance: 0.5}}
    make:
      clean: {segment: flac, duration: duration, decode: torch_audio}
      audio: {add_noise: clean, noise: noise.flac, snr: 5..20}
      ids: {tokenize: "supervisions[0].text", file: tokenizer.json}
fields: audio ids
batch:
  cost: clean.seconds
  max_cost: 120
  window: 400
  collate: {audio: {pad: {axis: -1, lengths: audio_lengths}}, ids: {pad: {lengths: ids_lengths}}}
"""


def wdspec_batches():
    import wdspec

    Path("wdspec.yaml").write_text(SPEC)
    for batch in wdspec.loader("wdspec.yaml", num_workers=0, rank=0, world_size=1):
        yield batch["audio"][0], batch["audio_lengths"], batch["ids"], batch["ids_lengths"]


def lhotse_batches():
    import torch
    from lhotse import CutSet
    from lhotse.dataset import CutMix, DynamicBucketingSampler
    from lhotse.dataset.collation import collate_audio
    from lhotse.dataset.iterable_dataset import IterableDatasetWrapper
    from tokenizers import Tokenizer
    from torch.nn.utils.rnn import pad_sequence

    class Speech(torch.utils.data.Dataset):
        def __init__(self, noise):
            self.mix = CutMix(noise, snr=(5, 20), p=0.5, pad_to_longest=False, random_mix_offset=True)
            self.tokenizer = Tokenizer.from_file("tokenizer.json")

        def __getitem__(self, cuts):
            texts = [cut.supervisions[0].text for cut in cuts]
            ids = [torch.tensor(self.tokenizer.encode(text).ids) for text in texts]
            ids_lengths = torch.tensor([len(each) for each in ids])
            return *collate_audio(self.mix(cuts)), pad_sequence(ids, batch_first=True), ids_lengths

    cuts = CutSet.from_shar(in_dir="speech", shuffle_shards=True, seed=0).repeat()
    noise = CutSet.from_shar(in_dir="noise").to_eager()
    sampler = DynamicBucketingSampler(
        cuts, max_duration=120, num_buckets=10, shuffle=True, seed=0, buffer_size=2000
    )
    dataset = IterableDatasetWrapper(Speech(noise), sampler)
    yield from torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=0)


def count_lines():
    """Lines that are neither empty nor a comment: of the spec, and of the body of the script."""
    script = inspect.getsource(lhotse_batches).splitlines()[1:]
    return [sum(bool(line.strip()) for line in lines) for lines in (SPEC.splitlines(), script)]


def measure(contender, folder):
    """Print samples and minutes of sound per second of CPU, the share of padding, and the memory."""
    import torch

    torch.set_num_threads(1)
    os.chdir(folder)
    batches = {"wdspec": wdspec_batches, "lhotse": lhotse_batches}[contender]()
    for _ in range(3):
        next(batches)
    start, count, total, real = time.process_time(), 0, 0, 0
    for _ in range(BATCHES):
        samples, lengths, _, _ = next(batches)
        count, total, real = count + len(lengths), total + samples.numel(), real + int(lengths.sum())
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([count / seconds, real / RATE / 60 / seconds, 100 * (1 - real / total), peak]))


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
    print("lines: {} of the spec, {} of the script with lhotse".format(*count_lines()))
    with tempfile.TemporaryDirectory() as folder:
        write_shar(f"{folder}/speech", SHARDS, 4, 0)
        write_shar(f"{folder}/noise", 2, 10, 1)
        write_tokenizer(f"{folder}/tokenizer.json")
        pythons = {"wdspec": sys.executable} | ({"lhotse": options.lhotse} if options.lhotse else {})
        found = {name: [] for name in pythons}
        for _ in range(5):
            for name, python in pythons.items():
                command = [python, "-W", "ignore", __file__, "--measure", name, folder]
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                found[name].append(json.loads(done.stdout))
        for name, figures in found.items():
            speed, minutes, padding, peak = map(statistics.median, zip(*figures, strict=True))
            print(
                f"{name}: {speed:.0f} samples/s, {minutes:.1f} min of sound/s, {padding:.1f}% padding, {peak:.0f} MB"
            )


if __name__ == "__main__":
    main()
