"""Where AIStore is and how it is asked: from the spec, else the environment, put together once."""

import os
import pickle

import pytest

from wdspec.base.errors import UrlError, UsageError
from wdspec.spec.load import check, load
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import NO_LIMIT, AisCluster, AisVariables, ais_object
from wdspec.urls.urls import ShardUrl

HOME = "/home/me"


def cluster(environ=None, top=None, **source):
    """The cluster of the first source of a spec."""
    settings = {} if top is None else {"aistore": top}
    spec = load({"dataset": [{"shards": "gs://b/a.tar", **source}], **settings})
    return AisCluster.of(AisVariables.read(environ or {}), HOME, spec, spec.sources[0])


def resolved(url, environ=None, top=None, **source):
    settings = {} if top is None else {"aistore": top}
    spec = load({"dataset": [{"shards": url, **source}], **settings})
    environment = Environment.read(environ or {})
    return Storage.of(environment, spec, spec.sources[0]).resolve(ShardUrl(url, "/"))


def request(url, environ=None, top=None, **source):
    return resolved(url, environ, top or {"endpoint": "nix:51080", "use_for": "all"}, **source).steps[-1].url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("gs://b/d/o.tar", "/v1/objects/b/d/o.tar?provider=gcp"),
        ("s3://b/o", "/v1/objects/b/o?provider=aws"),
        ("aws://b/o", "/v1/objects/b/o?provider=aws"),
        ("az://b/o", "/v1/objects/b/o?provider=azure"),
        ("oc://b/o", "/v1/objects/b/o?provider=oci"),
        ("gcp://b/o", "/v1/objects/b/o?provider=gcp"),
        ("ais://b/o", "/v1/objects/b/o?provider=ais"),
        ("gs://b/a//b///c", "/v1/objects/b/a/b/c?provider=gcp"),
        ("gs://b/a b%20+#?&=é", "/v1/objects/b/a%20b%2520%2B%23%3F%26%3D%C3%A9?provider=gcp"),
        ("ais://@there/b/o", "/v1/objects/b/o?provider=ais&namespace=%40there"),
        ("ais://@uuid#ns/b/o", "/v1/objects/b/o?provider=ais&namespace=%40uuid%23ns"),
        ("gs://#ns/b/o", "/v1/objects/b/o?provider=gcp&namespace=%23ns"),
    ],
)
def test_a_url_becomes_one_request_to_the_native_api(url, expected):
    assert request(url) == f"http://nix:51080{expected}"


def test_the_settings_of_a_source_are_in_its_requests():
    etl = {"name": "resize-224", "args": {"size": 224}, "pipeline": "second-etl"}
    assert request("gs://b/o", aistore={"etl": etl, "latest": True, "namespace": "#ns"}) == (
        "http://nix:51080/v1/objects/b/o?provider=gcp&namespace=%23ns&etl_name=resize-224&"
        "etl_args=%7B%22size%22%3A224%7D&etl_pipeline=second-etl&latest-ver=true"
    )
    assert request("ais://@there/b/o", aistore={"namespace": "#ns"}).endswith("namespace=%40there")


def test_names_that_are_not_utf_8_keep_their_bytes():
    assert ais_object("gs://b/\udcff").quoted_name == "%FF"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("gs://b/a/../o", r"no `\.` or `\.\.`"),
        ("gs://b/./o", r"no `\.` or `\.\.`"),
        ("gs:///o", "no bucket"),
        ("gs://b@c/o", "cannot be the name of a bucket"),
        ("gs://@a@b/c/o", "is not a namespace"),
    ],
)
def test_names_that_aistore_cannot_store_are_errors(url, message):
    with pytest.raises(UrlError, match=message):
        ais_object(url)


def test_the_spec_overrides_the_environment_and_a_source_the_top_level():
    environ = {
        "AIS_ENDPOINT": "http://env:1",
        "USE_AIS_FOR": "s3",
        "AIS_CONNECT_TIMEOUT": "3",
        "AIS_READ_TIMEOUT": "0",
    }
    assert cluster(environ).endpoints == ("http://env:1",)
    assert cluster(environ).schemes == {"ais", "s3"}
    assert cluster(environ, {"endpoint": "top:1"}).endpoints == ("http://top:1",)
    assert cluster(environ, {"endpoint": "top:1"}).schemes == {"ais", "s3"}
    assert cluster(environ, {"use_for": ["gs"]}).endpoints == ("http://env:1",)
    both = cluster(environ, {"endpoint": "top:1", "latest": True}, aistore={"endpoint": ["a:1", "b:1"]})
    assert (both.endpoints, both.latest) == (("http://a:1", "http://b:1"), True)
    assert (cluster(environ).connect_timeout, cluster(environ).read_timeout) == (3, NO_LIMIT)
    assert cluster(environ, {"read_timeout": "5m"}).read_timeout == 300
    off = cluster(environ, {"endpoint": "top:1", "etl": "resize-224"}, aistore={"etl": False})
    assert off.etl is None


def test_false_disables_it_for_all_or_one_source():
    environ = {"AIS_ENDPOINT": "http://env:1", "USE_AIS_FOR": "gs"}
    assert cluster(environ, False) is None
    assert cluster(environ, {"endpoint": "x"}, aistore=False) is None
    assert cluster(environ, False, aistore={"latest": True}).latest
    assert cluster({}) is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"AIS_ENDPOINT": "ftp://x"}, "AIS_ENDPOINT=ftp://x: .* is not an http or https address"),
        ({"AIS_ENDPOINT": "http://me:pw@x"}, "user name or password"),
        ({"USE_AIS_FOR": "gs:https"}, "USE_AIS_FOR=gs:https: AIStore does not serve https://"),
        ({"USE_AIS_FOR": "hf"}, "AIStore does not serve hf://"),
        ({"AIS_READ_TIMEOUT": "soon"}, "AIS_READ_TIMEOUT=soon is not a number of seconds"),
    ],
)
def test_invalid_variables_are_errors(environ, message):
    with pytest.raises(UsageError, match=message):
        Environment.read(environ)


@pytest.mark.parametrize("text", ["gs:s3", "gs,s3", "gs s3", " gs : s3://"])
def test_schemes_can_be_written_in_many_ways(text):
    assert AisVariables.read({"USE_AIS_FOR": text}).schemes == ("gs", "s3")
    assert {"gs", "s3", "az", "oc", "ais"} <= set(AisVariables.read({"USE_AIS_FOR": "all"}).schemes)


def test_a_cluster_without_an_address_is_an_error_when_read():
    with pytest.raises(UsageError, match="`aistore:` has no `endpoint`, and AIS_ENDPOINT is not set"):
        cluster({}, {"use_for": "gs"})
    with pytest.raises(UsageError, match="USE_AIS_FOR=gs is set, but AIS_ENDPOINT is not"):
        cluster({"USE_AIS_FOR": "gs"})
    assert cluster({"USE_AIS_FOR": "gs"}, False) is None
    with pytest.raises(UsageError, match="certificate and its key go together"):
        cluster({"AIS_ENDPOINT": "https://x", "AIS_CRT": "/c"})


def test_validation_warns_about_an_unset_address_variable(monkeypatch):
    spec = {"aistore": {"use_for": "gs"}, "dataset": [{"shards": "gs://b/a.tar"}]}
    monkeypatch.delenv("AIS_ENDPOINT", raising=False)
    assert [problem.code for problem in check(spec)[1]] == ["W104"]
    urls = {
        "dataset": [{"name": "a", "shards": "ais://b/a.tar::ais://b/b.tar"}, {"name": "b", "shards": "c.tar"}]
    }
    [problem] = check(urls)[1]
    assert (problem.code, problem.message) == ("W104", "no endpoint of AIStore is set, which reads `ais://`")
    assert check({**urls, "rewrite": [{"from": "ais://b/", "to": "/data/"}]})[1] == []
    assert check({**urls, "aistore": {"endpoint": "http://x"}})[1] == []
    monkeypatch.setenv("AIS_ENDPOINT", "http://x")
    assert check(spec)[1] == check(urls)[1] == []


def test_an_etl_without_effect_is_an_error():
    top = {"endpoint": "x", "use_for": "gs"}
    for url in ("s3://b/a.tar", "/data/a.tar", "https://h/a.tar", "pipe:cat a.tar"):
        with pytest.raises(UrlError, match="the ETL `resize-224` runs in AIStore, which does not serve this"):
            resolved(url, {}, top, aistore={"etl": "resize-224"})
    rewritten = {"WDS_REWRITE": "gs://b/=/data/"}
    with pytest.raises(UrlError, match="the ETL `resize-224`"):
        resolved("gs://b/a.tar", rewritten, top, aistore={"etl": "resize-224"})
    assert resolved("gs://b/a.tar", rewritten, False).location == "/data/a.tar"


def test_rewriting_precedes_aistore():
    environ = {"AIS_ENDPOINT": "http://nix:1", "USE_AIS_FOR": "gs", "WDS_REWRITE": "s3://=gs://"}
    steps = resolved("s3://b/a.tar", environ).steps
    assert [step.stage for step in steps] == ["rewrite", "ais"]
    assert steps[-1].url == "http://nix:1/v1/objects/b/a.tar?provider=gcp"


def test_tokens_are_sent_and_never_shown():
    environ = {"AIS_ENDPOINT": "http://x", "AIS_AUTHN_TOKEN": "s3cret"}
    environment = Environment.read(environ)
    storage = Storage.of(environment)
    assert pickle.loads(pickle.dumps(storage)).ais.token == "s3cret"
    assert "s3cret" not in repr((environment, storage, storage.ais))
    assert "s3cret" not in repr(storage.resolve(ShardUrl("ais://b/o", "/")))


def test_a_token_in_a_spec_is_rejected_and_not_shown(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "aistore: {endpoint: h, token: s3cret, use_for: [zz]}\ndataset: [{shards: gs://b/a.tar}]\n"
    )
    found = check(tmp_path / "s.yaml")[1]
    assert [problem.code for problem in found] == ["E220", "E219"]
    assert "s3cret" not in "".join(map(str, found))
    found = check({"aistore": {"endpoint": "http://me:s3cret@h"}, "dataset": [{"shards": "a.tar"}]})[1]
    assert [problem.code for problem in found] == ["E219", "W323"]
    assert "s3cret" not in "".join(map(str, found))
    with pytest.raises(UsageError, match=r"^AIS_ENDPOINT: ") as caught:
        Environment.read({"AIS_ENDPOINT": "http://me:s3cret@h"})
    assert "s3cret" not in str(caught.value)


def test_the_token_comes_from_the_spec_then_the_variable_then_a_file():
    files = {"AIS_ENDPOINT": "x", "AIS_AUTHN_TOKEN_FILE": "~/t"}
    assert cluster({"AIS_ENDPOINT": "x"}).token_file == f"{HOME}/.config/ais/cli/auth.token"
    assert not cluster({"AIS_ENDPOINT": "x"}).token_named
    assert cluster(files).token_file == os.path.expanduser("~/t")
    own = cluster({**files, "AIS_AUTHN_TOKEN": "s"}, {"token_file": "~/own"})
    assert (own.token, own.token_file, own.token_named) == (None, f"{HOME}/own", True)


def test_paths_in_a_spec_are_relative_to_it(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "aistore: {endpoint: h, client_ca: tls/ca.pem, token_file: ~/t}\ndataset: [{shards: gs://b/a.tar}]\n"
    )
    aistore = load(tmp_path / "s.yaml").aistore
    assert (aistore.client_ca, aistore.token_file) == (f"{tmp_path}/tls/ca.pem", "~/t")


def test_each_etl_makes_a_distinct_variant_of_a_shard():
    assert cluster({"AIS_ENDPOINT": "x"}).variant == ""
    one = cluster({"AIS_ENDPOINT": "x"}, aistore={"etl": {"name": "resize-224", "args": "a b"}})
    assert one.variant == "etl_name=resize-224&etl_args=a%20b"


def test_a_cluster_pickles_to_an_equal_one():
    etl = {"name": "resize-224", "args": {"size": 224}, "pipeline": ["second-etl"]}
    here = cluster({"AIS_ENDPOINT": "x", "AIS_AUTHN_TOKEN": "s"}, aistore={"etl": etl})
    there = pickle.loads(pickle.dumps(here))
    assert (there, hash(there), there.target("ais://b/o")) == (here, hash(here), here.target("ais://b/o"))
