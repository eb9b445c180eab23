"""`errors: skip` never skips what fails because of the machine or the login: these are no damaged data."""

import contextlib
import errno
import gc
import itertools
import os
import re
import resource
import socket
import ssl
import sys
import tempfile

import pytest
from commandline import wdspec as wdspec_command
from commandline import within
from fetchedrows import jsonl
from servers.fault_proxy import Script, Status
from servers.objects import ObjectServer
from shardmaking import write_shard, write_source

import wdspec
from wdspec.base.errors import RefusedShardError, ShardError, find_lack
from wdspec.base.handles import handles, responses
from wdspec.read import error_budget
from wdspec.read.error_budget import ErrorBudget
from wdspec.spec.language.options import Errors
from wdspec.storage.storage import Storage
from wdspec.stores import ais, http_requests, local  # noqa: F401  # no module can be imported without a descriptor
from wdspec.stores.settings import HttpSettings

CODE = """
import errno, tempfile

def fills(sample):
    raise MemoryError

def writes(sample):
    raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")

def threads(sample):
    raise RuntimeError("can't start new thread")

def allocates(sample):
    import torch
    torch.empty(10**15)

def crowds(sample):
    import torch
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

def sends(sample):
    raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)")

def breaks(sample):
    raise RuntimeError("CUDA error: device-side assert triggered")

def decodes(data):
    with tempfile.TemporaryFile() as file:
        file.write(data)
    return data
"""
SKIP = {"skip": ["shard", "decode", "map"]}


@pytest.fixture
def code(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing", raising=False)


def samples(shards, count=200, **source):
    spec = {
        "dataset": [{"name": "a", "shards": shards, "shuffle": 0, "order": "sequential", **source}],
        "errors": SKIP,
    }
    return [sample["__key__"] for sample in itertools.islice(wdspec.compile(spec), count)]


@pytest.fixture
def few_descriptors():
    """Leaves so many descriptors to this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []

    def few_descriptors(count, keeps_idle=False):
        gc.collect()  # what earlier tests have left open would be closed later, and free descriptors
        if not keeps_idle:
            http_requests.close_idle_connections()
            while handles().release_half() or responses().release_half():  # streams that earlier tests keep
                pass
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())

    yield few_descriptors
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for each in taken:
        os.close(each)


def test_shards_that_cannot_be_opened_for_lack_of_descriptors_are_not_skipped(tmp_path, few_descriptors):
    shards = write_source(tmp_path, "a", 64, 2)
    samples(shards, 1)  # imports everything

    def read_without_descriptors():
        for _ in range(5):  # threads of earlier tests may free some meanwhile
            few_descriptors(0)  # with a few, shards would be closed and opened again
            samples(shards, interleave=64)

    with pytest.raises(wdspec.StoreError, match=r"too many open files: raise the limit \(`ulimit -n`\)"):
        read_without_descriptors()


@pytest.mark.parametrize("url", ["http://localhost:1/a.tar", "https://localhost:1/a.tar"])
def test_a_host_that_cannot_be_looked_up_for_lack_of_descriptors_is_not_missing(url, few_descriptors):
    def read():
        spec = {"dataset": [{"shards": url}], "errors": {**SKIP, "retry": 0.1}}
        with pytest.raises(wdspec.WdspecError) as caught:
            next(iter(wdspec.compile(spec)))
        return caught.value

    assert "skipped: D102 1" in str(read())  # nothing listens there
    few_descriptors(0)
    with pytest.raises(
        OSError, match=r"Name or service not known|Too many open files"
    ):  # as the system likes
        socket.getaddrinfo("localhost", 1)
    error = read()
    assert isinstance(error, wdspec.StoreError)
    assert "too many open files: raise the limit (`ulimit -n`)" in str(error)


@pytest.mark.parametrize("kind", ["HTTP", "AIStore"])
def test_a_store_that_cannot_be_reached_for_lack_of_descriptors_is_an_error_at_once(
    nginx, few_descriptors, kind
):
    write_shard(nginx.root / "lack.tar", [("a", {"txt": b"a"})])
    spec = {"dataset": [{"shards": f"{nginx.url}/lack.tar"}], "errors": SKIP}
    with Storage().open_location(f"{nginx.url}/lack.tar") as stream:  # imports everything
        assert stream.read(1)
    if kind == "AIStore":
        spec = {**spec, "dataset": [{"shards": "ais://bucket/a.tar"}], "aistore": {"endpoint": nginx.url}}
    http_requests.close_idle_connections()
    reading = iter(wdspec.compile(spec))
    few_descriptors(0)
    with pytest.raises(wdspec.StoreError, match="too many open files: raise the limit") as caught:
        next(reading)
    assert "skip" not in str(caught.value)


def test_idle_connections_are_closed_for_lack_of_descriptors(nginx, few_descriptors):
    write_shard(nginx.root / "idle.tar", [("a", {"txt": b"a"})])
    with Storage().open_location(f"{nginx.url}/idle.tar") as stream:
        data = stream.read()
    few_descriptors(0, keeps_idle=True)
    # Other settings need another connection.
    with Storage(http=HttpSettings(netrc="/nowhere")).open_location(f"{nginx.url}/idle.tar") as stream:
        assert stream.read() == data


@pytest.mark.parametrize(
    "error",
    [socket.gaierror(-2, "Name or service not known"), ssl.SSLCertVerificationError("unable to get issuer")],
)
def test_errors_that_may_hide_a_lack_of_descriptors_are_not_taken_for_one(error, few_descriptors):
    assert find_lack(error) is None
    few_descriptors(1)
    assert "too many open files" in find_lack(error)
    os.close(os.open(os.devnull, os.O_RDONLY))  # the one that is left is free again


def test_fields_that_cannot_be_decoded_for_lack_of_descriptors_are_not_skipped(
    tmp_path, code, few_descriptors
):
    shards = write_source(tmp_path, "a", 1, 9)
    loaded = samples(shards, 2, decode={"txt": "failing:decodes"})
    assert len(loaded) == 2
    spec = {
        "dataset": [{"shards": shards, "shuffle": 0, "decode": {"txt": "failing:decodes"}}],
        "errors": SKIP,
    }
    reading = iter(wdspec.compile(spec))
    next(reading)
    few_descriptors(0)
    with pytest.raises(wdspec.FieldError) as caught:
        list(itertools.islice(reading, 8))
    assert any("too many open files" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        ("fills", MemoryError, "fewer workers"),
        ("writes", OSError, "TMPDIR"),
        ("allocates", RuntimeError, "fewer workers"),
        ("threads", RuntimeError, "ulimit -u"),
        ("crowds", RuntimeError, "memory of the GPU"),
        ("breaks", RuntimeError, "CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_a_function_without_what_it_needs_of_the_machine_is_not_a_damaged_sample(
    tmp_path, code, function, error, says
):
    with pytest.raises(error) as caught:
        samples(write_source(tmp_path, "a", 1, 9), map=f"failing:{function}")
    assert any(says in note for note in caught.value.__notes__)


def test_workers_without_shared_memory_say_what_to_do(tmp_path, code):
    spec = {"dataset": [{"shards": write_source(tmp_path, "a", 1, 9), "map": "failing:sends"}], "batch": 1}
    with wdspec.loader(spec, num_workers=1) as loader, pytest.raises(RuntimeError) as caught:
        next(iter(loader))
    assert re.fullmatch(r"a worker failed.*/dev/shm.*--shm-size=8g.*kind: threads.*", str(caught.value))


def test_a_command_without_a_temporary_folder_says_what_to_do(tmp_path):
    spec = tmp_path / "a.yaml"
    spec.write_text(f"dataset: [{{shards: '{write_source(tmp_path, 'a', 1, 9)}'}}]\n")
    nowhere = "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/nowhere']; "
    _, said = wdspec_command("check", spec, "--all", "--jobs", "1", before=nowhere, code=1)
    assert re.search("No usable temporary directory.*mount one.*TMPDIR", said)
    assert "Traceback" not in said


def test_a_folder_for_temporary_files_without_room_is_not_data(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with pytest.raises(FileNotFoundError) as caught:
        tempfile.gettempdir()
    assert "TMPDIR" in find_lack(caught.value)


@pytest.mark.parametrize("format", ["tar", "jsonl", "parquet"])
@pytest.mark.parametrize("status", [401, 403])
def test_a_login_that_is_refused_from_the_start_is_not_skipped(proxy, status, format):
    for n in range(3):
        proxy.scripts[f"/refused/{n}.{format}"] = Script([], then=Status(status))
    with pytest.raises(ShardError, match=f"status {status}"):
        samples(f"{proxy.url}/refused/{{0..2}}.{format}")


@pytest.fixture
def shards(nginx, proxy, tmp_path):
    """Six shards of two samples behind the proxy, under a new name for each test."""
    name = f"denied-{tmp_path.name}"
    for n in range(6):
        write_shard(nginx.root / name / f"{n}.tar", [(f"{n}-{i}", {"txt": b"x"}) for i in range(2)])
    return f"/{name}", f"{proxy.url}/{name}/{{0..5}}.tar"


def test_a_403_between_other_answers_is_a_missing_shard_and_says_so(proxy, shards, caplog):
    path, urls = shards
    for n in (2, 4):
        proxy.scripts[f"{path}/{n}.tar"] = Script([], then=Status(403))
    keys = samples(urls, 8)
    assert keys == [f"{n}-{i}" for n in (0, 1, 3, 5) for i in range(2)]
    assert caplog.text.count("this one may be missing: a store may not say that") == 2


def test_several_403_in_a_row_are_the_login(proxy, shards):
    path, urls = shards
    for n in (2, 3, 4, 5):
        proxy.scripts[f"{path}/{n}.tar"] = Script([], then=Status(403))
    with pytest.raises(ShardError, match=r"3\.tar") as caught:
        samples(urls, 8)
    assert any("since the last refusal: correct the login" in note for note in caught.value.__notes__)


def test_several_403_in_a_row_are_the_login_if_shards_are_opened_before_their_values_are_asked_for():
    """As those of Lance, whose library opens a fragment by what it knows of its data set."""
    counts = ErrorBudget(Errors(skip=True), "a")
    for _ in ("good", "missing"):
        counts.note_opened(is_copy=False)
    counts(RefusedShardError("403"), "shard", url="missing", offset=0)
    for _ in ("good", "refused"):
        counts.note_opened(is_copy=False)
    counts(RefusedShardError("403"), "shard", url="refused", offset=0)
    counts.note_opened(is_copy=False)
    with pytest.raises(RefusedShardError):
        counts(RefusedShardError("403"), "shard", url="refused, too", offset=0)
    assert counts.skipped == {"D102": 2}


def test_a_password_that_changes_in_mid_run_is_not_damage(proxy, shards):
    path, urls = shards
    for n in (2, 3, 4, 5):
        proxy.scripts[f"{path}/{n}.tar"] = Script([], then=Status(401))
    with pytest.raises(wdspec.StoreError, match="status 401"):
        samples(urls, 8)


def disk_error(url):
    return local.translate_error(OSError(errno.EIO, "Input/output error"), url)


def test_a_bad_sector_is_skipped_and_a_failing_disk_is_not(monkeypatch):
    counts = ErrorBudget(Errors(skip=True), "a")
    now = [100.0]
    monkeypatch.setattr(error_budget.time, "monotonic", lambda: now[0])
    error_budget._disk_errors.value.clear()
    for url in "aabb":
        counts(disk_error(url), "shard", url=url)
    now[0] += 61
    for url in "cd":
        counts(disk_error(url), "shard", url=url)
    assert counts.skipped == {"D102": 6}
    with pytest.raises(ShardError) as caught:
        counts(disk_error("e"), "shard", url="e")
    assert any("check the disk" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("lost", [errno.ESTALE, errno.ENOTCONN, errno.ENODEV])
def test_a_lost_file_system_is_a_failing_disk(lost):
    counts = ErrorBudget(Errors(skip=True), "a")
    error_budget._disk_errors.value.clear()
    errors = [local.translate_error(OSError(lost, os.strerror(lost)), f"{n}.tar") for n in range(3)]
    for n in range(2):
        counts(errors[n], "shard", url=f"{n}.tar")
    with pytest.raises(ShardError) as caught:
        counts(errors[2], "shard", url="2.tar")
    assert any("or its mount" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_a_failing_disk_of_fetched_objects_is_not_damage(tmp_path, monkeypatch, code):
    rows = jsonl(tmp_path / "rows.jsonl", [{"image": f"{n}.jpg"} for n in range(9)])
    error_budget._disk_errors.value.clear()

    def fails(path, flags, *rest):
        if str(path).endswith(".jpg"):
            raise OSError(code, os.strerror(code), path)
        return real(path, flags, *rest)

    real = os.open
    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(wdspec.FieldError, match=r"2\.jpg") as caught:
        samples(rows, fetch={"bin": {"url": "image", "root": str(tmp_path)}})
    assert any("check the disk" in note for note in caught.value.__notes__)


def test_objects_that_are_refused_now_and_then_are_skipped_and_many_in_a_row_are_the_login(tmp_path):
    def refuse(denied, count):
        named = [{"image": f"{'status-403' if n in denied else 'ok'}/{n}"} for n in range(72)]
        rows = jsonl(tmp_path / "rows.jsonl", named)
        return samples(rows, count, fetch={"bin": {"url": "image", "root": f"{server.url}/"}})

    with ObjectServer() as server:
        with pytest.raises(wdspec.FieldError, match=r"/71` cannot be fetched.*status 403") as caught:
            refuse(range(40, 72), 41)
        note = "32 objects in a row was denied: correct the login"
        assert any(note in each for each in caught.value.__notes__)
        assert refuse([n for n in range(72) if n % 32], 3) == ["0", "32", "64"]


def test_a_local_file_without_permission_may_be_the_user(monkeypatch):
    counts = ErrorBudget(Errors(skip=True), "a")
    refused = local.translate_error(PermissionError(errno.EACCES, "Permission denied"), "x.tar")
    assert isinstance(refused, RefusedShardError)
    with pytest.raises(ShardError, match="no permission"):
        counts(refused, "shard", url="x.tar")


def test_check_does_not_call_shards_damaged_that_it_could_not_open(tmp_path, code):
    spec = tmp_path / "a.yaml"
    spec.write_text(f"dataset: [{{shards: '{write_source(tmp_path, 'a', 1, 9)}', map: 'failing:fills'}}]\n")
    shown, said = within("check", spec, "--all", code=1)
    assert "D203" not in shown
    assert "MemoryError" in shown + said
