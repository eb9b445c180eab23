"""The double is honest: it shows what a running AIStore 5.0 was seen to do, and NVIDIA's own client reads from it."""

import json
import urllib.request

import pytest
import urllib3
from aistore.sdk import Client
from aistore.sdk.etl import ETLConfig
from aistore.sdk.retry_config import RetryConfig
from servers.aistore_double import AisDouble, Etl, cut

DATA = bytes(range(256)) * 4000


@pytest.fixture
def double():
    with AisDouble() as double:
        double.put("ais://imgs/a/b/x.tar", DATA)
        double.put("s3://imgs/a/b/x.tar", DATA[::-1])
        double.etls["upper-case"] = Etl(lambda data, args: data[:1000])
        yield double


def ask(double, path, method="GET", follow=True, body=None, **headers):
    """(status, headers, body) of a request, redirects followed by hand."""
    http = urllib3.PoolManager()
    url = double.endpoint + path
    while True:
        answer = http.request(method, url, headers=headers, body=body, redirect=False, retries=False)
        if not follow or "Location" not in answer.headers:
            return answer.status, answer.headers, answer.data
        url = answer.headers["Location"]


OBJECT = "/v1/objects/imgs/a/b/x.tar"

# (method, path, headers) -> (status, headers that must be there, headers that must not)
GOLDEN = [
    (
        "GET",
        OBJECT,
        {},
        200,
        {"Ais-Checksum-Type": "xxhash2", "Ais-Version": "1", "Ais-Atime": None},
        ["Last-Modified"],
    ),
    ("GET", f"{OBJECT}?provider=s3", {}, 200, {"Etag": "e1", "Ais-Custom-Md": None}, ["Ais-Version"]),
    (
        "GET",
        OBJECT,
        {"Range": "bytes=10-19"},
        206,
        {"Content-Range": "bytes 10-19/1024000", "Content-Length": "10"},
        [],
    ),
    ("GET", OBJECT, {"Range": "bytes=-7"}, 206, {"Content-Range": "bytes 1023993-1023999/1024000"}, []),
    ("GET", OBJECT, {"Range": "bytes=2000000-"}, 416, {"Content-Range": "bytes */1024000"}, []),
    ("GET", OBJECT, {"Range": "bytes=0-1,5-6"}, 416, {}, []),
    ("GET", OBJECT, {"If-None-Match": "*", "If-Range": "x"}, 200, {"Content-Length": "1024000"}, []),
    ("HEAD", OBJECT, {}, 200, {"Content-Length": "1024000", "Ais-Present": "true"}, []),
    ("HEAD", f"{OBJECT}?provider=aws", {}, 200, {"Ais-Present": "false"}, []),
    ("HEAD", f"{OBJECT}?provider=aws&presence=2", {}, 404, {"Hdr-Error": None}, []),
    ("HEAD", f"{OBJECT}?etl_name=upper-case", {}, 200, {"Content-Length": "1024000"}, []),
    (
        "GET",
        f"{OBJECT}?etl_name=upper-case",
        {},
        200,
        {"Transfer-Encoding": "chunked"},
        ["Content-Length", "Ais-Version"],
    ),
    ("GET", f"{OBJECT}?etl_name=upper-case", {"Range": "bytes=5-"}, 200, {}, ["Content-Range"]),
    ("GET", f"{OBJECT}?etl_name=other-one", {}, 404, {}, []),
    ("GET", "/v1/objects/imgs/a/b/y.tar", {}, 404, {}, []),
    ("GET", f"{OBJECT}?provider=gcp", {}, 404, {}, []),
    ("GET", f"{OBJECT}?provider=ht", {}, 400, {}, []),
    ("GET", "/aws/imgs/a/b/x.tar", {}, 400, {}, []),
]


@pytest.mark.parametrize(("method", "path", "headers", "status", "there", "absent"), GOLDEN)
def test_statuses_and_headers_are_those_of_a_running_cluster(
    double, method, path, headers, status, there, absent
):
    code, said, _ = ask(double, path, method, **headers)
    assert code == status
    for name, value in there.items():
        assert name in said
        assert value is None or said[name] == value
    assert not [name for name in absent if name in said]


def test_get_is_redirected_with_301_and_everything_else_with_307(double):
    for method, status in (("GET", 301), ("HEAD", 307), ("PUT", 307)):
        code, headers, _ = ask(double, f"{OBJECT}?provider=s3&x=1", method, follow=False)
        assert code == status
        assert "/v1/objects/imgs/a/b/x.tar?provider=s3&x=1&pid=" in headers["Location"]
        assert "&utm=" in headers["Location"]


def test_a_range_response_has_the_checksum_of_the_whole_object(double):
    whole, part = ask(double, OBJECT)[1], ask(double, OBJECT, Range="bytes=0-9")[1]
    assert part["Ais-Checksum-Value"] == whole["Ais-Checksum-Value"]


def test_the_short_form_swallows_a_slash_and_s3_is_another_api(double):
    code, headers, _ = ask(double, "/ais/imgs/a/b/x.tar", follow=False)
    assert (code, headers["Location"]) == (301, f"{double.endpoint}/v1/objects/imgs/ab/x.tar?provider=ais")
    code, headers, body = ask(double, "/s3/imgs/a/b/x.tar", follow=False)
    assert (code, headers["Content-Type"]) == (307, "application/xml")
    assert b"TemporaryRedirect" in body


@pytest.mark.parametrize(
    ("path", "node", "tcode"),
    [
        ("/v1/objects/other/x", "p[p]", "ErrBckNotFound"),
        ("/v1/objects/other/x?provider=gs", "p[p]", None),
        ("/v1/objects/imgs/x?provider=az", "p[p]", "ErrFailedTo"),
        ("/v1/objects/imgs/x", "t[", "ErrNotFound"),
        ("/v1/objects/imgs/x?provider=s3", "t[", None),
        (f"{OBJECT}?etl_name=other-one", "t[", None),
    ],
)
def test_a_404_has_several_causes_and_names_the_responder(double, path, node, tcode):
    double.backends.discard("azure")
    code, _, body = ask(double, path)
    said = json.loads(body)
    assert (code, said["status"], said.get("tcode")) == (404, 404, tcode)
    assert said["node"].startswith(node)
    assert {"message", "method", "url_path", "remote_addr", "caller"} <= said.keys()


def test_targets_require_redirected_requests(double):
    with pytest.raises(urllib.error.HTTPError, match="403") as caught:
        urllib.request.urlopen(double.target_nodes[0].url + OBJECT)
    assert b"direct target access denied" in caught.value.read()


def test_a_warm_copy_can_be_stale_and_head_shows_it(double):
    cloud = f"{OBJECT}?provider=s3"
    assert ask(double, cloud)[2] == DATA[::-1]
    double.put("s3://imgs/a/b/x.tar", b"new")
    assert ask(double, cloud)[2] == DATA[::-1]
    assert ask(double, f"{cloud}&latest-ver=true", "HEAD")[0] == 409
    assert ask(double, f"{cloud}&latest-ver=true")[2] == b"new"
    double.remove("s3://imgs/a/b/x.tar")
    assert ask(double, f"{cloud}&latest-ver=true", "HEAD")[0] == 410
    assert ask(double, f"{cloud}&latest-ver=true")[0] == 404


def test_a_page_of_a_listing_has_sizes_as_text_and_no_entries_as_null(double):
    double.page_size = 2
    for n in range(5):
        double.put(f"ais://imgs/p/{n}", bytes(n))
    value, names = {"prefix": "p/"}, []
    while True:
        said = json.loads(
            ask(double, "/v1/buckets/imgs", body=json.dumps({"action": "list", "value": value}))[2]
        )
        names += [entry["name"] for entry in said["entries"]]
        assert all(isinstance(entry["size"], str) for entry in said["entries"])
        if not said["continuation_token"]:
            break
        value |= {"uuid": said["uuid"], "continuation_token": said["continuation_token"]}
    assert names == [f"p/{n}" for n in range(5)]
    none = json.loads(ask(double, "/v1/buckets/imgs", body='{"action":"list","value":{"prefix":"zz"}}')[2])
    assert (none["entries"], none["continuation_token"]) == (None, "")
    foreign = {"uuid": "other", "continuation_token": "p/1"}
    assert ask(double, "/v1/buckets/imgs", body=json.dumps({"action": "list", "value": foreign}))[0] == 410


def test_a_dying_etl_ends_cleanly_with_its_error_in_the_body(double):
    double.etls["upper-case"].dies_after = 100
    code, _, body = ask(double, f"{OBJECT}?etl_name=upper-case")
    assert code == 200
    assert body[:100] == DATA[:100]
    assert json.loads(body[100:])["status"] == 500


def test_nvidias_client_reads_from_it(double):
    client = Client(double.endpoint, retry_config=RetryConfig.default())
    bucket = client.bucket("imgs")
    assert [entry.name for entry in bucket.list_objects_iter()] == ["a/b/x.tar"]
    reader = bucket.object("a/b/x.tar").get_reader()
    assert reader.read_all() == DATA
    assert client.bucket("imgs", provider="aws").object("a/b/x.tar").get_reader().read_all() == DATA[::-1]
    assert bucket.object("a/b/x.tar").get_reader(byte_range="bytes=5-9").read_all() == DATA[5:10]
    etl = ETLConfig("upper-case")
    assert bucket.object("a/b/x.tar").get_reader(etl=etl).read_all() == DATA[:1000]


def test_nvidias_client_resumes_after_an_interruption(double):
    double.script("t", cut(300_000))
    with Client(double.endpoint).bucket("imgs").object("a/b/x.tar").get_reader().as_file() as file:
        assert file.read() == DATA
    resumed = [each for each in double.seen("p", "GET") if "range" in each.headers]
    assert len(resumed) == 1


def test_nvidias_client_pages_and_prefetches(double):
    double.page_size = 3
    for n in range(10):
        double.put(f"gs://cold/{n:02d}", b"x")
    client = Client(double.endpoint)
    bucket = client.bucket("cold", provider="gcp")
    assert [entry.name for entry in bucket.list_objects_iter()] == [f"{n:02d}" for n in range(10)]
    job = bucket.objects(obj_names=["01", "02"]).prefetch()
    assert double.jobs[job] == ["01", "02"]
    assert ask(double, "/v1/objects/cold/01?provider=gcp", "HEAD")[1]["Ais-Present"] == "true"
    assert ask(double, "/v1/objects/cold/03?provider=gcp", "HEAD")[1]["Ais-Present"] == "false"
