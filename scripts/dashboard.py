"""Draw docs/dashboard.png: the panels of the Grafana dashboard, with the series of a real run in a real Prometheus.

    python scripts/dashboard.py            # a minute and a half

Needs the program `prometheus` and the extras `charts,opentelemetry,torch`. Two ranks of a small job read three sources
from a web server that sometimes fails; Prometheus scrapes both every second, and answers the queries of the panels as
it does for Grafana.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "examples" / "telemetry" / "dashboard.json"
PICTURE = ROOT / "docs" / "dashboard.png"
RANKS = 2

TRAIN = """\
import sys, time
import wdspec
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server
from wdspec.integrations.opentelemetry import observe

if __name__ == "__main__":
    spec, rank, port, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
    start_http_server(port, "127.0.0.1")
    with wdspec.loader(spec, rank=rank, world_size=2, num_workers=1) as loader:
        observe(loader, name="train")
        start = time.monotonic()
        for step, batch in enumerate(loader):
            time.sleep(0.02 if time.monotonic() - start < 0.6 * seconds else 0.002)
            if time.monotonic() - start > seconds:
                break
    time.sleep(5)
"""


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    """PromQL, and the template of the legend."""


def panels(interval: str) -> list[Panel]:
    """Return the panels with their variables replaced, as Grafana does for all loaders.

    Args:
        interval: the window of `rate`, such as `4s`.
    """
    given = {"$__rate_interval": interval, "$loader": ".*"}
    found = []
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        queries = []
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in given.items():
                query = query.replace(name, value)
            queries.append((query, target["legendFormat"]))
        found.append(Panel(panel["title"], panel["fieldConfig"]["defaults"]["unit"], queries))
    return found


class Prometheus:
    """A running Prometheus that scrapes some ports of this machine every second."""

    def __init__(self, home: Path, ports: Sequence[int]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        targets = [f"127.0.0.1:{port}" for port in ports]
        job = {"job_name": "train", "static_configs": [{"targets": targets}]}
        settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
        (home / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
        self.port = free_port()
        self._log = (home / "log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={home / 'prometheus.yml'}",
                f"--storage.tsdb.path={home / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready").read()
                return
            time.sleep(0.1)
        raise RuntimeError((home / "log").read_text())

    def series(self, query: str, start: float, end: float) -> list[dict[str, Any]]:
        """Return the series of a query, each with `metric` (its labels) and `values` ([time, text])."""
        arguments = urllib.parse.urlencode({"query": query, "start": start, "end": end, "step": 1})
        address = f"http://127.0.0.1:{self.port}/api/v1/query_range?{arguments}"
        with urllib.request.urlopen(address) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)
        self._log.close()


def free_port() -> int:
    """Return a port that nothing uses at the moment."""
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


@contextlib.contextmanager
def failing_server(folder: Path) -> Iterator[str]:
    """Serve the files of a folder, and answer one request in five with 503; yields the URL."""
    random = Random(0)

    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if random.random() < 0.2:
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                super().do_GET()

        def log_message(self, *arguments: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None:
            """Print nothing: the job ends while it reads."""

    server = Server(("127.0.0.1", 0), lambda *arguments: Handler(*arguments, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def write_data(folder: Path) -> None:
    """Write three sources of token arrays; one array in 200 of `web` is damaged."""
    import numpy as np

    random = np.random.default_rng(0)
    for source, shards, mean in (("web", 12, 300), ("books", 4, 900), ("code", 6, 500)):
        for shard in range(shards):
            with tarfile.open(folder / f"{source}-{shard:03d}.tar", "w") as tar:
                for number in range(400):
                    tokens = random.integers(0, 50_000, max(8, int(random.exponential(mean))), np.uint16)[
                        :2000
                    ]
                    file = BytesIO()
                    np.save(file, tokens)
                    data = file.getvalue()
                    if source == "web" and number % 200 == 7:
                        data = data[:-3]
                    info = tarfile.TarInfo(f"{source}{shard:03d}{number:05d}.npy")
                    info.size = len(data)
                    tar.addfile(info, BytesIO(data))


def start_job(folder: Path, url: str, ports: Sequence[int], seconds: float) -> list[subprocess.Popen[bytes]]:
    """Start the ranks of the job."""
    dataset = [
        {"name": name, "shards": f"{url}/{name}-{{000..{last:03d}}}.tar", "probability": share}
        for name, last, share in (("web", 11, 0.6), ("books", 3, 0.15), ("code", 5, 0.25))
    ]
    spec = {
        "dataset": dataset,
        "defaults": {"rename": {"tokens": "npy"}, "errors": "skip", "shuffle": 100},
        "cache": str(folder / "cache"),
        "batch": {"window": 200, "pack": {"fields": ["tokens"], "length": 4096}},
        "epoch": {"batches": 1_000_000},
    }
    (folder / "train.yaml").write_text(json.dumps(spec))
    (folder / "train.py").write_text(TRAIN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return [
        subprocess.Popen(
            [sys.executable, "train.py", "train.yaml", str(rank), str(port), str(seconds)],
            cwd=folder,
            env=environment,
        )
        for rank, port in enumerate(ports)
    ]


def observe_job(folder: Path, seconds: float) -> dict[Panel, list[tuple[str, list[tuple[float, float]]]]]:
    """Run the job for some seconds, and return for each panel its series: legend, and points (seconds, value)."""
    data = folder / "data"
    data.mkdir(parents=True)
    write_data(data)
    ports = [free_port() for _ in range(RANKS)]
    with failing_server(data) as url:
        ranks = start_job(folder, url, ports, seconds)
        for rank, port in zip(ranks, ports, strict=True):
            wait_for(rank, port)
        start = time.time()
        prometheus = Prometheus(folder / "prometheus", ports)
        try:
            time.sleep(max(0.0, start + seconds - time.time()))
            end = time.time()
            return {
                panel: [
                    (legend_of(template, each["metric"]), points_of(each["values"], start))
                    for query, template in panel.queries
                    for each in prometheus.series(query, start, end)
                ]
                for panel in map(freeze, panels("5s"))
            }
        finally:
            prometheus.stop()
            for rank in ranks:
                rank.terminate()
                rank.wait(20)


def wait_for(rank: subprocess.Popen[bytes], port: int) -> None:
    """Return when a rank answers, which takes long on a busy machine, or has ended."""
    while rank.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)


def freeze(panel: Panel) -> Panel:
    """Return the panel with a tuple, so that it can be a key."""
    return Panel(panel.title, panel.unit, tuple(panel.queries))


def legend_of(template: str, labels: Mapping[str, str]) -> str:
    """Return a legend as Grafana writes it."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template)


def points_of(values: Sequence[tuple[float, str]], start: float) -> list[tuple[float, float]]:
    """Return the points of a series without gaps."""
    return [(at - start, float(text)) for at, text in values if text not in ("NaN", "+Inf")]


def draw(found: Mapping[Panel, Sequence[tuple[str, Sequence[tuple[float, float]]]]], file: Path) -> None:
    """Draw the panels in the grid of the dashboard."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot, ticker

    pyplot.style.use("dark_background")
    rows = -(-len(found) // 3)
    figure, grid = pyplot.subplots(rows, 3, figsize=(15, 3 * rows), layout="constrained")
    for axes in grid.flat[len(found) :]:
        axes.remove()
    for axes, (panel, series) in zip(grid.flat, found.items(), strict=False):
        for legend, points in sorted(series):
            axes.plot(*zip(*points, strict=True), lw=1.2, label=legend) if points else None
        axes.set_title(panel.title, loc="left", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.2)
        axes.tick_params(labelsize=8)
        if panel.unit == "percentunit":
            axes.yaxis.set_major_formatter(ticker.PercentFormatter(1))
        else:
            unit = {"Bps": "B/s", "bytes": "B", "short": ""}.get(panel.unit, panel.unit)
            axes.yaxis.set_major_formatter(ticker.EngFormatter(places=None, sep=" "))
            axes.set_ylabel(unit, fontsize=8)
        axes.set_xlabel("seconds", fontsize=8)
        axes.legend(fontsize=8, frameon=False, loc="upper left", ncols=3)
    figure.savefig(file, dpi=80)


def main() -> None:
    if shutil.which("prometheus") is None:
        raise SystemExit("install Prometheus: apt-get install prometheus")
    with tempfile.TemporaryDirectory() as folder:
        found = observe_job(Path(folder), 80)
    draw(found, PICTURE)
    for panel, series in found.items():
        print(f"{panel.title}: {', '.join(legend for legend, _ in sorted(series))}")


if __name__ == "__main__":
    main()
