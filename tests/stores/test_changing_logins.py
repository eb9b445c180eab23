"""Client certificates, and logins that change while a run reads."""

import http.server
import json
import ssl
import threading

import boto3
import fsspec
import pytest
import urllib3
from fsspec.implementations.memory import MemoryFileSystem
from servers.stores import CONTAINER
from urllib3.exceptions import ProtocolError

from wdspec.base.errors import ShardError, StoreError
from wdspec.spec.language.locations import ObjectStoreOptions
from wdspec.storage.storage import Storage
from wdspec.stores import filesystems
from wdspec.stores.http_requests import translate_error
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.settings import HttpSettings, ObjectLogin

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


KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL")


ROOT = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}


@pytest.fixture
def as_root(s3):
    """Does something with all rights, given the client of the users of an S3 server that checks logins from now on."""
    users = boto3.client("iam", region_name="us-east-1", endpoint_url=s3.environ["AWS_ENDPOINT_URL"], **ROOT)
    users.create_user(UserName="reader")
    allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    users.put_user_policy(UserName="reader", PolicyName="reads", PolicyDocument=policy)

    def count_free(number):
        url = f"{s3.environ['AWS_ENDPOINT_URL']}/moto-api/reset-auth"
        assert urllib3.request("POST", url, body=str(number)).status == 200

    count_free(0)
    yield lambda make: (count_free("inf"), make(users), count_free(0))[1]
    count_free("inf")
    users.close()


def test_a_changed_profile_file_is_read_again_after_a_refusal(s3, as_root, tmp_path, monkeypatch):
    """The keys of the profile are replaced at the server, and then in the file, while a process reads."""
    client = boto3.client("s3", endpoint_url=s3.environ["AWS_ENDPOINT_URL"], **ROOT)
    monkeypatch.setattr(filesystems, "RENEWAL", 0.0)
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    options = ObjectStoreOptions(profile="team", endpoint=s3.environ["AWS_ENDPOINT_URL"])
    storage = Storage(login=ObjectLogin(options, str(tmp_path)), retry_policy=QUICK)

    def rotate(users):
        """Replaces the key of the user, and returns the new one."""
        for each in users.list_access_keys(UserName="reader")["AccessKeyMetadata"]:
            users.delete_access_key(UserName="reader", AccessKeyId=each["AccessKeyId"])
        return users.create_access_key(UserName="reader")["AccessKey"]

    def save(key):
        lines = ["[team]", f"aws_access_key_id = {key['AccessKeyId']}"]
        lines += [f"aws_secret_access_key = {key['SecretAccessKey']}"]
        (tmp_path / "credentials").write_text("\n".join(lines))

    def read_once():
        with storage.open_location(f"s3://{CONTAINER}/guarded.bin") as stream:
            return stream.read()

    as_root(lambda _: client.put_object(Bucket=CONTAINER, Key="guarded.bin", Body=DATA))
    client.close()
    save(as_root(rotate))
    assert read_once() == DATA
    key = as_root(rotate)
    with pytest.raises(ShardError, match="denies access"):
        read_once()  # the file has the old key
    save(key)
    assert read_once() == DATA
    assert read_once() == DATA
