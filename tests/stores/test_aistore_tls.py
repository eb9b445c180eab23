"""https to gateways and targets: trusted certificates and client certificates."""

import ssl
import subprocess

import pytest
from servers.aistore_double import AisDouble, redirect

from wdspec.base.errors import StoreError
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import AisCluster, AisVariables

DATA = b"whole" * 1000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate that is its own authority, and its key."""
    home = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=ais"]
    files = [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(home / "key.pem"),
        "-out",
        str(home / "crt.pem"),
    ]
    subprocess.run([*command, *files], check=True, capture_output=True)
    return str(home / "crt.pem"), str(home / "key.pem")


@pytest.fixture
def double(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(certificate[0])
    with AisDouble(tls=context) as double:
        double.put("ais://b/o", DATA)
        yield double


def read(double, **environ):
    variables = AisVariables.read({"AIS_ENDPOINT": double.endpoint, **environ})
    cluster = AisCluster.of(variables, "/nowhere")
    with Storage(ais=cluster).open_location("ais+ais://b/o") as file:
        return file.read()


def test_a_custom_certificate_authority_is_used(double, certificate):
    assert double.endpoint.startswith("https://")
    assert read(double, AIS_CLIENT_CA=certificate[0]) == DATA
    with pytest.raises(
        StoreError, match=r"TLS with 127.* failed: .*certificate.*AIS_CLIENT_CA or `aistore.client_ca`"
    ):
        read(double)
    with pytest.raises(StoreError, match="no such file, where AIStore's certificates should be"):
        read(double, AIS_CLIENT_CA="/nowhere/ca.pem")


@pytest.mark.parametrize("name", ["AIS_SKIP_VERIFY_CRT", "AIS_SKIP_VERIFY"])
def test_verification_can_be_disabled(double, name, recwarn):
    assert read(double, **{name: "true"}) == DATA
    assert not [warning for warning in recwarn if "Insecure" in str(warning.category)]
    with pytest.raises(StoreError, match="TLS with"):
        read(double, **{name: "false"})


def test_a_cluster_can_require_a_client_certificate(double, certificate):
    double.tls.verify_mode = ssl.CERT_REQUIRED
    mine = {"AIS_CRT": certificate[0], "AIS_CRT_KEY": certificate[1]}
    assert read(double, AIS_CLIENT_CA=certificate[0], **mine) == DATA


def test_a_redirect_from_https_to_plain_http_is_rejected(double, certificate):
    double.script("p", redirect("http://127.0.0.1:1/v1/objects/b/o?pid=p&utm=1"))
    with pytest.raises(
        StoreError, match=r"a redirect from https to http://127\.0\.0\.1:1/.* which is refused"
    ):
        read(double, AIS_CLIENT_CA=certificate[0])
