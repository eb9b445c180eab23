"""Client certificates, and logins that change while a run reads."""

import http.server
import ssl
import threading

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from urllib3.exceptions import ProtocolError

from wdspec.base.errors import ShardError, StoreError
from wdspec.storage.storage import Storage
from wdspec.stores import filesystems
from wdspec.stores.http_requests import translate_error
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.settings import HttpSettings

DATA = bytes(range(256)) * 40
QUICK = RetryPolicy(budget=1, delay=0.001, longest_delay=0.01, brief=0.05)


def read(url, **settings):
    with Storage(http=HttpSettings(**settings), retry_policy=QUICK).open_location(url) as stream:
        return stream.read()


class _Bytes(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def strict(nginx):
    """The URL of a server that asks for a client certificate, how many connections it had, and its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(nginx.certificate, nginx.home / "key.pem")
    context.load_verify_locations(nginx.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    seen = []

    class Server(http.server.ThreadingHTTPServer):
        def finish_request(self, request, address):
            seen.append(address)
            with context.wrap_socket(request, server_side=True) as secure:
                super().finish_request(secure, address)

        def handle_error(self, request, address):
            pass

    server = Server(("127.0.0.1", 0), _Bytes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}/a.tar", seen
    server.shutdown()
    server.server_close()


def test_a_client_certificate_is_sent(nginx, strict):
    url, _ = strict
    certificates = {"ca_file": str(nginx.certificate), "client_cert": str(nginx.certificate)}
    assert read(url, **certificates, client_key=str(nginx.home / "key.pem")) == DATA


def test_a_missing_client_certificate_is_named(nginx, strict):
    url, seen = strict
    with pytest.raises(ShardError, match=r"TLS connection.*WDS_CLIENT_CERT, and its key in WDS_CLIENT_KEY"):
        read(url, ca_file=str(nginx.certificate))
    assert len(seen) < 10


def test_an_alert_is_not_retried():
    refused = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required")
    refused.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    error = translate_error(ProtocolError("Connection aborted.", refused), "host", QUICK)
    assert isinstance(error, StoreError)
    assert "WDS_CLIENT_CERT" in str(error)


def test_an_unusable_client_certificate_names_its_variable(nginx, tmp_path):
    for path in (tmp_path / "none.pem", nginx.certificate):  # without its key
        with pytest.raises(StoreError, match="WDS_CLIENT_CERT must name"):
            read(nginx.tls_url + "/x", ca_file=str(nginx.certificate), client_cert=str(path))


def test_the_variables_are_read():
    found = HttpSettings.read({"WDS_CLIENT_CERT": "/c.pem", "WDS_CLIENT_KEY": "/k.pem"})
    assert (found.client_cert, found.client_key) == ("/c.pem", "/k.pem")


def write_login(path, password):
    path.write_text(f'machine 127.0.0.1 login reader password "{password}"\n')
    path.chmod(0o600)


def test_a_changed_netrc_file_is_read_again_after_a_refusal(nginx, tmp_path):
    (nginx.root / "secret.bin").write_bytes(DATA)
    url, netrc = f"{nginx.url}/private/secret.bin", tmp_path / "netrc"
    write_login(netrc, "old")
    with pytest.raises(StoreError, match=rf"status 401 .*; the login in {netrc} is not accepted: correct it"):
        read(url, netrc=str(netrc))
    write_login(netrc, "pass word")
    before = len(nginx.requests())
    assert read(url, netrc=str(netrc)) == DATA
    assert len(nginx.requests()) <= before + 2
    write_login(netrc, "newer")
    assert read(url, netrc=str(netrc)) == DATA  # the login that is known still works


def test_a_refused_login_of_a_url_is_named(nginx):
    with pytest.raises(StoreError, match=r"the login in user:password@ is not accepted"):
        read(f"{nginx.url}/private/secret.bin".replace("//", "//reader:wrong@"))


class _Guarded(MemoryFileSystem):
    """Reads its password when it is made, as clients of stores do."""

    protocol = "guarded"
    cachable = False
    password, valid, made = "one", "one", 0

    def __init__(self, **options):
        super().__init__(**options)
        self.known = _Guarded.password
        _Guarded.made += 1

    def info(self, path, **options):
        if self.known != _Guarded.valid:
            raise PermissionError("403 Forbidden")
        return {"name": path, "size": len(DATA), "type": "file"}

    def cat_file(self, path, start=None, end=None, **options):
        return DATA[start:end]


def test_a_store_of_objects_gets_a_new_login_once(monkeypatch):
    fsspec.register_implementation("guarded", _Guarded, clobber=True)
    filesystems.known_schemes.cache_clear()  # other tests may have asked before
    monkeypatch.setattr(_Guarded, "made", 0)
    assert read("guarded://b/a.tar") == DATA
    _Guarded.valid = _Guarded.password = "two"
    with pytest.raises(ShardError, match="denies access"):  # it is too new to be made again
        read("guarded://b/a.tar")
    monkeypatch.setattr(filesystems, "RENEWAL", 0.0)
    assert read("guarded://b/a.tar") == DATA
    assert _Guarded.made == 2
    _Guarded.valid = "three"
    with pytest.raises(ShardError, match="denies access"):
        read("guarded://b/a.tar")
    assert _Guarded.made == 3
