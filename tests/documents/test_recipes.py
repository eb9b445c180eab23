"""What the recipes of the cookbook deliver is what plain Python finds in the same files."""

import csv
import hashlib
import importlib.util
import io
import json
import math
import struct
import tarfile
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
import soxr
import yaml
from PIL import Image
from tokenizers import Tokenizer

import wdspec

ROOT = Path(__file__).parents[2]
_found = importlib.util.spec_from_file_location("cookbook", ROOT / "scripts" / "cookbook.py")
cookbook = importlib.util.module_from_spec(_found)
_found.loader.exec_module(cookbook)
END = 2
"""The id of `<|endoftext|>`."""


@pytest.fixture
def recipe(tmp_path):
    """Writes the files of a recipe, and returns its batches, epoch after epoch."""

    def batches_of(name, epochs=1, **options):
        if not (tmp_path / "recipe.yaml").exists():
            cookbook.prepare(name, tmp_path)
        with wdspec.loader(tmp_path / "recipe.yaml", num_workers=0, **options) as loader:
            return [batch for _ in range(epochs) for batch in loader]

    with cookbook.within(tmp_path):
        yield batches_of


def texts_of(folder):
    """The texts of JSON Lines and Parquet files, by key: the file and the number of the row."""
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines()):
            yield f"{path.stem}/{number}", json.loads(line)["text"]
    for path in sorted(folder.glob("*.parquet")):
        for number, text in enumerate(pq.read_table(path)["text"].to_pylist()):
            yield f"{path.stem}/{number}", text


def ids_of(folder):
    """The ids of all texts, each with its end, by key."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return {key: [*tokenizer.encode(text).ids, END] for key, text in texts_of(folder)}


def pieces(ids, length=256):
    """A document that is longer than a row is split."""
    return [ids[start : start + length] for start in range(0, len(ids), length)]


def documents_of(batch):
    """The documents of a packed row, by its segments, with their keys."""
    ids, segments = batch["input_ids"][0], batch["segments"][0]
    for number, key in enumerate(batch["__key__"], 1):
        document = ids[segments == number].tolist()
        assert batch["position_ids"][0][segments == number].tolist() == list(range(len(document)))
        yield key, document


def assert_rows_hold_whole_documents(rows, ids):
    """The segments of rows are the documents of their keys, or pieces of long ones; returns how often each came."""
    delivered = Counter()
    for batch in rows:
        assert batch["input_ids"].shape == (1, 256)
        for key, document in documents_of(batch):
            assert document in pieces(ids[key])
            delivered[key, tuple(document)] += 1
    assert sum(int((batch["segments"] > 0).sum()) for batch in rows) >= 0.97 * 256 * len(rows)
    return delivered


def test_pretraining_packs_the_ids_of_the_tokenizer(recipe, tmp_path):
    rows = recipe("llm", epochs=7)
    ids = ids_of(tmp_path / "data")
    delivered = assert_rows_hold_whole_documents(rows, ids)
    tokens, times = Counter(), Counter()
    for (key, document), count in delivered.items():
        tokens[key.split("-")[0]] += count * len(document)
        times[key] = max(times[key], count)
    wiki = [times[key] for key in ids if key.startswith("wiki")]
    assert max(wiki) <= 4  # `max_passes`
    assert 3 * len(wiki) < sum(wiki) <= 4 * len(wiki)
    assert not any(
        key.startswith("wiki") for batch in rows[120:] for key in batch["__key__"]
    )  # then it ended
    lengths = {name: [len(each) for key, each in ids.items() if key.startswith(name)] for name in tokens}
    share, expected = tokens["web"] / (tokens["web"] + tokens["code"]), 60 / 90
    noise = sum(
        (np.std(lengths[name]) / np.mean(lengths[name])) ** 2 * np.mean(lengths[name]) / tokens[name]
        for name in ("web", "code")
    )
    assert abs(share - expected) < 3 * expected * (1 - expected) * math.sqrt(noise)


def test_token_files_hold_what_the_tokenizer_gives_and_rows_are_packed_from_them(recipe, tmp_path):
    rows = recipe("tokens", epochs=3)
    ids = {key: each for key, each in ids_of(tmp_path / "data").items() if not key.startswith("wiki")}
    for name in ("web-00", "web-01", "code-00", "code-01"):
        expected = [each for key, each in ids.items() if key.startswith(name)]
        index = (tmp_path / "tokens" / f"{name}.idx").read_bytes()  # as Megatron-LM documents it
        assert index[:9] == b"MMIDIDX\0\0"
        (count,) = struct.unpack_from("<Q", index, 18)
        assert np.frombuffer(index, "<i4", count, 34).tolist() == list(map(len, expected))
        assert np.fromfile(tmp_path / "tokens" / f"{name}.bin", "<u2").tolist() == [
            token for document in expected for token in document
        ]
    delivered = assert_rows_hold_whole_documents(rows, ids)
    documents = Counter(key.split("-")[0] for batch in rows for key in batch["__key__"])
    assert delivered
    assert documents["web"] / documents["code"] == pytest.approx(2, rel=0.1)


def resized(image, width, height):
    """An image as floats in -1..1 (CHW), resized by Pillow."""
    return (
        np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32).transpose(2, 0, 1)
        / 127.5
        - 1
    )


def covered(image, width, height):
    """An image that is resized to cover a size, and cropped to it at its center."""
    scale = max(width / image.width, height / image.height)
    wide, high = max(width, round(image.width * scale)), max(height, round(image.height * scale))
    left, top = round((wide - width) / 2), round((high - height) / 2)
    return resized(image, wide, high)[:, top : top + height, left : left + width]


def assert_alike(values, expected, least=35):
    """Two decoders and resizers agree but for rounding, by a few gray levels."""
    values = np.asarray(values)
    assert values.shape == expected.shape
    error = np.square(values - expected).mean()
    assert 10 * math.log10(4 / max(error, 1e-12)) > least  # the ratio of signal to noise, in dB


def test_imagenet_has_every_image_of_the_folders_with_the_number_of_its_folder(recipe, tmp_path):
    batches = recipe("imagenet", epochs=6, split="train")
    data = tmp_path / "data"
    numbers = {folder.name: number for number, folder in enumerate(sorted((data / "train").iterdir()))}
    epochs = [batches[start : start + 4] for start in range(0, 24, 4)]  # 36 images, in batches of 8
    orders = [[key for batch in epoch for key in batch["__key__"]] for epoch in epochs]
    assert all(len(set(order)) == 32 for order in orders)
    assert set().union(*orders) == {
        f"{path.parent.name}/{path.stem}" for path in (data / "train").rglob("*.JPEG")
    }
    assert len(set(map(tuple, orders))) == 6
    for batch in batches:
        assert batch["labels"].tolist() == [numbers[key.split("/")[0]] for key in batch["__key__"]]
    seen = []
    for batch in recipe("imagenet", split="val"):
        for key, pixels, label, is_real in zip(
            *(batch[name] for name in ("__key__", "pixel_values", "labels", "__mask__")), strict=True
        ):
            if is_real:
                assert label == numbers[key.split("/")[0]]
                mean, std = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
                image = Image.open(data / "val" / f"{key}.JPEG")
                wide, high = (int(73 * side / min(image.size)) for side in image.size)
                left, top = round((wide - 64) / 2), round((high - 64) / 2)
                expected = resized(image, wide, high)[:, top : top + 64, left : left + 64]
                assert_alike(pixels.numpy() * std * 2 + mean * 2 - 1, expected)
                seen.append(key)
    assert sorted(seen) == sorted(
        f"{path.parent.name}/{path.stem}" for path in (data / "val").rglob("*.JPEG")
    )


def test_balanced_classes_have_the_numbers_of_their_names_and_equal_parts_of_every_batch(recipe, tmp_path):
    batches = recipe("classes", epochs=3)
    data, numbers = tmp_path / "data", {"cat": 0, "dog": 1, "owl": 2, "kitty": 0, "puppy": 1}
    expected = {
        f"{path.parent.name}/{path.stem}": numbers[path.parent.name]
        for path in (data / "pets").rglob("*.JPEG")
    }
    with open(data / "photos.csv") as table:
        expected |= {row["id"]: numbers[row["species"]] for row in csv.DictReader(table)}
    for batch in batches:
        assert batch["labels"].tolist() == [expected[key] for key in batch["__key__"]]
        assert Counter(batch["labels"].tolist()) == {0: 2, 1: 2, 2: 2}
    assert {key for batch in batches for key in batch["__key__"]} == set(expected)


def downloaded(folder):
    """What img2dataset downloaded: image, text and metadata, by key."""
    samples = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as shard:
            for member in shard:
                key, field = member.name.split(".")
                samples.setdefault(key, {})[field] = shard.extractfile(member).read()
    return {
        key: {
            "image": Image.open(io.BytesIO(each["jpg"])),
            "text": each["txt"].decode(),
            **json.loads(each["json"]),
        }
        for key, each in samples.items()
        if "jpg" in each
    }


def test_captions_are_one_of_those_of_the_image_and_tokenized(recipe, tmp_path):
    batches = recipe("captions", epochs=6)
    samples = downloaded(tmp_path / "data")
    tokenizer = Tokenizer.from_file(str(tmp_path / "data" / "tokenizer.json"))
    chosen = {key: Counter() for key in samples}
    for batch in batches:
        for key, caption, ids, mask in zip(
            *(batch[name] for name in ("__key__", "caption", "input_ids", "attention_mask")), strict=True
        ):
            assert caption in (samples[key]["text"], samples[key]["recaption"])
            expected = [*tokenizer.encode(caption).ids[:15], END]
            assert ids.tolist() == expected + [0] * (16 - len(expected))
            assert mask.tolist() == [1] * len(expected) + [0] * (16 - len(expected))
            chosen[key][caption == samples[key]["recaption"]] += 1
    both = [counts for key, counts in chosen.items() if samples[key]["recaption"]]
    assert all(len(counts) == 1 for key, counts in chosen.items() if not samples[key]["recaption"])
    count = sum(sum(counts.values()) for counts in both)
    assert abs(sum(counts[True] for counts in both) / count - 0.6) < 4 * math.sqrt(0.6 * 0.4 / count)
    assert sum(len(counts) == 2 for counts in both) > len(both) / 2  # a new choice in each pass


def test_a_list_of_uids_selects_exactly_its_images(recipe, tmp_path):
    batches = recipe("uids", epochs=3)
    halves = np.load(tmp_path / "data" / "uids.npy")
    listed = {f"{int(high):016x}{int(low):016x}" for high, low in halves}
    expected = {key for key, sample in downloaded(tmp_path / "data").items() if sample["uid"] in listed}
    assert {key for batch in batches for key in batch["__key__"]} == expected
    assert 0 < len(expected) < len(halves)


def test_recaptions_are_those_of_the_same_key(recipe, tmp_path):
    batches = recipe("recaptions", epochs=3)
    data = tmp_path / "data"
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))
    rows = [json.loads(line) for path in data.glob("*.jsonl") for line in path.read_text().splitlines()]
    captions = {row["__key__"]: [*tokenizer.encode(row["caption"]).ids, END] for row in rows}
    samples = downloaded(data)
    mean, std = np.array([[0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]])[
        :, :, None, None
    ]
    for batch in batches:
        for key, pixels, labels, length in zip(
            *(batch[name] for name in ("__key__", "pixel_values", "labels", "lengths")), strict=True
        ):
            assert labels[:length].tolist() == captions[key]
            assert set(labels[length:].tolist()) <= {-100}
            assert_alike(pixels.numpy() * std * 2 + mean * 2 - 1, resized(samples[key]["image"], 32, 32))
    assert {key for batch in batches for key in batch["__key__"]} == set(captions) & set(samples)


def test_buckets_are_those_nearest_to_the_aspect_of_each_image(recipe, tmp_path):
    batches = recipe("buckets", epochs=2)
    samples = downloaded(tmp_path / "data")
    sides = range(16, 193, 16)
    inside = {(w, h) for w in sides for h in sides if w * h <= 96 * 96}
    sizes = [
        (w, h)
        for w, h in inside
        if 0.5 <= w / h <= 2 and not {(w + 16, h), (w, h + 16)} <= inside  # it cannot grow both ways
    ]
    for batch in batches:
        height, width = batch["image"].shape[2:]
        for key, pixels in zip(batch["__key__"], batch["image"], strict=True):
            image = samples[key]["image"]

            def distance(size, image=image):
                return abs(math.log(size[0] / size[1] * image.height / image.width))

            nearest = min(map(distance, sizes))
            assert distance((width, height)) == pytest.approx(nearest)
            assert width * height == max(
                w * h for w, h in sizes if distance((w, h)) == pytest.approx(nearest)
            )
            assert_alike(pixels, covered(image, width, height))


def test_native_aspect_has_all_patches_of_each_image(recipe, tmp_path):
    batches = recipe("native_aspect", epochs=3)
    samples = downloaded(tmp_path / "data")
    for batch in batches:
        assert batch["pixel_attention_mask"].numel() <= 256
        for key, values, mask, shape in zip(
            *(batch[name] for name in ("__key__", "pixel_values", "pixel_attention_mask", "spatial_shapes")),
            strict=True,
        ):
            image = samples[key]["image"]
            rows, columns = shape.tolist()
            assert (rows, columns) == (image.height // 16, image.width // 16)
            pixels = np.asarray(image, np.float32) / 127.5 - 1
            expected = [
                pixels[16 * row : 16 * row + 16, 16 * column : 16 * column + 16].ravel()
                for row in range(rows)
                for column in range(columns)
            ]
            assert_alike(values[mask > 0], np.stack(expected))
            assert not values[mask == 0].any()
    assert {key for batch in batches for key in batch["__key__"]} == set(samples)


def chat_alone(tokenizer, sample):
    """The ids of a chat by `transformers`, and its labels: the last answer, and the token that ends it."""
    described, image, end = sample, "<|image_pad|>", "<|im_end|>"

    def ids_of(messages, **options):
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
        text = text.replace(image, image * described.get("patches", 0))
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    ids, before = (
        ids_of(described["messages"]),
        ids_of(described["messages"][:-1], add_generation_prompt=True),
    )
    last = len(ids) - ids[::-1].index(tokenizer.convert_tokens_to_ids(end))
    assert ids[: len(before)] == before
    return ids, [-100] * len(before) + ids[len(before) : last] + [-100] * (len(ids) - last)


def test_chats_have_the_images_that_they_name_and_the_tokens_of_transformers(recipe, tmp_path):
    transformers = pytest.importorskip("transformers")
    batches = recipe("vlm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "data" / "model")
    chats = {}
    for path in (tmp_path / "data").glob("*.jsonl"):
        for number, line in enumerate(path.read_text().splitlines()):
            chats[f"{path.stem}/{number}"] = json.loads(line)
    keys = [key for batch in batches for key in batch["__key__"]]
    assert len(keys) == 16
    counts = Counter(len(chats[key]["images"]) for key in keys)
    assert counts.keys() == {1, 2, 3}
    mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    for batch in batches:
        for place, key in enumerate(batch["__key__"]):
            ids, labels = chat_alone(tokenizer, {**chats[key], "patches": 4})
            mask = batch["attention_mask"][place].bool()
            assert batch["input_ids"][place][mask].tolist() == ids
            assert batch["labels"][place][mask].tolist() == labels
            images = batch["pictures"][place]
            assert len(images) == len(chats[key]["images"])
            for image, name in zip(images, chats[key]["images"], strict=True):
                pixels = Image.open(tmp_path / "data" / "images" / name).resize(
                    (112, 112), Image.Resampling.BILINEAR
                )
                expected = (np.asarray(pixels, np.float64) / 255 - mean) / std
                assert_alike(image, expected.transpose(2, 0, 1))


def test_packed_chats_with_images_have_the_loss_of_each_chat_alone(recipe, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    batches = recipe("vlm_packing", rank=1, world_size=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "data" / "model")
    samples = {}
    for path in (tmp_path / "data").glob("*.jsonl"):
        for number, line in enumerate(path.read_text().splitlines()):
            chat = json.loads(line)
            samples[chat["id"] if "image" in chat else f"{path.stem}/{number}"] = chat
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), attn_implementation="eager", **sizes)
    model = transformers.LlamaForCausalLM(config).double().eval()

    def loss_of(ids, labels, **options):
        logits = model(ids, **options).logits[0, :-1]
        return torch.nn.functional.cross_entropy(logits, labels[0, 1:], reduction="sum").item()

    assert len(batches) == 4
    for batch in batches:
        ends = batch["cu_seqlens"].tolist()
        number = torch.bucketize(torch.arange(batch["input_ids"].shape[1]), torch.tensor(ends), right=True)
        sees = (number[:, None] == number).tril()  # only the tokens before, of the same chat
        mask = torch.zeros(1, 1, *sees.shape, dtype=torch.float64).masked_fill(
            ~sees, torch.finfo(torch.float64).min
        )
        with torch.no_grad():
            packed = loss_of(
                batch["input_ids"], batch["labels"], attention_mask=mask, position_ids=batch["position_ids"]
            )
            alone = 0.0
            for place, key in enumerate(batch["__key__"]):
                ids, labels = chat_alone(tokenizer, samples[key])
                alone += loss_of(torch.tensor([ids]), torch.tensor([labels]))
                if "image" in samples[key]:
                    image = Image.open(tmp_path / "data" / samples[key]["image"])
                    assert np.array_equal(batch["jpg"][place], np.asarray(image).transpose(2, 0, 1))
        assert packed == pytest.approx(alone, rel=1e-9)
        assert alone > 0


def pitch(samples, rate):
    """The strongest frequency of a tone."""
    size = 1 << 16
    return np.abs(np.fft.rfft(samples * np.hanning(len(samples)), size)).argmax() * rate / size


def test_keywords_are_the_recordings_of_their_folders_at_one_rate_and_a_drawn_speed(recipe, tmp_path):
    batches = recipe("keywords", 2)
    folders = sorted((tmp_path / "data/commands").iterdir())
    words = [folder.name for folder in folders]
    files = {f"{path.parent.name}/{path.stem}": path for each in folders for path in each.iterdir()}
    assert (tmp_path / "data/classes.txt").read_text().split() == words
    assert len(batches) == 2 * (len(files) // 4)
    speeds = []
    for batch in batches:
        (samples, _, lengths), _ = batch["sound"]
        for row, key in enumerate(batch["__key__"]):
            name = "/".join(key.split("/")[-2:])
            assert int(batch["label"][row]) == words.index(name.split("/")[0])
            plain, own = soundfile.read(files[name], dtype="float32", always_2d=True)
            length = int(lengths[row])
            if plain.shape[1] == 1:  # one tone
                speed = pitch(samples[row, 0, :length].numpy(), 16000) / pitch(plain[:, 0], own)
                assert 0.89 < speed < 1.11
                if length < 16000:
                    assert length == pytest.approx(len(plain) * 16000 / own / speed, rel=0.01)
                speeds.append(speed)
    assert len({round(each, 3) for each in speeds}) > len(speeds) // 2


def in_room(sound, impulse):
    """A recording in a room, as a sum of echoes: with its length, its direct sound in place, and its power."""
    delay = int(np.abs(impulse).argmax())
    made = np.convolve(sound.astype(np.float64), impulse.astype(np.float64))[delay : delay + len(sound)]
    return made * np.sqrt(np.square(sound, dtype=np.float64).mean() / np.square(made).mean())


SIZE = 1 << 16
"""Samples of a Fourier transform, more than those of two recordings."""


def is_part_of(residual, noises):
    """Whether a residual is a part of one of some noises, times a factor; of each its samples and its transform."""
    spectrum, energy, count = np.conj(np.fft.rfft(residual, SIZE)), np.square(residual).sum(), len(residual)
    for noise, transform in noises:
        products = np.fft.irfft(transform * spectrum, SIZE)[: len(noise) - count + 1]
        sums = np.concatenate([[0], np.cumsum(np.square(noise))])
        if (products / np.sqrt((sums[count:] - sums[:-count]) * energy)).max() > 0.9999:
            return True
    return False


def test_rooms_are_convolved_and_noise_is_a_part_of_a_recording_at_a_drawn_level(recipe, tmp_path):
    batches = recipe("rooms", 2)
    data = tmp_path / "data"
    words = sorted(path.name for path in (data / "commands").iterdir())
    noises = [soundfile.read(path)[0] for path in sorted((data / "musan").iterdir())]
    noises = [(each, np.fft.rfft(each, SIZE)) for each in noises]
    rirs = [soundfile.read(path, dtype="float32")[0] for path in sorted((data / "rirs").iterdir())]
    impulses = [soxr.resample(each, 48000, 16000, quality="HQ") for each in rirs]
    rooms, levels = Counter(), []
    for batch in batches:
        (samples, _, lengths), rates = batch["sound"]
        assert rates.tolist() == [16000] * 4
        for row, key in enumerate(batch["__key__"]):
            word, name = key.split("/")[-2:]
            assert int(batch["cls"][row]) == words.index(word)
            plain, _ = soundfile.read(data / "commands" / word / f"{name}.wav", dtype="float32")
            sound = samples[row, 0, : int(lengths[row])].numpy().astype(np.float64)
            assert len(sound) == len(plain)
            found = []
            for room, far in enumerate([plain, *(in_room(plain, impulse) for impulse in impulses)]):
                residual = sound - far
                level = 10 * np.log10(np.square(plain).mean() / max(np.square(residual).mean(), 1e-30))
                if level > 80:
                    found.append((room, None))
                elif level < 30 and is_part_of(residual, noises):
                    found.append((room, level))
            [(room, level)] = found
            rooms[room] += 1
            levels.append(level)
    drawn = [level for level in levels if level is not None]
    assert 4.9 < min(drawn) < max(drawn) < 20.1
    assert 0.6 < len(drawn) / len(levels) < 0.95
    assert 0.3 < rooms.pop(0) / len(levels) < 0.7
    assert max(rooms.values()) - min(rooms.values()) <= 1  # each room is used as often as the others


def test_speech_recognition_has_each_segment_of_the_manifests_with_the_ids_of_its_text(recipe, tmp_path):
    batches = recipe("asr")
    tokenizer = Tokenizer.from_file(str(tmp_path / "data/tokenizer.json"))
    wanted = {}
    for shard in range(2):
        with tarfile.open(tmp_path / f"data/audio_{shard}.tar") as tar:
            talks = {each.name: tar.extractfile(each).read() for each in tar}
        for line, text in enumerate((tmp_path / f"data/manifest_{shard}.json").read_text().splitlines()):
            entry = json.loads(text)
            name = entry["audio_filepath"].partition("-sub")[0].removesuffix(".flac")
            samples, own = soundfile.read(io.BytesIO(talks[f"{name}.flac"]), dtype="float32")
            first = math.floor(entry["offset"] * own + 0.5)
            part = samples[first : first + math.floor(entry["duration"] * own + 0.5)]
            sound = part if own == 16000 else soxr.resample(part, own, 16000, quality="HQ")
            wanted[f"manifest_{shard}.json/{line}"] = sound, entry["text"]
    seen = set()
    for batch in batches:
        for row, key in enumerate(batch["__key__"]):
            sound, text = wanted[key]
            assert int(batch["audio_lengths"][row]) == len(sound)
            assert np.array_equal(batch["audio"][0][row, 0, : len(sound)].numpy(), sound)
            assert batch["ids"][row, : int(batch["ids_lengths"][row])].tolist() == tokenizer.encode(text).ids
            assert batch["text"][row] == text
            seen.add(key)
    assert len(seen) > 24


def test_pretraining_on_audio_takes_another_second_of_each_recording_in_each_epoch(recipe, tmp_path):
    batches = recipe("waveforms", 2)
    half = len(batches) // 2
    clips = [dict[str, np.ndarray](), dict[str, np.ndarray]()]
    for number, batch in enumerate(batches):
        clips[number // half] |= zip(batch["__key__"], batch["sound"][0][:, 0].numpy(), strict=True)
    files = {path.stem: path for path in (tmp_path / "data/recordings").iterdir()}
    assert len(files) == len(clips[0]) == len(clips[1]) == 24
    for key, clip in clips[0].items():
        path = files[key.split("/")[-1]]
        assert not np.array_equal(clip, clips[1][key])
        whole, own = soundfile.read(path, dtype="float32", always_2d=True)
        if path.suffix == ".ogg":  # at 16 kHz already
            starts = np.flatnonzero(np.abs(whole[: len(whole) - 15999, 0] - clip[0]) < 1e-6)
            assert any(np.allclose(whole[at : at + 16000, 0], clip, rtol=0, atol=1e-6) for at in starts)
        elif path.suffix == ".wav":
            assert pitch(clip, 16000) == pytest.approx(pitch(whole[:, 0], own), rel=0.01)


def test_enhancement_adds_to_each_recording_the_noise_of_its_row_at_a_drawn_level(recipe, tmp_path):
    batches = recipe("audio", 2)
    with open(tmp_path / "data/pairs.csv") as table:
        rows = {row["id"]: row for row in csv.DictReader(table)}
    levels = [{}, {}]
    for number, batch in enumerate(batches):
        (noisy, rates), (clean, _), lengths = batch["noisy"], batch["clean"], batch["lengths"].tolist()
        assert noisy.shape == clean.shape
        assert clean.shape[2] % 1000 == 0
        assert rates.tolist() == [16000] * 4
        assert batch["mask"].sum(1).tolist() == lengths
        for row, key in enumerate(batch["__key__"]):
            plain, _ = soundfile.read(tmp_path / "data" / rows[key]["clean"], dtype="float32")
            noise, _ = soundfile.read(tmp_path / "data" / rows[key]["noise"], dtype="float32")
            length = lengths[row]
            assert np.array_equal(clean[row, 0, :length].numpy(), plain)
            assert not clean[row, 0, length:].any()
            added = (noisy - clean)[row, 0, :length].numpy()
            level = 10 * math.log10(np.square(plain).mean() / np.square(added).mean())
            assert -0.01 < level < 15.01
            levels[number // 4][key] = level
            around = np.tile(noise, 1 + -(-length // len(noise)))  # shorter noise is repeated
            found = np.fft.irfft(np.fft.rfft(around) * np.fft.rfft(added, len(around)).conj(), len(around))
            start = found[: len(around) - length + 1].argmax()
            part = around[start : start + length]
            assert np.allclose(
                added, part * np.sqrt(np.square(added).mean() / np.square(part).mean()), atol=1e-4
            )
    assert set(levels[0]) == set(levels[1]) == set(rows)
    assert all(abs(level - levels[1][key]) > 1e-3 for key, level in levels[0].items())


def test_batches_by_seconds_have_the_recordings_and_texts_of_the_manifest_but_the_long_ones(recipe, tmp_path):
    batches = recipe("seconds")
    lines = (tmp_path / "data/manifest.json").read_text().splitlines()
    entries = {f"{number:09d}": json.loads(line) for number, line in enumerate(lines)}
    seen = []
    for batch in batches:
        samples, rates = batch["sound"]
        assert set(rates.tolist()) == {16000}
        seconds = samples.shape[2] / 16000
        assert len(samples) * (seconds + seconds**2 / 20) <= 12
        for row, key in enumerate(batch["__key__"]):
            sound, own = soundfile.read(tmp_path / "data" / entries[key]["audio_filepath"], dtype="float32")
            sound = sound if own == 16000 else soxr.resample(sound, own, 16000, quality="HQ")
            assert int(batch["lengths"][row]) == len(sound)
            assert np.array_equal(samples[row, 0, : len(sound)].numpy(), sound)
            assert batch["text"][row] == entries[key]["text"]
            seen.append(key)
    length = {key: entry["duration"] for key, entry in entries.items()}
    assert sorted(seen) == [key for key in entries if length[key] + length[key] ** 2 / 20 <= 12]
    assert len(entries) - 3 < len(seen) < len(entries)


def test_clips_are_four_frames_of_a_second_of_their_film_with_its_caption(recipe, tmp_path):
    av = pytest.importorskip("av")
    batches = recipe("video", 3)
    with open(tmp_path / "data/films.csv") as table:
        rows = {row["id"]: row for row in csv.DictReader(table)}
    starts = []
    for batch in batches:
        for key, clip, text in zip(batch["__key__"], batch["clip"].numpy(), batch["text"], strict=True):
            assert text == rows[key]["caption"]
            with av.open(str(tmp_path / "data" / rows[key]["file"])) as film:
                frames = [frame.to_image().crop((20, 4, 76, 60)) for frame in film.decode(video=0)]
            film = np.stack(frames).astype(int)  # 96 x 64 before the crop, so nothing is resized
            off = np.array([np.abs(film - image).mean(axis=(1, 2, 3)) for image in clip])
            places = off.argmin(1).tolist()
            assert off.min(1).max() < 1
            assert sorted(set(places)) == places
            assert places[-1] - places[0] < 12  # a second
            starts.append((key, places[0]))
    assert len(set(starts)) > len(rows)  # another clip in another epoch
    assert {key for key, _ in starts} == set(rows)


def robot_frames(folder):
    """What each frame of the robot's episodes is, by its index: read with PyAV and pyarrow, video by video."""
    av = pytest.importorskip("av")
    home = folder / "data" / "robot"
    episodes = pq.read_table(home / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    images = {
        path: [frame.to_image().crop((20, 4, 76, 60)) for frame in av.open(str(path)).decode(video=0)]
        for path in home.glob("videos/*/chunk-000/*.mp4")
    }
    for row in pq.read_table(home / "data/chunk-000/file-000.parquet").to_pylist():
        episode, views = episodes[row["episode_index"]], {}
        for camera in ("top", "wrist"):
            key = f"videos/observation.images.{camera}"
            path = home / key / f"chunk-000/file-{episode[f'{key}/file_index']:03d}.mp4"
            first = round(episode[f"{key}/from_timestamp"] * 10)
            window = [first + max(0, row["frame_index"] - 1), first + row["frame_index"]]
            views[camera] = np.stack([np.asarray(images[path][at]) for at in window])
        yield f"file-000/{row['index']}", {**row, **views}


def test_robot_samples_have_the_last_two_frames_of_their_episode(recipe, tmp_path):
    batches = recipe("robots")
    rows = dict(robot_frames(tmp_path))
    seen = [key for batch in batches for key in batch["__key__"]]
    assert len(seen) == len(set(seen)) == len(rows)
    for batch in batches:
        for at, key in enumerate(batch["__key__"]):
            assert np.array_equal(batch["state"][at].numpy(), np.float32(rows[key]["observation.state"]))
            assert np.array_equal(batch["action"][at].numpy(), np.float32(rows[key]["action"]))
            for camera in ("top", "wrist"):
                assert np.abs(batch[camera][at].numpy().astype(int) - rows[key][camera]).max() <= 1


def test_robot_samples_are_mixed_with_tars_and_resumed_elsewhere(recipe, tmp_path):
    """The same bytes in the same order, whatever reads them and wherever the run was interrupted."""
    recipe("robots")
    with wdspec.ShardWriter(str(tmp_path / "data/text-%02d.tar"), maxcount=8, verbose=0) as writer:
        for number in range(32):
            writer.write({"__key__": f"text{number:04d}", "txt": f"text {number}"})
    spec = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    lookup = spec["dataset"][0]["lookup"]
    lookup["on"] = lookup.pop(True)  # `on` in YAML 1.1
    text = {
        "name": "text",
        "shards": str(tmp_path / "data/text-*.tar"),
        "weight": 1,
        "decode": {"txt": "txt"},
    }
    spec["dataset"] = [{**spec["dataset"][0], "weight": 2}, text]
    spec |= {"fields": "top wrist state txt", "epoch": 48, "batch": 1, "elastic": {"ranks": 1, "workers": 2}}
    spec["defaults"] = {"missing": "none"}

    def digests(samples):
        for batch in samples:
            values = [batch[name][0] for name in ("__source__", "__key__", "top", "wrist", "txt")]
            values = [value.numpy().tobytes() if hasattr(value, "numpy") else repr(value) for value in values]
            yield hashlib.sha256(repr(values).encode()).hexdigest()

    with wdspec.loader(spec, num_workers=0) as loader:
        expected = list(digests(loader))
        assert len(set(expected)) == 48
    with wdspec.loader(spec, num_workers=0) as loader:
        first = list(digests(islice(loader, 17)))
        state = json.loads(json.dumps(loader.state_dict()))
    with wdspec.loader(spec, num_workers=1) as loader:
        loader.load_state_dict(state)
        rest = list(digests(loader))
    assert first == expected[:17]
    assert rest == expected[17:]


def test_pairs_are_those_of_the_tables_with_one_crop_in_batches_of_one_collection(recipe, tmp_path):
    batches = recipe("pairs")
    tables = {}
    for name in ("photos", "sketches"):
        with open(tmp_path / f"data/{name}.csv") as table:
            tables[name] = [row["id"] for row in csv.DictReader(table)]
    seen = Counter()
    for anchor, positive, keys in batches:
        assert any(set(keys) <= set(ids) for ids in tables.values())
        off = anchor.numpy().astype(int) + positive.numpy() - 255  # the positive is a negative of the anchor
        assert np.abs(off).mean(axis=(1, 2, 3)).max() < 2
        seen.update(keys)
    assert seen == Counter([key for ids in tables.values() for key in ids])


def test_scores_are_those_of_the_row_of_each_image(recipe, tmp_path):
    batches = recipe("scores", 2)
    with open(tmp_path / "data/scores.csv") as table:
        rows = {row["image"]: row for row in csv.DictReader(table)}
    orders = [[key for batch in batches[at : at + 4] for key in batch["__key__"]] for at in (0, 4)]
    assert orders[0] != orders[1]
    assert [sorted(order) for order in orders] == [sorted(rows)] * 2
    for batch in batches:
        for key, pixels, score, tag in zip(
            *(batch[name] for name in ("__key__", "image", "score", "tag")), strict=True
        ):
            assert (float(score), tag) == (float(rows[key]["score"]), rows[key]["tag"])
            image = Image.open(tmp_path / f"data/photos/{key}.jpg")
            assert_alike(2 * pixels.numpy() - 1, resized(image, 64, 64))


def in_crop(boxes, pixels):
    """Boxes (left, top, width, height) where the pixels of a crop are, whose colors are their places in the image."""
    corners = np.stack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)  # (boxes, 2 corners, x and y)
    places = []
    for axis, size in enumerate((128, 96)):
        of_pixels = (
            pixels[axis].mean(axis)[8:-8] / 2 + 0.5
        )  # red is twice the column, and green twice the row
        slope, start = np.polyfit(np.arange(8, size - 8) + 0.5, of_pixels, 1)
        places.append(np.sort((corners[..., axis] - start) / slope, axis=1).clip(0, size))
    (left, right), (top, bottom) = (each.T for each in places)
    return np.stack([left, top, right - left, bottom - top], 1)


def test_detection_has_the_boxes_of_coco_where_they_are_in_the_crop_of_each_image(recipe, tmp_path):
    batches = recipe("detection", 2, split="train")
    whole = [key for batch in recipe("detection", split="val") for key in batch["__key__"]]
    content = json.loads((tmp_path / "data/instances.json").read_text())
    numbers = {image["file_name"].removesuffix(".jpg"): image["id"] for image in content["images"]}
    assert any(each["iscrowd"] for each in content["annotations"])
    seen, dropped, flipped = Counter(), 0, set()
    for batch in batches:
        for key, pixels, boxes, kept, labels in zip(
            *(batch[name] for name in ("__key__", "image", "boxes", "kept", "all_labels")), strict=True
        ):
            own = [each for each in content["annotations"] if each["image_id"] == numbers[key]]
            own = [each for each in own if not each["iscrowd"]]
            assert labels.tolist() == [each["category_id"] for each in own]
            expected = in_crop(np.array([each["bbox"] for each in own]).reshape(-1, 4), pixels.numpy())
            for place, box in zip(kept.tolist(), boxes, strict=True):
                assert np.abs(box - expected[place]).max() < 2
            out = sorted({*range(len(own))} - {*kept.tolist()})
            assert all(min(expected[place][2:]) < 2 for place in out)
            dropped += len(out)
            flipped.add(bool(pixels[0].float().mean(0).diff().mean() < 0))
            seen[key] += 1
    assert seen == Counter(dict.fromkeys({*numbers} - {*whole}, 2))
    assert len(whole) == 4
    assert dropped
    assert flipped == {True, False}


def test_a_filtered_dataset_has_exactly_the_images_that_plain_python_keeps(recipe, tmp_path):
    batches = {split: recipe("filtering", split=split) for split in ("train", "val")}
    bad = set((tmp_path / "data/bad.txt").read_text().split())
    samples = downloaded(tmp_path / "data")
    good = {
        key: sample["user"]
        for key, sample in samples.items()
        if sample["score"] >= 0.4 and sample["image"].width >= 70 and key not in bad
    }
    assert len(good) < len({key for key in samples if samples[key]["score"] >= 0.4} - bad)
    keys = {split: {key for batch in found for key in batch["__key__"]} for split, found in batches.items()}
    users = {split: {good[key] for key in found} for split, found in keys.items()}
    assert keys["train"] | keys["val"] == set(good)
    assert not users["train"] & users["val"]
    assert len(users["train"]) > len(users["val"]) > 0
    real = [
        key
        for batch in batches["val"]
        for key, is_real in zip(batch["__key__"], batch["__mask__"], strict=True)
        if is_real
    ]
    assert sorted(real) == sorted(keys["val"])  # each once
    for batch in batches["val"]:
        for key, pixels, about in zip(batch["__key__"], batch["image"], batch["about"], strict=True):
            assert about["score"] == samples[key]["score"]
            image = samples[key]["image"]
            wide, high = (int(73 * side / min(image.size)) for side in image.size)
            left, top = round((wide - 64) / 2), round((high - 64) / 2)
            expected = resized(image, wide, high)[:, top : top + 64, left : left + 64]
            assert_alike(2 * pixels.numpy() - 1, expected)


def test_parquet_and_folders_are_mixed_with_the_labels_and_pixels_of_their_files(recipe, tmp_path):
    batches = recipe("tables", overrides=["defaults.decode=torchrgb+resize=32x32"])
    expected = {}
    for path in sorted((tmp_path / "data").glob("*.parquet")):
        for number, row in enumerate(pq.read_table(path).to_pylist()):
            expected[f"{path.stem}/{number}"] = io.BytesIO(row["image"]["bytes"]), row["label"]
    for number, folder in enumerate(sorted((tmp_path / "data/photos").iterdir())):
        for path in folder.iterdir():
            expected[f"{folder.name}/{path.stem}"] = path, number
    for batch in batches:
        assert Counter(batch["__source__"]) == {"scans": 6, "photos": 2}
        for key, pixels, label in zip(batch["__key__"], batch["image"], batch["label"], strict=True):
            file, number = expected[key]
            assert label == number
            assert_alike(2 * pixels.numpy() - 1, resized(Image.open(file), 32, 32))
