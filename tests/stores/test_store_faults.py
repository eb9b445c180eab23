"""S3, Google and Azure behind a proxy that cuts, resets and refuses at random: the object's own bytes, or an error."""

import random
import re
import uuid

import fsspec
import pytest
from commandline import wdspec as wdspec_command
from servers.fault_proxy import Cut, FaultProxy, Script, Status
from servers.stores import put, use

from wdspec.base.errors import ShardError
from wdspec.base.process import KeyedValues
from wdspec.storage.storage import Storage
from wdspec.stores import filesystems
from wdspec.stores.retry import RetryPolicy

SIZE = 600_000
PATIENT = RetryPolicy(budget=120, brief=120, delay=0.001, longest_delay=0.02, read_timeout=30)
"""Azure's client asks again by itself, and waits for seconds in between."""


class Everywhere(dict):
    """One script for all paths but those of the login."""

    def __init__(self, script):
        super().__init__()
        self.script = script

    def get(self, path, default=None):
        return self.script

    def __contains__(self, path):
        return True

    def __getitem__(self, path):
        return self.script


@pytest.fixture(params=["s3", "gcs", "azure"])
def behind_proxy(request, monkeypatch):
    """(proxy, URL, bytes) of an object of a store that is reached through the proxy only."""
    store = request.getfixturevalue(request.param)
    use(store, monkeypatch)
    name, data = uuid.uuid4().hex, random.Random(1).randbytes(SIZE)
    put(store, name, data)
    with FaultProxy(f"http://127.0.0.1:{store.port}") as proxy:
        far = proxy.url.rpartition(":")[2]
        for variable, value in store.environ.items():
            monkeypatch.setenv(variable, value.replace(f":{store.port}", f":{far}"))
        if store.settings:
            settings = {
                key: str(value).replace(f":{store.port}", f":{far}") for key, value in store.settings.items()
            }
            monkeypatch.setitem(fsspec.config.conf, "gcs", settings)
        monkeypatch.setattr(filesystems._systems, "value", KeyedValues())
        yield proxy, store.root + name, data


def faults(rng):
    some = [
        None,
        Cut(0),
        Cut(rng.randrange(SIZE)),
        Cut(rng.randrange(SIZE), reset=True),
        Status(500),
        Status(503),
    ]
    return [rng.choice(some) for _ in range(rng.randrange(1, 6))]


def judge(behind_proxy, seeds):
    proxy, url, data = behind_proxy
    for seed in seeds:
        script = faults(random.Random(seed))
        proxy.scripts = Everywhere(Script(script))
        proxy._counts.clear()
        with Storage(retry_policy=PATIENT).open_location(url) as file:
            got = b"".join(iter(lambda: file.read(200_000), b""))
        assert got == data, (seed, script)


def test_faults_change_no_byte(behind_proxy):
    judge(behind_proxy, range(3))


@pytest.mark.parametrize("behind_proxy", ["s3", "azure"], indirect=True)
def test_an_object_of_normal_size_is_one_request(behind_proxy):
    proxy, url, data = behind_proxy
    proxy.scripts = {}
    with Storage(retry_policy=PATIENT).open_location(url) as file:
        assert file.readall() == data
    assert len([each for each in proxy.requests if url.rpartition("/")[2] in each.path]) == 1


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_faults_change_no_byte(behind_proxy):
    judge(behind_proxy, range(100, 200))


def test_permanent_faults_are_errors(behind_proxy):
    proxy, url, _ = behind_proxy
    proxy.scripts = Everywhere(Script(then=Cut(1000)))
    policy = RetryPolicy(budget=0.3, brief=0.3, delay=0.001, longest_delay=0.02, read_timeout=2)
    with (
        pytest.raises(ShardError, match=r"given up after \d+ attempts"),
        Storage(retry_policy=policy).open_location(url) as file,
    ):
        file.readall()


def test_a_pattern_in_gcs_without_a_server_is_given_up_as_the_spec_says_without_tracebacks(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "dataset: [{shards: 'gs://bucket/a-*.tar'}]\nerrors: {retry: 0.3s}\n"
        "storage: {endpoint: 'http://127.0.0.1:1', anonymous: true}\n"
    )
    shown, said = wdspec_command("check", "s.yaml", folder=tmp_path, code=1)
    assert re.search(r"D102 given up after \d+ attempts in .*: ClientConnectorError", shown)
    assert "Traceback" not in said
