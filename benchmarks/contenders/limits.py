"""Upper limits for all loaders: only reading the files, only decoding images, the speed of the line."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.contenders.shared import (
    Contender,
    Counts,
    cropped_by_torch,
    members,
    normalized,
    of_kinds,
    sound,
)
from benchmarks.places import RATE
from benchmarks.rows import BATCH, ROWS, SIDE, Row
from benchmarks.samples import files_of, samples_in


def bytes_of_sample(row: Row, folder: Path) -> float:
    """Of the tars, by their number of samples."""
    return sum(map(os.path.getsize, files_of(folder, row.data))) / samples_in(folder, row.data)


def cat(row: Row, folder: Path) -> Counts:
    """The same files in blocks of a megabyte."""
    size, read = bytes_of_sample(row, folder), 0.0
    for path in cycle(files_of(folder, row.data)):
        with open(path, "rb", buffering=0) as file:
            while block := file.read(2**20):
                read += len(block) / size
                yield int(read)
                read -= int(read)


def line(row: Row, folder: Path) -> Counts:
    """As many samples as the line lets through, by the clock."""
    seconds, started, gone = bytes_of_sample(row, folder) / RATE, time.perf_counter(), 0
    while True:
        time.sleep(max(seconds, 0.01))
        due = int((time.perf_counter() - started) / seconds)
        yield due - gone
        gone = due


def boto(row: Row, folder: Path) -> Counts:
    """Objects one after the other, as bytes."""
    import boto3

    client, size, read = boto3.client("s3"), bytes_of_sample(row, folder), 0.0
    for name in cycle(os.path.basename(path) for path in files_of(folder, row.data)):
        read += len(client.get_object(Bucket="shards", Key=name)["Body"].read()) / size
        yield int(read)
        read -= int(read)


def bare_sound(row: Row, folder: Path) -> Counts:
    """soundfile on bytes that are in memory."""
    files = [sample["flac"] for sample, _ in zip(members(row, folder), range(BATCH), strict=False)]
    for data in cycle(files):
        sound(data)
        yield 1


def bare_crops(row: Row, folder: Path) -> Counts:
    """simplejpeg and torch's kernel into one batch, in one process or in as many as there are workers."""
    from multiprocessing import Pipe, Process

    files = [sample["jpg"] for sample, _ in zip(members(row, folder), range(BATCH), strict=False)]
    if not row.workers:
        return bare_batches(files, row.floats)
    ends, senders = zip(*(Pipe(duplex=False) for _ in range(row.workers)), strict=True)
    for sender in senders:
        Process(target=send_crops, args=(files, row.floats, sender), daemon=True).start()
    return received(ends)


def received(ends: Any) -> Iterator[int]:
    from multiprocessing.connection import wait

    while True:
        for end in wait(ends):
            yield end.recv()  # type: ignore[union-attr]  # they are connections


def bare_batches(files: list[bytes], floats: bool) -> Iterator[int]:
    import numpy as np
    import torch

    torch.set_num_threads(1)
    shape, dtype = ((3, SIDE, SIDE), np.float32) if floats else ((SIDE, SIDE, 3), np.uint8)
    batch = np.empty((BATCH, *shape), dtype)
    while True:
        for row, data in enumerate(files):
            values = cropped_by_torch(data)
            batch[row] = normalized(values) if floats else values
            if row == len(files) - 1 or (row + 1) % BATCH == 0:
                yield row + 1


def send_crops(files: list[bytes], floats: bool, sender: Any) -> None:
    for count in bare_batches(files, floats):
        sender.send(count)


LIMITS = {
    "boto3, objects whole": Contender("", {name: boto for name, row in ROWS.items() if row.place == "s3"}),
    "limit: cat": Contender("", of_kinds(raw=cat)),
    "limit: bare decoding": Contender("", of_kinds(crop=bare_crops, audio=bare_sound)),
    "limit: the line": Contender(
        "", {name: line for name, row in ROWS.items() if row.place == "http" and row.kind == "far"}
    ),
}
