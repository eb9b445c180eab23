"""A real nginx for tests, on its own ports, with its files, log and certificate in one folder.

Debian: `apt-get install nginx-light`. Locations, all of the same files:

- `/`          as they are, with ranges, ETag and Last-Modified
- `/plain/`    without ranges
- `/packed/`   the file `<name>.gz`, sent as the transfer encoding of `<name>`, whatever the client accepts
- `/labelled/` with `Content-Encoding: gzip` stuck on, as some servers do to files that end in `.gz`
- `/private/`  needs the user `reader` and the password `pass word`
- `/slow/`     2 MB a second
- `/away/…`    302 to `/…`;  `/loop/` 302 to itself;  `/nowhere/` 302 to no URL
- `/abroad/…`  302 to the TLS server, whose `/downgraded/…` is 302 to plain http
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

_CONFIG = """\
daemon off;
master_process off;
pid {home}/nginx.pid;
error_log {home}/error.log warn;
events {{ worker_connections 512; }}
http {{
  access_log {home}/access.log;
  client_body_temp_path {home}/tmp; proxy_temp_path {home}/tmp; fastcgi_temp_path {home}/tmp;
  uwsgi_temp_path {home}/tmp; scgi_temp_path {home}/tmp;
  default_type application/octet-stream;
  types {{ application/x-tar tar; text/plain txt; }}
  gzip on; gzip_types *; gzip_min_length 1;
  sendfile on; tcp_nopush on; keepalive_requests 100000;
  server {{
    listen 127.0.0.1:{port};
{locations}
    location /abroad/ {{ rewrite ^/abroad(/.*)$ https://localhost:{tls_port}$1 redirect; }}
  }}
  server {{
    listen 127.0.0.1:{tls_port} ssl;
    ssl_certificate {home}/cert.pem;
    ssl_certificate_key {home}/key.pem;
{locations}
    location /downgraded/ {{ rewrite ^/downgraded(/.*)$ http://localhost:{port}$1 redirect; }}
  }}
}}
"""
_LOCATIONS = """\
    root {root};
    absolute_redirect off;
    location /plain/ {{ alias {root}/; max_ranges 0; }}
    location /packed/ {{ alias {root}/; gzip_static always; }}
    location /labelled/ {{ alias {root}/; gzip off; add_header Content-Encoding gzip always; }}
    location /private/ {{ alias {root}/; auth_basic shards; auth_basic_user_file {home}/users; }}
    location /slow/ {{ alias {root}/; limit_rate 2m; }}
    location /loop/ {{ return 302 /loop/; }}
    location /nowhere/ {{ return 302 "http://[::1/x.tar"; }}
    location /away/ {{ rewrite ^/away(/.*)$ $1 redirect; }}
"""


@dataclass
class Nginx:
    """A running server; put files into `root`."""

    home: Path
    port: int
    tls_port: int
    process: subprocess.Popen[bytes]

    @property
    def root(self) -> Path:
        return self.home / "root"

    @property
    def url(self) -> str:
        """Of the files, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        """The same over TLS; the certificate is for `localhost`."""
        return f"https://localhost:{self.tls_port}"

    @property
    def certificate(self) -> Path:
        return self.home / "cert.pem"

    def requests(self) -> list[str]:
        """The lines of the access log.

        A line is written after the response, which the client may have read before. So this waits for the line of a
        request of its own: the server works on one event after the other.
        """
        mark = f"/mark-{time.monotonic_ns()}"
        with contextlib.suppress(urllib.error.HTTPError):  # 404
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.url + mark, timeout=60)
        while mark not in (text := (self.home / "access.log").read_text()):
            time.sleep(0.001)
        return [line for line in text.splitlines() if "/mark-" not in line]

    def stop(self) -> None:
        with self.process:  # which closes its pipe
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()


def nginx_program() -> str | None:
    """The path of nginx, if it is installed."""
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def start_nginx(home: Path) -> Nginx:
    """Start a server for the files in `home`/root; try other ports if one was taken meanwhile."""
    (home / "root").mkdir(parents=True)
    (home / "tmp").mkdir()
    home.chmod(0o755)
    _make_certificate(home)
    digest = base64.b64encode(hashlib.sha1(b"pass word").digest()).decode()
    (home / "users").write_text(f"reader:{{SHA}}{digest}\n")
    for _ in range(5):
        port, tls_port = _free_ports(2)
        locations = _LOCATIONS.format(root=home / "root", home=home)
        (home / "nginx.conf").write_text(
            _CONFIG.format(home=home, port=port, tls_port=tls_port, locations=locations)
        )
        program = nginx_program()
        assert program, "nginx is not installed: apt-get install nginx-light"
        process = subprocess.Popen(
            [program, "-p", str(home), "-c", str(home / "nginx.conf")], stderr=subprocess.PIPE
        )
        if _answers(process, port) and _answers(process, tls_port):
            return Nginx(home, port, tls_port, process)
        process.kill()
        said = process.communicate()[1].decode()
    raise RuntimeError(f"nginx does not start: {said} {(home / 'error.log').read_text()}")


def _make_certificate(home: Path) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost"
    files = ["-addext", "subjectAltName=DNS:localhost"]
    files += ["-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if process.poll() is not None:
            return False
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False
