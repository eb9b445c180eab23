"""The lines of docs/telemetry.md run as printed, with the real packages, offline."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from shardmaking import write_source
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import wdspec

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def block(word):
    """The block of the page that contains this text."""
    [found] = [each for each in BLOCKS if word in each]
    return found


def spec(folder):
    a, b = write_source(folder, "a"), write_source(folder, "b")
    sources = [{"name": "a", "shards": a, "weight": 3}, {"name": "b", "shards": b, "weight": 1}]
    return {"dataset": sources, "defaults": {"shuffle": 0, "interleave": 1}, "batch": 4, "epoch": 80}


@pytest.fixture
def loader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with wdspec.loader(spec(tmp_path)) as loader:
        next(iter(loader))
        yield loader


def run_block(word, loader, **more):
    given = {"loader": loader, "step": 1, **more}
    exec(block(word).replace("laion", "a"), given)
    return given


def test_stats_in_python(loader):
    assert run_block("stats.waited", loader)["stats"].sources["a"].delivered == 3


def test_tensorboard_receives_the_counts(loader, tmp_path):
    run_block("SummaryWriter", loader)["writer"].close()
    events = EventAccumulator(str(tmp_path / "runs")).Reload()
    [scalar] = events.Scalars("delivered/a")
    assert (scalar.step, scalar.value) == (1, 3)


def test_wandb_receives_the_counts(loader, tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = run_block("import wandb", loader)["run"]
    run.finish()
    wandb.teardown()
    [file] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert re.search(rb"delivered/a[^a-z]{0,8}3", file.read_bytes())


def test_prometheus_receives_the_counts(loader, tmp_path):
    """In a separate process: the global MeterProvider can be set only once."""
    code = f"import wdspec\nloader = wdspec.loader({spec(tmp_path)!r})\nnext(iter(loader))\n"
    code += block("start_http_server").replace("9464", "0").replace("start_http", "server, _ = start_http")
    code += """
import urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics").read().decode())
"""
    code = code.replace("import server, _ = start_http_server", "import start_http_server")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(r'^wdspec_samples_total\{.*wdspec_source="a"\} 3.0$', done.stdout, re.M)
