"""One spec, read from many stores: the same samples, in the same order; and what stores say when they cannot."""

import gc
import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
import weakref
from dataclasses import replace

import fsspec
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from servers.stores import put, use
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import MissingShardError, ShardError, install_command
from wdspec.base.process import KeyedValues
from wdspec.shards.listing import list_texts
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores import filesystems as filesystem
from wdspec.stores import object_requests as segments
from wdspec.stores import objects
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.table import user_stores

QUICK = RetryPolicy(budget=3, brief=0.2, delay=0.001, longest_delay=0.01)
SHARDS = "data://pages/a-{000..002}.tar"
STORES = ["memory", "s3", "gcs", "azure"]


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """Three shards of unequal size; the largest comes in several pieces."""
    folder = tmp_path_factory.mktemp("shards") / "pages"
    for shard, size in enumerate((100, 10, 100_000)):
        write_shard(
            folder / f"a-{shard:03d}.tar",
            [
                (
                    f"{shard}-{i:03d}",
                    {"txt": f"text {shard} {i}".encode(), "bin": random.Random(1).randbytes(size)},
                )
                for i in range(40)
            ],
        )
    return folder


@pytest.fixture
def root(request, monkeypatch, shards):
    """URL of a folder of a store that holds the shards, for each store, of this test alone: tests share buckets."""
    monkeypatch.setattr(filesystem._systems, "value", KeyedValues())
    if request.param == "memory":
        system = fsspec.filesystem("memory")
        for each in shards.iterdir():
            system.pipe_file(f"/shards/pages/{each.name}", each.read_bytes())
        yield "memory://shards/"
        system.store.clear()
        return
    store = request.getfixturevalue(request.param)
    use(store, monkeypatch)
    folder = uuid.uuid4().hex
    for each in shards.iterdir():
        put(store, f"{folder}/pages/{each.name}", each.read_bytes())
    yield f"{store.root}{folder}/"


each_store = pytest.mark.parametrize("root", STORES, indirect=True)


def spec():
    return {
        "dataset": [{"name": "a", "shards": SHARDS, "decode": {"bin": "raw"}}],
        "shuffle": 0,
        "elastic": {"ranks": 1, "workers": 2},
        "epoch": {"samples": 200},
        "batch": 10,
    } | {"defaults": {"shuffle": 50}}


def sequence(monkeypatch, rewrite, workers=0, **options):
    monkeypatch.setenv("WDS_REWRITE", rewrite)
    made = spec()
    del made["shuffle"]
    with wdspec.loader(made, num_workers=workers, **options) as loader:
        return [(batch["__key__"], batch["__url__"], batch["txt"], batch["bin"]) for batch in loader]


@pytest.fixture
def expected(monkeypatch, shards):
    return sequence(monkeypatch, f"data://pages/={shards}/")


def opened(location, retry_policy=QUICK):
    return Storage(retry_policy=retry_policy, users=user_stores(False)).open_location(location)


def listed(*texts, rewrite=""):
    storage = Storage.of(Environment.read({"WDS_REWRITE": rewrite}))
    return [url.text for url in list_texts(texts, "/", replace(storage, retry_policy=QUICK))]


@each_store
def test_every_store_delivers_the_same_samples(root, monkeypatch, expected):
    assert sequence(monkeypatch, f"data://={root}") == expected


@pytest.mark.parametrize(
    ("root", "method"),
    [
        ("s3", "fork"),
        ("azure", "fork"),
        ("gcs", "fork"),
        pytest.param("s3", "spawn", marks=pytest.mark.long),  # importing torch again takes seconds
    ],
    indirect=["root"],
)
def test_workers_can_read_after_the_parent_has_read(root, monkeypatch, expected, method):
    assert sequence(monkeypatch, f"data://={root}") == expected
    assert filesystem._systems.value._values  # the parent has clients, with threads and sockets
    workers = 2 if method == "fork" else 1  # torch is slow to import
    assert sequence(monkeypatch, f"data://={root}", workers, multiprocessing_context=method) == expected


def in_a_child(job):
    """What a forked child made of a job: True, or what it raised."""
    ours, theirs = os.pipe()
    if not (child := os.fork()):
        signal.alarm(200)  # ends it if it hangs
        try:
            os.write(theirs, repr(job()).encode())
        except BaseException as error:
            os.write(theirs, repr(error).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as said:
        os.waitpid(child, 0)
        return said.read()


@pytest.mark.parametrize("root", ["s3", "gcs", "azure"], indirect=True)
def test_a_child_forked_during_client_creation_can_read(root):
    def read():
        with opened(f"{root}pages/a-000.tar") as file:
            return len(file.read(512))

    lock, both = fsspec.asyn.get_lock(), filesystem._systems.value._lock
    with lock, both:  # by a thread that the child does not have
        assert in_a_child(read) == "512"


@pytest.mark.parametrize(
    "root", ["s3", *(pytest.param(name, marks=pytest.mark.long) for name in ("gcs", "azure"))], indirect=True
)
def test_a_child_does_not_touch_the_clients_of_its_parent(root):
    ours, path = filesystem.filesystem_of(f"{root}pages/a-000.tar")
    assert ours.cat_file(path)
    loop, ended = ours.loop, []
    weakref.finalize(ours, ended.append, "ended")
    del ours

    def read():
        own, _ = filesystem.filesystem_of(f"{root}pages/a-000.tar")
        gc.collect()
        return len(own.cat_file(path)) > 0, own.loop is not loop, ended

    assert in_a_child(read) == "(True, True, [])"


def test_a_pipe_delivers_the_same_samples(monkeypatch, shards, expected):
    command = f"pipe:cat {shlex.quote(str(shards))}/"
    assert sequence(monkeypatch, f"data://pages/={command}") == expected
    assert sequence(monkeypatch, f"data://pages/={command}", 2) == expected


def test_a_program_on_another_host_delivers_the_same_samples(monkeypatch, shards, sshd, expected):
    command = f"pipe:{sshd.command} cat {shlex.quote(str(shards))}/"
    assert sequence(monkeypatch, f"data://pages/={command}") == expected


def read_by_threads(locations):
    """What threads read through the one client of a process, all at once, many times over."""
    found = {}

    def read(location):
        for _ in range(10):
            with Storage().open_location(location) as stream:
                found[location] = stream.read()

    threads = [threading.Thread(target=read, args=(each,), daemon=True) for each in locations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert not any(thread.is_alive() for thread in threads), "two threads wait for each other's answers"
    return [found[location] for location in locations]


def test_sftp_delivers_the_same_samples(monkeypatch, shards, sshd, expected):
    options = {"username": sshd.user, "key_filename": str(sshd.key), "port": sshd.port}
    monkeypatch.setitem(fsspec.config.conf, "sftp", options)
    monkeypatch.setattr(filesystem._systems, "value", KeyedValues())
    assert sequence(monkeypatch, f"data://pages/=sftp://127.0.0.1{shards}/") == expected
    assert read_by_threads([f"sftp://127.0.0.1{shards}/a-00{i}.tar" for i in range(3)]) == [
        (shards / f"a-00{i}.tar").read_bytes() for i in range(3)
    ]
    names = [f"sftp://127.0.0.1{shards}/a-00{i}.tar" for i in range(3)]
    assert listed(f"sftp://127.0.0.1{shards}/*.tar") == names


@each_store
def test_stores_are_listed_like_disks(root, monkeypatch, shards):
    store = filesystem.filesystem_of(root)[0]
    base = root.split("://")[1]
    for name in ("deep/er/x.tar", "deep/.h.tar", "deep/notes.txt"):
        store.pipe_file(f"{base}{name}", b"x")
    store.pipe_file(f"{base}pages/list.txt", b"a-001.tar\n../deep/er/*.tar\n")
    names = [f"{root}pages/a-00{i}.tar" for i in range(3)]
    assert listed(f"{root}pages/") == names
    assert listed(f"{root}pages/a-*.tar") == names
    assert listed(f"{root}pages/a-00[!1].tar") == [names[0], names[2]]
    assert listed(f"{root}p*/a-001*") == [names[1]]
    assert listed(f"{root}**/*.tar") == [f"{root}deep/er/x.tar", *names]
    assert listed(f"{root}deep/**/er/*") == [f"{root}deep/er/x.tar"]
    assert listed(f"{root}deep/*") == [f"{root}deep/notes.txt"]
    assert listed("data://pages/*1.tar", rewrite=f"data://={root}") == ["data://pages/a-001.tar"]
    with pytest.raises(ShardError, match=r"no file in `.*/pages/` matches `b-\*`; correct"):
        listed(f"{root}pages/b-*")
    with pytest.raises(ShardError, match=r"no such object|no shards in the directory"):
        listed(f"{root}nowhere/")


@each_store
def test_a_list_can_be_in_a_store(root):
    base = root.split("://")[1]
    filesystem.filesystem_of(root)[0].pipe_file(
        f"{base}pages/list.txt", b"# shards\na-001.tar\na-00[02].tar\n"
    )
    assert listed(f"@{root}pages/list.txt") == [f"{root}pages/a-00{i}.tar" for i in (1, 0, 2)]


@each_store
def test_any_offset_of_an_object_can_be_read(root, shards):
    data = (shards / "a-002.tar").read_bytes()
    with opened(f"{root}pages/a-002.tar") as file:
        assert file.seekable()
        assert file.read(1000) == data[:1000]
        file.seek(3_000_000)
        assert file.read(1000) == data[3_000_000:3_001_000]
        file.seek(0)
        assert file.readall() == data


@each_store
def test_a_missing_object_is_reported_as_missing(root):
    for name in ("pages/none.tar", "no/such/place.tar"):
        with (
            opened(root + name) as file,
            pytest.raises(MissingShardError, match="no such object; correct the URL"),
        ):
            file.read(10)


# Not on Google's: there the reader asks for one generation, which the emulator does not heed.
@pytest.mark.parametrize("root", ["memory", "s3", "azure"], indirect=True)
def test_an_object_that_changes_while_it_is_read_is_an_error(root, monkeypatch, shards):
    for name in ("WHOLE", "FIRST", "SEGMENT", "LONGEST"):
        monkeypatch.setattr(segments, name, 100_000)
    monkeypatch.setattr(segments, "SIDES", 1)
    system, path = filesystem.filesystem_of(f"{root}pages/changing.tar")
    system.pipe_file(path, bytes(2_000_000))
    with opened(f"{root}pages/changing.tar") as file:
        file.read(300_000)
        system.pipe_file(path, b"x" * 2_000_000)
        with pytest.raises(ShardError, match="changed while it was read"):
            file.readall()


def test_an_untrusted_certificate_fails_immediately(nginx, monkeypatch):
    pytest.importorskip("s3fs")
    for name, value in {
        "ENDPOINT_URL": nginx.tls_url,
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
        "MAX_ATTEMPTS": "2",  # those of the client itself, which waits between them
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(filesystem._systems, "value", KeyedValues())
    begin = time.monotonic()
    with opened("s3://bucket/a.tar") as file, pytest.raises(ShardError, match=r"not trusted .*AWS_CA_BUNDLE"):
        file.read(10)
    assert time.monotonic() - begin < 60


def test_a_rejection_says_how_to_give_credentials(s3, monkeypatch):
    use(s3, monkeypatch)

    def refuse(*arguments, **options):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(type(filesystem.filesystem_of("s3://b/o")[0]), "_info", refuse)
    with (
        opened("s3://b/o") as file,
        pytest.raises(ShardError, match=r"denies access .*Access Denied.*AWS_PROFILE"),
    ):
        file.read(10)


def test_missing_credentials_say_how_to_give_them(s3, monkeypatch):
    use(s3, monkeypatch)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with (
        opened("s3://shards/o") as file,
        pytest.raises(ShardError, match=r"credentials.*FSSPEC_S3_ANON=true"),
    ):
        file.read(10)


def test_missing_settings_say_how_to_give_them(azure, monkeypatch):
    monkeypatch.setattr(filesystem._systems, "value", KeyedValues())
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(ShardError, match=r"cannot be opened .*AZURE_STORAGE_CONNECTION_STRING"):
        opened("az://shards/o")


@pytest.mark.parametrize(
    ("url", "install"),
    [
        ("s3://b/o", "wdspec[s3]"),
        ("gs://b/o", "wdspec[gcs]"),
        ("abfs://c/o", "wdspec[azure]"),
        ("hf://d/o", "wdspec[hf]"),
    ],
)
def test_a_store_without_its_package_names_the_extra(url, install):
    program = (
        "import sys\n"
        "for name in ('s3fs', 'gcsfs', 'adlfs', 'huggingface_hub'): sys.modules[name] = None\n"
        "from wdspec.storage.storage import Storage\n"
        f"try: Storage().open_location({url!r})\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert install_command(install) in done.stdout


def test_a_store_that_does_not_answer_is_abandoned_soon(monkeypatch):
    monkeypatch.setattr(filesystem._systems, "value", KeyedValues())
    monkeypatch.setattr(filesystem, "reached", set())
    monkeypatch.setitem(
        fsspec.config.conf,
        "s3",
        {
            "endpoint_url": "http://127.0.0.1:9",
            "anon": True,
            "config_kwargs": {"retries": {"max_attempts": 0}},
        },
    )
    with (
        opened("s3://b/o") as file,
        pytest.raises(ShardError, match=r"given up after .* in \d s: .*Endpoint"),
    ):
        file.read(10)


class CachingFiles(AbstractFileSystem):
    """Local files that are only read through the buffered files of fsspec, with one of its caches."""

    protocol = "cachingfiles"
    cache_type = ""

    def info(self, path, **options):
        return {"name": path, "size": os.path.getsize(path), "type": "file", "ETag": "1"}

    def _open(self, path, mode="rb", block_size=None, **options):
        return CachingFile(self, path, mode, block_size, cache_type=self.cache_type)


class CachingFile(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        with open(self.path, "rb") as file:
            file.seek(start)
            return file.read(end - start)


@pytest.mark.parametrize("cache", ["readahead", "bytes", "blockcache", "background", "mmap", "first", "all"])
def test_any_offset_can_be_read_through_every_fsspec_cache(tmp_path, monkeypatch, cache):
    data = random.Random(1).randbytes(700_000)
    (tmp_path / "a.bin").write_bytes(data)
    fsspec.register_implementation("cachingfiles", CachingFiles, clobber=True)
    filesystem.known_schemes.cache_clear()
    monkeypatch.setattr(CachingFiles, "cache_type", cache)
    monkeypatch.setattr(objects, "LARGEST", 100_000)
    monkeypatch.setattr(objects, "FIRST", 7_000)
    for start in (0, 1, 99_999, 350_001):
        with opened(f"cachingfiles://{tmp_path}/a.bin") as file:
            file.seek(start)
            assert b"".join(iter(lambda: file.read(30_000), b"")) == data[start:]
