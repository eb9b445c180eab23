"""An SPDX 3 document of a model and what it was trained on, from what a run has read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from wdspec.cli.report_facts import ReadReport, locations_of, sources_of

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
    for place, (source, entry) in enumerate(sources_of(record).items()):
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
            "dataset_dataPreprocessing": [f"read by wdspec: {' '.join(locations_of(entry))}"],
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
