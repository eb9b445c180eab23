"""Token files from real servers: each byte is requested once, and a resumed run requests the rest of a file."""

import re
import struct
import time

import numpy as np
import pytest
from servers.stores import put, use

import wdspec
from wdspec.testing import assert_resumable

LENGTH, SAMPLES = 8192, 1500  # a file is larger than what the buffers of a connection hold
SIZE = 2 * LENGTH * SAMPLES
IDS = np.random.default_rng(0).integers(0, 50_000, LENGTH * SAMPLES, "u2")


def spec_of(shards):
    """The samples of the first of four files; the next ones are fetched ahead."""
    options = {"length": LENGTH, "dtype": "uint16"}
    source = {"name": "a", "shards": shards, "order": "sequential", "shuffle": 0, "tokens": options}
    return {"dataset": [source], "epoch": SAMPLES}


def sent(nginx, since, count=1):
    """The bytes that the server has sent of the first file, for each of `count` requests.

    nginx logs a request when it ends, and one that is cut off when nginx notices.
    """
    while len(lines := [line for line in nginx.requests()[since:] if "ids-0" in line]) < count:
        time.sleep(0.01)
    return [int(re.search(r'" 20[06] (\d+) ', line)[1]) for line in lines]


@pytest.fixture(scope="module")
def shards(nginx):
    for number in range(4):
        (nginx.root / f"ids-{number}.bin").write_bytes(IDS.tobytes())
    return f"{nginx.url}/ids-{{0..3}}.bin"


def test_a_file_is_requested_once_and_read_as_numpy_reads_it(nginx, shards):
    before = len(nginx.requests())
    found = np.concatenate([sample["tokens"] for sample in wdspec.compile(spec_of(shards))])
    assert np.array_equal(found, IDS)
    assert sum(sent(nginx, before)) == SIZE


@pytest.mark.parametrize("place", [0.5, 0.9])
def test_a_resumed_run_requests_the_rest_of_the_file(nginx, shards, place):
    """The request that opens the file is cut off after what the connection holds."""
    start, dataset = len(nginx.requests()), wdspec.compile(spec_of(shards))
    samples = iter(dataset)
    for _ in range(int(SAMPLES * place)):
        next(samples)
    state = dataset.state_dict()
    dataset.close()
    assert sent(nginx, start)
    before, dataset = len(nginx.requests()), wdspec.compile(spec_of(shards))
    dataset.load_state_dict(state)
    rest = np.concatenate([sample["tokens"] for sample in dataset])
    assert np.array_equal(rest, IDS[int(SAMPLES * place) * LENGTH :])
    opened, requested = sent(nginx, before, 2)
    assert opened < SIZE
    assert requested == SIZE - int(SAMPLES * place) * 2 * LENGTH


def test_a_pass_of_remote_files_has_each_sample_once(shards):
    spec = {**spec_of(shards), "epoch": "pass", "batch": 100}
    with wdspec.loader(spec, num_workers=0) as loader:
        keys = [key for batch in loader for key in batch["__key__"]]
    assert len(set(keys)) == 4 * SAMPLES


def test_files_of_megatron_are_the_same_over_http_and_with_a_rewrite_rule(nginx, tmp_path):
    documents = [IDS[start : start + 30 + start % 7] for start in range(0, 3000, 50)]
    lengths = np.array([len(each) for each in documents], "<i4")
    starts = np.cumsum([0, *2 * lengths[:-1].astype("<i8")]).astype("<i8")
    numbers = np.arange(len(documents) + 1, dtype="<i8")
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(documents), len(documents) + 1)
    for folder in (nginx.root, tmp_path):
        (folder / "mega.bin").write_bytes(b"".join(each.astype("<u2").tobytes() for each in documents))
        (folder / "mega.idx").write_bytes(head + lengths.tobytes() + starts.tobytes() + numbers.tobytes())

    def read(shards, **more):
        source = {"name": "m", "shards": shards, "order": "sequential", "shuffle": 0, "tokens": {"length": 8}}
        with wdspec.loader(
            {"dataset": [source], "epoch": "pass", "batch": 5, **more}, num_workers=0
        ) as loader:
            return [row.tolist() for batch in loader for row in batch["tokens"]]

    local = read(str(tmp_path / "mega.bin"))
    assert local[0] == IDS[:8].tolist()
    assert read(f"{nginx.url}/mega.bin") == local
    assert read("/moved/mega.bin", rewrite=[{"from": "/moved/", "to": f"{tmp_path}/"}]) == local


def test_s3_delivers_the_same_samples_and_resumes_exactly(s3, monkeypatch):
    use(s3, monkeypatch)
    for number in range(2):
        put(s3, f"ids-{number}.bin", IDS[: 20 * LENGTH].tobytes())
    spec = {**spec_of(f"{s3.root}ids-{{0..1}}.bin"), "batch": 10, "epoch": 40}
    with wdspec.loader(spec, num_workers=0) as loader:
        found = np.concatenate([batch["tokens"].numpy().ravel() for batch in loader])
    assert np.array_equal(found, np.tile(IDS[: 20 * LENGTH], 2))
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0))
