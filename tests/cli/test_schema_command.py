"""The published JSON Schema, and the pages of the codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from wdspec.cli.main import cli
from wdspec.spec.language import batch as batch_options
from wdspec.spec.language import locations, options
from wdspec.spec.reference import codes_text, reference_text
from wdspec.spec.rules import all_codes
from wdspec.spec.schema import json_schema, json_schema_text
from wdspec.spec.spec import Source, Spec
from wdspec.spec.validation import keys_of

ROOT = Path(__file__).parents[2]
SCHEMA = json_schema()
CODES = all_codes()
MODELS = vars(options) | vars(batch_options) | vars(locations)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """A judge of the small part of JSON Schema that ours uses."""
    if "$ref" in schema:
        return fits(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema and not any(fits(value, form) for form in schema["anyOf"]):
        return False
    if "const" in schema and (
        value != schema["const"] or isinstance(value, bool) != isinstance(schema["const"], bool)
    ):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    kind = schema.get("type")
    if isinstance(kind, list):  # as editors want it; see `editor_words`
        (kind,) = kind
    if kind in kinds and not isinstance(value, kinds[kind]):
        return False
    if kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind == "number" else int):
            return False
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            return False
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            return False
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return False
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        return all(fits(item, schema.get("items", {})) for item in value)
    if isinstance(value, dict) and kind == "object":
        known = schema.get("properties", {})
        rest = schema.get("additionalProperties", {})
        if any(name not in value for name in schema.get("required", ())):
            return False
        for name, item in value.items():
            if name not in known and rest is False:
                return False
            if not fits(item, known.get(name, rest if isinstance(rest, dict) else {})):
                return False
    return True


def test_the_published_schema_is_current() -> None:
    published = (ROOT / "schemas" / "wdspec.schema.json").read_text(encoding="utf-8")
    assert published == json_schema_text(), "run `wdspec schema > schemas/wdspec.schema.json`"


def test_the_published_reference_is_current() -> None:
    published = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    assert published == reference_text(), "run `wdspec schema --format markdown > docs/spec.md`"
    assert CliRunner().invoke(cli, ["schema", "--format", "markdown"]).output == published


def test_the_published_page_of_codes_is_current() -> None:
    published = (ROOT / "docs" / "codes.md").read_text(encoding="utf-8")
    assert published == codes_text(), "run `wdspec rule --format markdown > docs/codes.md`"
    assert CliRunner().invoke(cli, ["rule", "--format", "markdown"]).output == published
    refused = CliRunner().invoke(cli, ["rule", "--format", "markdown", "E302"])
    assert (refused.exit_code, "do not name any" in refused.output) == (2, True)


def test_the_command_prints_it() -> None:
    assert json.loads(CliRunner().invoke(cli, ["schema"]).output) == SCHEMA


def test_every_key_is_described() -> None:
    for key in (*keys_of(Spec), "extends", "vars", "environments", "splits", "defaults"):
        assert SCHEMA["properties"][key]["description"]
    for key in (*keys_of(Source), "spec", "defaults"):
        assert SCHEMA["$defs"]["SourceEntry"]["properties"][key]["description"]
    for name in (
        "MixOptions",
        "Batch",
        "Epoch",
        "Elastic",
        "Errors",
        "LoaderOptions",
        "CacheOptions",
        "AIStore",
        "TarOptions",
    ):
        listed = SCHEMA["$defs"][name]["properties"]
        assert list(listed) == list(keys_of(MODELS[name]))
        assert all(value["description"] for value in listed.values())


def test_values_filled_in_by_the_loader_are_not_keys() -> None:
    everything = json_schema_text()
    for name in ('"base"', '"position"', '"whole"', '"origin"', '"environment"'):
        assert f"{name}: {{" not in everything
    assert "file" not in json.loads(everything)["properties"]


@pytest.mark.parametrize(
    "document",
    [
        {"dataset": [{"shards": "a.tar", "scaleprob": 0.3}, {"shards": ["b.tar"], "scale": [0.4, 1.0]}]},
        {"dataset": [{"shards": "a.tar"}], "output": "out/"},
        {"dataset": [{"shards": "a.tar"}], "output": {"from": "in/", "to": "out/"}},
        {"batch": "${n}", "epoch": "1_000_000", "seed": "${s}", "limit": 10, "wdspec": 1},
        {
            "batch": {"global_size": "1_024"},
            "epoch": "pass",
            "cache": {"dir": "x", "size": "500GB"},
            "aistore": False,
        },
        {
            "aistore": {
                "endpoint": "${ais}",
                "use_for": ["gs"],
                "read_timeout": "5m",
                "skip_verify_crt": True,
            },
            "dataset": [
                {
                    "shards": "gs://b/a.tar",
                    "aistore": {
                        "etl": {"name": "resize-224", "args": {"size": 224}, "pipeline": ["second-etl"]}
                    },
                },
                {"shards": "gs://b/b.tar", "aistore": {"etl": "resize-224", "latest": True}},
                {"shards": "b.tar", "aistore": False},
            ],
        },
        {"epoch": {"batches": 10}, "errors": "skip", "map": ["m:f", {"call": "m:g", "args": {"a": 1}}]},
        {"errors": {"max_rate": 0.01, "timeout": "5m"}, "to_tuple": "image text", "fields": ["image"]},
        {
            "splits": {"a": {"dataset": [{"spec": "x.yaml"}]}},
            "environments": {"e": {"sources": {"a": {"weight": 2}}}},
        },
        {
            "extends": ["a.yaml"],
            "defaults": {"decode": {"image": "rgb"}, "key": {"regex": "(.)(.)"}},
            "batch": None,
        },
        {"errors": "${p:-skip}", "aistore": "${a:-false}", "map": None, "wdspec": None, "seed": None},
        {
            "errors": None,
            "loader": {"workers": None},
            "dataset": [{"shards": "a.tar", "errors": "${p}", "tar": None}],
        },
        {"dataset": "${sources}", "mix": {"draw": "${draw}"}, "rewrite": [{"from": "gs://", "to": "/x"}]},
        {
            "dataset": [
                {
                    "dataset": [{"shards": "a.tar", "weight": "1e-3"}],
                    "mix": {"by": "equal"},
                    "tags": {"a": [1]},
                }
            ]
        },
    ],
)
def test_the_schema_accepts_what_the_loader_accepts(document: dict[str, Any]) -> None:
    assert fits(document, SCHEMA)


@pytest.mark.parametrize(
    "document",
    [
        {"dataset": [{"shards": "a.tar", "extension": "jpg"}]},
        {"dataset": {"shards": "a.tar"}},
        {"seed": "x"},
        {"batch": 0},
        {"mix": {"draw": "evn"}},
        {"dataset": [{"shards": "a.tar", "scaleprob": 2}]},
        {"dataset": [{"shards": "a.tar", "base": "/"}]},
        {"sources": {}},
        {"wdspec": 2},
        {"rewrite": [{"from": "a"}]},
    ],
)
def test_the_schema_rejects_what_the_loader_rejects(document: dict[str, Any]) -> None:
    assert not fits(document, SCHEMA)


def test_every_code_has_a_page() -> None:
    for code, about in CODES.items():
        result = CliRunner().invoke(cli, ["rule", code.lower()])
        assert result.exit_code == 0
        assert result.output.startswith(f"{code}: {about.title}\n")
    listed = CliRunner().invoke(cli, ["rule"]).output.splitlines()
    assert len(listed) == len(CODES)
    assert CliRunner().invoke(cli, ["rule", "E999"]).exit_code == 2
