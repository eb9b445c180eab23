"""The cost of the counters of `loader.stats()`, and of exporting them as metrics, compared with reading.

    python benchmarks/counting.py            # seconds, 30 MB in a temporary folder
    python benchmarks/counting.py --quick    # next to nothing: checks that it runs

A worker sends its counts with a delivery of batches, every 50 ms. The table compares the time of that (counts gathered,
pickled, unpickled, added up) with reading the cheapest samples (1 KB of text and a json, in batches of 32), over 3 s of
reading. (Counting itself is one addition per sample.) The last columns are the time that one collection of all metrics
takes in the training process, as text for Prometheus, and its part of the time if Prometheus scrapes every 15 s.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import time
from pathlib import Path

from material import brace_pattern, text_sample, write_shards
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import generate_latest

import wdspec
from wdspec.integrations.opentelemetry import observe
from wdspec.planning.topology import Seat
from wdspec.run.run import make_run
from wdspec.run.stats import Tally
from wdspec.run.tasks import COUNTS_EVERY
from wdspec.shards.shards import list_readable_shards, plan_shards


def time_of_collection(spec: wdspec.Spec) -> float:
    """Seconds that one scrape of a loader takes, the median of 20."""
    provider = MeterProvider([PrometheusMetricReader()])
    with wdspec.loader(spec, num_workers=0) as loader:
        next(iter(loader))
        observe(loader, meter_provider=provider)
        times = []
        for _ in range(20):
            started = time.perf_counter()
            generate_latest()
            times.append(time.perf_counter() - started)
    provider.shutdown()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    most, megabytes = (0.05, 0.2) if quick else (3.0, 30)
    print("| sources | reports | counting, µs a report | of the time | collecting, ms | every 15 s |")
    print("|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), "text", text_sample, megabytes, 4)
        shards = brace_pattern(Path(folder), "text", 4)
        for sources in 1, 10, 50:
            dataset = [{"name": f"s{n}", "shards": shards, "weight": 1} for n in range(sources)]
            spec = wdspec.load({"dataset": dataset, "batch": 32})
            listed = list_readable_shards(spec)
            run = make_run(plan_shards(spec, listed, 1, 1), spec, listed, Seat())
            reader, tally = run.reader(), Tally(1)
            batch = deliveries = 0
            reading = counting = 0.0
            while reading < most:
                started = time.perf_counter()
                while (read := time.perf_counter()) - started < COUNTS_EVERY:
                    run.assemble(batch, reader.micro_batches(batch))
                    batch += 1
                tally.take(1, pickle.loads(pickle.dumps(reader.counts())))
                counting += time.perf_counter() - read
                reading += read - started
                deliveries += 1
            stats = tally.stats([source["name"] for source in dataset]).sources.values()
            assert sum(each.delivered for each in stats) == 32 * batch
            share, collecting = counting / (reading + counting), time_of_collection(spec)
            print(
                f"| {sources} | {deliveries} | {1e6 * counting / deliveries:.0f} | {100 * share:.2f} % | "
                f"{1e3 * collecting:.1f} | {100 * collecting / 15:.3f} % |",
                flush=True,
            )
            reader.close()


if __name__ == "__main__":
    main()
