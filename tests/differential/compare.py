"""List the differences between two records of `observe.py`. The exit code is 1 if there are any.

    python tests/differential/compare.py OLD.json.xz NEW.json.xz [--prose] [--most 20] [--without 'streams/plan/*']

Differences are grouped by kind, such as `specs/validate/problems/hint`.

With `--prose` the wording may differ. What is compared instead:

- of a hint, whether there is one;
- of a message or an error, the codes, the names in backticks and the numbers in it;
- of JSON, keys, numbers and single words; longer texts are compared as messages are;
- of output as text, codes and numbers in order; of help, the options; of pages of codes and the schema, the codes.

Codes, places, values, hashes, states, lengths and exit codes must be equal.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import lzma
import re
import sys
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

_BACKTICKS = re.compile(r"`([^`\n]+)`")
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,_]*(?:\.\d+)?")
_CODE = re.compile(r"\b[DEW]\d{3}\b")
_PEOPLE = {
    *(
        "html",
        "repr",
        "description",
        "title",
        "help",
        "explanation",
        "summary",
        "why",
        "errorMessage",
        "$comment",
    ),
    *("markdownDescription", "shortDescription", "fullDescription", "short_description", "full_description"),
    *("doNotSuggest", "defaultSnippets", "enumDescriptions", "markdownEnumDescriptions"),
}
"""Keys whose values only people read."""
_EXACT = {"spec", "result"}
"""Keys whose values have no wording of wdspec's: a loaded spec, a formatted file."""
_MESSAGES = {
    "text",
    "notes",
    "message",
    "warned",
    "logged",
    "first",
    "out",
    "err",
    "origin",
    "kind",
    "expression",
}
"""Keys that the frozen record leaves out, as it does `_PEOPLE`."""


class Difference(NamedTuple):
    kind: str
    where: str
    old: Any
    new: Any


def main() -> None:
    parser = argparse.ArgumentParser(description="Lists the differences between two records of observe.py.")
    parser.add_argument("old", metavar="OLD.json.xz", type=Path)
    parser.add_argument("new", metavar="NEW.json.xz", type=Path)
    parser.add_argument("--prose", action="store_true", help="the wording may differ")
    parser.add_argument("--most", type=int, default=20, help="differences to show of each kind (default: 20)")
    parser.add_argument("--without", action="append", default=[], metavar="PATTERN", help="leave out kinds")
    options = parser.parse_args()
    old, new = (json.loads(lzma.decompress(path.read_bytes())) for path in (options.old, options.new))
    about = [
        {name: each for name, each in record.pop("about").items() if name != "program"}
        for record in (old, new)
    ]
    if about[0] != about[1]:
        print(f"the libraries differ:\n  {about[0]}\n  {about[1]}\n")
    found = [
        each
        for part in old
        if part in new
        for each in compare(part, old[part], new[part], options.prose)
        if not any(fnmatch(each.kind, pattern) for pattern in options.without)
    ]
    print(show(found, options.most))
    sys.exit(1 if found else 0)


def compare(part: str, old: dict[str, Any], new: dict[str, Any], prose: bool = False) -> Iterator[Difference]:
    """Yield the differences between the records of a part; cases that only one has are not compared."""
    for number in [number for number in old if number in new]:
        one, two = old[number], new[number]
        if one != two:
            name = (
                str(one.get("origin") or one.get("name") or one.get("expression", ""))
                if isinstance(one, dict)
                else ""
            )
            if prose:
                one, two = _essence(one), _essence(two)
            yield from _walk(part, f"{part} {number} {name}".rstrip(), one, two)


def show(found: list[Difference], most: int = 20) -> str:
    """Return the differences as text, grouped by kind."""
    lines = []
    for kind, count in sorted(Counter(each.kind for each in found).items()):
        lines.append(f"{kind}: {count:,}")
        for each in [each for each in found if each.kind == kind][:most]:
            lines += [f"  {each.where}", f"    - {_short(each.old)}", f"    + {_short(each.new)}"]
        if count > most:
            lines.append(f"  … and {count - most:,} more")
    return "\n".join([*lines, f"{len(found):,} differences" if found else "no differences"])


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("\n", "\n      ")[:600]


def _walk(kind: str, where: str, old: Any, new: Any) -> Iterator[Difference]:
    """Yield what differs within two JSON values; the kind is the path of keys."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        place = (
            f"{old['code']} at {old.get('file')}:{old.get('line')}:{old.get('column')}"
            if "code" in old
            else ""
        )
        here = (
            f"{where} {place}".rstrip()
            if place
            else f"{where}: {old['command']}"
            if "command" in old
            else where
        )
        for key in dict.fromkeys([*old, *new]):
            below = f"{kind}/{re.sub(r'[0-9]+', 'N', key)}"
            if key not in old or key not in new:
                yield Difference(f"{below} (the key)", here, old.get(key), new.get(key))
            else:
                yield from _walk(below, here, old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list):
        texts = [[json.dumps(each, sort_keys=True) for each in values] for values in (old, new)]
        for what, a, b, c, d in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
            if what == "replace" and b - a == d - c:
                for number in range(b - a):
                    yield from _walk(kind, f"{where}[{a + number}]", old[a + number], new[c + number])
            elif what != "equal":
                yield Difference(f"{kind} (the list)", f"{where}[{a}]", old[a:b], new[c:d])
    elif isinstance(old, str) and isinstance(new, str):
        at = next(
            (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
        )
        start = max(0, at - 60) if len(old) + len(new) > 600 else 0
        yield Difference(kind, where, *("…" * (start > 0) + text[start : start + 300] for text in (old, new)))
    else:
        yield Difference(kind, where, old, new)


def _essence(value: Any, key: str = "", ordered: bool = False) -> Any:
    """Return a value of a record without the wording."""
    if key in _EXACT:
        return value
    if key == "hint":
        return bool(value)
    if isinstance(value, dict):
        if isinstance(typed := value.get("command"), str):
            value = {
                **value,
                **{name: _output(typed, value[name]) for name in ("out", "err") if name in value},
            }
        return {name: _essence(each, name) for name, each in value.items() if name not in _PEOPLE}
    if isinstance(value, list):
        found = [_essence(each, key) for each in value]
        return sorted(found) if key in ("warned", "logged") else found
    if (
        isinstance(value, str)
        and (" " in value or "\n" in value)
        and key not in ("origin", "command", "expression")
    ):
        return _named_in(value)
    return value


def _output(typed: str, text: str) -> list[str]:
    """Return what is compared of a command's output."""
    if typed == "" or typed.endswith("--help"):
        return sorted(set(re.findall(r"--?[a-z][a-z-]*", text)))
    codes = _CODE.findall(text)
    if typed.startswith(("rule", "schema")) or typed == "--version":
        return codes
    return codes + _numbers(_CODE.sub(" ", _BACKTICKS.sub(" ", text)))


def _named_in(text: str) -> str:
    """Return the codes, the names in backticks and the other numbers of a text."""
    bare = _BACKTICKS.sub(" ", text)
    names = sorted(set(_BACKTICKS.findall(text)))
    return f"codes {_CODE.findall(bare)} names {names} numbers {sorted(_numbers(_CODE.sub(' ', bare)))}"


def _numbers(text: str) -> list[str]:
    return [each.replace(",", "").rstrip("._") for each in _NUMBER.findall(text)]


# --- the frozen record


def without_wording(part: str, record: dict[str, Any]) -> Any:
    """Return what the frozen record has of a case: lines for a spec or a command scene, hashes for the others."""
    if part == "specs":
        return _spec_lines(record)
    if part == "commands":
        return [_command_line(step) for step in record["steps"]]
    if part == "expressions":
        return _hash_of(record)
    return {name: _hash_of(each) for name, each in record.items() if name not in _MESSAGES}


def _spec_lines(record: dict[str, Any]) -> list[str]:
    """Return the exit code, the problems with their places, and the outcome of loading a spec."""
    lines = [f"exit {record['validate']['exit']}"]
    lines += [_problem_line(each) for each in record["validate"].get("problems", [])]
    for name in ("load", "dict"):
        outcome = record.get(name, {})
        if "spec" in outcome:
            lines.append(f"{name} {_hash(outcome['spec'])}")
        if "raised" in outcome:
            problems = [_problem_line(each) for each in outcome["raised"].get("problems", [])]
            if problems == lines[1:]:
                problems = ["of these problems"]
            lines.append(" ".join([name, *outcome["raised"]["types"], *problems]))
    if "formatted" in record:
        lines.append(f"formatted {record['formatted']['exit']} {_hash(record['formatted']['result'])}")
    return lines


def _problem_line(problem: dict[str, Any]) -> str:
    place = f"{problem['file']}:{problem['line']}:{problem['column']}+{problem['length']}"
    return f"{problem['severity']} {problem['code']} {place} {'hint' if problem['hint'] else 'none'}"


def _command_line(step: dict[str, Any]) -> str:
    """Return a command, its exit code, the codes that it shows, and hashes of its JSON's keys and of its values."""
    if "does" in step:
        return str(step["does"])
    parts = [step["command"], f"exit {step['exit']}"]
    if not step["command"].startswith(("rule", "schema", "-")) and "--help" not in step["command"]:
        shown = json.dumps([step.get(name, "") for name in ("out", "err", "json")])
        parts += sorted(set(_CODE.findall(shown)))
    if "json" in step and not step["command"].startswith("schema"):
        parts.append(f"json {_hash(_bare(step['json']))}")
    if "files" in step:
        parts.append(f"files {_hash(dict.fromkeys(step['files']))}")
    return " ".join(parts)


def _hash_of(part: Any) -> str:
    error = part["raised"]["types"][0] if isinstance(part, dict) and "raised" in part else ""
    return f"{_hash(_bare(part))} {error}".rstrip()


def _bare(value: Any) -> Any:
    """Return a value without messages and texts for people."""
    if isinstance(value, dict):
        return {
            name: bool(each) if name == "hint" else _bare(each)
            for name, each in value.items()
            if name not in _MESSAGES | _PEOPLE
        }
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return None if isinstance(value, str) and " " in value else value


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
