"""OpenLineage events, from what a run has read."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wdspec.cli.report_facts import ReadReport, locations_of, sources_of
from wdspec.urls.urls import scheme_of

PRODUCER = "https://github.com/wdspec/wdspec"
_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, PRODUCER)


def events_of(report: ReadReport, records: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield an OpenLineage event (schema 2-0-2) for each record of a run, by time.

    The first event is `START`, the last one `COMPLETE`, those between `RUNNING`. An input has what the run had received
    of a source by then (`inputStatistics`), and its share and origin (`wdspec_source`).
    """
    ordered = sorted(records, key=lambda each: (str(each["time"]), each["read"]["batches"]))
    run = str(uuid.uuid5(_SPACE, f"{report.digest} {ordered[0]['time']}"))
    steps = ["START", *["RUNNING"] * (len(ordered) - 1), "COMPLETE"]
    for event, record in zip(steps, [ordered[0], *ordered[1:], ordered[-1]], strict=True):
        yield {
            "eventType": event,
            "eventTime": record["time"],
            "run": {"runId": run, "facets": {"wdspec_run": _facet(_describe_run(record))}},
            "job": {
                "namespace": "wdspec",
                "name": str(record["spec"].get("name") or report.spec),
                "facets": {},
            },
            "inputs": [*_inputs(record, with_counts=event != "START")],
            "outputs": [],
            "producer": PRODUCER,
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        }


_STATISTICS = "facets/1-0-0/InputStatisticsInputDatasetFacet.json#/$defs/InputStatisticsInputDatasetFacet"


def _facet(
    values: Mapping[str, Any], schema: str = "2-0-2/OpenLineage.json#/$defs/RunFacet"
) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"https://openlineage.io/spec/{schema}", **values}


def _describe_run(record: Mapping[str, Any]) -> dict[str, Any]:
    lock = record.get("lock") or {}
    return {
        "spec": record.get("file"),
        "split": record.get("split"),
        "order": record["digest"],
        "samples": record["samples"],
        "lock": lock.get("digest"),
        "version": record["versions"].get("wdspec"),
        "steps": record["read"]["batches"],
        "ofRanks": record["read"].get("of_ranks"),
    }


def _inputs(record: Mapping[str, Any], with_counts: bool) -> Iterator[dict[str, Any]]:
    """Yield the sources as data sets, named as OpenLineage names those of stores: the bucket, and the path in it."""
    read = record["read"]
    total = sum(read["samples"].values())
    for name, entry in sources_of(record).items():
        samples = read["samples"].get(name, 0)
        locations = locations_of(entry)
        first = locations[0] if locations else name
        scheme, slashes, rest = first.partition("://")
        host, _, path = rest.partition("/")
        counts = {"rowCount": int(samples)}
        if (stats := read["stats"]["sources"].get(name)) is not None:
            counts["size"] = int(stats["bytes"])
        described = {
            "source": name,
            "shards": locations,
            **({"share": samples / total} if with_counts and total else {}),
            **{
                kind: read[kind][name]
                for kind in ("cost", "tokens")
                if with_counts and name in read.get(kind, {})
            },
            **{key: entry[key] for key in ("license", "homepage", "revision", "meta") if entry.get(key)},
        }
        yield {
            "namespace": f"{scheme}://{host}" if slashes and scheme_of(first) != "file" else "file",
            "name": (path or host) if slashes else first,
            "facets": {},
            "inputFacets": {
                **({"inputStatistics": _facet(counts, _STATISTICS)} if with_counts else {}),
                "wdspec_source": _facet(described, "2-0-2/OpenLineage.json#/$defs/InputDatasetFacet"),
            },
        }
