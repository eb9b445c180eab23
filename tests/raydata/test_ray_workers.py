"""`loader: {kind: ray}`: the batches, states and errors of worker processes, from actors that may die at any time."""

import gc
import http.server
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
import torch
from commandline import within
from frameworkjobs import free_port
from PIL import Image
from shardmaking import write_shard, write_source

import wdspec
from wdspec.base.errors import ShardError, SpecError, UsageError, WdspecError
from wdspec.run import actors
from wdspec.run.out_of_band import Lender, Packer
from wdspec.run.remote import find_missing

pytestmark = pytest.mark.usefixtures("two_cpus")
long = pytest.mark.long

FUNCTIONS = """
    import os
    import time
    import helper

    def variables(sample):
        return {**sample, "txt": helper.show(dict(os.environ)), "cls": helper.double(sample["cls"])}

    def slowly(sample):
        time.sleep(0.01)  # so that some batches are not read yet
        return sample

    def broken(sample):
        raise LookupError("no such thing")

    def hang(sample):
        from wdspec.base.errors import ShardError
        from wdspec.stores import watchdog
        watchdog.stuck(ShardError("a read took more than 1 s"))

    def die(sample):
        os.kill(os.getpid(), 9)
"""
HELPER = """
    def show(value):
        return repr(value)

    def double(number):
        return 2 * number
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A spec of two sources, with the given keys."""
    monkeypatch.chdir(tmp_path)  # modules of the working directory are sent to actors: else all of wdspec
    for name, shards in (("a", 5), ("b", 2)):
        write_source(tmp_path, name, shards, 23)
    (tmp_path / "functions_r.py").write_text(textwrap.dedent(FUNCTIONS))
    (tmp_path / "helper.py").write_text(textwrap.dedent(HELPER))

    def spec(kind="ray", workers=2, **keys):
        source = {"decode": "cls"}
        text = {
            "seed": 3,
            "dataset": [
                {"name": "a", "shards": "a-{000..004}.tar", **source},
                {"name": "b", "shards": "b-{000..001}.tar", **source},
            ],
            "batch": 4,
            "epoch": {"batches": 40},
            "elastic": {"ranks": 1, "workers": 12},
            "loader": {"workers": workers, "kind": kind},
            **keys,
        }
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps(text))  # JSON is YAML
        return path

    return spec


def row(batch):
    return batch["__key__"], batch["txt"], batch["cls"].tolist()


def find_actors(process=None):
    """The processes of actors that read, below a process."""
    found = []
    for each in psutil.Process(process).children(recursive=True):
        try:
            if each.cmdline()[:1] and each.cmdline()[0].startswith("ray::WdspecReader"):
                found.append(each)
        except psutil.Error:
            pass
    return found


def wait_until(condition, within=200):
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_batches_and_states_are_those_of_one_process_while_actors_are_killed(make, caplog):
    with wdspec.loader(make("processes", 0, map="functions_r:slowly")) as alone:
        expected = [(row(batch), alone.state_dict()) for batch in alone]
    with wdspec.loader(make(map="functions_r:slowly")) as loader:
        found = []
        for number, batch in enumerate(loader):
            found.append((row(batch), loader.state_dict()))
            if number == 7:
                find_actors()[0].kill()
            if number == 20:
                ray.kill(loader.stream.steps._seats[1]._actor)
        stats = loader.stats()
    assert len(found) == 40
    assert found == expected
    assert sum("died; another one" in record.message for record in caplog.records) >= 2
    assert sum(source.received for source in stats.sources.values()) == 160
    wait_until(lambda: not find_actors())


@long
@pytest.mark.parametrize(
    "turns",
    [
        [("ray", 1, 17), ("threads", 2, 23)],
        pytest.param(
            [("ray", 2, 7), ("processes", 3, 6), ("ray", 1, 8), ("threads", 2, 5), ("ray", 2, 14)], marks=long
        ),
    ],
)
def test_a_run_moves_between_kinds_and_numbers_of_workers(make, turns):
    with wdspec.loader(make("processes", 0)) as alone:
        expected = [row(batch) for batch in alone]
    found, state = [], None
    for kind, workers, steps in turns:
        with wdspec.loader(make(kind, workers)) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            for _, batch in zip(range(steps), loader, strict=False):
                found.append(row(batch))
            state = json.dumps(loader.state_dict())
    assert found == expected


def test_an_error_has_the_node_and_the_next_iteration_resumes(make, tmp_path):
    whole = (tmp_path / "a-002.tar").read_bytes()
    (tmp_path / "a-002.tar").write_bytes(whole[:3000])
    with wdspec.loader(make(workers=1)) as loader:
        with pytest.raises(ShardError, match=r"a-002\.tar.*, node \d+\.\d+\.\d+\.\d+ \("):
            list(loader)
        (tmp_path / "a-002.tar").write_bytes(whole)
        assert next(iter(loader))["cls"].dtype == torch.int64


@long
def test_errors_of_functions_and_reads_that_hang_have_the_node(make):
    with (
        wdspec.loader(make(workers=1, map="functions_r:broken")) as loader,
        pytest.raises(LookupError, match=r"(?s)in actor 0 of a Loader, on node \d.*no such thing"),
    ):
        list(loader)
    with (
        wdspec.loader(make(workers=1, map="functions_r:hang")) as loader,
        pytest.raises(ShardError, match=r"a read took more than 1 s \[.*node \d"),
    ):
        list(loader)


@long
def test_a_loader_left_early_continues_also_after_ray_was_shut_down(make, two_cpus):
    with wdspec.loader(make("processes", 0)) as alone:
        expected = [row(batch) for batch in alone]
    found = []
    with wdspec.loader(make()) as loader:
        for number in (5, 1, 9):
            for _, batch in zip(range(number), loader, strict=False):
                found.append(row(batch))
        ray.shutdown()
        with actors._signals_kept():
            ray.init("local", num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        found += [row(batch) for batch in loader]
    assert found == expected


@long
def test_a_node_without_the_login_of_a_store_is_named(make, tmp_path, monkeypatch):
    class Store(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.headers.get("Authorization"):
                return super().do_GET()
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return None

        def do_HEAD(self):
            return self.do_GET()

        def log_message(self, *_):
            pass

    make()
    (tmp_path / "netrc").write_text("machine localhost login ann password hunter22\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with http.server.ThreadingHTTPServer(("localhost", 0), partial(Store, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://localhost:{server.server_port}/a-{{000..004}}.tar"
        spec = {"dataset": [{"shards": url}], "batch": 4, "loader": {"kind": "ray", "workers": 1}}
        with wdspec.loader(spec, num_workers=0) as loader:
            assert next(iter(loader))
        with wdspec.loader(spec) as loader, pytest.raises(WdspecError, match=r"401.*node \d|node \d.*401"):
            next(iter(loader))
        server.shutdown()


@long
def test_actors_that_die_again_and_again_are_an_error(make, monkeypatch):
    monkeypatch.setattr(actors, "TRIES", 2)
    with (
        wdspec.loader(make(workers=1, map="functions_r:die")) as loader,
        pytest.raises(RuntimeError, match=r"actor 0 on node .* died, .* 2 times in a row"),
    ):
        list(loader)


def test_a_state_is_loaded_while_an_iteration_is_open(make):
    with wdspec.loader(make(workers=2)) as loader:
        start = loader.state_dict()
        older = iter(loader)
        first = [next(older)["__key__"] for _ in range(4)]
        loader.load_state_dict(start)
        newer = iter(loader)
        again = [next(newer)["__key__"] for _ in range(2)]
        del older
        gc.collect()
        assert again + [next(newer)["__key__"] for _ in range(2)] == first


def test_modules_travel_with_the_spec_and_credentials_do_not(make, tmp_path, monkeypatch):
    canary = "canary-" + os.urandom(8).hex()
    for name in ("AIS_AUTHN_TOKEN", "AWS_SECRET_ACCESS_KEY", "WDS_UNUSED_KEY"):
        monkeypatch.setenv(name, canary)
    monkeypatch.setenv("AIS_ENDPOINT", "http://localhost:1")
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{canary}@localhost:1")
    with wdspec.loader(make(workers=1, map="functions_r:variables")) as loader:
        steps = loader.stream.steps
        assert canary.encode() in pickle.dumps(loader.run)
        assert canary.encode() not in steps._run_data + pickle.dumps(steps._setup)
        for name in ("functions_r", "helper"):
            (tmp_path / f"{name}.py").rename(tmp_path / f"{name}.gone")
        batch = next(iter(loader))
    assert all("HOME" in text for text in batch["txt"])
    assert not any(canary in text for text in batch["txt"])
    assert all(number % 2 == 0 for number in batch["cls"].tolist())
    logs = Path(ray._private.worker._global_node.get_session_dir_path())
    assert not [path for path in logs.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]


DIFFERENCES = {
    "other code of wdspec": {"code": "0"},
    "it has wdspec": {"code": "0", "wdspec": "0.0.1"},
    "it has Python": {"python": "3.9.1"},
    r"it has pillow [\d.]+, and the trainer has 1\.0": {"libraries": {"pillow": "1.0"}},
    "the function `functions_r:broken` is missing there, or has other code": {
        "functions": {"functions_r:broken": "0"}
    },
}


def test_a_node_that_differs_is_refused_before_it_reads(make, tmp_path):
    """The checks are those of an actor; here they run in this process."""
    with wdspec.loader(make(map="functions_r:broken")) as loader:
        steps = loader.stream.steps
    assert list(steps._setup.problems(str(tmp_path))) == []
    for says, changes in DIFFERENCES.items():
        if "libraries" in changes:
            changes = {**changes, "libraries": {**steps._setup.libraries, **changes["libraries"]}}
        (found,) = replace(steps._setup, **changes).problems(str(tmp_path))
        assert re.search(says, found)


def test_what_a_node_lacks_is_named(make, tmp_path):
    """The checks are those of an actor; here they run in this process."""
    with wdspec.loader(make()) as loader:
        run = loader.run
    assert list(find_missing(run)) == []
    tmp_path.rename(f"{tmp_path}-moved")
    says = list(find_missing(run))
    Path(f"{tmp_path}-moved").rename(tmp_path)
    assert says == [
        f"it has no folder {tmp_path}, where the shards of the source `a` are; mount it on every node, or read from a "
        "store"
    ]


@long
def test_a_node_without_the_folder_is_refused(make, tmp_path):
    with wdspec.loader(make(workers=1)) as loader:
        tmp_path.rename(f"{tmp_path}-moved")
        with pytest.raises(UsageError, match=r"^node \d.* cannot read this spec .* has no folder"):
            next(iter(loader))
        Path(f"{tmp_path}-moved").rename(tmp_path)
        assert len(list(loader)) == 40


def test_secure_mode_holds_on_actors(make, monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    with wdspec.loader(make()) as loader:
        assert loader.stream.steps._setup.is_secure
    with pytest.raises(SpecError, match="WDS_SECURE"):
        wdspec.loader(make(map="functions_r:variables"))


def test_room_is_measured_in_bytes(make):
    with wdspec.loader(make(workers=2)) as loader:
        steps = loader.stream.steps
        assert [steps._has_room(sent) for sent in range(4)] == [True, True, False, False]  # no size is known
        steps._size, steps.budget = 10, 1000
        assert [steps._has_room(sent) for sent in range(5)] == [True] * 4 + [False]  # two for each worker
        steps.budget = 29
        assert [steps._has_room(sent) for sent in range(4)] == [True, True, False, False]
        steps.budget = 9
        assert [steps._has_room(sent) for sent in range(3)] == [True, False, False]


@long
def test_only_so_many_bytes_are_requested(make):
    with wdspec.loader(make(workers=1)) as loader:
        steps, budget = loader.stream.steps, loader.stream.steps.budget
        requested = {budget: [], 1: []}
        for steps.budget, found in requested.items():
            for _, batch in zip(range(5), loader, strict=False):
                assert len(batch["txt"]) == 4
                found.append(sum(len(seat.pending) for seat in steps._seats))
    assert requested[budget][:2] == [0, 1]  # the size of the first one was not known
    assert requested[1] == [0] * 5


def send(*values, lender, packer=None):
    """Pack values, and give a lender what would arrive; return the parcels, and the size of all."""
    packer = packer or Packer()
    parcels = pickle.loads(pickle.dumps([packer.pack(value) for value in values]))
    arrays = [array.copy() for array in packer.take()]  # as Ray does
    for array in arrays:
        array.flags.writeable = False
    lender.lend(arrays, parcels)
    return parcels, sum(array.nbytes for array in arrays)


def test_values_of_a_delivery_are_opened_one_by_one_and_each_is_whole():
    """Opening them all at once made so many objects that Python looked for garbage in the whole process."""
    packer, lender = Packer(), Lender(100_000_000)
    for _ in range(2):  # in the same memory
        values = [{"text": ["x" * at] * 9, "array": np.full(9 * at, at)} for at in range(1000)]
        parcels, size = send(*values, packer=packer, lender=lender)
        assert lender.lent == size
        assert sum(parcel.size for parcel in parcels) == size
        for parcel, value in zip(parcels, values, strict=True):
            opened = parcel.open()
            assert opened["text"] == value["text"]
            assert (opened["array"] == value["array"]).all()
        assert lender.lent == size
        del opened
        assert lender.lent == 0


def test_a_value_that_cannot_be_pickled_leaves_nothing_among_those_before_it():
    packer, lender = Packer(), Lender(100_000_000)
    first = packer.pack("first")
    with pytest.raises((AttributeError, pickle.PicklingError)):
        packer.pack([np.ones(9000), bytes(200_000), lambda: 1])
    parcels = [first, packer.pack("second")]
    (array,) = packer.take()
    assert array.nbytes == sum(parcel.size for parcel in parcels) < 100
    lender.lend([array], parcels)
    assert [parcel.open() for parcel in parcels] == ["first", "second"]


def test_what_was_packed_is_not_kept():
    packer, value, looks = Packer(), {1}, gc.isenabled()
    gone = weakref.ref(value)
    gc.disable()
    try:
        packer.pack([value])
        del value
        assert gone() is None
    finally:
        if looks:
            gc.enable()


def test_memory_of_large_pickles_is_not_kept():
    packer, lender = Packer(), Lender(0)
    for size in (40_000_000, 10):
        ((parcel,), packed) = send(bytes(size), packer=packer, lender=lender)
        assert size < packed < size + 100
        assert parcel.open() == bytes(size)
    assert len(packer._pickles._room) < 100_000


def test_what_arrives_can_be_written_and_is_copied_if_too_much_is_kept():
    value = {
        "large": torch.arange(3000.0).reshape(3, 1000).t(),
        "small": torch.ones(2),
        "array": np.ones(9000),
    }
    value |= {
        "text": ["a", b"b"],
        "complex": torch.ones(3, dtype=torch.complex64).conj(),
        "none": torch.empty(0),
    }
    lender = Lender(100_000)
    ((parcel,), size) = send(value, lender=lender)
    assert not parcel.is_encoded
    opened = parcel.open()
    for name in ("large", "small", "complex", "none"):
        assert torch.equal(opened[name], value[name])
        assert opened[name].stride() == value[name].stride()
    assert (opened["array"] == value["array"]).all()
    assert opened["text"] == value["text"]
    assert lender.lent == size > 84_000
    copied = send(value, lender=lender)[0][0].open()
    assert lender.lent == size
    for each in (opened, copied):
        each["array"][0] = each["large"][0, 0] = each["small"][0] = 5
        assert each["array"][0] == each["large"][0, 0] == 5
    part = opened["large"][1]
    del opened, copied, each
    assert lender.lent == size  # Ray keeps all that arrived with it
    assert part[0] == 1
    del part
    assert lender.lent == 0


@long
def test_images_are_decoded_by_the_trainer_and_pinning_is_harmless(tmp_path):
    import io

    random, files = np.random.default_rng(0), []
    for number in range(16):
        file = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(file, "png")
        files.append((f"{number}", {"png": file.getvalue()}))
    write_shard(tmp_path / "a.tar", files)
    found = {}
    for kind, device in (("processes", ""), ("ray", "+device=cpu")):
        source = {"shards": f"{tmp_path}/a.tar", "decode": {"png": f"rgb8+random_resized_crop=32{device}"}}
        spec = {"dataset": [source], "batch": 4, "epoch": 16, "elastic": {"ranks": 1, "workers": 2}}
        options = {"kind": kind, "pin_memory": True, "workers": 1}
        with wdspec.loader({**spec, "loader": options}) as loader:
            found[kind] = [(batch["__key__"], batch["png"]) for batch in loader]
    assert len(found["ray"]) == 4
    for (keys, pixels), (same, others) in zip(found["ray"], found["processes"], strict=True):
        assert keys == same
        assert torch.equal(torch.as_tensor(pixels), torch.as_tensor(others))


def test_a_cluster_without_room_is_an_error(make, monkeypatch):
    monkeypatch.setattr(actors, "PLACED_WITHIN", 0.01)
    monkeypatch.setattr(actors, "_NOTICE_AFTER", 0.1)

    class Other:  # here, so that Ray sends its code
        def place(self):
            return "here"

    other = ray.remote(num_cpus=2)(Other).remote()
    ray.get(other.place.remote())
    says = "1 of 1 actors have not started: the Ray cluster has 2 CPUs, of which 0 are free, .* write fewer workers"
    try:
        with wdspec.loader(make(workers=1)) as loader, pytest.raises(UsageError, match=says):
            next(iter(loader))
    finally:
        ray.kill(other)


def test_an_actor_that_died_while_others_need_its_cpu_is_replaced(make, caplog):
    class Other:  # here, so that Ray sends its code
        def place(self):
            return "here"

    with wdspec.loader(make("processes", 0)) as alone:
        expected = list(map(row, alone))
    with wdspec.loader(make()) as loader:
        found = []
        for number, batch in enumerate(loader):
            found.append(row(batch))
            if number == 1:  # it gets the CPU first
                other = ray.remote(num_cpus=1)(Other).remote()
                ray.kill(loader.stream.steps._seats[1]._actor)
                assert ray.get(other.place.remote()) == "here"
        ray.kill(other)
    assert found == expected
    assert sum("shares one with others" in record.message for record in caplog.records) == 1


def test_no_cluster_is_an_error(make, monkeypatch, tmp_path):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    says = f"no Ray cluster answers at RAY_ADDRESS={address}: .*`ray start --head`"
    with pytest.raises(UsageError, match=says):
        wdspec.loader(make())
    out, _ = within("doctor", str(make()), folder=tmp_path, code=1)
    assert re.search(f"Ray cluster +none.*Ray cluster: {says}", " ".join(out.split()))
    monkeypatch.setenv("RAY_ADDRESS", "ray://host:10001")
    with pytest.raises(UsageError, match="is for Ray's client"):
        wdspec.loader(make())


def test_doctor_shows_the_nodes_and_what_is_missing(make, tmp_path):
    out, _ = within("doctor", str(make(workers=3)), folder=tmp_path)
    said = " ".join(out.split())
    assert re.search(r"Ray cluster \S+:\d+, 1 node, 2 CPUs, [\d.]+ free", said)
    assert re.search(r"each rank needs 3 free CPUs \(`loader: \{workers: 3\}`\)", said)


def test_ray_is_optional(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "wdspec.run.actors")
    with pytest.raises(UsageError, match=r"`loader: \{kind: ray\}` needs ray: `pip install .*\[ray\]"):
        wdspec.loader(make())
    with wdspec.loader(make(), num_workers=0) as loader:
        assert len(list(loader)) == 40


@pytest.mark.parametrize("arguments", [{"prefetch_factor": 0}, {"timeout": -1}])
def test_invalid_numbers_are_rejected(make, arguments):
    (name,) = arguments
    with pytest.raises(UsageError, match=f"`{name}` is a number of"):
        wdspec.loader(make(), **arguments)
    with pytest.raises(UsageError, match=r"`worker_init_fn` is for worker processes; .*kind: ray"):
        wdspec.loader(make(), worker_init_fn=print)


TRAINER = """
import sys, time, wdspec
loader = wdspec.loader(sys.argv[1])
for number, batch in enumerate(loader):
    print(number, flush=True)
    if number == 3:
        time.sleep(300)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=long)])
def test_no_actor_outlives_the_trainer(make, end):
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", TRAINER, str(make(workers=1))]
    environ = {**os.environ, "RAY_ADDRESS": address}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ) as trainer:
        for _ in range(4):
            trainer.stdout.readline()
        assert len(find_actors()) == 1
        trainer.send_signal(end)
        assert trainer.wait(200)
    wait_until(lambda: not find_actors())
