"""Observe commands: standard output, standard error, exit code, and the files that they write.

A case is a scene: `files` (name -> text), `archives` (of this folder, unpacked first) and `steps`. A step has
`arguments`, and may have `stdin`, `environ`, `keys` (compare only the keys of its JSON, because the values depend on
the machine) and `unordered` (compare its lines sorted, because processes print them as they end).
A step with `does` is one of the functions at the end of this file.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from program import TIME, command, logged, masked, new_folder, situation

import wdspec

TEXTS = (".yaml", ".yml", ".json", ".txt", ".jsonl", ".csv", ".svg", ".html", ".toml", ".md")
_VOLATILE = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r'("(?:time|seconds|waited|started|written|created|date|at)": )"?[^",\n}]+"?'), r"\1<time>"),
    (re.compile(r"(this machine's )[\d.,]+ [kMGT]i?B"), r"\1<size>"),
)
_RATES = re.compile(
    r"\b\d[\d,.]*(e[+-]?\d+)? ?(ns|µs|us|ms|s|min|h|seconds?|samples/s|[kMG]?B/s)\b(?![-.])"
    r"|\b\d[\d,.]* (?=samples a second|a second|samples per second)"
)
_TIMED = ("demo", "bench", "process", "preview", "check", "stats", "doctor")
"""Commands that show times and rates."""


def observe(scene: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a scene: what each of its steps shows and writes."""
    with new_folder(scene["files"], scene["archives"]) as folder:
        files = _hash_files(folder)
        steps = []
        for step in scene["steps"]:
            record = _do(step, folder) if "does" in step else _run(step, folder)
            now = _hash_files(folder)
            changed = [name for name in sorted({*files, *now}) if now.get(name) != files.get(name)]
            if changed:
                record["files"] = {name: _content(folder / name) for name in changed}
            files = now
            steps.append(record)
    return {"name": scene["name"], "steps": steps}


def _run(step: dict[str, Any], folder: Path) -> dict[str, Any]:
    arguments: list[str] = []
    for each in step["arguments"]:  # as a shell does
        arguments += sorted(path.name for path in folder.glob(each)) if each == "*.yaml" else [each]
    sys.modules.pop("sample_functions", None)  # each scene has its own copy
    with situation(folder, step.get("environ")), logged() as lines:
        code, *texts = command(arguments, step.get("stdin", "").encode())
    name = arguments[0] if arguments else ""
    record: dict[str, Any] = {"command": " ".join(step["arguments"]), "exit": code}
    if step.get("environ"):
        record["environ"] = step["environ"]
    out, err = (_mask(text, name, folder) for text in texts)
    if step.get("unordered"):
        out = "\n".join(sorted(out.splitlines()))
    try:
        shown = json.loads(out)
    except ValueError:
        record["out"] = "text" if step.get("keys") else out
    else:
        record["json"] = _keys(shown) if step.get("keys") else shown
    if err:
        record["err"] = "text" if step.get("keys") else err
    if lines:
        record["logged"] = sorted({_mask(line, name, folder) for line in lines})
    return record


def _mask(text: str, name: str, folder: Path) -> str:
    """Return the text without what changes from run to run."""
    text = masked(text, folder)
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return _RATES.sub("<rate>", text) if name in _TIMED else text


def _keys(value: Any) -> Any:
    """Return a JSON value with types in place of numbers and texts."""
    if isinstance(value, dict):
        return {name: _keys(each) for name, each in value.items()}
    if isinstance(value, list):
        kinds = [_keys(each) for each in value]
        return [each for number, each in enumerate(kinds) if each not in kinds[:number]]
    return type(value).__name__


def _hash_files(folder: Path) -> dict[str, str]:
    hidden = {".git", ".cache", ".config", "__pycache__"}
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {path: path.relative_to(folder) for path in paths}
    return {
        name.as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path, name in names.items()
        if not hidden & set(name.parts)
    }


def _content(path: Path) -> Any:
    """Return the text or JSON of a file, or else its hash."""
    if not path.exists():
        return "gone"
    if path.suffix in (".db", ".pt") or ".wdspec" in path.parts:  # times, and bytes of other libraries
        return "written"
    data = path.read_bytes()
    if path.suffix not in TEXTS or len(data) >= 200_000:
        return hashlib.sha256(data).hexdigest()
    text = _mask(data.decode("utf-8", "replace"), "", path.parent)
    if path.suffix in (".svg", ".html"):
        text = re.sub(r"\b[mp][0-9a-f]{10}\b", "<id>", text)
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def _do(step: dict[str, Any], folder: Path) -> dict[str, Any]:
    known = {
        "save states": _save_states,
        "commit": _commit,
        "write": _write,
        "append": _append,
        "remove": _remove,
    }
    with situation(folder):
        known[step["does"]](step)
    return {"does": step["does"]}


def _save_states(_: Any) -> None:
    """Save the states of two ranks after five batches, and the merged state."""
    states = []
    for rank in range(2):
        with wdspec.loader("mixed.yaml", num_workers=0, rank=rank, world_size=2) as loader:
            list(itertools.islice(loader, 3))
            loader.set_shares({"a": 1, "inner": 2}, after=1)
            list(itertools.islice(loader, 2))
            states.append(loader.state_dict())
        Path(f"state-{rank}.json").write_text(json.dumps(states[-1]), encoding="utf-8")
    merged = wdspec.merge_states(states)
    Path("merged.json").write_text(json.dumps({"model": [1, 2], "data": merged}), encoding="utf-8")
    torch.save({"data": merged, "weights": torch.zeros(3)}, "merged.pt")


def _commit(_: Any) -> None:
    """Make a repository with two commits of a spec, and a third version in the working tree."""
    times = {f"GIT_{who}_DATE": "2026-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")}
    named = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", *named, *arguments], check=True, capture_output=True, env={**os.environ, **times}
        )

    spec = Path("mixed.yaml")
    text = spec.read_text(encoding="utf-8")
    git("init", "-q", "-b", "main")
    git("add", "mixed.yaml", "scheduled.yaml")
    git("commit", "-q", "-m", "one")
    text = re.sub(r"probability: 0\.[35]", "probability: 0.4", text)
    spec.write_text(text, encoding="utf-8")
    git("commit", "-q", "-a", "-m", "two")
    spec.write_text(text.replace("shuffle: 20", "shuffle: 50"), encoding="utf-8")


def _write(step: dict[str, Any]) -> None:
    Path(step["name"]).write_text(step["text"], encoding="utf-8")
    os.utime(step["name"], (TIME, TIME))


def _append(step: dict[str, Any]) -> None:
    path = Path(step["name"])
    path.write_bytes(path.read_bytes() + bytes(512))
    os.utime(path, (TIME + 60, TIME + 60))


def _remove(step: dict[str, Any]) -> None:
    Path(step["name"]).unlink()
