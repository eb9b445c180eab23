"""What an ETL of AIStore gives: no length, no ranges, no checksum, and an end that looks clean when it died."""

import io
import json
import tarfile

import pytest
from servers.aistore_double import AisDouble, Etl, cut, status
from shardmaking import write_shard

from wdspec.base.errors import ShardError, StoreError
from wdspec.formats.decompress import decompress
from wdspec.formats.tar.reader import TarSamples
from wdspec.spec.language.locations import Etl as EtlOptions
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.retry import RetryPolicy

URL = "gs://imgs/a/x.tar"
SAMPLES = [(f"s{n:03d}", {"jpg": bytes([n]) * 3000, "cls": str(n).encode()}) for n in range(200)]


@pytest.fixture
def tar(tmp_path):
    write_shard(tmp_path / "x.tar", SAMPLES)
    return (tmp_path / "x.tar").read_bytes()


@pytest.fixture
def double(tar):
    with AisDouble() as double:
        double.put(URL, tar)
        double.etls["upper-case"] = Etl(lambda data, args: data)
        yield double
    assert not double.violations


def opened(double, etl, url=URL, **settings):
    options = EtlOptions.model_validate({"name": "upper-case", **etl})
    cluster = AisCluster((double.endpoint,), schemes=frozenset({"gs"}), etl=options, **settings)
    access = Storage(retry_policy=RetryPolicy(budget=5, delay=0.001, longest_delay=0.02), ais=cluster)
    return access.open_location(f"ais+{url}")


def samples(double, **etl):
    with opened(double, etl) as raw:
        for sample in TarSamples(decompress(raw)):
            yield sample["__key__"], {"jpg": sample["jpg"], "cls": sample["cls"]}


def test_an_etl_is_never_asked_for_ranges(double):
    assert list(samples(double)) == SAMPLES
    assert double.seen("p")[0].query == "provider=gcp&etl_name=upper-case"
    assert len(double.seen("t")) == 1
    with opened(double, {}) as file:
        assert not file.seekable()


def test_arguments_and_pipelines_reach_the_etl_byte_for_byte(double):
    received = []
    double.etls["upper-case"] = Etl(lambda data, args: received.append(args) or data)
    double.etls["second-etl"] = Etl(lambda data, args: received.append("second") or data)
    given = {"size": 224, "name": "a&b=c d+é%", "list": [1, {"x": None}]}
    assert list(samples(double, args=given, pipeline=["second-etl"])) == SAMPLES
    assert json.loads(received[0]) == given
    assert " " not in received[0].replace("c d", "")
    assert received[1] == "second"
    list(samples(double, args="--size 224; rm"))
    assert received[2] == "--size 224; rm"


def test_a_broken_stream_is_an_error_and_delivers_no_partial_sample(double, tar):
    """Also at the boundaries of members, where the error text begins just where a header would."""
    for dies_after in [
        *range(0, 9 * 512 * 2, 512),
        *range(1, 10_000, 977),
        len(tar) - 10240,
        len(tar) - 10241,
    ]:
        double.etls["upper-case"].dies_after = dies_after
        given = []
        with pytest.raises(ShardError):
            given.extend(samples(double))
        assert given == SAMPLES[: len(given)]


def test_error_text_after_a_complete_tar_is_an_error(double, tar):
    double.etls["upper-case"].dies_after = len(tar)
    given = []
    with pytest.raises(ShardError, match="the end marker is followed by bytes other than zeros"):
        given.extend(samples(double))
    assert given == SAMPLES


def test_python_silently_accepts_such_a_stream(double, tar):
    """Why the marker must be demanded: the standard library takes the stump for a whole tar."""
    double.etls["upper-case"].dies_after = 9 * 512
    with opened(double, {}) as raw:
        stump = raw.readall()
    assert stump[9 * 512 :].startswith(b'{"message": "ETL error')
    with tarfile.open(fileobj=io.BytesIO(stump)) as read:
        assert read.getnames() == ["s000.jpg", "s000.cls"]


def test_an_interruption_before_the_first_byte_restarts(double):
    double.etls["upper-case"].cut_after = 0
    assert list(samples(double)) == SAMPLES


def test_after_an_interruption_delivered_bytes_are_compared_unless_deterministic(double):
    for deterministic in (False, True):
        double.etls["upper-case"].cut_after = 500_000
        assert list(samples(double, deterministic=deterministic)) == SAMPLES


def test_different_etl_output_after_an_interruption_is_an_error(double):
    answers = [lambda data: data, lambda data: data.replace(b"\x01", b"\x02")]
    double.etls["upper-case"] = Etl(lambda data, args: answers.pop(0)(data))
    double.etls["upper-case"].cut_after = 500_000
    with pytest.raises(ShardError):
        list(samples(double))


def test_redirects_to_an_etl_are_followed(double, tar):
    double.put(URL, tar[:10240] + bytes(1024))
    double.etls["upper-case"] = Etl(lambda data, args: data, kind="hpull")
    with opened(double, {}) as file:
        assert file.readall() == tar[:10240] + bytes(1024)
    asked = [each for each in double.requests if each.path != "/v1/daemon"]
    assert [each.node[:1] for each in asked] == ["p", "t", "p"]


def test_failures_of_an_etl_are_distinguished(double):
    double.etls["upper-case"] = Etl(lambda data, args: 1 / 0)
    with pytest.raises(
        ShardError, match=r"the ETL `upper-case` fails on this shard: .* 500: ETL error: division"
    ):
        list(samples(double))
    del double.etls["upper-case"]
    with pytest.raises(StoreError, match=r"404.*start the ETL `upper-case`: `ais etl start upper-case`"):
        list(samples(double))
    double.without_etl = True
    with pytest.raises(StoreError, match=r"501.*this cluster is built without ETLs"):
        list(samples(double))


def test_a_missing_object_is_not_a_missing_etl(double):
    with (
        opened(double, {}, "gs://imgs/other.tar") as file,
        pytest.raises(FileNotFoundError, match="NoSuchKey"),
    ):
        file.read(1)


def test_wdspec_waits_for_a_starting_etl(double):
    double.script("t", status(503), status(502), cut(0))
    assert list(samples(double)) == SAMPLES
