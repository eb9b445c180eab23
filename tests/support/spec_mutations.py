"""Specs with one random mistake each, made from valid ones, and the place of the mistake."""

from __future__ import annotations

import copy
import random
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from whole_spec import DOCUMENT, places

SEED = 20261122
EXAMPLES = Path(__file__).parents[2] / "examples" / "specs"
FREE = {
    "vars",
    "rename",
    "tags",
    "environments",
    "splits",
    "sources",
    "args",
    "decode",
    "shares",
    "options",
    "env",
}
"""Keys below which names are the user's own."""
KINDS = (
    "misspelt key",
    "misspelt key",
    "misspelt word",
    "wrong kind",
    "out of range",
    "moved",
    "pattern",
    "twice",
    "text",
)
"""What is done to a spec, in turn."""
WRONG = (True, 3.75, -7, "some words here", [], {}, [1, {"x": 2}], {"nothing": "known"}, [[]], "2020-13-45")
NUMBERS = (-1, -0.5, 10**30, 1.5, "1e999", ".nan")
PATTERNS = (
    "a-{000..",
    "a-{9...0}.tar",
    "a-{}}.tar",
    "a::::b.tar",
    "",
    "a-{5..1}.tar",
    "a-{0..x}.tar",
    "::",
    "a-{1-9}.tar",
)
CHOICES = {"draw", "unit", "by", "order", "missing", "empty", "format", "end", "ramp"}


@dataclass(frozen=True)
class Mutation:
    """A spec with a mistake."""

    kind: str
    path: tuple[Any, ...]
    text: str
    lines: frozenset[int]
    """Lines where the problem may be reported, from 1."""
    meant: str = ""
    """What was misspelt."""
    sure: bool = True
    """Whether it is wrong for certain, whatever a schema says."""


def documents() -> list[Any]:
    """Whole specs: one with nearly every key, and the examples."""
    found = [copy.deepcopy(DOCUMENT)]
    for path in sorted(EXAMPLES.glob("*.yaml")):
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "extends" not in value and not any("spec" in each for each in value.get("dataset", ())):
            found.append(value)
    return found


def mutations(count: int, seed: int = SEED) -> list[Mutation]:
    """`count` specs with a mistake; the first ones are the same for any count."""
    rng = random.Random(seed)
    bases = documents()
    made: list[Mutation] = []
    while len(made) < count:
        kind = KINDS[len(made) % len(KINDS)]
        found = _MAKERS[kind](rng, copy.deepcopy(rng.choice(bases)))
        if found is not None:
            made.append(found)
    return made


def misspelt(rng: random.Random, word: str) -> str:
    """A word with one or two letters wrong: left out, put in, changed, or in the wrong order."""
    letters = list(word)
    for _ in range(rng.choice((1, 1, 2)) if len(word) > 4 else 1):
        at = rng.randrange(len(letters))
        match rng.randrange(4):
            case 0 if len(letters) > 2:
                del letters[at]
            case 1:
                letters.insert(at, rng.choice(string.ascii_lowercase))
            case 2 if at + 1 < len(letters):
                letters[at], letters[at + 1] = letters[at + 1], letters[at]
            case _:
                letters[at] = rng.choice(string.ascii_lowercase)
    return "".join(letters)


def _own_keys(document: Any) -> list[tuple[Any, ...]]:
    """Paths of keys of the language, not of names of the user's."""
    return [
        path
        for path in places(document)
        if isinstance(path[-1], str) and not FREE & set(map(str, path[:-1])) and path[0] not in FREE
    ]


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def _misspelt_key(rng: random.Random, document: Any) -> Mutation | None:
    path = rng.choice(_own_keys(document))
    holder, key = _at(document, path[:-1]), path[-1]
    wrong = misspelt(rng, key)
    if wrong in holder or wrong == key or not wrong.strip():
        return None
    items = list(holder.items())
    holder.clear()
    holder.update((wrong if name == key else name, value) for name, value in items)
    return _made("misspelt key", document, (*path[:-1], wrong), meant=key)


def _misspelt_word(rng: random.Random, document: Any) -> Mutation | None:
    paths = [
        path for path in _own_keys(document) if path[-1] in CHOICES and isinstance(_at(document, path), str)
    ]
    if not paths:
        return None
    path = rng.choice(paths)
    word = _at(document, path)
    wrong = misspelt(rng, word)
    if wrong == word:
        return None
    _at(document, path[:-1])[path[-1]] = wrong
    return _made("misspelt word", document, path, meant=word)


def _wrong_kind(rng: random.Random, document: Any) -> Mutation | None:
    path = rng.choice(_own_keys(document))
    _at(document, path[:-1])[path[-1]] = copy.deepcopy(rng.choice(WRONG))
    return _made("wrong kind", document, path, sure=False)


def _out_of_range(rng: random.Random, document: Any) -> Mutation | None:
    paths = [
        path
        for path in _own_keys(document)
        if isinstance(_at(document, path), (int, float)) and not isinstance(_at(document, path), bool)
    ]
    path = rng.choice(paths)
    _at(document, path[:-1])[path[-1]] = rng.choice(NUMBERS)
    return _made("out of range", document, path, sure=False)


def _moved(rng: random.Random, document: Any) -> Mutation | None:
    """A key in the wrong place: one of a source at the top level, or one of the top level in a source."""
    keys = _own_keys(document)
    sources = [path for path in keys if path[-1] == "shards"]
    if not sources:
        return None
    holder = rng.choice(sources)[:-1]
    key = rng.choice(("batch", "epoch", "loader", "seed", "elastic", "environments", "limit", "output"))
    _at(document, holder)[key] = document.pop(key, 3)
    return _made("moved", document, (*holder, key))


def _pattern(rng: random.Random, document: Any) -> Mutation | None:
    paths = [path for path in _own_keys(document) if path[-1] == "shards"]
    if not paths:
        return None
    path = rng.choice(paths)
    _at(document, path[:-1])[path[-1]] = rng.choice(PATTERNS)
    return _made("pattern", document, path)


def _twice(rng: random.Random, document: Any) -> Mutation | None:
    """A repeated line, so that a key is repeated."""
    made = _made("twice", document, ())
    lines = made.text.splitlines()
    simple = [n for n, line in enumerate(lines) if ": " in line and not line.lstrip().startswith("- ")]
    at = rng.choice(simple)
    text = "\n".join([*lines[: at + 1], lines[at], *lines[at + 1 :]]) + "\n"
    return Mutation("twice", (), text, frozenset((at + 1, at + 2)))


def _broken_text(rng: random.Random, document: Any) -> Mutation | None:
    """What an editor's slip makes of the text."""
    lines = _made("text", document, ()).text.splitlines()
    simple = [
        n
        for n, line in enumerate(lines)
        if ": " in line and not line.lstrip().startswith("- ") and "'" not in line and '"' not in line
    ]
    at = rng.choice(simple)
    line = lines[at]
    slip = rng.choice(
        (lambda: line.replace(": ", ": [", 1), lambda: line.replace(": ", ': "', 1), lambda: "\t" + line)
    )
    lines[at] = slip()
    return Mutation("text", (), "\n".join(lines) + "\n", frozenset(range(at + 1, len(lines) + 2)))


def _made(kind: str, document: Any, path: tuple[Any, ...], meant: str = "", sure: bool = True) -> Mutation:
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    return Mutation(kind, path, text, _lines(text, path), meant, sure)


def _lines(text: str, path: tuple[Any, ...]) -> frozenset[int]:
    """The lines of a value and its key."""
    node = yaml.compose(text)
    key = node
    for step in path:
        if isinstance(node, yaml.MappingNode):
            key, node = next((name, value) for name, value in node.value if name.value == step)
        else:
            key = node = node.value[step]
    first, last = (
        key.start_mark.line,
        max(node.end_mark.line - (node.end_mark.column == 0), key.start_mark.line),
    )
    return frozenset(range(first + 1, last + 2))


_MAKERS = {
    "misspelt key": _misspelt_key,
    "misspelt word": _misspelt_word,
    "wrong kind": _wrong_kind,
    "out of range": _out_of_range,
    "moved": _moved,
    "pattern": _pattern,
    "twice": _twice,
    "text": _broken_text,
}
