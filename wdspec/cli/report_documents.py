"""What a run has read, as documents for others: a training-content summary, SPDX 3, OpenLineage events.

None of them claims more than the records say. What is missing for the document is named in it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from wdspec.base.amounts import number, percent
from wdspec.base.redaction import redacted_urls
from wdspec.cli.report_facts import ReadReport, describe_gap
from wdspec.urls.urls import scheme_of

MISSING = "**To be filled in.**"
PRODUCER = "https://github.com/wdspec/wdspec"
_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, PRODUCER)

ORIGINS = {
    "public": ("2.1", "Publicly available datasets"),
    "licensed": ("2.2.1", "Datasets commercially licensed by rightsholders or their representatives"),
    "third_party": ("2.2.2", "Private datasets obtained from other third parties"),
    "crawled": ("2.3", "Data crawled and scraped from online sources"),
    "users": ("2.4", "User data"),
    "synthetic": ("2.5", "Synthetic data"),
    "other": ("2.6", "Other sources of data"),
}
"""`meta: {origin: …}` of a source → the section of the template that it belongs to."""
QUESTIONS = {
    "2.1": "Modality, nature and period of the content; how it was selected. Large datasets are named with a link.",
    "2.2.1": "Whether there are such agreements, and for which modalities.",
    "2.2.2": "Modality and nature of the content; the datasets that are known to the public, with a link.",
    "2.3": "Crawlers and their operators, purposes and behaviour; period of collection; kinds of sites; the most "
    "relevant domain names.",
    "2.4": "Services and products whose user data was used, and modalities.",
    "2.5": "Modality; the models that made the data, if they are general-purpose models on the market, and others.",
    "2.6": "Description of these sources.",
}
"""Section → what it asks for of each source, in our words."""


def _sources(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The entries of the sources in the spec, by name."""
    return {str(each.get("name", "")): each for each in record["spec"].get("dataset", ())}


def _share(report: ReadReport, name: str, kind: str) -> float | None:
    total = sum(each.get(kind, 0) for each in report.sources.values())
    amount = report.sources[name].get(kind)
    return None if not total or amount is None else amount / total


def summary_of(report: ReadReport, record: Mapping[str, Any], model: str | None = None) -> str:
    """Return a draft of the public summary of training content, as Markdown.

    The sections are those of the template of the AI Office (Commission communication C(2025) 8311, for Article 53(1)(d)
    of Regulation (EU) 2024/1689). The text of the template is binding, and asks for more.

    Args:
        report: the sums over the records.
        record: the newest record.
        model: the name of the model.
    """
    entries = _sources(record)
    lines = [
        "# Public summary of training content: draft",
        "",
        "This draft was made from the records of one training run. It is not complete, and not a statement of "
        "compliance: compare it with the template of the AI Office, and fill in what is marked. Other stages of "
        "training, and data that other tools read, are not in it.",
        "",
        "## 1. General information",
        "",
        "### 1.1 Provider identification",
        "",
        f"- Provider, contact, authorised representative: {MISSING}",
        "",
        "### 1.2 Model identification",
        "",
        f"- Model and versions: {model or MISSING}",
        f"- Models that it is a modification of: {MISSING}",
        f"- Date of placement on the Union market: {MISSING}",
        "",
        "### 1.3 Modalities, overall training data size and other characteristics",
        "",
    ]
    for kind, unit in (("samples", "samples"), ("tokens", "tokens"), ("bytes", "bytes read")):
        known = [each[kind] for each in report.sources.values() if kind in each]
        if known:
            part = (
                ""
                if len(known) == len(report.sources)
                else f" (of {len(known)} of {len(report.sources)} sources)"
            )
            lines.append(f"- Data of this run: {sum(known):,.0f} {unit}{part}")
    lines += [
        f"- Modalities, and the size of each in the ranges of the template: {MISSING}",
        f"- Latest date of acquisition of the data; whether it is still collected: {MISSING}",
        f"- Languages and other characteristics: {MISSING}",
        "",
        "## 2. List of data sources",
        "",
    ]
    placed = {name: str((entry.get("meta") or {}).get("origin", "")) for name, entry in entries.items()}
    for origin, (section, title) in ORIGINS.items():
        if section == "2.2.1":
            lines += ["### 2.2 Private non-publicly available datasets obtained from third parties", ""]
        hashes = "#" * (2 + section.count("."))
        lines += [f"{hashes} {section} {title}", ""]
        names = [name for name in report.sources if placed.get(name) == origin]
        lines += _table(report, entries, names) if names else ["No source of the spec has this origin.", ""]
        lines += [f"{MISSING} {QUESTIONS[section]}", ""]
    if unknown := [name for name in report.sources if placed.get(name) not in ORIGINS]:
        lines += [
            "### Sources without an origin",
            "",
            f"Say where each belongs: `meta: {{origin: …}}` in the spec ({', '.join(ORIGINS)}).",
            "",
            *_table(report, entries, unknown),
        ]
    lines += [
        "## 3. Data processing aspects",
        "",
        "### 3.1 Respect of reservation of rights from the text and data mining exception or limitation",
        "",
        f"{MISSING} Measures taken before and during collection to identify and comply with reservations of rights.",
        "",
        "### 3.2 Removal of illegal content",
        "",
        f"{MISSING} Measures taken to avoid or remove illegal content.",
        "",
        "### 3.3 Other information",
        "",
        *_selections(entries),
        f"- Order of the run: `{report.digest}`; {report.batches:,} steps.",
        *(f"- {describe_gap(*gap)[0].upper()}{describe_gap(*gap)[1:]}." for gap in report.gaps),
    ]
    if len(report.ranks) < report.of:
        lines.append(
            f"- The records are of {len(report.ranks)} of {report.of} canonical ranks: all numbers are too small."
        )
    return "\n".join(lines) + "\n"


def _table(report: ReadReport, entries: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    rows = []
    for name in names:
        entry, amounts = entries.get(name, {}), report.sources[name]
        share = _share(report, name, "tokens") or _share(report, name, "samples")
        cells = [
            name,
            entry.get("homepage") or "?",
            entry.get("license") or "?",
            entry.get("revision") or "?",
            "?" if (samples := amounts.get("samples")) is None else number(samples),
            "?" if (tokens := amounts.get("tokens")) is None else number(tokens),
            "?" if share is None else percent(share),
        ]
        rows.append(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |")
    return [
        "| source | page | license | version | samples | tokens | share |",
        "|--|--|--|--|--|--|--|",
        *rows,
        "",
    ]


def _selections(entries: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what the spec leaves out of each source."""
    for name, entry in entries.items():
        keys = [key for key in ("where", "subset", "keys", "exclude", "select") if entry.get(key)]
        if keys:
            yield f"- `{name}`: the spec leaves out samples ({', '.join(f'`{key}`' for key in keys)})."


def _locations(entry: Mapping[str, Any]) -> list[str]:
    return [redacted_urls(str(each)) for each in entry.get("shards", ())]


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
    for name, entry in _sources(record).items():
        samples = read["samples"].get(name, 0)
        locations = _locations(entry)
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


_VERSION = "3.0.1"
_TYPES = {
    "text": ("txt", "text", "json", "tokens", "input_ids"),
    "image": ("jpg", "jpeg", "png", "webp", "image", "tif", "tiff"),
    "audio": ("wav", "flac", "mp3", "ogg", "audio", "opus"),
    "video": ("mp4", "mkv", "avi", "webm", "video"),
}
"""Types of data in SPDX → names of fields that show them."""


def spdx_of(report: ReadReport, record: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
    """Return an SPDX 3 document (profiles `ai` and `dataset`): a model, and the data sets that it was trained on.

    Who a data set is from (`meta: {owner: …}`), its page, version and license are those of the spec. What the profile
    asks for and the spec does not say is listed in the `comment` of the document.
    """
    base = f"urn:wdspec:{report.digest}:"
    info, tool = "_:creation", f"{base}wdspec"
    graph: list[dict[str, Any]] = [
        {
            "type": "CreationInfo",
            "@id": info,
            "specVersion": _VERSION,
            "created": f"{str(record['time'])[:19]}Z",
            "createdBy": [tool],
        },
        {
            "type": "SoftwareAgent",
            "spdxId": tool,
            "creationInfo": info,
            "name": f"wdspec {metadata.version('wdspec')}",
        },
    ]
    name = model or str(record["spec"].get("name") or "model")
    trained = {
        "type": "ai_AIPackage",
        "spdxId": f"{base}model",
        "creationInfo": info,
        "name": name,
        "ai_informationAboutTraining": f"{report.batches:,} steps of the spec {report.spec}, order {report.digest}",
    }
    graph.append(trained)
    missing: list[str] = []
    packages: list[str] = []
    for place, (source, entry) in enumerate(_sources(record).items()):
        package = f"{base}data-{place}"
        packages.append(package)
        amounts = report.sources.get(source, {})
        meta = entry.get("meta") or {}
        said = " ".join(f"{kind}: {amount:,.0f}." for kind, amount in amounts.items())
        found: dict[str, Any] = {
            "type": "dataset_DatasetPackage",
            "spdxId": package,
            "creationInfo": info,
            "name": source,
            "software_primaryPurpose": "data",
            "dataset_datasetType": _types_of(entry),
            "dataset_dataPreprocessing": [f"read by wdspec: {' '.join(_locations(entry))}"],
            "comment": f"Received in training: {said}" if said else "Nothing was received in training.",
        }
        if entry.get("homepage"):
            found["software_homePage"] = entry["homepage"]
        if entry.get("revision"):
            found["software_packageVersion"] = entry["revision"]
        if meta.get("owner"):
            owner = f"{package}-owner"
            graph.append({"type": "Agent", "spdxId": owner, "creationInfo": info, "name": str(meta["owner"])})
            found["originatedBy"] = [owner]
        graph.append(found)
        asked = {
            "originatedBy": "meta: {owner}",
            "software_homePage": "homepage",
            "software_packageVersion": "revision",
        }
        missing += [f"{source}: {key} (`{where}`)" for key, where in asked.items() if key not in found]
        if entry.get("license"):
            license = f"{package}-license"
            graph += [
                {
                    "type": "simplelicensing_LicenseExpression",
                    "spdxId": license,
                    "creationInfo": info,
                    "simplelicensing_licenseExpression": entry["license"],
                },
                _relate(f"{package}-licensed", info, package, "hasDeclaredLicense", [license]),
            ]
        else:
            missing.append(f"{source}: license (`license`)")
    if packages:
        graph.append(_relate(f"{base}trained", info, f"{base}model", "trainedOn", packages))
    missing.append("releaseTime, builtTime and software_downloadLocation of every data set")
    graph.append(
        {
            "type": "SpdxDocument",
            "spdxId": f"{base}document",
            "creationInfo": info,
            "name": f"training data of {name}",
            "profileConformance": ["core", "software", "simpleLicensing", "ai", "dataset"],
            "rootElement": [f"{base}model"],
            "element": [each["spdxId"] for each in graph if "spdxId" in each],
            "comment": f"A draft from records of one run. Not known: {'; '.join(missing)}.",
        }
    )
    return {"@context": f"https://spdx.org/rdf/{_VERSION}/spdx-context.jsonld", "@graph": graph}


def _relate(id: str, info: str, start: str, kind: str, ends: list[str]) -> dict[str, Any]:
    return {
        "type": "Relationship",
        "spdxId": id,
        "creationInfo": info,
        "from": start,
        "relationshipType": kind,
        "to": ends,
        "completeness": "noAssertion",
    }


def _types_of(entry: Mapping[str, Any]) -> list[str]:
    """The types of data that the names of the fields of a source show."""
    names = {
        part.lower()
        for key in ("extensions", "rename", "decode", "make", "fetch")
        for name in _names_in(entry.get(key))
        for part in name.replace(";", " ").replace(".", " ").split()
    }
    return [kind for kind, suffixes in _TYPES.items() if not names.isdisjoint(suffixes)] or ["noAssertion"]


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from map(str, value)
        for each in value.values():
            yield from _names_in(each) if isinstance(each, (str, list)) else ()
    elif isinstance(value, Sequence):
        for each in value:
            yield from _names_in(each)
