"""What references in data may name (docs/references.md)."""

import ipaddress
import itertools
from urllib.parse import quote

import pytest

from wdspec.base.errors import UrlError
from wdspec.urls.references import Allowed, is_public, parse_place

ROOTS = ["s3://bucket/images/", "https://cdn.example.org/images/", "/data/images/"]


def refusal(allowed, reference):
    with pytest.raises(UrlError) as caught:
        allowed.locate(reference)
    return str(caught.value)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("name", ["a.jpg", "a/b.jpg", "a..b/c..jpg", ".hidden", "12:30.jpg"])
def test_a_relative_path_is_below_its_root(root, name):
    assert Allowed(root).locate(name) == root + name


def test_a_full_url_below_the_root_is_allowed():
    assert Allowed("s3://bucket/images/").locate("s3://bucket/images/a.jpg") == "s3://bucket/images/a.jpg"


def test_a_name_with_a_colon_needs_a_dot_before_it():
    assert "`./`" in refusal(Allowed("s3://b/i/"), "s3://b/i/a:b.jpg")
    assert Allowed("s3://b/i/").locate("./a:b.jpg") == "s3://b/i/a:b.jpg"


@pytest.mark.parametrize(
    "near", ["s3://bucket/images-private/a.jpg", "s3://bucket/image", "s3://bucket/images"]
)
def test_a_root_is_not_a_prefix_of_names(near):
    assert "relative to `root`" in refusal(Allowed("s3://bucket/images/"), near)


def escapes(text):
    """A text in encodings that some server, proxy or store decodes."""
    once = "".join(f"%{ord(each):02x}" for each in text)
    yield from (text, once, once.upper(), quote(once, safe=""), quote(quote(once, safe=""), safe=""))
    yield text.replace("/", "\\")
    yield text.replace("/", "%5c")
    yield text.replace("/", "%2f")
    yield text.replace(".", "\uff0e")
    yield text.replace("..", "\u2025")
    yield text.replace("/", ";x=1/")
    yield text.replace("/", " /")


UP = sorted({f"{before}{up}" for before in ("", "a/", "./", "a/b/") for up in escapes("../etc/passwd")})


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("reference", [*UP, "..", "a/..", "../", "a/../../b", "....", "%2e%2e"])
def test_no_encoding_of_two_dots_leaves_the_root(root, reference):
    assert "`..`" in refusal(Allowed(root), reference)


ABSOLUTE = [
    "/etc/passwd",
    "//evil.org/a",
    "\\etc",
    "\\\\server\\share",
    "%2fetc/passwd",
    "~/key",
    "~root/key",
    "%5cetc",
]


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("reference", [*ABSOLUTE, "%252fetc"])
def test_an_absolute_path_is_not_below_a_root(root, reference):
    assert "absolute path" in refusal(Allowed(root), reference)
    assert "absolute path" in refusal(Allowed(root), root + reference)


SCHEMES = [
    "file:///etc/passwd",
    "FILE:/etc/passwd",
    "pipe:cat /etc/passwd",
    "http://evil.org/a",
    "https:evil.org",
    "javascript:1",
    "C:\\Windows",
    "gopher://x",
    " file:///etc/passwd",
    "s3://other/a",
]


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("reference", SCHEMES)
def test_a_reference_below_a_root_has_no_scheme(root, reference):
    assert "`root`" in refusal(Allowed(root), reference)


@pytest.mark.parametrize("root", [*ROOTS, None])
@pytest.mark.parametrize("code", [0, 1, 9, 10, 13, 27, 127, 0x85, 0x2028, 0x202E, 0xFEFF])
def test_control_characters_are_refused_also_if_they_are_escaped(root, code):
    for text in (chr(code), quote(chr(code)), quote(quote(chr(code)), safe="")):
        message = refusal(
            Allowed(root, ("a.org",)), f"https://a.org/a{text}b" if root is None else f"a{text}b"
        )
        assert "control character" in message
        assert chr(code) not in message


def test_long_references_and_data_urls_are_refused():
    allowed = Allowed("s3://b/")
    assert allowed.locate("a" * 4096) == "s3://b/" + "a" * 4096
    assert "4,097 bytes" in refusal(allowed, "a" * 4097)
    assert "4,098 bytes" in refusal(allowed, "é" * 2049)
    assert len(refusal(allowed, "a" * 9999)) < 300
    assert "a column" in refusal(allowed, "data:image/png;base64," + "A" * 9999)
    assert "Unicode" in refusal(allowed, "a\ud800")


def test_stores_are_not_chained():
    assert "chains" in refusal(Allowed("s3://b/"), "1.zip::zip/x")


def test_an_http_reference_is_escaped_once():
    allowed = Allowed("https://h/a/")
    assert allowed.locate("b c é.jpg?x=1 2") == "https://h/a/b%20c%20%C3%A9.jpg?x=1%202"
    assert allowed.locate("b%20c.jpg") == "https://h/a/b%20c.jpg"
    assert "%23" in refusal(allowed, "a#b.jpg")
    assert "%25" in refusal(allowed, "100%.jpg")
    assert "%5C" in refusal(allowed, "a\\b.jpg")


def test_keys_of_other_stores_are_literal():
    assert Allowed("s3://b/").locate("a#b?c d%20.jpg") == "s3://b/a#b?c d%20.jpg"


HOSTS = (
    "cdn.example.org",
    "http://plain.org",
    "alt.org:8443",
    "*.images.net",
    "s3://bucket",
    "[2001:db8::1]",
)


@pytest.mark.parametrize(
    ("reference", "url"),
    [
        ("https://cdn.example.org/a.jpg", None),
        ("HTTPS://CDN.Example.ORG/A.jpg", "https://cdn.example.org/A.jpg"),
        ("https://cdn.example.org:443/a", "https://cdn.example.org/a"),
        ("https://cdn.example.org./a", "https://cdn.example.org/a"),
        ("http://plain.org/a?b=c", None),
        ("https://alt.org:8443/a", None),
        ("https://x.y.images.net/a", None),
        ("s3://bucket/a b", None),
        ("https://[2001:DB8::1]/a", "https://[2001:db8::1]/a"),
    ],
)
def test_a_url_of_a_host_in_the_spec_is_read(reference, url):
    assert Allowed(hosts=HOSTS).locate(reference) == (url or reference)


ELSEWHERE = [
    "https://evil.org/a",
    "http://cdn.example.org/a",
    "https://plain.org/a",
    "https://cdn.example.org:8443/a",
    "https://alt.org/a",
    "https://images.net/a",
    "https://evilimages.net/a",
    "https://cdn.example.org.evil.org/a",
    "https://xcdn.example.org/a",
    "s3://bucket2/a",
    "S3://Bucket/a",
    "gs://bucket/a",
    "ftp://cdn.example.org/a",
    "file://cdn.example.org/a",
    "file:///etc/passwd",
    "https://127.0.0.1/a",
    "https://169.254.169.254/latest/meta-data/",
    "https://[::1]/a",
]


@pytest.mark.parametrize("reference", ELSEWHERE)
def test_no_other_place_is_read(reference):
    message = refusal(Allowed(hosts=HOSTS), reference)
    assert "`hosts` does not have" in message or "is not a URL" in message


PUZZLES = [
    "https://cdn.example.org@evil.org/a",
    "https://user:pw@cdn.example.org/a",
    "https://cdn.example.org%40evil.org/a",
    "https://cdn.example.org\\@evil.org/a",
    "https://evil.org\\cdn.example.org/a",
    "https://cdn.example.org:443:80/a",
    "https://cdn.example.org:99999/a",
    "https://cdn.example.org:/a",
    "https://cdn.example.org: 443/a",
    "https://cdn example.org/a",
    "https:///cdn.example.org/a",
    "https://2130706433/a",
    "https://127.1/a",
    "https://0x7f000001/a",
    "https://0x7f.0.0.1/a",
    "https://0177.0.0.1/a",
    "https://[::1/a",
    "https://[::ffff:127.0.0.1]x/a",
    "https://cdn\u3002example.org/a",
    "https://ｃdn.example.org/a",
    "//cdn.example.org/a",
    "cdn.example.org/a",
    "/etc/passwd",
    "a.jpg",
    "",
]


@pytest.mark.parametrize("reference", PUZZLES)
def test_a_url_that_parsers_read_in_several_ways_is_refused(reference):
    assert refusal(Allowed(hosts=HOSTS), reference)


@pytest.mark.parametrize("reference", ["../a", "%2e%2e/a", "a/..%2fb", "..%5ca"])
def test_two_dots_are_refused_in_complete_urls_too(reference):
    assert "`..`" in refusal(Allowed(hosts=HOSTS), f"https://cdn.example.org/{reference}")
    assert "`..`" in refusal(Allowed(hosts=HOSTS), f"s3://bucket/{reference}")


@pytest.mark.parametrize(
    "entry", ["*", "*.org", "*.", "https://*", "*.*.org", "a.*.org", "0.0.0.0/0", "::/0", "s3://*"]
)
def test_no_entry_matches_every_host(entry):
    with pytest.raises(UrlError):
        parse_place(entry)


@pytest.mark.parametrize(
    "entry",
    ["", " ", "file:///x", "pipe:cat", "user@a.org", "a.org/path", "https://a.org/b", "a.org:x", "data:x"],
)
def test_an_entry_of_hosts_names_a_place(entry):
    with pytest.raises(UrlError):
        parse_place(entry)


PRIVATE = [
    "10.0.0.1",
    "172.16.5.4",
    "192.168.1.1",
    "127.0.0.1",
    "127.8.9.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::1",
    "::",
    "fc00::1",
    "fd12::1",
    "fe80::1",
    "ff02::1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "64:ff9b::a00:1",
    "2002:a00:1::",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_not_connected_to_whatever_the_name(address):
    assert not is_public(ipaddress.ip_address(address))
    for name in ("cdn.example.org", "images.internal", "localhost.example.org"):
        assert not Allowed("https://cdn.example.org/", ("cdn.example.org",)).may_connect(address, name)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_public_addresses_are_connected_to(address):
    assert Allowed("https://a.org/").may_connect(address, "a.org")


def test_a_private_address_can_be_named():
    assert Allowed("http://10.1.2.3/a/").may_connect("10.1.2.3", "10.1.2.3")
    assert not Allowed("http://10.1.2.3/a/").may_connect("10.1.2.4", "10.1.2.3")
    assert Allowed("https://minio.corp/", ("10.1.0.0/16",)).may_connect("10.1.2.3", "minio.corp")
    assert not Allowed("https://minio.corp/", ("10.1.0.0/16",)).may_connect("10.2.2.3", "minio.corp")
    assert Allowed("http://localhost:9/").may_connect("127.0.0.1", "localhost")
    assert Allowed("http://localhost:9/").may_connect("::1", "localhost")
    assert not Allowed("http://localhost:9/").may_connect("10.0.0.1", "localhost")
    assert Allowed("http://[::1]/").may_connect("::1", "[::1]")


def test_a_redirect_leads_only_to_hosts_of_the_spec():
    allowed = Allowed("https://a.org/x/", ("b.org", "http://c.org:81"))
    assert allowed.may_redirect("https", "B.org", 443)
    assert allowed.may_redirect("http", "c.org", 81)
    for place in itertools.product(("http", "https"), ("a.org", "b.org", "c.org", "d.org"), (80, 443, 81)):
        if place not in (("https", "b.org", 443), ("http", "c.org", 81)):
            assert not allowed.may_redirect(*place)
    assert allowed.origin == ("https", "a.org", 443)
    assert Allowed("https://u:p@a.org:9/x/").origin == ("https", "a.org", 9)
    assert Allowed("s3://a.org/x/").origin is None
