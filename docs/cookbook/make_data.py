"""Make small data sets for the recipes of the cookbook: python docs/cookbook/make_data.py imagenet data"""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
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


def json_lines(path, rows):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def class_folders(folder, counts, rng):
    """A folder of images for each class, as torchvision's ImageFolder reads them."""
    for name, count in counts.items():
        Path(folder, name).mkdir(parents=True)
        for number in range(count):
            Path(folder, name, f"{name}_{number}.JPEG").write_bytes(picture(rng, *size(rng)))


def imagenet(folder, rng):
    for split, count in (("train", 12), ("val", 5)):
        class_folders(f"{folder}/{split}", dict.fromkeys(("n01440764", "n01443537", "n01484850"), count), rng)


def classes(folder, rng):
    class_folders(f"{folder}/pets", {"cat": 20, "dog": 8, "owl": 4}, rng)
    names = ("kitty", "puppy")
    Path(folder, "photos").mkdir()
    for number in range(12):
        Path(folder, "photos", f"{number}.jpg").write_bytes(picture(rng, *size(rng)))
    rows = [f"{number},photos/{number}.jpg,{names[number % 3 == 0]}" for number in range(12)]
    Path(folder, "photos.csv").write_text("\n".join(["id,file,species", *rows]) + "\n")


def img2dataset(folder, count, rng, more=lambda number: {}, size=size):
    """Shards as img2dataset writes them: image, caption and metadata, also of images that were not downloaded."""
    for shard in range(2):
        with wdspec.TarWriter(f"{folder}/{shard:05d}.tar") as writer:
            for number in range(count):
                key, caption = f"{shard:05d}{number:04d}", sentence(rng)
                about = {
                    "key": key,
                    "caption": caption,
                    "url": f"https://e.org/{key}.jpg",
                    "status": "success",
                }
                about |= more(shard * count + number)
                if number % 10 == 9:
                    about["status"] = "failed_to_download"
                    writer.write({"__key__": key, "txt": caption, "json": about})
                else:
                    writer.write(
                        {"__key__": key, "jpg": picture(rng, *size(rng)), "txt": caption, "json": about}
                    )


def tokenizer(path, special=("<|endoftext|>",), words=WORDS):
    """A tokenizer of whole words, in the file format of Hugging Face."""
    special = ("[PAD]", "[UNK]", *special)
    known = {word: number for number, word in enumerate((*special, *words))}
    added = [
        {"id": known[text], "content": text, "special": True, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
        for text in special
    ]
    model = {"type": "WordLevel", "vocab": known, "unk_token": "[UNK]"}
    whole = {"version": "1.0", "added_tokens": added, "model": model, "pre_tokenizer": {"type": "Whitespace"}}
    Path(path).write_text(json.dumps(whole))


CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string %}{{- message.content }}
{%- else %}
{%- for part in message.content %}{{- part.text if part.type == 'text' else '<|image_pad|>' }}{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def chat_model(folder):
    """A folder like those of Hugging Face models, with a tokenizer of whole words and a chat template."""
    model = Path(folder, "model")
    model.mkdir()
    special = ("<|im_start|>", "<|im_end|>", "<|image_pad|>")
    tokenizer(model / "tokenizer.json", special, ("user", "assistant", *WORDS))
    (model / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def turns(rng, count, most=20):
    """Questions and answers in turn."""
    roles = ("user", "assistant")
    return [
        {"role": roles[at % 2], "content": sentence(rng, int(rng.integers(2, most)))} for at in range(count)
    ]


def chat(folder, rng):
    chat_model(folder)
    with wdspec.RecordWriter(f"{folder}/chats.jsonl", "jsonl") as writer:
        for number in range(48):
            count = 2 * int(rng.integers(1, 4))
            writer.write({"__key__": f"chat{number:04d}", "messages": turns(rng, count)})


def lengths(folder, rng):
    tokenizer(f"{folder}/tokenizer.json")
    json_lines(
        f"{folder}/texts.jsonl", [{"text": sentence(rng, int(rng.integers(4, 60)))} for _ in range(64)]
    )


def captions(folder, rng):
    tokenizer(f"{folder}/tokenizer.json")
    img2dataset(folder, 12, rng, lambda number: {"recaption": sentence(rng) if number % 4 else None})


def uids(folder, rng):
    tokenizer(f"{folder}/tokenizer.json")
    of = [f"{number:032x}" for number in map(int, rng.integers(0, 2**62, 40))]
    img2dataset(folder, 20, rng, lambda number: {"uid": of[number]})
    halves = [(int(uid[:16], 16), int(uid[16:], 16)) for uid in sorted(of[::3])]
    np.save(f"{folder}/uids.npy", np.array(halves, "u8,u8"))  # as DataComp's scripts write them


def audio(folder, rng):
    """Clean recordings, recordings of noise, and a table that gives each recording its noise."""
    for name in ("clean", "noise"):
        Path(folder, name).mkdir()
    for number in range(16):
        Path(folder, f"clean/{number:02d}.wav").write_bytes(recording(rng, "WAV", 16000, rng.uniform(0.3, 1)))
    for number in range(4):
        Path(folder, f"noise/{number}.flac").write_bytes(
            recording(rng, "FLAC", 16000, rng.uniform(0.4, 2), noisy=True)
        )
    rows = [f"{number:02d},clean/{number:02d}.wav,noise/{rng.integers(4)}.flac" for number in range(16)]
    Path(folder, "pairs.csv").write_text("\n".join(["id,clean,noise", *rows]) + "\n")


def recording(rng, kind, rate, seconds, channels=1, noisy=False):
    """A file of tones of random pitches, or of noise, in any format that people record in."""
    import soundfile

    time = np.arange(int(rate * seconds)) / rate
    tones = [
        rng.uniform(-1, 1, len(time)) if noisy else np.sin(2 * np.pi * rng.uniform(100, 2000) * time)
        for _ in range(channels)
    ]
    file = io.BytesIO()
    soundfile.write(file, np.stack(tones, 1) * 0.3, rate, format=kind)
    return file.getvalue()


def keywords(folder, rng):
    """A folder of recordings for each word, as Speech Commands has them; some are from another microphone."""
    for word, count in (("yes", 9), ("no", 7), ("stop", 8)):
        path = Path(folder) / "commands" / word
        path.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            rate, channels = ((16000, 1), (44100, 2))[number % 3 == 2]
            data = recording(rng, "WAV", rate, rng.uniform(0.4, 1.3), channels)
            (path / f"{number:04d}.wav").write_bytes(data)


def rooms(folder, rng):
    """A folder of recordings for each word, one of noise, and one of impulse responses of rooms at another rate."""
    import soundfile

    for word, count in (("yes", 9), ("no", 7), ("stop", 8)):
        path = Path(folder) / "commands" / word
        path.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (path / f"{number:04d}.wav").write_bytes(recording(rng, "WAV", 16000, rng.uniform(0.4, 0.9)))
    for name in ("musan", "rirs"):
        Path(folder, name).mkdir()
    for number in range(4):
        Path(folder, f"musan/{number}.flac").write_bytes(
            recording(rng, "FLAC", 16000, rng.uniform(1, 2), noisy=True)
        )
        time = np.arange(2400) / 48000  # 0.05 s
        echoes = rng.standard_normal(len(time)) * np.exp(-time / rng.uniform(0.01, 0.03)) * 0.1
        echoes[200] = 1  # the direct sound
        soundfile.write(f"{folder}/rirs/{number}.wav", echoes * 0.5, 48000, subtype="FLOAT")


def asr(folder, rng):
    """Tars with manifests, as NeMo's convert_to_tarred_audio_dataset.py writes them: segments of long recordings."""
    import tarfile

    tokenizer(f"{folder}/tokenizer.json")
    for shard in range(2):
        entries = []
        with tarfile.open(f"{folder}/audio_{shard}.tar", "w") as tar:
            for talk in range(4):
                name, start = f"talk_{shard}_{talk}", 0.0
                data = recording(rng, "FLAC", (16000, 22050, 48000)[talk % 3], 6)
                member = tarfile.TarInfo(f"{name}.flac")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
                for part in range(4):
                    seconds = round(float(rng.uniform(0.5, 1.4)), 3)
                    sub = f"-sub{part}" if part else ""
                    about = {"audio_filepath": f"{name}{sub}.flac", "offset": start, "duration": seconds}
                    entries.append({**about, "text": sentence(rng), "shard_id": shard})
                    start = round(start + seconds, 3)
        json_lines(f"{folder}/manifest_{shard}.json", entries)


def waveforms(folder, rng):
    """Recordings of all kinds in one folder."""
    path = Path(folder) / "recordings"
    path.mkdir(parents=True, exist_ok=True)
    for number in range(24):
        kind, rate, channels = (("WAV", 8000, 1), ("FLAC", 48000, 2), ("MP3", 44100, 2), ("OGG", 16000, 1))[
            number % 4
        ]
        data = recording(rng, kind, rate, rng.uniform(1.2, 3), channels)
        (path / f"{number:04d}.{kind.lower()}").write_bytes(data)


def llm(folder, rng):
    """Texts of log-normal lengths, as people have them: JSON Lines with more than the text, and Parquet."""

    def rows(count, mean):
        lengths = rng.lognormal(np.log(mean) - 0.5, 1, count).round().astype(int) + 1
        return [
            {"text": sentence(rng, length), "url": f"https://e.org/{n}"} for n, length in enumerate(lengths)
        ]

    tokenizer(f"{folder}/tokenizer.json")
    for part in range(2):
        json_lines(f"{folder}/web-{part:02d}.jsonl", rows(100, 40))
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows(50, 80)), f"{folder}/code-{part:02d}.parquet", row_group_size=20
        )
    json_lines(f"{folder}/wiki-00.jsonl", rows(20, 30))


def vlm(folder, rng):
    """Conversations about one to three images of a folder, as JSON Lines; the messages say where the images are."""
    chat_model(folder)
    Path(folder, "images").mkdir()

    def chat(number):
        names = [f"{number:02d}-{n}.jpg" for n in range(rng.integers(1, 4))]
        for name in names:
            Path(folder, "images", name).write_bytes(picture(rng, *size(rng)))
        question, answer = turns(rng, 2)
        question["content"] = [{"type": "image"}] * len(names) + [
            {"type": "text", "text": question["content"]}
        ]
        return {"id": f"chat{number:02d}", "images": names, "messages": [question, answer]}

    for part in range(2):
        json_lines(f"{folder}/chats-{part:02d}.jsonl", [chat(8 * part + n) for n in range(8)])


def vlm_text(folder, rng):
    """The conversations about images, and others of text alone."""
    vlm(folder, rng)
    for part in range(2):
        rows = [{"id": f"text{part}{number}", "messages": turns(rng, 2)} for number in range(8)]
        json_lines(f"{folder}/text-{part:02d}.jsonl", rows)


def pairs(folder, rng):
    """Images with their negatives, in two collections with a table each."""
    for name in ("photos", "sketches"):
        Path(folder, name).mkdir()
        rows = ["id,anchor,positive"]
        for number in range(16):
            image = Image.open(io.BytesIO(picture(rng, *size(rng))))
            for view, shown in (("a", image), ("b", image.point(lambda value: 255 - value))):
                shown.save(f"{folder}/{name}/{number}{view}.jpg", quality=95)
            rows.append(f"{name}{number},{name}/{number}a.jpg,{name}/{number}b.jpg")
        Path(folder, f"{name}.csv").write_text("\n".join(rows) + "\n")


def cutmix(folder, rng):
    for name, first in (("photos", 0), ("drawings", 5)):
        samples = [{"jpg": picture(rng, *size(rng)), "cls": first + n % 5} for n in range(16)]
        write(folder, name, samples)


def negatives(folder, rng):
    with wdspec.RecordWriter(f"{folder}/questions.jsonl", "jsonl") as writer:
        for number in range(32):
            texts = {"question": sentence(rng, 6), "passage": sentence(rng, 12)}
            writer.write({"__key__": f"question{number:04d}", **texts})
    with wdspec.RecordWriter(f"{folder}/passages.jsonl", "jsonl") as writer:
        for number in range(64):
            writer.write({"__key__": f"passage{number:04d}", "text": sentence(rng, 12)})


def video(folder, rng):
    """Films of a slowly changing color, and a table with their captions."""
    import av

    Path(folder, "films").mkdir()
    rows = ["id,file,caption"]
    for number in range(8):
        with av.open(f"{folder}/films/{number}.mp4", "w", format="mp4") as out:
            stream = out.add_stream("mpeg4", rate=12, width=96, height=64, pix_fmt="yuv420p")
            image = np.empty((64, 96, 3), np.uint8)
            image[..., 1], image[..., 2] = 2 * np.arange(96), 40 + 2 * np.arange(64)[:, None]
            for n in range(24):
                image[..., 0] = 10 * n
                out.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
            out.mux(stream.encode())
        rows.append(f"film{number},films/{number}.mp4,{sentence(rng)}")
    Path(folder, "films.csv").write_text("\n".join(rows) + "\n")


def robots(folder, rng):
    """Episodes of a robot with two cameras, as LeRobot v3 stores them: several in each file."""
    import av

    fps, lengths, cameras = 10, [[16, 12, 20], [15, 13]], ("top", "wrist")
    home, frames, episodes = Path(folder, "robot"), [], []
    for file, counts in enumerate(lengths):
        for camera, name in enumerate(cameras):
            path = home / f"videos/observation.images.{name}/chunk-000/file-{file:03d}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            with av.open(str(path), "w", options={"movflags": "faststart"}) as out:
                stream = out.add_stream("libx264", rate=fps, width=96, height=64, pix_fmt="yuv420p")
                stream.options = {"g": "2", "crf": "20"}
                for number in range(sum(counts)):
                    image = np.full((64, 96, 3), 40 + 90 * camera + 60 * file, np.uint8)
                    image[:, number : number + 8, number % 3] = 250  # a bar that moves with each frame
                    out.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
                out.mux(stream.encode())
        for at, count in enumerate(counts):
            start = sum(counts[:at]) / fps
            episode = {"episode_index": len(episodes), "length": count}
            for name in cameras:
                about = {
                    "chunk_index": 0,
                    "file_index": file,
                    "from_timestamp": start,
                    "to_timestamp": start + count / fps,
                }
                episode |= {f"videos/observation.images.{name}/{key}": value for key, value in about.items()}
            for number in range(count):
                state, action = rng.normal(size=(2, 6)).astype(np.float32)
                row = {"observation.state": state, "action": action, "timestamp": np.float32(number / fps)}
                frames.append(
                    row | {"frame_index": number, "episode_index": len(episodes), "index": len(frames)}
                )
            episodes.append(episode)
    for name, rows in (("data", frames), ("meta/episodes", episodes)):
        path = home / name / "chunk-000/file-000.parquet"
        path.parent.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    (home / "meta/info.json").write_text(json.dumps({"codebase_version": "v3.0", "fps": fps}))


def detection(folder, rng):
    """Images, and their boxes in the format of COCO."""
    Path(folder, "images").mkdir()
    images, annotations = [], []
    for number in range(16):
        width, height = size(rng)
        name = f"{number:012d}.jpg"
        pixels = np.zeros((height, width, 3), np.uint8)  # the color of a pixel is its place
        pixels[..., 0], pixels[..., 1] = 2 * np.arange(width), 2 * np.arange(height)[:, None]
        Image.fromarray(pixels).save(f"{folder}/images/{name}", quality=95)
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for _ in range(number % 4):
            left, top = int(rng.integers(0, width - 20)), int(rng.integers(0, height - 20))
            box = [left, top, int(rng.integers(8, width - left)), int(rng.integers(8, height - top))]
            about = {"id": len(annotations), "image_id": number, "category_id": int(rng.integers(1, 10))}
            annotations.append(
                {**about, "bbox": box, "area": box[2] * box[3], "iscrowd": int(rng.random() < 0.1)}
            )
    categories = [{"id": number + 1, "name": WORDS[number]} for number in range(9)]
    whole = {"images": images, "annotations": annotations, "categories": categories}
    Path(folder, "instances.json").write_text(json.dumps(whole))


def seconds(folder, rng):
    """Recordings, and a manifest as those of NeMo."""
    Path(folder, "clips").mkdir()
    entries = []
    for number in range(32):
        name, length = f"clips/{number:02d}.flac", float(rng.uniform(0.25, 3.75 if number % 16 else 20))
        Path(folder, name).write_bytes(recording(rng, "FLAC", (16000, 8000)[number % 2], length))
        entries.append({"audio_filepath": name, "duration": round(length, 3), "text": sentence(rng)})
    json_lines(f"{folder}/manifest.json", entries)


def native_aspect(folder, rng):
    img2dataset(folder, 20, rng)


def vlm_packing(folder, rng):
    """Chats about images in a folder, and chats without images, as JSON Lines."""
    chat_model(folder)
    Path(folder, "images").mkdir()

    def talk(number, words):
        question, answer = turns(rng, 2, max(3, words))
        return {"id": f"chat{number:04d}", "messages": [question, answer]}

    def seen(number):
        about, name = talk(number, 60), f"images/{number}.jpg"
        width, height = int(rng.integers(100, 300)), 200
        Path(folder, name).write_bytes(picture(rng, width, height))
        question = about["messages"][0]
        question["content"] = [{"type": "image"}, {"type": "text", "text": question["content"]}]
        return {**about, "image": name, "patches": -(-width // 28) * -(-height // 28)}

    for part in range(2):
        json_lines(f"{folder}/text-{part}.jsonl", [talk(number, 100) for number in range(8)])
    json_lines(f"{folder}/seen.jsonl", [seen(number) for number in range(32)])


def preference(folder, rng):
    chat_model(folder)
    with wdspec.RecordWriter(f"{folder}/pairs.jsonl", "jsonl") as writer:
        for number in range(32):
            prompt = turns(rng, 2 * int(rng.integers(0, 2)) + 1)
            answers = [
                [{"role": "assistant", "content": sentence(rng, int(rng.integers(2, 30)))}] for _ in "ab"
            ]
            pair = {"prompt": prompt, "chosen": answers[0], "rejected": answers[1]}
            writer.write({"__key__": f"pair{number:04d}", **pair})


def buckets(folder, rng):
    img2dataset(folder, 32, rng, size=lambda rng: (int(rng.integers(80, 200)), int(rng.integers(80, 200))))


def filtering(folder, rng):
    img2dataset(
        folder, 40, rng, lambda number: {"score": round(float(rng.random()), 2), "user": f"u{number % 16}"}
    )
    Path(folder, "bad.txt").write_text("000000003\n000010019\n000010034\n")


def duplicates(folder, rng):
    """Shards with an image under several keys, a key in two shards, and a file that is no image."""
    pictures = [picture(rng, *size(rng)) for _ in range(40)]
    pictures[7] = b"<html>404 Not Found</html>"
    pictures[25], pictures[31] = pictures[3], pictures[12]
    for shard in range(2):
        with wdspec.TarWriter(f"{folder}/{shard:05d}.tar") as writer:
            for number in range(20 * shard, 20 * shard + 20):
                writer.write({"__key__": f"{number:06d}", "jpg": pictures[number], "txt": sentence(rng)})
            if shard:
                writer.write({"__key__": "000005", "jpg": pictures[5], "txt": sentence(rng)})


def recaptions(folder, rng):
    """Images of img2dataset, and what a model wrote about most of them, as JSON Lines."""
    tokenizer(f"{folder}/tokenizer.json")
    img2dataset(folder, 20, rng)
    for shard in range(2):
        keys = [f"{shard:05d}{number:04d}" for number in range(20) if number % 9]
        rows = [{"__key__": key, "caption": sentence(rng)} for key in keys]
        json_lines(f"{folder}/captions-{shard:05d}.jsonl", rows)


def scores(folder, rng):
    """Images, and a table with a score and a tag for each, in any order."""
    Path(folder, "photos").mkdir()
    for number in range(32):
        Path(folder, f"photos/img{number:04d}.jpg").write_bytes(picture(rng, *size(rng)))
    rows = [f"img{number:04d},{rng.random():.3f},{rng.choice(WORDS)}" for number in rng.permutation(32)]
    Path(folder, "scores.csv").write_text("\n".join(["image,score,tag", *rows]) + "\n")


def tables(folder, rng):
    """Parquet as `datasets` writes images, and a folder of images for each class."""
    for part in range(2):
        rows = [
            {
                "image": {"bytes": picture(rng, *size(rng)), "path": f"{number}.jpg"},
                "label": int(rng.integers(3)),
                "notes": sentence(rng),
            }
            for number in range(16)
        ]
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows), f"{folder}/scans-{part}.parquet", row_group_size=8
        )
    class_folders(f"{folder}/photos", dict.fromkeys(("cat", "dog", "owl"), 6), rng)


def tokens(folder, rng):
    llm(folder, rng)


BY_SIZE = (
    imagenet,
    classes,
    uids,
    captions,
    audio,
    llm,
    tables,
    tokens,
    vlm,
    vlm_text,
    pairs,
    cutmix,
    negatives,
    video,
    robots,
    detection,
    filtering,
    keywords,
    rooms,
    waveforms,
)
BY_COST = (asr, seconds, native_aspect, vlm_packing, preference, buckets, chat, lengths)
OF_PARTS = (recaptions, scores, duplicates)
RECIPES = {made.__name__: made for made in (*BY_SIZE, *BY_COST, *OF_PARTS)}


def make(name, folder):
    """Write the data of a recipe into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    RECIPES[name](folder, np.random.default_rng(0))


if __name__ == "__main__":
    make(*sys.argv[1:])
