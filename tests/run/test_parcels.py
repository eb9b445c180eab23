"""What workers send: unchanged values, small tensors without shared memory, several cheap batches at a time."""

import io
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from shardmaking import keys, reference, write_shard, write_source

import wdspec
from wdspec.fields.memory import MOST_BLOCKS, current
from wdspec.read.padding import Padded
from wdspec.run import tasks
from wdspec.run.parcels import INLINE, Bundle, Parcel, Ring, _received, forget_sender, ring
from wdspec.run.tasks import Delivery, Pace
from wdspec.spec.load import load

BATCHES = 60


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return load(
        {
            "dataset": [{"name": "a", "shards": write_source(folder, "a", 4, 20), "shuffle": 16}],
            "batch": 3,
            "epoch": {"batches": BATCHES},
        }
    )


@pytest.fixture(autouse=True)
def fresh():
    """No blocks of earlier tests, whose sender and receiver is this process."""
    ring.value = Ring()
    forget_sender(os.getpid())


def sent(value):
    """A value as it arrives."""
    return pickle.loads(pickle.dumps(Parcel(value))).open()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3),
        torch.tensor(2.5),
        torch.zeros(0, 3),
        torch.tensor([True, False]),
        torch.tensor([1.5, -2], dtype=torch.bfloat16),
        torch.tensor([1 + 2j]),
        torch.tensor([1 + 2j]).conj(),
        torch.arange(12).reshape(3, 4).t(),
        torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.ones(3, requires_grad=True),
        torch.arange(5).to_sparse(),
        torch.ones(INLINE // 4),
    ],
)
def test_a_tensor_arrives_unchanged(tensor):
    found = sent({"x": tensor})["x"]
    assert type(found) is torch.Tensor
    assert (found.dtype, found.shape, found.layout) == (tensor.dtype, tensor.shape, tensor.layout)
    assert found.requires_grad == tensor.requires_grad
    if tensor.layout is torch.strided:
        assert found.stride() == tensor.stride()
        found.detach().zero_()  # it can be written to
    else:
        assert torch.equal(found.to_dense(), tensor.to_dense())
    if not tensor.requires_grad and tensor.layout is torch.strided:
        assert torch.equal(sent(tensor), tensor)


def test_small_tensors_are_copied_and_large_ones_are_shared():
    whole = torch.arange(1000)
    small, large = sent([whole[:10], torch.zeros(INLINE)])
    assert not small.is_shared()
    assert small.untyped_storage().nbytes() == 80
    assert next(iter(_received.value.blocks.values())).size >= large.nbytes


@pytest.mark.parametrize("count", [1, 3, INLINE])
def test_other_views_keep_their_values(count):
    conjugate = torch.full((count,), 1 + 2j).conj()
    assert torch.equal(sent(torch.arange(4)[::2][:1]), torch.tensor([0]))
    for view in (conjugate, conjugate.imag):
        assert torch.equal(sent(view), view.clone().resolve_conj().resolve_neg())


def test_shared_memory_is_opened_on_arrival():
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    parcel = pickle.loads(pickle.dumps(Parcel(torch.zeros(INLINE))))
    assert parcel.open() is parcel.open()
    before = descriptors()
    for _ in range(20):
        pickle.loads(
            pickle.dumps(Parcel(torch.zeros(INLINE)))
        )  # and thrown away, as by an iteration that is left
    assert descriptors() < before + 10  # what else the process opens meanwhile is fewer


def test_identity_of_objects_is_preserved():
    tensor = torch.ones(3)
    first, second = sent([tensor, tensor])
    assert first is second
    padded = sent(Padded(tensor, tensor > 0, tensor.long()))
    assert type(padded) is Padded
    array = sent(np.arange(3, dtype=">i2"))
    assert array.tolist() == [0, 1, 2]
    assert array.dtype == ">i2"


def test_the_size_of_a_parcel_includes_shared_memory():
    assert 1000 < Parcel(torch.zeros(1000, dtype=torch.uint8)).size < 2000
    assert INLINE < Parcel(torch.zeros(INLINE, dtype=torch.uint8)).size < INLINE + 2000


def paced(*deliveries):
    pace = Pace()
    return [pace.note(delivery) or pace.steps for delivery in deliveries]


def parcel_of(size):
    parcel = Parcel(0)
    parcel.size = size
    return parcel


def test_cheap_batches_are_bundled_and_expensive_ones_are_not():
    cheap = Delivery([parcel_of(100)], seconds=1e-6)
    assert paced(*[cheap] * 10) == [2, 4, 8, 16, 32, 64, 128, 256, 256, 256]
    assert paced(*[Delivery([parcel_of(100)], seconds=1.0)] * 3) == [1, 1, 1]
    assert paced(*[Delivery([parcel_of(10**7)], seconds=1e-6)] * 3) == [1, 1, 1]
    assert paced(*[Delivery([([], {})], seconds=1e-6, opened_size=10**7)] * 3) == [1, 1, 1], (
        "opened and pinned before"
    )
    four = Delivery([parcel_of(tasks.BYTES // 4)] * 2, seconds=1e-6)
    assert paced(*[four] * 4)[-1] == 4
    assert paced(Delivery([], seconds=1.0), cheap) == [1, 2]


@pytest.mark.parametrize("workers", [1, 3])
def test_bundled_batches_equal_single_ones(spec, workers, monkeypatch):
    monkeypatch.setattr(tasks, "SECONDS", 10)
    found = []
    with wdspec.loader(spec, num_workers=workers) as loader:
        for batch in loader:
            found.append(batch)
            if len(found) in (7, 31):
                break
        assert len(found) == 7
        found += itertools.islice(loader, 24)
        state = loader.state_dict()
        assert loader.stream.steps._tasks.pace.steps > 4
    with wdspec.loader(spec, num_workers=workers) as loader:
        loader.load_state_dict(state)
        found += loader
    assert keys(found) == reference(spec, 1, workers, 0, BATCHES)


def test_the_bytes_of_bundled_batches_are_in_shared_memory():
    texts = [["text " * 40_000, number, torch.arange(number)] for number in range(6)]
    for _ in range(3):
        bundle = Bundle(5 * INLINE)
        parcels = [Parcel(text, bundle) for text in texts]
        large = Parcel(torch.zeros(INLINE, dtype=torch.uint8), bundle)
        sending = Delivery([*parcels, large], lease=bundle.lend())
        sizes = [parcel.size for parcel in parcels]
        data = pickle.dumps(sending)
        assert len(data) < 10_000
        arrived = pickle.loads(data)
        del sending, parcels, large, bundle
        assert [parcel.size for parcel in arrived.parcels[:-1]] == sizes
        for (text, number, tensor), parcel in zip(texts, arrived.parcels, strict=False):
            found = parcel.open()
            assert found[:2] == [text, number]
            assert torch.equal(found[2], tensor)
        assert arrived.parcels[-1].open().sum() == 0
        del arrived, parcel, found
    assert len(ring.value.blocks) == 2  # both were used again
    assert Bundle(1000).lend() is None


def test_large_texts_are_the_same_with_workers(tmp_path):
    samples = [(f"{i}", {"txt": b"%d " % i * 4000}) for i in range(40)]
    write_shard(tmp_path / "a.tar", samples)
    spec = {"dataset": [{"shards": f"{tmp_path}/a.tar"}], "batch": 8, "epoch": 320}
    found = []
    for workers in (0, 2):
        with wdspec.loader({**spec, "elastic": {"ranks": 1, "workers": 2}}, num_workers=workers) as loader:
            found.append(list(loader))
    assert found[0] == found[1]


def test_parcels_use_the_pipe_if_shared_memory_is_full(monkeypatch):
    def make(self, size):
        raise RuntimeError("unable to allocate shared memory(shm) for file")

    monkeypatch.setattr(Ring, "make", make)
    bundle = Bundle(INLINE)
    parcels = [Parcel(["text " * 40_000, number], bundle) for number in range(3)]
    assert bundle.lend() is None
    arrived = pickle.loads(pickle.dumps(Delivery(parcels)))
    assert [parcel.open() for parcel in arrived.parcels] == [
        ["text " * 40_000, number] for number in range(3)
    ]


def test_bundles_of_similar_sizes_use_the_same_blocks():
    for size in (70_000, 400_000, 100_000, 1_500_000, 2_400_000, 900_000):
        bundle = Bundle(size)
        parcel = Parcel("text " * 10_000, bundle)
        arrived = pickle.loads(pickle.dumps(Delivery([parcel], lease=bundle.lend())))
        del bundle, parcel
        assert arrived.parcels[0].open() == "text " * 10_000
        del arrived
    assert len(ring.value.blocks) == 2


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Batches of 36 KB with small tensors, which are sent together in shared memory."""
    folder = tmp_path_factory.mktemp("texts")
    samples = [
        (f"{i:03}", {"txt": b"%03d " % i * 1100, "json": b'{"n": [%d]}' % i, "cls": b"%d" % i})
        for i in range(240)
    ]
    write_shard(folder / "a.tar", samples)
    return {
        "dataset": [{"shards": f"{folder}/a.tar"}],
        "batch": 8,
        "epoch": {"batches": 90},
        "elastic": {"ranks": 1, "workers": 2},
    }


@pytest.fixture(scope="module")
def expected_texts(texts):
    with wdspec.loader(texts, num_workers=0) as loader:
        return [flat(batch) for batch in loader]


@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(method, marks=pytest.mark.long) for method in ("spawn", "forkserver"))]
)
def test_kept_text_batches_are_intact_and_hold_no_block(texts, expected_texts, method, monkeypatch):
    monkeypatch.setattr(tasks, "SECONDS", 10)  # of this process, which decides how many are sent together
    with wdspec.loader(texts, num_workers=2, multiprocessing_context=method) as loader:
        kept = list(itertools.islice(loader, 50))
        state = loader.state_dict()
        assert len(_received.value.blocks) >= 1, "they were sent in shared memory"
        kept += loader
        assert not _received.value.leases
        assert [flat(batch) for batch in kept] == expected_texts
        loader.load_state_dict(state)
        assert [flat(batch) for batch in loader] == expected_texts[50:]


def test_parcels_that_do_not_fit_in_a_bundle_use_the_pipe():
    for room in (1 << 16, 1 << 18, 1 << 21):
        bundle = Bundle(room)
        values = [
            [b"x" * size, "é" * size, torch.arange(9)] for size in (10, 70_000, 200_000, 3, 900_000, 40)
        ]
        parcels = [Parcel(value, bundle) for value in values]
        with pytest.raises((AttributeError, pickle.PicklingError)):
            Parcel([b"y" * 1000, b"y" * 70_000, lambda: None], bundle)
        parcels.append(Parcel("last", bundle))
        sizes = [parcel.size for parcel in parcels]
        arrived = pickle.loads(pickle.dumps(Delivery(parcels, lease=bundle.lend())))
        del bundle, parcels
        assert [parcel.size for parcel in arrived.parcels] == sizes
        found = [parcel.open() for parcel in arrived.parcels]
        assert found.pop() == "last"
        assert [flat(value) for value in found] == [flat(value) for value in values]


def test_killed_workers_leave_no_texts_and_new_ones_read_the_rest(texts, expected_texts, monkeypatch):
    monkeypatch.setattr(tasks, "SECONDS", 10)
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    with wdspec.loader(texts, num_workers=2) as loader:
        found, batches = [], iter(loader)
        found += itertools.islice(batches, 20)
        workers = [worker.pid for worker in loader.stream.steps._running()._workers]

        def kill_one_and_continue():
            os.kill(workers[1], signal.SIGKILL)
            found.extend(batches)

        with pytest.raises(RuntimeError, match=r"[Kk]illed"):
            kill_one_and_continue()
        found += loader
        assert [flat(batch) for batch in found] == expected_texts
    assert shared_memory_of(os.getpid(), *workers) == set()
    assert not _received.value.leases


@pytest.mark.parametrize("raised", [wdspec.FieldError, ZeroDivisionError])
def test_the_batches_before_a_failing_one_are_delivered(spec, monkeypatch, raised):
    expected = reference(spec, 1, 1, 0, BATCHES)
    monkeypatch.setattr(tasks, "SECONDS", 10)
    found = []
    with wdspec.loader(spec, num_workers=1) as loader:
        run = loader.stream.steps._loader.dataset.run
        whole = run.assemble

        def assemble(number, parts):
            if parts[0][0]["__key__"] == expected[40][0]:
                raise raised("no")
            return whole(number, parts)

        run.__dict__["assemble"] = assemble
        batches = iter(loader)
        found = list(itertools.islice(batches, 40))
        with pytest.raises(raised, match="no"):
            next(batches)
    assert keys(found) == expected[:40]


def test_an_error_of_the_data_comes_after_the_batches_that_are_sent_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "SECONDS", 10)
    samples = [(f"{i:03}", {"txt": b"%03d " % i * 1100, "json": b'{"n": [%d]}' % i}) for i in range(400)]
    samples[300][1]["json"] = b'{"n": '
    write_shard(tmp_path / "a.tar", samples)
    spec = {
        "dataset": [{"shards": str(tmp_path / "a.tar"), "order": "sequential", "shuffle": 0}],
        "batch": 8,
    }
    found = []
    with wdspec.loader(spec, num_workers=1) as loader, pytest.raises(wdspec.FieldError, match=r"json"):
        found.extend(key for batch in loader for key in batch["__key__"])
    assert found == [key for key, _ in samples[:296]]


def test_a_batch_that_cannot_be_sent_is_an_error_in_the_training_process(spec):
    with wdspec.loader(spec, num_workers=1) as loader:
        loader.stream.steps._loader.dataset.run.__dict__["assemble"] = lambda number, parts: [lambda: parts]
        with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
            next(iter(loader))


def shared_memory_of(*processes):
    """The files that torch made in shared memory in these processes, and that are left; others may run meanwhile.

    Torch removes the name of a file after it has made it, so a process that is killed in between leaves one, which does
    not count. If names were kept, as many would be left as there are blocks.
    """
    left = {}
    for name in os.listdir("/dev/shm"):
        if name.startswith("torch_") and (process := int(name.split("_")[1])) in processes:
            left.setdefault(process, []).append(name)
    return {
        name for process, names in left.items() if process == os.getpid() or len(names) > 1 for name in names
    }


def test_killed_workers_leave_nothing_in_shared_memory(spec, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    workers = []
    with wdspec.loader(spec, num_workers=2) as loader:
        loader.stream.steps._loader.dataset.run.__dict__["assemble"] = lambda number, parts: [
            torch.ones(INLINE)
        ]
        batches = iter(loader)
        next(batches)
        time.sleep(
            0.5
        )  # a worker that is killed just while torch makes a file, before it removes the name, leaves it
        for worker in loader.stream.steps._running()._workers:
            workers.append(worker.pid)
            worker.kill()
        with pytest.raises((RuntimeError, OSError)):
            list(batches)
    assert shared_memory_of(os.getpid(), *workers) == set()


def place_of(tensor):
    """The block and the place of a tensor that was received."""
    for number, block in _received.value.blocks.items():
        start = tensor.data_ptr() - block.ctypes.data
        if 0 <= start < block.size:
            return number, start
    return None


def test_a_ring_block_is_reused_when_its_last_view_is_gone():
    values = torch.arange(INLINE)
    first = sent(values)
    place, view = place_of(first), first[3:].numpy()
    assert place is not None
    del first
    second = sent(values + 1)
    assert place_of(second) != place
    assert view[0] == 3
    del view
    third = sent(values + 2)
    assert place_of(third) == place
    assert torch.equal(second, values + 1)
    assert torch.equal(third, values + 2)


def test_tensors_made_in_the_ring_are_not_copied():
    array = ring.value.empty((INLINE,), np.float32)
    array[:] = 7
    whole, part = sent([torch.from_numpy(array), torch.from_numpy(array[INLINE // 2 :])])
    array[-1] = 8
    assert whole[-1] == 8
    assert part[-1] == 8


def test_kept_batches_are_intact_and_later_ones_bypass_the_ring():
    kept = [sent(torch.full((INLINE,), number, dtype=torch.uint8)) for number in range(MOST_BLOCKS + 6)]
    assert [int(each[-1]) for each in kept] == list(range(MOST_BLOCKS + 6))
    assert all(bool((each == number).all()) for number, each in enumerate(kept))
    assert sum(place_of(each) is None for each in kept) >= 6
    kept.clear()
    for _ in range(3 * MOST_BLOCKS):
        sent(torch.zeros(INLINE, dtype=torch.uint8))
    assert len(_received.value.blocks) < 12, "those that are dropped are dropped here, too"


def test_many_tensors_in_one_block_are_sent():
    array = ring.value.empty((100 * INLINE,), np.uint8)
    array[:] = 3
    parts = sent([torch.from_numpy(array[at : at + INLINE]) for at in range(0, array.size, INLINE)])
    assert len(parts) == 100
    assert all(int(part[-1]) == 3 for part in parts)


def test_an_unpicklable_batch_leaks_no_block():
    for _ in range(MOST_BLOCKS + 2):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            Parcel([torch.zeros(INLINE), lambda: None])
    assert place_of(sent(torch.zeros(INLINE))) is not None


def test_a_forked_process_keeps_what_it_inherits():
    mine = sent(torch.full((INLINE,), 5, dtype=torch.uint8))
    place = place_of(mine)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.read(reader, 1)  # the parent has sent more meanwhile
        os._exit(0 if (mine.numpy() == 5).all() else 1)  # torch's threads are not in the child
    try:
        assert bool((mine == 5).all())
        del mine
        for _ in range(20):
            assert place_of(sent(torch.zeros(INLINE, dtype=torch.uint8))) != place
    finally:
        os.write(writer, b"x")
        _, status = os.waitpid(child, 0)
        os.close(reader), os.close(writer)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    samples = []
    for number in range(24):
        file = io.BytesIO()
        noise = np.random.default_rng(number).integers(0, 255, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(noise).save(file, "jpeg")
        samples.append((f"{number:02}", {"jpg": file.getvalue(), "cls": str(number).encode()}))
    for shard in range(4):
        write_shard(folder / f"{shard}.tar", samples[6 * shard : 6 * shard + 6])
    decode = "torchrgb8+random_resized_crop=224"
    return {
        "dataset": [{"shards": str(folder / "{0..3}.tar"), "decode": {"jpg": decode}}],
        "batch": 6,
        "elastic": {"ranks": 1, "workers": 2},
        "epoch": {"batches": 12},
    }


@pytest.fixture(scope="module")
def expected(pictures):
    with wdspec.loader(pictures, num_workers=0) as loader:
        return [batch["jpg"].clone() for batch in loader]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long), "forkserver"])
def test_kept_batches_of_workers_stay_intact(pictures, expected, method):
    before = (
        set(_received.value.blocks),
        set(_received.value.senders),
    )  # of other tests, which send to this process
    with wdspec.loader(pictures, num_workers=2, multiprocessing_context=method) as loader:
        kept = [batch["jpg"] for batch in itertools.islice(loader, 7)]
        kept += [batch["jpg"] for batch in loader]
        again = [batch["jpg"].clone() for batch in loader]
        assert len(_received.value.blocks.keys() - before[0]) >= 2
    assert _received.value.blocks.keys() <= before[0], "no memory of workers that have ended"
    assert _received.value.senders.keys() <= before[1]
    assert len(kept) == len(again) == 12
    assert all(map(torch.equal, kept, expected))
    first = again[0].clone()
    assert all(batch.is_contiguous() and batch.untyped_storage().nbytes() == batch.nbytes for batch in kept)
    kept[0].zero_()
    assert torch.equal(again[0], first)


def test_blocks_are_reused_over_an_epoch(pictures):
    before = set(_received.value.blocks)
    with wdspec.loader(pictures, num_workers=1) as loader:
        for _ in range(3):
            for batch in loader:
                del batch
        assert 1 <= len(_received.value.blocks.keys() - before) <= 6


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_kept_batches_are_intact_in_threads_and_without_workers(pictures, expected, kind):
    for workers in (0, 2):
        with wdspec.loader({**pictures, "loader": {"kind": kind}}, num_workers=workers) as loader:
            kept = [batch["jpg"] for batch in loader]
        assert all(map(torch.equal, kept, expected))


def test_a_killed_worker_or_trainer_leaves_nothing(pictures, tmp_path):
    (tmp_path / "train.py").write_text(
        "import json, os, signal, sys, time\n"
        "import wdspec\n"
        "loader = iter(wdspec.loader(json.loads(sys.argv[1]), num_workers=2))\n"
        "kept = [next(loader) for _ in range(4)]\n"
        "print(flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-W", "ignore", str(tmp_path / "train.py"), json.dumps(pictures)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        workers = psutil.Process(trainer.pid).children(recursive=True)
        workers[0].kill()
        trainer.kill()
    psutil.wait_procs(workers, timeout=200)
    assert shared_memory_of(trainer.pid, *(worker.pid for worker in workers)) == set()


def test_a_closed_loader_keeps_no_memory(pictures):
    with wdspec.loader(pictures, num_workers=0) as loader:
        batch = next(iter(loader))["jpg"]
        assert current.last.pool.blocks
    assert not current.last.pool.blocks
    assert int(batch.sum()) > 0


VARIANTS = {
    "several ranks": {"elastic": {"ranks": 2, "workers": 2}},
    "accumulated": {"elastic": {"ranks": 2, "workers": 2}, "batch": {"size": 6, "accumulate": True}},
    "dropped": {"select": "some_rows:keep"},
    "mapped": {"map": {"jpg": "some_rows:darken"}},
    "twice in a tuple": {"to_tuple": ["jpg", "cls", "jpg"]},
    "a list": {"batch": {"size": 6, "collate": {"jpg": "list"}}},
    "floats": {"decode": {"jpg": "torch+random_resized_crop=224+normalize=imagenet"}},
    "numpy": {"decode": {"jpg": "rgb8+random_resized_crop=300x200+hflip=0.5"}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_batches_equal_those_stacked_by_copying(pictures, variant, monkeypatch, tmp_path):
    (tmp_path / "some_rows.py").write_text(
        "def keep(sample):\n    return sample['cls'] % 3 != 1\n"
        "def darken(image):\n    return image // 2 if int(image.sum()) % 2 else image\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    changes = dict(VARIANTS[variant])
    source = {**pictures["dataset"][0]}
    source |= {name: changes.pop(name) for name in ("select", "decode") if name in changes}
    spec = {**pictures, "dataset": [source], "epoch": {"batches": 6}, **changes}

    def read(workers):
        with wdspec.loader(spec, num_workers=workers) as loader:
            return [pickle.dumps(batch) for batch in loader]

    found = [read(0), read(2)]
    monkeypatch.setattr("wdspec.fields.memory.Rows.next", lambda self, *arguments: None)
    expected = read(0)
    values = [[pickle.loads(batch) for batch in batches] for batches in (*found, expected)]
    for batches in values[:2]:
        assert len(batches) == len(values[2]) > 0
        for one, other in zip(batches, values[2], strict=True):
            assert flat(one) == flat(other)


def test_map_functions_work_in_the_memory_of_the_batch(pictures, monkeypatch, tmp_path):
    (tmp_path / "in_place.py").write_text(
        "places = []\n"
        "def darken(image):\n    places.append(image.data_ptr())\n    return image.floor_divide_(2)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with wdspec.loader({**pictures, "map": {"jpg": "in_place:darken"}}, num_workers=0) as loader:
        images = next(iter(loader))["jpg"]
    from in_place import places

    assert [image.data_ptr() for image in images] == places[: len(images)]
    with wdspec.loader(pictures, num_workers=0) as loader:
        assert torch.equal(images, next(iter(loader))["jpg"] // 2)


def flat(value):
    """A value in a form that can be compared."""
    if isinstance(value, dict):
        return {name: flat(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [flat(each) for each in value]
    if isinstance(value, (torch.Tensor, np.ndarray)):
        value = torch.as_tensor(value)
        return tuple(value.shape), str(value.dtype), value.numpy().tobytes()
    return value
