"""The JSON Schema of policy files for editors, made from their models as that of specs is."""

from __future__ import annotations

import json
from typing import Any

from wdspec.policies.language import PolicyFile, Retirement, Rule, Waiver
from wdspec.spec.language.values import Model
from wdspec.spec.schema import DRAFT, add_words, schema_id, tidy

PAGE = "https://github.com/wdspec/wdspec/blob/main/docs/policies.md"
_NULL = {"type": "null"}
_ENTRIES: dict[str, type[Model]] = {
    "rules": Rule,
    "retired": Retirement,
    "deprecated": Retirement,
    "waivers": Waiver,
}
"""What is in the maps and lists of a policy."""


def policy_schema() -> dict[str, Any]:
    """Make the schema (draft 2020-12)."""
    schema = _schema_of(PolicyFile)
    for key, model in _ENTRIES.items():
        form = schema["properties"][key]["anyOf"][0]
        form["additionalProperties" if key == "rules" else "items"] = {"$ref": f"#/$defs/{model.__name__}"}
    schema["$defs"] = {model.__name__: _schema_of(model) for model in (Retirement, Rule, Waiver)}
    tidied: dict[str, Any] = tidy({**schema, "title": "wdspec", "minProperties": 1})
    add_words(tidied, PAGE)
    return {"$schema": DRAFT, "$id": schema_id("policy"), **tidied}


def policy_schema_text() -> str:
    """Make the text that is published as `schemas/policy.schema.json`."""
    return json.dumps(policy_schema(), indent=2, ensure_ascii=False) + "\n"


def _schema_of(model: type[Model]) -> dict[str, Any]:
    """The schema of a model: keys that may be left out may be null, and there are no variables in policies."""
    schema = model.model_json_schema(by_alias=True)
    required = schema.get("required", ())
    for key, value in schema["properties"].items():
        kept = ("description", "default") if value.get("default") not in ({}, [], None) else ("description",)
        form = {name: each for name, each in value.items() if name not in ("description", "default", "title")}
        forms = [_without_variables(each) for each in form.get("anyOf", [form])]
        forms = [each for each in forms if each.get("pattern") != _NEVER and each != _NULL]
        forms += [] if key in required else [_NULL]
        held = {name: value[name] for name in kept}
        schema["properties"][key] = {**held, "anyOf": forms} if len(forms) > 1 else {**held, **forms[0]}
    return schema


_VARIABLE = r"|\$\{"
_NEVER = "^((?!))$"


def _without_variables(form: dict[str, Any]) -> dict[str, Any]:
    pattern = form.get("pattern", "")
    return {**form, "pattern": pattern.removesuffix(_VARIABLE)} if pattern else form
