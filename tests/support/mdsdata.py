"""Samples with a value of each encoding of MDS: what the files in `tests/formats/mds` were made of.

`python tests/support/mdsdata.py FOLDER` makes them, with mosaicml-streaming 0.13.0 installed (with its libraries for
compression; `pip install --no-deps mosaicml-streaming zstd Brotli python-snappy cramjam xxhash numpy pillow` will do).
"""

import json
import pickle
import struct
import sys
import types
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import numpy as np

COLUMNS = {
    "text": "str",
    "blob": "bytes",
    "number": "int",
    "ids": "ndarray",
    "vector": "ndarray:float32",
    "grid": "ndarray:int16:2,3",
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")},
    **{name: name for name in ("float16", "float32", "float64", "str_int", "str_float", "str_decimal")},
    "raw": "pil",
    "photo": "jpeg",
    "drawing": "png",
    "photos": "jpeg_array",
    "more": "list[jpeg]",
    "drawings": "list[png]",
    "raws": "list[pil]",
    "meta": "json",
    "thing": "pkl",
}
COMPRESSIONS = {"zstd": "zstd:3", "gz": "gz", "bz2": "bz2", "br": "br", "snappy": "snappy"}
MODES = ("RGB", "L", "RGBA", "1", "I;16", "CMYK")


def pixels(row, mode="RGB"):
    """An image as an array: 5 wide, 4 high."""
    bands = {"RGB": (3,), "RGBA": (4,), "CMYK": (4,)}.get(mode, ())
    values = (np.arange(20 * (bands[0] if bands else 1)) * 7 + row).reshape(4, 5, *bands)
    return (values % 2 == 0) if mode == "1" else values.astype("<u2" if mode == "I;16" else "u1")


def value(name, row):
    """The value of a column in a row, without images."""
    kind = COLUMNS[name]
    if kind.startswith(("int", "uint", "float")):
        sign = -1 if row % 2 and not kind.startswith("u") else 1
        return sign * (row / 2 if kind.startswith("float") else row * 11)
    return {
        "text": lambda: f"text {row} ä" * (row % 3),
        "blob": lambda: bytes([row]) * row,
        "ids": lambda: np.arange(row + 1, dtype=("u1", "i2", "f4", "i8")[row % 4]).reshape(1, -1),
        "vector": lambda: np.linspace(0, row, row + 1, dtype="f4"),
        "grid": lambda: np.full((2, 3), row, "i2"),
        "str_int": lambda: 10**30 + row,
        "str_float": lambda: row / 3,
        "str_decimal": lambda: Decimal(row) / 8,
        "meta": lambda: {"row": row, "list": [None, True, "x"]},
        "thing": lambda: ("a", row),
    }[name]()  # fmt: skip


def _image(row, mode):
    from PIL import Image

    array = pixels(row, mode)
    height, width = array.shape[:2]
    data = np.packbits(array, axis=1).tobytes() if mode == "1" else array.tobytes()
    return Image.frombytes(mode, (width, height), data)


def _jpeg(row):
    import io

    file = io.BytesIO()
    _image(row, "RGB").save(file, "JPEG", quality=95)
    return file.getvalue()


def sample(row):
    """A sample as the writer takes it."""
    images = {
        "raw": lambda: _image(row, MODES[row % len(MODES)]),
        "photo": lambda: _image(row, "RGB"),
        "drawing": lambda: _image(row, "RGB"),
        "photos": lambda: [_jpeg(row + n) for n in range(1 + row % 2)],
        "more": lambda: [_image(row + n, "RGB") for n in range(row % 3)],
        "drawings": lambda: [_image(row + n, "L") for n in range(2)],
        "raws": lambda: [_image(row + n, "RGB") for n in range(row % 2)],
    }
    return {name: images[name]() if name in images else value(name, row) for name in COLUMNS}


def plain_shard(columns, rows):
    """The bytes of a shard, written from the description of the format: `rows` have the bytes of each value."""
    sizes = {"int": 8, "int64": 8, "uint8": 1, "float32": 4}
    names = sorted(columns)
    text = json.dumps(
        {
            "version": 2,
            "format": "mds",
            "compression": None,
            "hashes": [],
            "size_limit": 1 << 26,
            "column_names": names,
            "column_encodings": [columns[name] for name in names],
            "column_sizes": [sizes.get(columns[name]) for name in names],
        },
        sort_keys=True,
    ).encode()
    samples = [
        b"".join(struct.pack("<I", len(row[name])) for name in names if columns[name] not in sizes)
        + b"".join(row[name] for name in names)
        for row in rows
    ]
    ends = np.cumsum([0, *map(len, samples)]) + 4 + 4 * (len(samples) + 1) + len(text)
    return b"".join([struct.pack("<I", len(samples)), ends.astype("<u4").tobytes(), text, *samples])


def index_of(names, **more):
    """The text of an `index.json` that lists shards."""
    return json.dumps(
        {
            "version": 2,
            "shards": [
                {
                    "format": "mds",
                    "version": 2,
                    "samples": 1,
                    "zip_data": None,
                    **more,
                    "raw_data": {"basename": name},
                }
                for name in names
            ],
        }
    )


def show(value, encoding):
    """A value of a column as JSON, the same for both libraries: images as the hash of their pixels."""
    import hashlib
    import io

    from PIL import Image

    if isinstance(value, list) and encoding != "json":
        return [show(each, encoding.removesuffix("]").rpartition("[")[2]) for each in value]
    if encoding in ("pil", "jpeg", "png", "jpeg_array", "jpegarray"):
        image = Image.open(io.BytesIO(value)) if isinstance(value, bytes) else value
        return [image.mode, list(image.size), hashlib.sha256(image.tobytes()).hexdigest()]
    if isinstance(value, np.ndarray):
        return [value.dtype.name, value.tolist()]
    if isinstance(value, np.generic):
        return value.item()
    if encoding == "pkl":
        return repr(pickle.loads(value) if isinstance(value, bytes) else value)
    return value.hex() if isinstance(value, bytes) else str(value) if encoding == "str_decimal" else value


def print_values(folder):
    """Print what the reader of the library gives, a line for each sample."""
    import_writer()
    from streaming.base.format.mds.reader import MDSReader

    for shard in json.loads((Path(folder) / "index.json").read_text())["shards"]:
        reader = MDSReader.from_json(folder, "", shard)
        for row in range(reader.samples):
            sample = reader.decode_sample(reader.get_sample_data(row))
            print(json.dumps({name: show(sample[name], COLUMNS[name]) for name in COLUMNS}))


def import_writer():
    """Import the writer alone: the top level of the library imports the clients of every cloud."""
    spec = find_spec("streaming")
    for name, folder in (("streaming", ""), ("streaming.base", "base")):
        module = types.ModuleType(name)
        module.__path__ = [str(Path(spec.submodule_search_locations[0]) / folder)]
        sys.modules[name] = module
    from streaming.base.format.mds.writer import MDSWriter

    return MDSWriter


def make(folder):
    """Write two shards with all encodings, and small ones with each compression."""
    writer = import_writer()
    with writer(out=str(folder / "all"), columns=COLUMNS, size_limit=20_000) as out:
        for row in range(12):
            out.write(sample(row))
    for name, compression in COMPRESSIONS.items():
        columns = {"text": "str", "number": "int"}
        with writer(out=str(folder / name), columns=columns, compression=compression, size_limit=400) as out:
            for row in range(20):
                out.write({"text": f"text {row}", "number": row})


if __name__ == "__main__":
    make(Path(sys.argv[1]))
