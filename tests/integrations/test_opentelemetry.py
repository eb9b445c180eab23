"""The counts of loaders as OpenTelemetry metrics: the numbers of `stats()`, on a real Prometheus endpoint too."""

import itertools
import os
import threading
import urllib.request

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families
from servers.fault_proxy import Script, Status
from shardmaking import write_shard, write_source

import wdspec
from wdspec.integrations.opentelemetry import observe


def spec(folder, **more):
    samples = [(f"k{n:02d}", {"cls": b"x" if n % 5 == 0 else b"1", "txt": b"t" * n}) for n in range(1, 21)]
    write_shard(folder / "c.tar", samples)
    write_shard(folder / "d.tar", [(f"d{n}", {"txt": b"d"} if n % 2 else {"cls": b"2"}) for n in range(8)])
    sources = [
        {"name": "c", "shards": str(folder / "c.tar"), "extensions": "cls", "errors": "skip"},
        {"name": "d", "shards": str(folder / "d.tar"), "extensions": "cls", "missing": "skip"},
    ]
    defaults = {"shuffle": 0, "interleave": 1}
    return {
        "dataset": sources,
        "defaults": defaults,
        "batch": {"size": 4, "ragged": "list"},
        "epoch": 80,
    } | more


def points(reader):
    """(name of the metric, attributes without the rank) -> value, of one collection."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        (
            metric.name,
            *sorted(each for each in point.attributes.items() if each[0] != "wdspec.rank"),
        ): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def export(loader, **more):
    reader = InMemoryMetricReader()
    observe(loader, meter_provider=MeterProvider([reader]), **more)
    return reader


@pytest.mark.parametrize("workers", [0, 2])
def test_the_metrics_equal_the_stats(tmp_path, workers):
    with wdspec.loader(spec(tmp_path), num_workers=workers) as loader:
        reader = export(loader, name="train")
        assert points(reader)["wdspec.batches", ("wdspec.loader", "train")] == 0
        for _ in loader:
            pass
        stats, found, later = loader.stats(), points(reader), loader.stats()
    own = ("wdspec.loader", "train")
    assert found["wdspec.batches", own] == 20
    assert found["wdspec.wait.time", own] == stats.waited
    assert stats.seconds <= found["wdspec.time", own] <= later.seconds
    assert found["wdspec.batches.ahead", own] == 0
    # Other threads of this process, left by other tests, may retry meanwhile.
    assert stats.flat()["retries"] <= found["wdspec.retries", own] <= later.flat()["retries"]
    for name, source in stats.sources.items():
        mine = (own, ("wdspec.source", name))
        assert found["wdspec.samples", *mine] == source.delivered
        assert found["wdspec.io", *mine] == source.bytes
        assert found["wdspec.passes", *mine] == source.passes
        assert found["wdspec.shards", *mine] == source.shards
        assert found["wdspec.cache.hits", *mine] == source.cache_hits == 0
        assert ("wdspec.cost", *mine) not in found
    skips = stats.sources["c"].skipped["D202"]
    assert skips > 0
    assert found["wdspec.skips", ("error.type", "D202"), own, ("wdspec.source", "c")] == skips
    drops = stats.sources["d"].dropped["missing"]
    assert found["wdspec.drops", ("wdspec.cause", "missing"), own, ("wdspec.source", "d")] == drops > 0


def test_the_rank_is_an_attribute(tmp_path):
    with wdspec.loader(spec(tmp_path), rank=1, world_size=2) as loader:
        reader = export(loader)
        [point] = [
            point
            for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics
            for metric in scope.metrics
            if metric.name == "wdspec.batches"
            for point in metric.data.data_points
        ]
        assert dict(point.attributes) == {"wdspec.loader": "loader", "wdspec.rank": 1}


def test_tokens_and_cost_are_counted_by_source(tmp_path):
    batch = {"cost": "txt.length", "max_cost": 64, "collate": {"txt": "list"}, "ragged": "list"}
    described = spec(tmp_path, batch=batch, epoch={"batches": 10})
    shards = str(tmp_path / "c.tar")
    described["dataset"] = [{"name": name, "shards": shards, "errors": "skip"} for name in "ce"]
    with wdspec.loader(described, num_workers=1) as loader:
        reader = export(loader)
        cost = {"c": 0, "e": 0}
        for each in loader:
            for source, text in zip(each["__source__"], each["txt"], strict=True):
                cost[source] += len(text)
        found = points(reader)
    for name, expected in cost.items():
        assert found["wdspec.cost", ("wdspec.loader", "loader"), ("wdspec.source", name)] == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_repeated_requests_are_counted(tmp_path, nginx, proxy, workers):
    write_source(nginx.root, "retried", shards=2)
    proxy.scripts[f"/run-{workers}/retried-000.tar"] = Script([Status(503), Status(503)])
    shards = f"{proxy.url}/run-{workers}/retried-{{000..001}}.tar"
    described = {"dataset": [{"name": "r", "shards": shards}], "batch": 4, "epoch": 20}
    with wdspec.loader(described, num_workers=workers) as loader:
        reader = export(loader)
        assert sum(len(batch["__key__"]) for batch in loader) == 20
        counted = loader.stats().flat()["retries"]
        assert points(reader)["wdspec.retries", ("wdspec.loader", "loader")] == counted
        # Other threads of this process, left by other tests, may retry meanwhile.
        assert counted == 2 if workers else counted >= 2
    proxy.scripts.clear()


def test_several_loaders_have_distinct_names_until_closed(tmp_path):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    train, val = (wdspec.loader({**spec(tmp_path), "name": name}) for name in ("train", "val"))
    for loader in (train, val, val):
        observe(loader, meter_provider=provider)
    next(iter(train))
    found = points(reader)
    assert found["wdspec.batches", ("wdspec.loader", "train")] == 1
    assert found["wdspec.batches", ("wdspec.loader", "val")] == 0
    with pytest.raises(wdspec.UsageError, match="observed as 'val'; give each one a name"):
        observe(train, name="val", meter_provider=provider)
    train.close()
    del train, loader
    assert ("wdspec.batches", ("wdspec.loader", "train")) not in points(reader)
    assert ("wdspec.batches", ("wdspec.loader", "val")) in points(reader)


def test_only_loaders_are_observed(tmp_path):
    with pytest.raises(wdspec.UsageError, match="takes a loader from wdspec"):
        observe(wdspec.compile(spec(tmp_path)))


def test_a_forked_process_exports_nothing(tmp_path):
    with wdspec.loader(spec(tmp_path)) as loader:
        reader = export(loader)
        next(iter(loader))
        receiver, sender = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(sender, str(len(points(reader))).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(receiver, 100) == b"0"
        assert len(points(reader)) > 5
        os.close(receiver)
        os.close(sender)


def test_counters_never_fall_while_another_thread_collects(tmp_path):
    a = write_source(tmp_path, "a", shards=8, samples=50)
    described = {"dataset": [{"name": "a", "shards": a}], "batch": 4, "epoch": 1000}
    with wdspec.loader(described, num_workers=2, persistent_workers=False) as loader:
        reader = export(loader)
        collected, done = [], threading.Event()

        def collect():
            while not done.is_set():
                collected.append(points(reader))

        thread = threading.Thread(target=collect)
        thread.start()
        try:
            for epoch in itertools.count():
                for _ in loader:
                    pass
                if epoch and len(collected) > 5:
                    break
        finally:
            done.set()
            thread.join()
        collected.append(points(reader))
    for name in ("wdspec.batches", "wdspec.samples", "wdspec.time", "wdspec.io"):
        values = [value for found in collected for key, value in found.items() if key[0] == name]
        assert values == sorted(values)
    assert values[-1] > 0


def test_prometheus_receives_the_stats(tmp_path):
    provider = MeterProvider([PrometheusMetricReader()])
    server, thread = start_http_server(0, "127.0.0.1")
    try:
        with wdspec.loader(spec(tmp_path), num_workers=2) as loader:
            observe(loader, meter_provider=provider)
            for _ in loader:
                pass
            address = f"http://127.0.0.1:{server.server_port}/metrics"
            text = urllib.request.urlopen(address).read().decode()
            stats = loader.stats()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()
    found = {
        (sample.name, sample.labels.get("wdspec_source")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["wdspec_batches_total", None] == 20
    assert found["wdspec_samples_total", "c"] == stats.sources["c"].delivered
    assert found["wdspec_io_bytes_total", "c"] == stats.sources["c"].bytes
    assert found["wdspec_wait_time_seconds_total", None] == stats.waited
