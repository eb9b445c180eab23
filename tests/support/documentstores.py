"""The stores of the documents, on this machine: curl and wdspec reach them through a proxy under their own URLs."""

import io
import threading
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

import wdspec

OPENIMAGES_KEYS = [
    "e39871fd9fd74f55",
    "f18b91585c4d3f3e",
    "ede6e66b2fb59aab",
    "ed600d57fcee4f94",
    "ff47e649b23f446d",
]
OPENIMAGES_SIZES = [(1024, 701), (768, 1024), (683, 1024)]


@lru_cache(maxsize=64)
def picture(width, height, shade, form="JPEG"):
    """A smooth picture, as bytes."""
    ramp = np.linspace(0, 255, width, dtype=np.float32)[None, :, None] * np.ones((height, 1, 3), np.float32)
    ramp[..., 1] = shade % 256
    file = io.BytesIO()
    Image.fromarray(ramp.astype(np.uint8)).save(file, form)
    return file.getvalue()


def shard(samples):
    """Samples as the bytes of a tar."""
    file = io.BytesIO()
    with wdspec.TarWriter(file) as writer:
        for sample in samples:
            writer.write(sample)
    return file.getvalue()


@lru_cache(maxsize=8)
def openimages(number):
    """Pictures with a list of labels each, of unequal lengths; the first shard is the one whose keys are shown."""
    sizes = OPENIMAGES_SIZES + [(320, 240)] * 4 if number == 0 else [(260, 230)] * 40
    keys = [*OPENIMAGES_KEYS, "ff5", "ff6"] if number == 0 else [f"{number:06x}{i}" for i in range(40)]
    return shard(
        {
            "__key__": key,
            "jpg": picture(*size, 40 * (i % 7)),
            "json": [{"ImageID": key, "Source": "xclick"}] * (1 + i % 3),
        }
        for i, (key, size) in enumerate(zip(keys, sizes, strict=True))
    )


@lru_cache(maxsize=16)
def publaynet(number):
    """Pages with annotations."""
    return shard(
        {
            "__key__": f"PMC{number:03d}{i}",
            "png": picture(300, 290, 20 * i, "PNG"),
            "json": {"annotations": [{"category_id": 1 + i % 5}]},
        }
        for i in range(4)
    )


@lru_cache(maxsize=4)
def imagenet(name):
    """Small pictures and classes."""
    return shard(
        {"__key__": f"{i:07d}", "jpg": picture(48, 40, i), "cls": i}
        for i in range(12 if "-val-" in name else 70)
    )


def content(host, path):
    """The bytes of a URL, or None."""
    name = path.rpartition("/")[2]
    if host == "storage.googleapis.com" and path.startswith("/nvdata-openimages/openimages-train-"):
        return openimages(min(1, int(name[-10:-4])))
    if host == "storage.googleapis.com" and path.startswith("/nvdata-publaynet/publaynet-train-"):
        return publaynet(int(name[-10:-4]))
    if path.startswith("/v1/objects/sharded-imagenet/imagenet-"):
        return imagenet(name)
    return None


class Stores:
    """A proxy that answers for the hosts of the documents; `transforms` does what AIStore's ETL does to an object."""

    def __init__(self):
        self.transforms = {}
        self.requests = []
        stores = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                url = urlsplit(self.path)
                stores.requests.append(self.path)
                data = content(url.hostname, url.path)
                name = dict(pair.split("=") for pair in url.query.split("&") if pair).get("uuid")
                if data is not None and name:
                    data = stores.transforms[name](data)
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
