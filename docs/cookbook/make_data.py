"""Make small data sets for the recipes of the cookbook: python docs/cookbook/make_data.py imagenet data"""

import io
import json
import struct
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import wdspec

WORDS = (
    "a",
    "small",
    "red",
    "blue",
    "green",
    "round",
    "old",
    "boat",
    "house",
    "tree",
    "runs",
    "near",
    "the",
    "sea",
    "cloud",
)


def picture(rng, width, height):
    """A JPEG of coloured noise, smooth at the scale of an eighth."""
    small = Image.fromarray(rng.integers(0, 255, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8))
    file = io.BytesIO()
    small.resize((width, height)).save(file, "jpeg")
    return file.getvalue()


def size(rng):
    return int(rng.integers(64, 120)), int(rng.integers(64, 120))


def sentence(rng, words=None):
    return " ".join(rng.choice(WORDS, words or rng.integers(3, 9)))


def write(folder, name, samples):
    with wdspec.ShardWriter(f"{folder}/{name}-%02d.tar", maxcount=8, verbose=0) as writer:
        for number, fields in enumerate(samples):
            writer.write({"__key__": f"{name}{number:04d}", **fields})


def imagenet(folder, rng):
    for name in ("train", "val"):
        write(folder, name, [{"jpg": picture(rng, *size(rng)), "cls": n % 10} for n in range(16)])


def tokenizer(folder):
    """A tokenizer of whole words, in the file format of Hugging Face."""
    known = {"[PAD]": 0, "[UNK]": 1} | {word: 2 + n for n, word in enumerate(WORDS)}
    model = {"type": "WordLevel", "vocab": known, "unk_token": "[UNK]"}
    (Path(folder) / "tokenizer.json").write_text(
        json.dumps({"model": model, "pre_tokenizer": {"type": "Whitespace"}})
    )


def captions(folder, rng):
    tokenizer(folder)
    write(folder, "pairs", [{"jpg": picture(rng, *size(rng)), "txt": sentence(rng)} for _ in range(16)])


def audio(folder, rng):
    def sound():
        return np.sin(np.arange(rng.integers(2000, 6000)) * rng.uniform(0.05, 0.5)).astype(np.float32)[
            None
        ], 8000

    write(folder, "speech", [{"flac": sound(), "txt": sentence(rng)} for _ in range(16)])


def llm(folder, rng):
    tokenizer(folder)
    for name in ("web", "code"):
        with wdspec.RecordWriter(f"{folder}/{name}.jsonl", "jsonl") as writer:
            for number in range(16):
                writer.write(
                    {"__key__": f"{name}{number:04d}", "text": sentence(rng, int(rng.integers(10, 60)))}
                )


def vlm(folder, rng):
    def chat():
        images = {f"{n}.jpg": picture(rng, *size(rng)) for n in range(rng.integers(1, 4))}
        turns = [{"role": "user", "content": sentence(rng)}, {"role": "assistant", "content": sentence(rng)}]
        return {**images, "chat.json": turns}

    write(folder, "chats", [chat() for _ in range(16)])


def pairs(folder, rng):
    for name in ("photos", "sketches"):
        both = [
            {"anchor.jpg": picture(rng, *size(rng)), "positive.jpg": picture(rng, *size(rng))}
            for _ in range(16)
        ]
        write(folder, name, both)


def video(folder, rng):
    import av

    def film():
        file = io.BytesIO()
        with av.open(file, "w", format="mp4") as out:
            stream = out.add_stream("mpeg4", rate=12, width=96, height=64, pix_fmt="yuv420p")
            for n in range(24):
                image = np.full((64, 96, 3), 10 * n, np.uint8)
                out.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
            out.mux(stream.encode())
        return file.getvalue()

    write(folder, "films", [{"mp4": film(), "txt": sentence(rng)} for _ in range(8)])


def detection(folder, rng):
    def scene(count):
        corners = np.sort(rng.random((count, 2, 2)), axis=1).reshape(count, 4).astype(np.float32)
        return {
            "jpg": picture(rng, *size(rng)),
            "boxes.npy": corners,
            "labels.npy": rng.integers(0, 9, count),
            "json": {"photographer": sentence(rng, 2)},
        }

    write(folder, "scenes", [scene(n % 4) for n in range(16)])


def packing(folder, rng):
    for name, mean in (("web", 50), ("code", 100)):
        lengths = rng.integers(mean // 2, mean * 3 // 2, 16)
        write(folder, name, [{"npy": np.cumsum(rng.integers(0, 2, length)) % 100} for length in lengths])


def seconds(folder, rng):
    def sound(length):
        return np.sin(np.arange(length) * rng.uniform(0.05, 0.5)).astype(np.float32)[None], 8000

    lengths = rng.integers(2000, 30000, 32)
    write(folder, "speech", [{"flac": sound(length), "txt": sentence(rng)} for length in lengths])


def native_aspect(folder, rng):
    write(folder, "pairs", [{"jpg": picture(rng, *size(rng)), "txt": sentence(rng)} for _ in range(32)])


def vlm_packing(folder, rng):
    def chat(words):
        return {"json": {"text": sentence(rng, words), "words": words}}

    write(folder, "text", [chat(int(rng.integers(20, 120))) for _ in range(16)])
    with_images = [(int(rng.integers(20, 60)), 10 * size(rng)[0] // 3) for _ in range(32)]
    write(folder, "seen", [{"jpg": picture(rng, side, 200), **chat(words)} for words, side in with_images])


def preference(folder, rng):
    def ids():
        return rng.integers(2, 90, rng.integers(5, 60)).tolist()

    with wdspec.RecordWriter(f"{folder}/pairs.jsonl", "jsonl") as writer:
        for number in range(32):
            writer.write({"__key__": f"pair{number:04d}", "chosen": ids(), "rejected": ids()})


def buckets(folder, rng):
    def any_size():
        return int(rng.integers(80, 200)), int(rng.integers(80, 200))

    write(folder, "art", [{"jpg": picture(rng, *any_size()), "txt": sentence(rng)} for _ in range(64)])


def filtering(folder, rng):
    samples = []
    for number in range(64):
        about = {"score": round(float(rng.random()), 2), "user": f"u{number % 16}"}
        samples.append({"jpg": picture(rng, *size(rng)), "txt": sentence(rng), "json": about})
    write(folder, "web", samples)
    Path(folder, "bad.txt").write_text("web0003\nweb0019\nweb0044\n")


def recaptions(folder, rng):
    keys = [f"photo{number:04d}" for number in range(32)]
    with wdspec.ShardWriter(f"{folder}/photos-%02d.tar", maxcount=16, verbose=0) as photos:
        for key in keys:
            photos.write({"__key__": key, "jpg": picture(rng, *size(rng))})
    for shard in range(2):  # a model captioned all but a few
        with wdspec.TarWriter(f"{folder}/captions-{shard:02d}.tar") as captions:
            for key in keys[16 * shard : 16 * shard + 16]:
                if int(key[-2:]) % 9:
                    captions.write({"__key__": key, "txt": sentence(rng)})


def scores(folder, rng):
    write(folder, "web", [{"jpg": picture(rng, *size(rng)), "json": {"id": 100 + n}} for n in range(32)])
    rows = [f"{100 + number},{rng.random():.3f},{rng.choice(WORDS)}" for number in rng.permutation(32)]
    Path(folder, "scores.csv").write_text("\n".join(["id,score,tag", *rows]) + "\n")


def tables(folder, rng):
    for part in range(2):
        with wdspec.ParquetWriter(f"{folder}/scans-{part}.parquet") as writer:
            for number in range(16):
                image = {"bytes": picture(rng, *size(rng)), "path": f"{number}.jpg"}
                key = f"scans-{part}/{number:04d}"
                writer.write(
                    {"__key__": key, "image": image, "label": int(rng.integers(10)), "notes": sentence(rng)}
                )
    samples = [{"jpg": picture(rng, *size(rng)), "cls": int(rng.integers(10))} for _ in range(16)]
    write(folder, "photos", samples)


def tokens(folder, rng):
    for name in ("web", "code"):
        ids = rng.integers(1, 50_000, 20_000).astype("<u2")
        lengths = rng.multinomial(len(ids), [1 / 50] * 50)
        if name == "web":  # as Megatron-LM writes it
            ids.tofile(f"{folder}/{name}.bin")
            ends = np.cumsum(lengths)
            with open(f"{folder}/{name}.idx", "wb") as index:
                index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
                index.write(lengths.astype("<i4").tobytes() + (2 * (ends - lengths)).astype("<i8").tobytes())
                index.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
        else:  # bare numbers, as OLMo writes them
            ids.tofile(f"{folder}/{name}.npy")


BY_SIZE = (imagenet, captions, audio, llm, tables, tokens, vlm, pairs, video, detection, filtering)
BY_COST = (packing, seconds, native_aspect, vlm_packing, preference, buckets)
OF_PARTS = (recaptions, scores)
RECIPES = {made.__name__: made for made in (*BY_SIZE, *BY_COST, *OF_PARTS)}


def make(name, folder):
    """Write the data of a recipe into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    RECIPES[name](folder, np.random.default_rng(0))


if __name__ == "__main__":
    make(*sys.argv[1:])
