"""The JSON Schema of the language for editors, made from the models, with the keys that are merged before them.

It also has messages, descriptions in Markdown and snippets. These are keywords of `yaml-language-server`, which VS
Code, Neovim and others use; JSON Schema itself ignores them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from wdspec.spec.language.advice import describe_form, first_sentence
from wdspec.spec.language.effects import inner_model
from wdspec.spec.language.fetching import FetchedObject
from wdspec.spec.language.locations import RewriteRule
from wdspec.spec.language.making import STEPS
from wdspec.spec.language.values import CALLABLE_FORM, TEXT_FORM, BatchSize, Boolean, Model, Positive, Texts
from wdspec.spec.spec import Source, SourceOptions, Spec

PAGE = "https://github.com/wdspec/wdspec/blob/main/docs/spec.md"
SNIPPETS: dict[str, list[dict[str, Any]]] = {
    "Document": [
        {
            "label": "spec of one source",
            "description": "A spec to start with.",
            "body": {
                "wdspec": 1,
                "dataset": [{"name": "${1:train}", "shards": "${2:data-{000..099\\}.tar}"}],
                "batch": "^${3:32}",
                "epoch": "^${4:100000}",
            },
        }
    ],
    "SourceEntry": [
        {
            "label": "source",
            "description": "A collection of shards, with its share.",
            "body": {"name": "${1:name}", "shards": "${2:data-{000..099\\}.tar}", "weight": "^${3:1}"},
        }
    ],
}
"""Snippets of each definition."""


def add_words(schema: dict[str, Any], page: str = PAGE) -> None:
    """Add messages, descriptions with a link to a page, and snippets of specs to a schema, in place."""
    holders = {"Document": schema, **schema["$defs"]}
    key_of = {name: key for key, name in _references(holders)}
    for name, holder in holders.items():
        for key, value in holder.get("properties", {}).items():
            path = [key_of[name], key] if name in key_of else [key]
            _describe(key, value, page)
            form = describe_form(path) if page == PAGE else ""
            advice = form or first_sentence(value.get("description", ""))
            _add_message(value, f"`{key}`: {advice}")
        if name in SNIPPETS and page == PAGE:
            holder["defaultSnippets"] = SNIPPETS[name]


def _describe(key: str, value: dict[str, Any], page: str) -> None:
    text = value.get("description")
    if not text:
        return
    default = (
        f" Default: `{str(value['default']).lower()}`." if value.get("default") not in (None, "") else ""
    )
    value["markdownDescription"] = f"**{key}**: {text}{default} [Reference]({page})"


def _add_message(value: dict[str, Any], message: str) -> None:
    """Give each form of a value a name, and a message for values that do not fit.

    Maps and lists have other messages and come last, since the server reports what is wrong with the first form. It
    replaces our message with its own if the type of a form is not a list.
    """
    forms = value.get("anyOf")
    if forms is not None:
        forms.sort(key=lambda form: not _is_plain(form))
    for form in forms or (value,):
        if "anyOf" in form and forms is not None:
            _add_message(form, message)
        elif _is_plain(form) or form == {"type": "null"}:
            if forms is not None:
                form["title"] = _name_of(form)
            if "type" in form:
                form["type"] = [form["type"]]
            form["errorMessage"] = message


def _is_plain(form: dict[str, Any]) -> bool:
    """Whether a form is neither a map, a list or null, nor several forms."""
    if form.get("type") in ("object", "array", "null") or {"$ref", "anyOf"} & set(form):
        return False
    return bool({"type", "enum", "const", "pattern"} & set(form))


def _name_of(form: dict[str, Any]) -> str:
    if form.get("pattern") == r"\$\{":
        return "a variable"
    if "enum" in form or "const" in form:
        return f"one of {', '.join(map(str, form.get('enum', [form.get('const')])))}"
    names = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "null": "no value",
    }
    return names.get(form.get("type", ""), "text")


def _references(holders: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Pairs of a key and the definition of the maps under it."""
    for holder in holders.values():
        for key, value in holder.get("properties", {}).items():
            for form in (value, *value.get("anyOf", ())):
                if "$ref" in form:
                    yield key, form["$ref"].rpartition("/")[2]


DRAFT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": "\\$\\{"}
_NULL = {"type": "null"}
"""It removes a key that another file sets."""
_SHORTHANDS: dict[str, list[dict[str, Any]]] = {
    "batch": [TypeAdapter(BatchSize).json_schema()],
    "map_batches": [CALLABLE_FORM],
    "stage": [CALLABLE_FORM],
    "epoch": [{"const": "pass"}, TypeAdapter(Positive).json_schema()],
    "errors": [{"enum": ["raise", "skip"]}],
    "aistore": [{"const": False}],
    "etl": [{"const": False}, TEXT_FORM],
    "cache": [{"const": False}, TEXT_FORM],
    "output": [TEXT_FORM],
    "join": [{"$ref": "#/$defs/JoinOptions"}, TEXT_FORM],
    "lookup": [{"$ref": "#/$defs/LookupOptions"}],
    "dataset": [{"type": "string", "pattern": "^@|\\$\\{"}],
}
"""Shorthands of keys that take a map."""


class Defaults(SourceOptions):
    """Default keys for all sources; maps merge."""


class SourceEntry(Source):
    """A source: shards, a nested mix (`dataset`), or another spec (`spec`)."""

    dataset: tuple[SourceEntry, ...] | None = Field(None, description="The sources of a nested mix.")
    spec: str | None = Field(
        None,
        description="Path of another spec that becomes one source, with its dataset, mix, defaults, vars and rewrite.",
    )
    defaults: Defaults | None = Field(
        None, description="Keys of all sources of the nested mix that do not set them."
    )
    each: Literal["folder"] | None = Field(
        None,
        description="`folder` makes a source of each folder that `shards: data/*/*.tar` matches, named after it.",
    )


class SourceChange(SourceEntry):
    """Keys laid over those of a source, or `null` to remove it."""

    if_present: Boolean | None = Field(
        None, description="Whether specs and splits without a source of this name are left as they are."
    )


class Overlay(Spec):
    """Top-level keys laid over those of the file."""

    dataset: tuple[SourceEntry, ...] = Field((), description="The sources.")
    companions: dict[str, SourceEntry] = Field(  # type: ignore[assignment]  # written as a source is
        {}, description=Spec.model_fields["companions"].description
    )
    vars: dict[str, Any] = Field({}, description="Values of variables, `${name}`.")
    defaults: Defaults | None = Field(None, description="Default keys for all sources; maps merge.")
    changes: dict[str, SourceChange] = Field(
        {}, alias="sources", description="Changes to sources, by name; `null` removes a source."
    )


class Document(Overlay):
    """A wdspec file."""

    extends: Texts | None = Field(None, description="Base files, applied from left to right before this one.")
    environments: dict[str, Overlay] = Field(
        {}, description="Overlays; choose one by name with `--env` or WDSPEC_ENV."
    )
    splits: dict[str, Overlay] = Field(
        {}, description="Variants of the spec, such as train and val, each with its own `dataset`."
    )


def json_schema() -> dict[str, Any]:
    """Make the schema (draft 2020-12)."""
    schema = Document.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs")
    definitions.pop("Position", None)
    _drop_unlisted(schema, Document)
    listed: tuple[type[Model], ...] = (*_models(Document), FetchedObject, *STEPS.values())
    models = {model.__name__: model for model in listed}
    for name, definition in definitions.items():
        _drop_unlisted(definition, models[name])
    schema["properties"].pop("sources")
    schema["properties"]["wdspec"] = {
        "anyOf": [{"const": 1}, _NULL],
        "description": "Version of the format.",
        "default": 1,
    }
    schema["$defs"] = dict(sorted(definitions.items()))
    schema["title"] = "wdspec"
    tidied: dict[str, Any] = tidy(schema)
    add_words(tidied)
    return {"$schema": DRAFT, "$id": schema_id("wdspec"), **tidied}


def schema_id(name: str) -> str:
    """Where a schema is published."""
    return f"https://raw.githubusercontent.com/wdspec/wdspec/main/schemas/{name}.schema.json"


def json_schema_text() -> str:
    """Make the text that is published as `schemas/wdspec.schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _models(model: type[Model]) -> Iterator[type[Model]]:
    """A model and all models in it."""
    yield model
    for field in model.model_fields.values():
        inner = inner_model(field)
        if inner is not None and issubclass(inner, Model) and inner is not model:
            yield from _models(inner)


def _drop_unlisted(definition: dict[str, Any], model: type[Model]) -> None:
    """Remove fields that are not keys: those without a description."""
    properties = definition.get("properties", {})
    described = {field.alias or name: field.description for name, field in model.model_fields.items()}
    for key in list(properties):
        if described[key]:
            properties[key]["description"] = described[key]
        else:
            del properties[key]
    required = [key for key in definition.pop("required", []) if key in properties]
    if not issubclass(model, Overlay) and required:
        definition["required"] = required
    for key, value in properties.items():
        if key == "fetch":  # an object may be its reference alone
            value["additionalProperties"] = {"anyOf": [value["additionalProperties"], TEXT_FORM]}
        if key in _SHORTHANDS:
            _allow(value, _SHORTHANDS[key])
        if key not in ("vars", "environments", "splits"):  # their names must be in the file
            _allow_variable(value)
        if key not in required or (model, key) == (RewriteRule, "to"):  # there it is the empty text
            _allow(value, [_NULL])
        if key == "dataset":
            next(form for form in value["anyOf"] if form.get("type") == "array")["minItems"] = 1
        _allow_null_inside(value)
        if value.get("default") in ({}, [], None):
            value.pop("default", None)


def _allow(value: dict[str, Any], forms: list[dict[str, Any]]) -> None:
    held = {
        key: value.pop(key) for key in ("anyOf", "$ref", "type", "allOf", "enum", "const") if key in value
    }
    value["anyOf"] = [*held.pop("anyOf", []), *([held] if held else []), *forms]


def _allow_null_inside(value: dict[str, Any]) -> None:
    """Allow `null` for names that the user chooses: it removes them."""
    for form in (value, *value.get("anyOf", ())):
        inner = form.get("additionalProperties")
        if isinstance(inner, dict):
            form["additionalProperties"] = {"anyOf": [inner, _NULL]}


def _allow_variable(value: dict[str, Any]) -> None:
    """Allow `${name}` instead of any value."""
    if "enum" in value:
        value.pop("type", None)
        value["anyOf"] = [{"enum": value.pop("enum")}, dict(_VARIABLE)]
    elif "$ref" in value or value.get("type") in ("object", "array"):
        kept = ("$ref", "type", "items", "additionalProperties", "minItems", "maxItems", "properties")
        form = {key: value.pop(key) for key in kept if key in value}
        value["anyOf"] = [form, dict(_VARIABLE)]
    elif "anyOf" in value and not any(form.get("type") == "string" for form in value["anyOf"]):
        value["anyOf"].append(dict(_VARIABLE))


def tidy(node: Any) -> Any:
    """Remove generated titles, and merge nested `anyOf`s."""
    if isinstance(node, list):
        return [tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidied = {
        key: {name: tidy(inner) for name, inner in value.items()}
        if key in ("properties", "$defs")
        else tidy(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str) and value != "wdspec")
    }
    forms = tidied.get("anyOf")
    if isinstance(forms, list):
        flat: list[Any] = []
        for form in forms:
            inner = form["anyOf"] if isinstance(form, dict) and set(form) == {"anyOf"} else [form]
            flat += [each for each in inner if each not in flat]
        tidied["anyOf"] = flat
    return tidied
