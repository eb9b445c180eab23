"""The files of an entry of `specs.yaml`; README.md describes how `files` names them."""

import io
import itertools
import json
import re
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import soundfile
from PIL import Image

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*)\}")
_IMAGES = {"jpg": "JPEG", "tif": "TIFF"}
"""Suffix -> Pillow's name of the format, where that is not the suffix in capitals."""


def write_files(folder, files):
    """Creates the shards and other files of an entry in `folder`."""
    for path, content in files.items():
        if path == "other":
            for name, text in content.items():
                _place(folder, name).write_text(text, encoding="utf-8")
            continue
        for name, part in expand(path):
            _write_shard(_place(folder, name), part, content)


def expand(path):
    """Each shard that a path stands for, with what its braces stand for there."""
    choices, end, between = [], 0, []
    for braces in _BRACES.finditer(path):
        first, last, listed = braces.groups()
        numbers = first and [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
        choices.append(numbers or listed.split(","))
        between.append(path[end : braces.start()])
        end = braces.end()
    for chosen in itertools.product(*choices):
        yield "".join(itertools.chain(*zip(between, chosen, strict=True))) + path[end:], "".join(chosen)


def _place(folder, name):
    place = Path(folder) / name
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _write_shard(place, part, content):
    numbers = np.random.default_rng(zlib.crc32(place.name.encode()))
    if isinstance(content, dict):
        numbers.integers(content["below"], size=content["tokens"]).astype(content["dtype"]).tofile(place)
        return
    samples = list(_samples(part, content))
    if place.suffix == ".parquet":
        rows = [{field: _cell(value, numbers) for field, value in sample.items()} for sample in samples]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), place)
    elif place.suffix == ".jsonl":
        place.write_text("".join(json.dumps(sample) + "\n" for sample in samples), encoding="utf-8")
    else:
        with tarfile.open(place, "w:gz" if place.suffix in (".gz", ".tgz") else "w") as tar:
            for sample in samples:
                key = sample.pop("__key__")
                for field, value in sample.items():
                    data = _member(value, field.rpartition(".")[2], numbers)
                    member = tarfile.TarInfo(f"{key}.{field}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def _samples(part, items):
    """The samples of a shard, with `{n}` and `{s}` replaced in all text."""
    number = itertools.count()
    for item in items:
        fields = {field: value for field, value in item.items() if field != "__count__"}
        for _ in range(item.get("__count__", 1)):
            yield _filled(fields, f"{next(number):04d}", part)


def _filled(value, number, part):
    if isinstance(value, str):
        return value.replace("{n}", number).replace("{s}", part)
    if isinstance(value, dict):
        return {key: _filled(each, number, part) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, number, part) for each in value]
    return value


def _member(value, suffix, numbers):
    """The bytes of a file in a tar."""
    if _is_media(value):
        return _media(value, suffix, numbers)
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _cell(value, numbers):
    """A value of a row in Parquet."""
    if _is_media(value):
        suffix = "png" if "image" in value else "wav"
        return {"bytes": _media(value, suffix, numbers), "path": f"{numbers.integers(1 << 32)}.{suffix}"}
    return value


def _is_media(value):
    return isinstance(value, dict) and bool({"image", "audio"} & set(value))


def _media(value, suffix, numbers):
    file = io.BytesIO()
    if "audio" in value:
        noise = numbers.uniform(-0.5, 0.5, int(value["audio"] * value["rate"]))
        soundfile.write(file, noise, value["rate"], format=suffix)
    else:
        mode, size = value.get("mode", "RGB"), tuple(value["image"])
        pixels = numbers.bytes(len(Image.new(mode, size).tobytes()))
        Image.frombytes(mode, size, pixels).save(file, _IMAGES.get(suffix, suffix.upper()))
    return file.getvalue()
