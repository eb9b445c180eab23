"""Shards over HTTP, from a real nginx."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import random
import socket
import ssl
import threading

import pytest
from servers.echo import EchoServer
from servers.fault_proxy import Said, Script
from shardmaking import write_shard

from wdspec.base.errors import MissingShardError, ShardError
from wdspec.base.process import KeyedValues
from wdspec.formats.compression import BY_NAME
from wdspec.storage.storage import Storage
from wdspec.stores import http_requests
from wdspec.stores.http import parse_location
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.settings import HttpSettings

DATA = random.Random(1).randbytes(3_000_000)
PACKED = gzip.compress(DATA)
QUICK = RetryPolicy(budget=1, delay=0.001, longest_delay=0.01, brief=0.05)


@pytest.fixture(scope="module")
def server(nginx):
    (nginx.root / "a b").mkdir(exist_ok=True)
    (nginx.root / "a b" / "ü%20+.bin").write_bytes(b"odd name")
    (nginx.root / "data.bin").write_bytes(DATA)
    (nginx.root / "empty.bin").write_bytes(b"")
    (nginx.root / "sent.bin.gz").write_bytes(gzip.compress(DATA))
    (nginx.root / "sent.bin").write_bytes(DATA)
    (nginx.root / "shard.tar.gz").write_bytes(PACKED)
    (nginx.root / "shard.tar.gz.gz").write_bytes(gzip.compress(PACKED))
    return nginx


def opened(url, settings=HttpSettings(), retry_policy=QUICK):  # noqa: B008
    return Storage(http=settings, retry_policy=retry_policy).open_location(url)


def read(url, **settings):
    with opened(url, **settings) as stream:
        return stream.read()


def test_a_complete_file_is_read(server):
    assert read(f"{server.url}/data.bin") == DATA
    assert read(f"{server.url}/empty.bin") == b""


@pytest.mark.parametrize("name", ["a%20b/%C3%BC%2520+.bin", "a b/ü%2520+.bin"])
def test_names_are_sent_as_written_with_invalid_characters_escaped(server, name):
    assert read(f"{server.url}/{name}#fragment") == b"odd name"


def test_transfer_compression_is_not_requested(server):
    before = len(server.requests())
    assert read(f"{server.url}/data.bin") == DATA
    assert len(server.requests()) == before + 1


@pytest.mark.parametrize("place", ["", "plain/"])
def test_seeking_works_with_and_without_ranges(server, place):
    with opened(f"{server.url}/{place}data.bin") as stream:
        for offset in (2_900_000, 100, 1_500_000, 1_500_050, len(DATA)):
            stream.seek(offset)
            assert stream.read(20) == DATA[offset : offset + 20]
        assert stream.seekable() == (place == "")


def test_a_connection_is_reused_for_the_next_shard(server, monkeypatch):
    import urllib3.connection

    made = []
    connect = urllib3.connection.HTTPConnection.connect
    monkeypatch.setattr(
        urllib3.connection.HTTPConnection, "connect", lambda self: made.append(self) or connect(self)
    )
    settings = HttpSettings(netrc="/nowhere")
    for _ in range(5):
        assert read(f"{server.url}/data.bin", settings=settings) == DATA
        with pytest.raises(MissingShardError):
            read(f"{server.url}/missing.tar", settings=settings)
    assert len(made) == 1


def test_unrequested_transfer_compression_is_undone_and_shard_compression_is_kept(server):
    assert read(f"{server.url}/packed/sent.bin") == DATA
    for place in ("packed", "labelled"):
        assert read(f"{server.url}/{place}/shard.tar.gz") == PACKED


def test_a_wrong_encoding_label_does_not_disable_ranges(server):
    with opened(f"{server.url}/labelled/shard.tar.gz") as stream:
        assert stream.seekable()
    with opened(f"{server.url}/packed/sent.bin") as stream:
        assert not stream.seekable()


def test_plain_bytes_that_are_labelled_as_compressed_are_read_as_they_are(server):
    write_shard(server.root / "large.tar", [("a", {"bin": DATA})])
    data = (server.root / "large.tar").read_bytes()
    assert read(f"{server.url}/labelled/large.tar") == data
    before = len(server.requests())
    with opened(f"{server.url}/labelled/large.tar") as stream:
        assert stream.seekable()
        for offset in (2_900_000, 100):
            stream.seek(offset)
            assert stream.read(20) == data[offset : offset + 20]
    assert len(server.requests()) <= before + 3


@pytest.mark.parametrize(
    "start", [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n", b"RIFF....WAVE", b"....ftypisom", b"\x93NUMPY\x01\x00"]
)
def test_objects_that_are_labelled_as_compressed_are_read_as_they_are(server, start):
    (server.root / "object.bin").write_bytes(start + DATA[:5000])
    assert read(f"{server.url}/labelled/object.bin") == start + DATA[:5000]


def test_bytes_that_are_neither_compressed_nor_a_shard_are_an_error_at_once(server):
    before = len(server.requests())
    with pytest.raises(
        ShardError, match=r"compresses with `gzip`, .* but the bytes start with b.*switch off"
    ):
        read(f"{server.url}/labelled/data.bin")
    assert len(server.requests()) == before + 1


def test_a_stream_that_starts_in_the_middle_asks_for_the_start_to_see_whether_a_label_is_wrong(server):
    write_shard(server.root / "small.tar", [("a", {"bin": DATA[:5000]})])
    for name in ("small.tar", "shard.tar.gz"):
        expected = (server.root / name).read_bytes()
        with opened(f"{server.url}/labelled/{name}") as stream:
            stream.seek(1000)
            assert stream.read(50) == expected[1000:1050]


@pytest.mark.parametrize("label", ["deflate", "aws-chunked", "zstd"])
def test_other_wrong_labels_are_ignored_if_the_bytes_show_it(proxy, server, label):
    for name in ("plain.tar", "packed.tar.zst"):
        write_shard(server.root / "plain.tar", [("a", {"txt": b"x" * 5000})])
        data = (server.root / "plain.tar").read_bytes()
        data = BY_NAME["zst"].compress(data) if name.endswith("zst") else data
        (server.root / name).write_bytes(data)
        url = f"{proxy.url}/run-{label}/{name}"
        proxy.scripts[f"/run-{label}/{name}"] = Script([], then=Said((("content-encoding", label),)))
        assert read(url) == data


def test_redirects_are_followed_to_a_limit(server):
    assert read(f"{server.url}/away/away/away/data.bin") == DATA
    with pytest.raises(ShardError, match=r"more than 10 redirects, the last one to http"):
        read(f"{server.url}/loop/")


def test_a_redirect_to_an_invalid_url_is_an_error(server):
    with pytest.raises(ShardError, match=r"a redirect to http://\[::1/x.tar, which is not a valid URL"):
        read(f"{server.url}/nowhere/")


def test_a_redirect_from_https_to_http_is_rejected(server):
    settings = HttpSettings(ca_file=str(server.certificate))
    assert read(f"{server.url}/abroad/data.bin", settings=settings) == DATA
    with pytest.raises(ShardError, match=r"a redirect from https to http://localhost.* is refused"):
        read(f"{server.tls_url}/downgraded/data.bin", settings=settings)


def test_a_certificate_must_be_trusted(server):
    assert read(f"{server.tls_url}/data.bin", settings=HttpSettings(ca_file=str(server.certificate))) == DATA
    with pytest.raises(ShardError, match=r"certificate of localhost:.* is not trusted.*SSL_CERT_FILE"):
        read(f"{server.tls_url}/data.bin")
    with pytest.raises(ShardError, match=r"does not speak TLS; is it `http:`"):
        read(f"{server.url}/data.bin".replace("http", "https"))
    with pytest.raises(ShardError, match=r"certificates in `/nowhere` cannot be read"):
        read(f"{server.tls_url}/data.bin", settings=HttpSettings(ca_file="/nowhere"))


def test_certificates_are_read_once_for_each_file(server, monkeypatch):
    """A source that fetches objects has settings of its own, and a spec may have hundreds."""
    read_files, plain, create = [], [], ssl.create_default_context
    monkeypatch.setattr(http_requests._contexts, "value", KeyedValues())
    monkeypatch.setattr(
        ssl, "create_default_context", lambda **files: read_files.append(files["cafile"]) or create(**files)
    )
    certificate = str(server.certificate)
    for number in range(3):
        for settings in (
            HttpSettings(netrc=f"/{number}"),
            HttpSettings(netrc=f"/{number}", ca_file=certificate),
        ):
            assert read(f"{server.url}/data.bin", settings=settings) == DATA
            assert not read_files, "plain connections need none"
            plain.append(settings)
    for settings in plain:
        http_requests.manager_for(parse_location(server.tls_url), settings)
    assert read_files == [None, certificate]
    assert read(f"{server.tls_url}/data.bin", settings=settings) == DATA
    with pytest.raises(ShardError, match="is not trusted"):
        read(f"{server.tls_url}/data.bin", settings=HttpSettings(netrc="/0"))


def test_a_certificate_of_another_host_fails_immediately(server):
    with pytest.raises(
        ShardError, match=r"not trusted: IP address mismatch.*; name the host as the certificate does, not"
    ):
        read(
            f"{server.tls_url}/data.bin".replace("localhost", "127.0.0.1"),
            settings=HttpSettings(ca_file=str(server.certificate)),
        )


@contextlib.contextmanager
def accepting(serve):
    """A server on a free port; the argument handles each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with contextlib.suppress(OSError), connection:
                        serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"https://localhost:{listening.getsockname()[1]}/data.bin"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def test_an_expired_certificate_fails_immediately(tmp_path):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    years = [datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2020, 2021)]
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, *years)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    certificate = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (tmp_path / "all.pem").write_bytes(private + certificate)
    (tmp_path / "ca.pem").write_bytes(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "all.pem")
    with (
        accepting(lambda connection: context.wrap_socket(connection, server_side=True).close()) as url,
        pytest.raises(
            ShardError, match=r"not trusted: certificate has expired; the owner of the server has to renew it"
        ),
    ):
        read(url, settings=HttpSettings(ca_file=str(tmp_path / "ca.pem")))


def test_an_interrupted_handshake_is_retried_for_a_while():
    count = 0

    def cut(connection):
        nonlocal count
        count += 1
        connection.recv(100)

    with (
        accepting(cut) as url,
        pytest.raises(
            ShardError, match=r"given up after \d+ attempts in .*the connection to localhost:\d+ broke"
        ),
    ):
        read(url, retry_policy=RetryPolicy(budget=0.1, delay=0.01, brief=0.1))
    assert count > 1


def test_credentials_come_from_the_url_or_netrc(server, tmp_path):
    with pytest.raises(ShardError, match=r"status 401 Unauthorized; give `user:password@`.*\[location http"):
        read(f"{server.url}/private/data.bin", settings=HttpSettings(netrc=str(tmp_path / "none")))
    assert read(f"{server.url}/private/data.bin".replace("//", "//reader:pass%20word@")) == DATA
    netrc = tmp_path / "netrc"
    netrc.write_text('machine 127.0.0.1 login reader password "pass word"\n')
    netrc.chmod(0o600)
    assert read(f"{server.url}/private/data.bin", settings=HttpSettings(netrc=str(netrc))) == DATA


def test_default_credentials_do_not_follow_redirects_to_another_host(tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login anybody password s3cret\n")
    settings = HttpSettings(netrc=str(netrc))
    with EchoServer(b"data") as there, EchoServer(b"data") as here:
        assert read(f"http://{here.host}/to/{there.host}/shard/x", settings=settings) == b"data"
        assert "authorization" in here.seen[0]
        assert "authorization" not in there.seen[0]
        assert read(f"http://{here.host}/to/{here.host}/shard/x", settings=settings) == b"data"
        assert "authorization" in here.seen[-1]
        netrc_of_both = tmp_path / "both"
        netrc_of_both.write_text("machine 127.0.0.1 login reader password s3cret\n")
        settings = HttpSettings(netrc=str(netrc_of_both))
        assert read(f"http://{here.host}/to/{there.host}/shard/x", settings=settings) == b"data"
        assert "authorization" in there.seen[-1]  # the user wrote one for that host


def test_messages_contain_no_passwords_or_signatures(server, caplog):
    for url in (
        f"{server.url}/private/data.bin".replace("//", "//reader:s3cret@"),
        f"{server.url}/none.tar?X-Amz-Signature=s3cret&x=1&token=s3cret",
        "http://user:s3cret@127.0.0.1:1/x.tar?sig=s3cret",
    ):
        with pytest.raises(ShardError) as caught:
            read(url)
        assert "s3cret" not in f"{caught.value} {caught.value!r}"
        assert "***" in str(caught.value)
    assert "refuses the connection" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_missing_file_fails_immediately(server):
    with pytest.raises(MissingShardError, match=r"status 404 Not Found.*\[location http://127.*/none.tar\]"):
        read(f"{server.url}/none.tar")


def test_an_unknown_host_is_abandoned_soon():
    with pytest.raises(ShardError, match=r"refuses the connection: is a server running there"):
        read("http://127.0.0.1:1/x.tar")
    with pytest.raises(ShardError, match=r"there is no host no-such-host.invalid"):
        read("http://no-such-host.invalid/x.tar")


@pytest.mark.parametrize("url", ["http:///x.tar", "http://[::1/x.tar", "http://h:port/x.tar"])
def test_an_invalid_url_is_an_error(url):
    with pytest.raises(ShardError, match=r"(not a valid URL|this URL names no host)"):
        read(url)


def test_a_proxy_is_used_unless_the_host_is_excluded(server, monkeypatch):
    through = HttpSettings(proxies=(("http", server.url),))
    # nginx is no proxy, but it answers requests for whole URLs by their path.
    assert read("http://no-such-host.invalid/data.bin", settings=through) == DATA
    with pytest.raises(ShardError, match=r"there is no host"):
        read("http://no-such-host.invalid/data.bin", settings=HttpSettings(through.proxies, ("*.invalid",)))
    with pytest.raises(ShardError, match=r"the proxy for no-such-host.invalid failed: .*refused"):
        read("http://no-such-host.invalid/x", settings=HttpSettings((("all", "http://127.0.0.1:1"),)))
    monkeypatch.setenv("ALL_PROXY", "127.0.0.1:1")
    with pytest.raises(ShardError, match=r"start the proxy http://127.0.0.1:1 \(ALL_PROXY\), or correct it"):
        read("http://no-such-host.invalid/x", settings=HttpSettings((("all", "http://127.0.0.1:1"),)))
    with pytest.raises(
        ShardError, match=r"the proxy for h failed: .*start the proxy http://no-such-host.invalid:1"
    ):
        read("http://h/x", settings=HttpSettings((("all", "http://no-such-host.invalid:1"),)))
    with pytest.raises(ShardError, match=r"sets the proxy socks5://"):
        read("http://no-such-host.invalid/x", settings=HttpSettings((("all", "socks5://h:1"),)))
