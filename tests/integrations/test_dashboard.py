"""Every query of the Grafana dashboard returns data of a real run in a real Prometheus."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

from servers.fixtures import missing

ROOT = Path(__file__).parents[2]
_found = importlib.util.spec_from_file_location("dashboard_script", ROOT / "scripts" / "dashboard.py")
dashboard = importlib.util.module_from_spec(_found)
sys.modules[_found.name] = dashboard  # for its dataclasses
_found.loader.exec_module(dashboard)


def test_each_panel_shows_the_series_of_a_run(tmp_path):
    if shutil.which("prometheus") is None:
        missing("prometheus", "apt-get install prometheus")
    found = {
        panel.title: dict(series) for panel, series in dashboard.observe_job(tmp_path / "job", 14).items()
    }
    assert len(found) == len(json.loads(dashboard.DASHBOARD.read_text())["panels"])
    for title, series in found.items():
        assert any(points for points in series.values()), title
    assert set(found["Samples"]) == {"books", "code", "web"}
    assert set(found["Waiting for data"]) == {"rank 0", "rank 1"}
    assert set(found["Skipped errors"]) == {"web D202"}
    assert set(found["Copies without room"]) == {"deleted", "no copy"}
    assert all(points[-1][1] > 0 for points in found["Cache size"].values())
    shares = {source: points[-1][1] for source, points in found["Shares of the samples"].items()}
    assert abs(shares["web"] - 0.6) < 0.02
    assert abs(sum(shares.values()) - 1) < 1e-9
    assert all(0 <= value <= 1.1 for points in found["Waiting for data"].values() for _, value in points)
    dashboard.draw({panel: [] for panel in map(dashboard.freeze, dashboard.panels("5s"))}, tmp_path / "p.png")


def test_the_dashboard_asks_only_for_metrics_of_the_page():
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    for panel in dashboard.panels("5s"):
        for query, _ in panel.queries:
            names = {
                word
                for word in query.replace("{", " ").split()
                if word.startswith(("wdspec_", "rate(wdspec_"))
            }
            names = {name.removeprefix("rate(") for name in names} - {"wdspec_source)", "wdspec_rank)"}
            assert all(f"`{name}`" in page for name in names if name.endswith(("total", "ahead"))), query
