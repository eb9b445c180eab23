"""The HTTP servers of the AIStore double: a gateway, targets, and the pod of an ETL that answers by itself."""

from __future__ import annotations

import base64
import json
import re
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote

if TYPE_CHECKING:
    from servers.aistore_double import AisDouble

EASY = {"gs": "gcp", "az": "azure", "ais": "ais"}
RAW_IN_LOCATION = "/{}\";!$&'()*+,:=@~"


class Node(ThreadingHTTPServer):
    """One node of the cluster, on its own port."""

    daemon_threads = True
    handler: type[NodeHandler]

    def __init__(self, double: AisDouble, name: str) -> None:
        super().__init__(("127.0.0.1", 0), self.handler)
        self.double, self.name = double, name
        scheme = "http"
        if double.tls is not None:
            scheme = "https"
            self.socket = double.tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{scheme}://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class NodeHandler(BaseHTTPRequestHandler):
    """What gateways and targets have in common."""

    protocol_version = "HTTP/1.1"
    server: Node

    def handle_one_request(self) -> None:
        self.cut_after: int | None = None
        self.resets = False
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def answer(self) -> None:
        from servers.aistore_double import PROVIDERS, Seen

        double = self.server.double
        length = int(self.headers.get("content-length") or 0)
        self.body = self.rfile.read(length) if length else b""
        path, _, self.query = self.path.partition("?")
        self.parameters = {name: values[0] for name, values in parse_qs(self.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        double.requests.append(Seen(self.server.name, self.command, path, self.query, headers, self.body))
        faults = double.faults.get(self.server.name[:1])
        if path == "/v1/daemon":
            self.daemon()
            return
        if faults and faults.popleft()(self.server, self):
            return
        given = self.parameters.get("provider", "")
        self.provider = PROVIDERS.get(given, given)
        self.serve(path)

    def daemon(self) -> None:
        """The map of the cluster, which every node returns."""
        double = self.server.double
        nodes = {
            node.name: {
                "daemon_id": node.name,
                "daemon_type": "proxy",
                "public_net": {"node_hostname": "127.0.0.1", "direct_url": node.url},
                "flags": 0,
            }
            for node in double.gateways
        }
        self.send(200, json.dumps({"pmap": nodes, "tmap": {}, "version": "7"}).encode(), "application/json")

    def serve(self, path: str) -> None:
        raise NotImplementedError

    def send(
        self, code: int, body: bytes = b"", kind: str = "application/octet-stream", **headers: str
    ) -> None:
        """An answer with its length; cut where a fault says so."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.cut_after is None or self.cut_after >= len(body):
            self.wfile.write(body)
            return
        self.wfile.write(body[: self.cut_after])
        self.cut()

    def cut(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        if self.resets:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def refuse(self, code: int, message: str | None, tcode: str | None = None, **headers: str) -> None:
        """AIStore's JSON for an error, or an empty body."""
        from servers.aistore_double import error_json

        name = f"{self.server.name[0]}[{self.server.name}]"
        body = b"" if message is None else error_json(message, code, name, tcode)
        if self.command == "HEAD":
            headers["Hdr_Error"] = body.decode()
            body = b""
        self.send(code, body, "application/json", **headers)

    def redirect(self, code: int, location: str, body: bytes | None = None, kind: str = "text/html") -> None:
        html = f'<a href="{location}">Moved Permanently</a>.\n\n'.encode() if body is None else body
        self.send(code, html if self.command in ("GET", "HEAD") or body else b"", kind, Location=location)

    @property
    def bucket_and_name(self) -> tuple[tuple[str, str, str], str]:
        rest = unquote(self.path.partition("?")[0].removeprefix("/v1/objects/"), errors="surrogateescape")
        bucket, _, name = rest.partition("/")
        return (self.provider, self.parameters.get("namespace", ""), bucket), re.sub("/{2,}", "/", name)


class GatewayHandler(NodeHandler):
    """The gateway: it never serves bytes, but redirects and lists."""

    def serve(self, path: str) -> None:
        double = self.server.double
        if path.startswith("/s3/"):
            body = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>TemporaryRedirect</Code></Error>'
            return self.redirect(
                307, f"{double.target_nodes[0].url}{path}?pid=p&utm=x", body, "application/xml"
            )
        if path.startswith("/v1/health"):
            return self.send(200)
        if double.tokens is not None:
            given = self.headers.get("authorization", "").removeprefix("Bearer ")
            if given not in double.tokens:
                return self.refuse(401, "token required" if not given else "invalid token")
        if path.startswith("/v1/objects/"):
            return self.locate()
        if path.startswith("/v1/buckets"):
            return self.buckets(path.removeprefix("/v1/buckets").strip("/"))
        if path == "/v1/etl":
            return self.send_json([{"id": name, "stage": "Running"} for name in double.etls])
        if path == "/v1/cluster" and self.parameters.get("what") == "status":
            job = json.loads(self.body)["ID"]
            return self.send_json({"id": job, "end_time": 1, "err": "", "aborted": False})
        scheme, _, rest = path[1:].partition("/")
        if scheme in EASY:  # the first slash of the object's name is swallowed
            bucket, _, name = rest.partition("/")
            first, _, others = name.partition("/")
            return self.redirect(
                301, f"{double.gateway.url}/v1/objects/{bucket}/{first}{others}?provider={EASY[scheme]}"
            )
        return self.refuse(400, f"invalid URL path {path}")

    def locate(self) -> None:
        double = self.server.double
        bucket, name = self.bucket_and_name
        if ".." in name.split("/"):
            return self.refuse(400, f"invalid path {name}", tcode="errInvalidPath")
        if not self.checked(bucket):
            return None
        target = double.target_nodes[double.target_of(bucket, name)]
        place = target.url if double.dead_port is None else f"http://127.0.0.1:{double.dead_port}"
        path = quote(f"/v1/objects/{bucket[2]}/{name}", safe=RAW_IN_LOCATION, errors="surrogateescape")
        path = re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), path)
        query = f"{self.query}&" if self.query else ""
        return self.redirect(
            301 if self.command == "GET" else 307, f"{place}{path}?{query}pid=p8080&utm=k3jx9"
        )

    def checked(self, bucket: tuple[str, str, str]) -> bool:
        """Whether there is such a bucket; answers if not."""
        double = self.server.double
        provider, _, name = bucket
        if provider not in {"ais", "gcp", "aws", "azure", "oci"}:
            self.refuse(400, f"invalid backend provider {provider!r}", tcode="ErrInvalidBackendProvider")
        elif provider not in double.backends:
            message = f"{provider.upper()} backend is missing in the cluster configuration"
            self.refuse(404, message, tcode="ErrFailedTo")
        elif bucket not in double.remote:
            if provider == "ais":
                self.refuse(404, f"bucket ais://{name} does not exist", tcode="ErrBckNotFound")
            else:
                self.refuse(404, f"{provider}-error[NoSuchBucket: the bucket {name} does not exist]")
        else:
            return True
        return False

    def buckets(self, name: str) -> None:
        double = self.server.double
        asked = json.loads(self.body) if self.body else {"action": "list"}
        if not name:
            return self.send_json(
                [
                    {"name": bucket, "provider": provider, "namespace": {"uuid": "", "name": ""}}
                    for provider, _, bucket in double.remote
                    if provider == self.provider
                ]
            )
        bucket = (self.provider, self.parameters.get("namespace", ""), name)
        if asked["action"] == "create-bck":
            double.remote.setdefault(bucket, {})
            return self.send(200)
        if not self.checked(bucket):
            return None
        if asked["action"] == "prefetch-listrange":
            return self.prefetch(bucket, asked["value"])
        if asked["action"] == "destroy-bck":
            del double.remote[bucket]
            return self.send(200)
        value = asked.get("value") or {}
        return self.page(bucket, value)

    def page(self, bucket: tuple[str, str, str], value: dict[str, Any]) -> None:
        double = self.server.double
        uuid, token = value.get("uuid") or "", value.get("continuation_token") or ""
        if token and double.listings.get(uuid) != bucket:
            return self.refuse(410, f"listing {uuid!r} does not exist or belongs to another bucket")
        if not uuid:
            uuid = f"l{len(double.listings)}"
            double.listings[uuid] = bucket
        int(value.get("flags") or "0")
        prefix = value.get("prefix") or ""
        names = sorted(name for name in double.remote[bucket] if name.startswith(prefix) and name > token)
        asked = int(value.get("pagesize") or 0) or double.page_size
        shown = names[: min(asked, double.page_size)]
        entries = [
            {
                "name": name,
                "size": str(len(double.remote[bucket][name].data)),
                **({"flags": 64} if double.held(bucket, name) else {}),
            }
            for name in shown
        ]
        more = shown[-1] if len(names) > len(shown) else ""
        answer = {"uuid": uuid, "continuation_token": more, "entries": entries or None, "flags": 0}
        if self.headers.get("accept") == "application/msgpack":
            import msgspec

            packed = {
                "UUID": uuid,
                "ContinuationToken": more,
                "Flags": 0,
                "Entries": [{"n": name, "s": len(double.remote[bucket][name].data)} for name in shown]
                or None,
            }
            return self.send(200, msgspec.msgpack.encode(packed), "application/msgpack")
        return self.send_json(answer)

    def prefetch(self, bucket: tuple[str, str, str], value: dict[str, Any]) -> None:
        double = self.server.double
        names = value.get("objnames") or list(double.remote[bucket])
        for name in names:
            double.fetched(bucket, name, False)
        job = f"prefetch-{len(double.jobs)}"
        double.jobs[job] = names
        self.send(200, job.encode(), "text/plain")

    def send_json(self, value: Any) -> None:
        self.send(200, json.dumps(value).encode(), "application/json; charset=utf-8")


class TargetHandler(NodeHandler):
    """Serves the bytes of its share of the objects, to those whom a gateway sent."""

    def serve(self, path: str) -> None:
        double = self.server.double
        if "authorization" in self.headers:
            double.violations.append(f"a token reached the target {self.server.name}: {self.path}")
        if not path.startswith("/v1/objects/"):
            return self.refuse(400, f"invalid URL path {path}")
        if not double.allow_direct and not {"pid", "utm"} <= self.parameters.keys():
            return self.refuse(403, "direct target access denied")
        bucket, name = self.bucket_and_name
        if double.target_nodes[double.target_of(bucket, name)] is not self.server:
            return self.refuse(404, f"object {name} does not exist here", tcode="ErrNotFound")
        if self.command == "HEAD":
            return self.head(bucket, name)
        if self.command == "PUT":
            double.store(bucket, name, double.damages(self.body))
            return self.send(200)
        if self.command == "DELETE":
            if name not in double.remote.get(bucket, {}):
                return self.refuse(404, f"{name} does not exist")
            del double.remote[bucket][name]
            double.cached.get(bucket, {}).pop(name, None)
            return self.send(200)
        stored = double.fetched(bucket, name, "latest-ver" in self.parameters)
        if stored is None:
            if bucket[0] == "ais":
                return self.refuse(
                    404, f"object ais://{bucket[2]}/{name} does not exist", tcode="ErrNotFound"
                )
            return self.refuse(404, f"{bucket[0]}-error[NoSuchKey: the key {name} does not exist]")
        if "etl_name" in self.parameters:
            return self.transformed(stored.data)
        headers = self.properties(bucket, stored)
        asked = self.headers.get("range")
        if asked is None:
            return self.send(200, stored.data, **headers)
        return self.part(stored.data, asked, headers)

    def properties(self, bucket: tuple[str, str, str], stored: Any) -> dict[str, str]:
        double = self.server.double
        headers = {"Ais_Atime": "1700000000000000000"}
        if double.checksum != "none":
            headers |= {
                "Ais_Checksum_Type": double.checksum,
                "Ais_Checksum_Value": double.digest(stored.data),
            }
        if bucket[0] == "ais":
            headers["Ais_Version"] = str(stored.version)
        else:
            headers |= {"Etag": f"e{stored.version}", "Ais_Custom_Md": f"source={bucket[0]}"}
        return headers

    def part(self, data: bytes, asked: str, headers: dict[str, str]) -> None:
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", asked)
        if match is None or not (match[1] or match[2]):
            return self.refuse(416, "multiple ranges are not supported", tcode="ErrUnsupp")
        first = int(match[1]) if match[1] else max(0, len(data) - int(match[2]))
        last = min(int(match[2]), len(data) - 1) if match[1] and match[2] else len(data) - 1
        if first > last:
            return self.refuse(416, "invalid range", Content_Range=f"bytes */{len(data)}")
        return self.send(
            206,
            data[first : last + 1],
            Content_Range=f"bytes {first}-{last}/{len(data)}",
            Accept_Ranges="bytes",
            **headers,
        )

    def head(self, bucket: tuple[str, str, str], name: str) -> None:
        double = self.server.double
        held, there = double.held(bucket, name), double.remote.get(bucket, {}).get(name)
        if "latest-ver" in self.parameters and held is not None:
            if there is None:
                return self.refuse(410, "deleted remotely", tcode="ErrRemoteObjDeleted")
            if there.version != held.version:
                return self.refuse(409, "remote metadata mismatch", tcode="ErrRemoteMetadataMismatch")
        stored = held or there
        if stored is None or (self.parameters.get("presence") == "2" and held is None):
            return self.refuse(404, f"{name} does not exist")
        headers = {**self.properties(bucket, stored), "Ais_Present": "true" if held else "false"}
        return self.send(200, stored.data, **headers)

    def transformed(self, data: bytes) -> None:
        double = self.server.double
        name = self.parameters["etl_name"]
        if double.without_etl:
            return self.refuse(501, "ETL is not supported by this build", tcode="ErrUnsupp")
        chain = [name, *filter(None, self.parameters.get("etl_pipeline", "").split(","))]
        if missing := [each for each in chain if each not in double.etls]:
            return self.refuse(404, f'etl job "{missing[0]}" does not exist - try starting new ETL')
        if double.etls[name].kind == "hpull":
            return self.redirect(307, f"{double.pod.url}/{name}?{self.query}&data={pointer(data)}", b"")
        try:
            for each in chain:
                data = double.etls[each].transform(data, self.parameters.get("etl_args", ""))
        except Exception as error:
            return self.refuse(500, f"ETL error: {error}")
        return self.stream(data, double.etls[name])

    def stream(self, data: bytes, etl: Any) -> None:
        """The shape of hpush: chunks, no length, no checksum; death shows only as a text at the end."""
        from servers.aistore_double import error_json

        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = len(data) if etl.dies_after is None else etl.dies_after
        cut, etl.cut_after = etl.cut_after, None
        whole = data[: end if cut is None else cut]
        for at in range(0, len(whole), 16384):
            self.chunk(whole[at : at + 16384])
        if cut is not None:
            return self.cut()
        if etl.dies_after is not None:
            self.chunk(error_json("ETL error: connection reset by pod", 500, "t[t1]", None))
        self.wfile.write(b"0\r\n\r\n")
        return None

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n" % len(data) + data + b"\r\n")


def pointer(data: bytes) -> str:
    """The way of the double to hand an object to the pod."""
    return base64.urlsafe_b64encode(data).decode() if len(data) < 20_000 else ""


class PodHandler(NodeHandler):
    """An ETL of the kind hpull: it answers by itself, with its own headers."""

    def serve(self, path: str) -> None:
        double = self.server.double
        data = base64.urlsafe_b64decode(self.parameters["data"])
        try:
            body = double.etls[path[1:]].transform(data, self.parameters.get("etl_args", ""))
        except Exception as error:
            return self.send(500, str(error).encode(), "text/plain")
        return self.send(200, body)


class Gateway(Node):
    handler = GatewayHandler


class Target(Node):
    handler = TargetHandler


class Pod(Node):
    handler = PodHandler
