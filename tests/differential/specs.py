"""Observe one spec: the problems that `wdspec validate` reports, and what `wdspec.load` returns or raises.

A case has `files` (name -> text) and `entry`, the file to check. It may have `split`, `env`, `vars`, `overrides`,
`environ`, `arguments` (options of `wdspec validate`), `stdin` (pass the entry through a pipe), `as_dict` (also pass
it to `wdspec.load` as a dict) and `formatted` (also pass it to `wdspec fmt`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from program import (
    command,
    describe_error,
    list_warnings,
    masked,
    masked_values,
    new_folder,
    situation,
    values_of,
)

import wdspec


def observe(case: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a case."""
    with new_folder(case["files"]) as folder:
        record: dict[str, Any] = {"origin": case["origin"], "validate": _validate(case, folder)}
        record["load"] = _load(case["entry"], case, folder)
        text = case["files"].get(case["entry"], "")
        if case.get("formatted"):
            with situation(folder):
                code, out, err = command(["fmt", "-"], text.encode("utf-8", "surrogateescape"))
            record["formatted"] = {"exit": code, "result": masked(out, folder), "err": masked(err, folder)}
        if case.get("as_dict") and (document := parse(text)):
            record["dict"] = _load(document, case, folder)
    return record


def parse(text: str) -> Any:
    """Return what PyYAML reads, or None if that is not a small map."""
    try:
        document = yaml.safe_load(text) if len(text) < 20_000 else None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError):
        return None
    return document if isinstance(document, dict) and document else None


def _validate(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    arguments = ["validate", "--format", "json", *case.get("arguments", ())]
    for name in ("split", "env"):
        if case.get(name):
            arguments += [f"--{name}", case[name]]
    for name, value in (case.get("vars") or {}).items():
        arguments += ["--var", f"{name}={value}"]
    for each in case.get("overrides") or ():
        arguments += ["--set", each]
    piped = case.get("stdin")
    stdin = case["files"].get(case["entry"], "").encode("utf-8", "surrogateescape") if piped else b""
    with situation(folder, case.get("environ")):
        code, out, err = command([*arguments, "-" if piped else case["entry"]], stdin)
    record: dict[str, Any] = {"exit": code}
    try:
        record["problems"] = masked_values(json.loads(out), folder)
    except ValueError:
        record["out"] = masked(out, folder)
    if err:
        record["err"] = masked(err, folder)
    return record


def _load(source: Any, case: dict[str, Any], folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = {}
    choices = {name: case[name] for name in ("split", "env", "vars") if case.get(name)}
    overrides: Any = case.get("overrides")
    if overrides and isinstance(source, dict):
        overrides = dict(each.partition("=")[::2] for each in overrides)
    with situation(folder, case.get("environ")) as seen:
        try:
            spec = wdspec.load(source, **choices, overrides=overrides)
        except Exception as error:
            record["raised"] = describe_error(error, folder)
        else:
            record["spec"] = values_of(spec, folder)
            record["repr"] = masked(repr(spec), folder)
            record["html"] = masked(spec._repr_html_(), folder)
        if warned := list_warnings(seen, folder):
            record["warned"] = warned
    return record
