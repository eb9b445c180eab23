"""`wdspec croissant`: metadata of a spec for catalogues and reviewers, in MLCommons' Croissant 1.1.

The document lists the files, fields, licences and shares of the sources, and statements of the Responsible AI (RAI)
vocabulary, which a YAML file provides.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

import click
import yaml

from wdspec.advice.explanation import ExplainedSource, Explanation, explain_spec
from wdspec.advice.words import ExplainedField
from wdspec.base.amounts import pluralize
from wdspec.base.errors import UsageError, did_you_mean
from wdspec.base.files import open_regular
from wdspec.base.redaction import escape_json, redacted_urls
from wdspec.cli.spec_options import SpecChoice, choosing_spec
from wdspec.shards.lock import Lock
from wdspec.spec.spec import Source
from wdspec.stores.outputs import save
from wdspec.urls.urls import UrlSequence, is_command

VERSION = "http://mlcommons.org/croissant/1.1"
_MOST_NAMES = 1000
"""Up to this many shards are listed by name; longer lists are written as patterns."""
_NOT = re.compile(r"[^\w./-]+")
_KINDS = {
    "sc:ImageObject": ("jpg", "jpeg", "png", "webp", "gif", "tif", "tiff", "bmp", "ppm", "pgm"),
    "sc:AudioObject": ("wav", "flac", "mp3", "ogg", "m4a"),
    "sc:VideoObject": ("mp4", "avi", "mov", "mkv", "webm"),
    "sc:Integer": ("cls", "index"),
}
_MIME = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "gif": "image/gif",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "json": "application/json",
    "txt": "text/plain",
    "cls": "text/plain",
}
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_TERMS = """
    arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty
    fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet
    references regex repeated replace samplingRate separator source subField transform
"""
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{name: f"cr:{name}" for name in _TERMS.split()},
}
CONTEXT = dict(sorted(CONTEXT.items()))
"""The terms of Croissant 1.1, from its specification."""
ONE = [
    "dataCollection",
    "dataCollectionMissingData",
    "dataCollectionRawData",
    "dataImputationProtocol",
    "dataManipulationProtocol",
    "annotationsPerItem",
    "dataSocialImpact",
    "dataReleaseMaintenancePlan",
]
"""Statements of the RAI vocabulary that take one text."""
MANY = [
    "dataCollectionType",
    "dataCollectionTimeframe",
    "dataPreprocessingProtocol",
    "dataAnnotationProtocol",
    "dataAnnotationPlatform",
    "dataAnnotationAnalysis",
    "annotatorDemographics",
    "machineAnnotationTools",
    "dataBiases",
    "dataUseCases",
    "dataLimitations",
    "personalSensitiveInformation",
]
"""Statements that take one or more texts."""
REQUIRED = ("dataCollection", "dataBiases", "dataLimitations", "personalSensitiveInformation", "dataUseCases")
"""Statements that reviewers of data sets require, but that a spec cannot contain."""


@click.command()
@choosing_spec
@click.option(
    "--lock", "lock_file", metavar="FILE", help="Read the shards from a lock instead of listing them."
)
@click.option(
    "--rai",
    "rai_file",
    metavar="FILE",
    help="YAML file with statements of the Responsible AI vocabulary (dataBiases, …).",
)
@click.option("--url", help="Web page of the data set (default: the first `homepage` of a source).")
@click.option("--license", help="License of the whole mixture (default: the licenses of its sources).")
@click.option("--creator", help="Creator of the data set.")
@click.option("--version", help="Version of the data set, such as 1.0.0.")
@click.option("--date", "date_published", metavar="YYYY-MM-DD", help="Date of publication.")
@click.option("--cite-as", help="Citation in BibTeX.")
@click.option("--output", "-o", metavar="FILE", help="File to write (default: standard output).")
def croissant(
    choice: SpecChoice, lock_file: str | None, rai_file: str | None, output: str | None, **given: str | None
) -> None:
    """Describe a mixture in Croissant 1.1 (JSON-LD): its sources, shards, fields, licenses and shares.

    The document uses `name` and `description` of the spec, and `license`, `homepage` and `revision` of its sources.
    Pass information that is not in the spec, such as statements about biases and personal data, with --rai. Entries
    that catalogs or reviewers expect but that are missing are listed on standard error. Globs and directories are
    listed as in `wdspec explain`; no samples are read.
    """
    spec = choice.load()
    lock = None if lock_file is None else Lock.read(lock_file)
    frozen = None if lock is None else lock.shards(spec, lock_file or "")
    explanation = explain_spec(spec, None, None, 1, probe=False, frozen=frozen)
    statements = {} if rai_file is None else read_statements(rai_file)
    sources = {} if lock is None else lock.sources
    hashes = {name: source.hashes for name, source in sources.items() if None not in source.known_hashes}
    document = build_document(explanation, statements, given, hashes)
    expected = {
        "url": "--url",
        "license": "--license, or `license:` of the sources",
        "datePublished": "--date",
        "creator": "--creator",
        "citeAs": "--cite-as",
        **{f"rai:{name}": "--rai" for name in REQUIRED},
    }
    for key, where in expected.items():
        if key not in document:
            click.echo(f"note: `{key}` is missing ({where})", err=True)
    text = escape_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    save(output, text.encode())


def build_document(
    explanation: Explanation,
    statements: Mapping[str, Any],
    given: Mapping[str, Any],
    hashes: Mapping[str, Sequence[str | None]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Build the document.

    Args:
        explanation: the spec, planned.
        statements: of the RAI vocabulary.
        given: `url`, `license`, `creator`, `version`, `date_published` and `cite_as`, if known.
        hashes: the SHA-256 of each shard, by source, if a lock has those of all.
    """
    spec = explanation.spec
    leaves = {source.name: source for source in spec.sources}
    shown = [each for each in explanation.sources if each.name in leaves and each.shards]
    sources = [(leaves[each.name], each) for each in shown]
    licenses = (
        [given["license"]] if given.get("license") else _distinct(source.license for source, _ in sources)
    )
    shards = {planned.name: planned.shards for planned in explanation.plan.sources}
    distribution, tables = [], [_mixture(sources)]
    for source, each in sources:
        distribution += _distribution(
            source, each.field_list or (), shards[source.name], hashes.get(source.name)
        )
        tables += _records(source, each.field_list or ())
    steps = [f"{source.name}: {each.steps}" for source, each in sources if each.steps]
    rai = ({"dataPreprocessingProtocol": steps} if steps else {}) | dict(statements)
    document: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": _name(spec.name or "mixture"),
        "description": spec.description or f"A mixture of {len(sources)} sources: {', '.join(leaves)}.",
        "conformsTo": VERSION,
        "url": given.get("url") or next((source.homepage for source, _ in sources if source.homepage), None),
        "license": [_license(each) for each in licenses],
        "version": given.get("version") or "1.0.0",
        "datePublished": given.get("date_published"),
        "creator": {"@type": "sc:Organization", "name": given["creator"]} if given.get("creator") else None,
        "citeAs": given.get("cite_as"),
        **{f"rai:{key}": value for key, value in rai.items()},
        "distribution": distribution,
        "recordSet": tables,
    }
    return {key: value for key, value in document.items() if value not in (None, [])}


def _distribution(
    source: Source,
    fields: Sequence[ExplainedField],
    shards: Sequence[Any],
    hashes: Sequence[str | None] | None,
) -> list[dict[str, Any]]:
    """The location of a source, its shards there, and the files of each field in the shards."""
    texts = [each.text for each in islice(shards, _MOST_NAMES + 1)]
    place = _place([redacted_urls(text) for text in texts])
    name = _name(source.name)
    if len(texts) > _MOST_NAMES and isinstance(shards, UrlSequence):
        texts = [run.prefix + getattr(run.texts, "pattern", run.texts[0]) for run in shards.parts]
    shown = [redacted_urls(text) for text in texts]
    lines, checked = texts, "the list of their names"
    if hashes is not None:
        names = (each.text for each in shards)
        lines = [*(f"{hash}  {text}" for hash, text in zip(hashes, names, strict=True)), ""]
        checked = "the lines of `sha256sum` of all shards, with their URLs in the spec"
    listing = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
    about = f"; revision {source.revision}" if source.revision else ""
    origin = {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": f"Location of the shards of `{source.name}`{about}. The checksum is of {checked}.",
        "contentUrl": place,
        "encodingFormat": "application/x-directory",
        "sha256": listing,
    }
    within = {
        "@type": "cr:FileSet",
        "@id": f"{name}/shards",
        "name": f"{name}/shards",
        "description": pluralize(len(shards), "shard"),
        "containedIn": {"@id": name},
        "encodingFormat": "application/x-tar",
        "includes": [text[len(place) :] for text in shown],
    }
    files = [
        {
            "@type": "cr:FileSet",
            "@id": f"{name}/files/{_name(field.name)}",
            "name": f"{name}/files/{_name(field.name)}",
            "description": f"The files of the field `{field.name}`.",
            "containedIn": {"@id": f"{name}/shards"},
            "encodingFormat": _MIME.get(
                field.files[0].rpartition(".")[2].lower(), "application/octet-stream"
            ),
            "includes": [f"*.{suffix}" for suffix in field.files],
        }
        for field in fields
    ]
    return [origin, within, *files]


def _records(source: Source, fields: Sequence[ExplainedField]) -> list[dict[str, Any]]:
    """A table of key and content for each field; the entries of a sample have the same key."""
    tables: list[dict[str, Any]] = []
    first = None
    for field in fields:
        table = f"{_name(source.name)}/{_name(field.name)}"
        files = {"fileSet": {"@id": f"{_name(source.name)}/files/{_name(field.name)}"}}
        key: dict[str, Any] = {
            "@type": "cr:Field",
            "@id": f"{table}/key",
            "name": f"{table}/key",
            "description": "The key of the sample that the file belongs to.",
            "dataType": "sc:Text",
            "source": {
                **files,
                "extract": {"fileProperty": "filename"},
                "transform": {"regex": r"^([^.]*)\..*$"},
            },
        }
        if first is not None:
            key["references"] = {"field": {"@id": first}}
        first = first or f"{table}/key"
        content = {
            "@type": "cr:Field",
            "@id": f"{table}/content",
            "name": f"{table}/content",
            "description": f"The field `{field.name}`, as {field.decoder}.",
            "dataType": _kind(field),
            "source": {**files, "extract": {"fileProperty": "content"}},
        }
        count = f"{source.samples:,} samples" if source.samples else "samples"
        tables.append(
            {
                "@type": "cr:RecordSet",
                "@id": table,
                "name": table,
                "description": f"The field `{field.name}` of the {count} of `{source.name}`.",
                "key": {"@id": f"{table}/key"},
                "field": [key, content],
            }
        )
    return tables


def _mixture(sources: Sequence[tuple[Source, ExplainedSource]]) -> dict[str, Any]:
    """The shares of the sources, as records in the document."""
    columns = {"source": "sc:Text", "share": "sc:Float", "shards": "sc:Integer", "license": "sc:Text"}
    return {
        "@type": "cr:RecordSet",
        "@id": "mixture",
        "name": "mixture",
        "description": "The share of each source in the samples.",
        "key": {"@id": "mixture/source"},
        "field": [
            {"@type": "cr:Field", "@id": f"mixture/{key}", "name": f"mixture/{key}", "dataType": kind}
            for key, kind in columns.items()
        ],
        "data": [
            {
                "mixture/source": source.name,
                "mixture/share": round(float(each.share), 9),
                "mixture/shards": each.shards or 0,
                "mixture/license": source.license or "",
            }
            for source, each in sources
        ],
    }


def _place(texts: Sequence[str]) -> str:
    """The common prefix of the URLs of a source, up to its last slash."""
    if not texts or is_command(texts[0]):
        return ""
    common = os.path.commonprefix(list(texts))  # noqa: RUF071 - of characters
    return common[: common.rfind("/") + 1] or "./"


def _license(text: str) -> str:
    return f"https://spdx.org/licenses/{text}.html" if _SPDX.fullmatch(text) and ":" not in text else text


def _kind(field: ExplainedField) -> str:
    suffix = field.files[0].rpartition(".")[2].lower()
    return next((kind for kind, suffixes in _KINDS.items() if suffix in suffixes), "sc:Text")


def _name(text: str) -> str:
    """A name that is valid in Croissant, also in an `@id`."""
    return _NOT.sub("-", text).strip("-/") or "source"


def _distinct(texts: Any) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))


def read_statements(path: str) -> dict[str, Any]:
    """Read the statements of a YAML or JSON file, by the names of the vocabulary.

    Raises:
        UsageError: the file is not a map of known statements.
        OSError: it cannot be read.
    """
    with io.TextIOWrapper(open_regular(path, descriptors=True), encoding="utf-8") as file:
        try:
            content = yaml.safe_load(file)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UsageError(f"this is not YAML: {error}", file=path) from None
    if not isinstance(content, dict):
        raise UsageError("this is not a map of statements, such as `dataBiases: [...]`", file=path)
    statements: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).removeprefix("rai:")
        if name not in (*ONE, *MANY):
            hint = did_you_mean(name, (*ONE, *MANY)) or f"the statements are {', '.join((*ONE, *MANY))}"
            raise UsageError(f"`{key}` is not a statement of Croissant's RAI vocabulary; {hint}", file=path)
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(each, str) for each in texts):
            raise UsageError(f"`{key}` takes a text, or a list of texts", file=path)
        if name in ONE and len(texts) > 1:
            raise UsageError(f"`{key}` takes one text, not {len(texts)}", file=path)
        statements[name] = texts[0] if name in ONE else texts
    return statements
