"""What editors show of the language: our words beside wrong values, descriptions in Markdown, and snippets.

They are keywords that `yaml-language-server` (and so VS Code, Neovim and others) knows beside JSON Schema's own, which
ignores them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wdspec.spec.language.advice.remedies import written_as

PAGE = "https://github.com/wdspec/wdspec/blob/main/docs/spec.md"
SNIPPETS: dict[str, list[dict[str, Any]]] = {
    "Document": [
        {
            "label": "spec of one source",
            "description": "A spec to begin with.",
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
"""By definition; what is offered where one may begin."""


def add_words(schema: dict[str, Any]) -> None:
    """Puts the words into a schema, in place."""
    holders = {"Document": schema, **schema["$defs"]}
    stands_under = {name: key for key, name in _references(holders)}
    for name, holder in holders.items():
        for key, value in holder.get("properties", {}).items():
            path = [stands_under[name], key] if name in stands_under else [key]
            _describe(key, value)
            said = written_as(path) or _first_sentence(value.get("description", ""))
            _tell(value, f"`{key}`: {said}")
        if name in SNIPPETS:
            holder["defaultSnippets"] = SNIPPETS[name]


def _describe(key: str, value: dict[str, Any]) -> None:
    text = value.get("description")
    if not text:
        return
    default = (
        f" Default: `{str(value['default']).lower()}`." if value.get("default") not in (None, "") else ""
    )
    value["markdownDescription"] = f"**{key}**: {text}{default} [Reference]({PAGE})"


def _tell(value: dict[str, Any], message: str) -> None:
    """Gives the forms of a value a message for what is none of them, and a name for what each is.

    Maps and lists have messages of their own and come last, as the server tells what is wrong with the first form; and
    it puts its own words in the place of ours where a form has one type that is no list.
    """
    forms = value.get("anyOf")
    if forms is not None:
        forms.sort(key=lambda form: not _is_plain(form))
    for form in forms or (value,):
        if "anyOf" in form and forms is not None:
            _tell(form, message)
        elif _is_plain(form) or form == {"type": "null"}:
            if forms is not None:
                form["title"] = _name_of(form)
            if "type" in form:
                form["type"] = [form["type"]]
            form["errorMessage"] = message


def _is_plain(form: dict[str, Any]) -> bool:
    """Whether a form is no map, list or null, nor all of these."""
    told = form.get("type") not in ("object", "array", "null") and not {"$ref", "anyOf"} & set(form)
    return told and bool({"type", "enum", "const", "pattern"} & set(form))


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
    """Key and definition, of maps that stand under one key alone."""
    for holder in holders.values():
        for key, value in holder.get("properties", {}).items():
            for form in (value, *value.get("anyOf", ())):
                if "$ref" in form:
                    yield key, form["$ref"].rpartition("/")[2]


def _first_sentence(text: str) -> str:
    sentence = text.partition(". ")[0].partition("; ")[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence
