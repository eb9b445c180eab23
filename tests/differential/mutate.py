"""Write new mutated specs, as cases for `observe.py --add`.

    python tests/differential/mutate.py 500 --seed 3 OUT.json

Each is one of the specs in `cases.json.xz` that are not mutations themselves (examples of rules, mistakes, whole
specs), with some changes to its values, and perhaps one to its text. Keys and values come from all of them.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from observe import cases_of
from specs import parse

VALUES = (
    0,
    -1,
    1,
    2,
    1.5,
    0.3,
    100,
    10**6,
    2**63,
    1e300,
    True,
    None,
    "1",
    "0x10",
    "1_000",
    "",
    "${n}",
    "${n:-1}",
)
PIECES = (
    *"\t\n :-{}[],*&!|>'\"%@`#?~\\é\x07",
    "::",
    "!!str ",
    "&a ",
    "*a ",
    "<<: ",
    "\n---\n",
    "{0..9}",
    "${",
)
Entries = list[tuple[Any, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes new mutated specs.")
    parser.add_argument("count", type=int)
    parser.add_argument("out", metavar="OUT.json", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cases = [case for case in cases_of("specs") if not case["origin"].startswith(("mutation", "hostile"))]
    bases = [(case, each) for case in cases if (each := parse(case["files"].get(case["entry"], "")))]
    entries = [entry for _, document in bases for each in _maps(document) for entry in each.items()]
    mutations = []
    for number in range(options.count):
        rng = random.Random(f"{options.seed} {number}")
        case, document = copy.deepcopy(rng.choice(bases))
        for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
            _change(rng, document, entries)
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
        case["files"][case["entry"]] = _misspell(rng, text) if rng.random() < 0.2 else text
        case |= {"origin": f"mutation {options.seed}/{number}", "as_dict": rng.random() < 0.2}
        case["formatted"] = rng.random() < 0.2
        mutations.append(case)
    options.out.write_text(json.dumps({"specs": mutations}), encoding="utf-8")


def _maps(node: Any) -> Iterator[dict[Any, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _maps(child)


def _change(rng: random.Random, document: Any, entries: Entries) -> None:
    """Change, add, remove, move or rename one entry of a document."""
    places = [(each, key) for each in _maps(document) for key in each]
    if not places:
        return
    holder, key = rng.choice(places)
    value = holder[key]
    name, other = copy.deepcopy(rng.choice(entries))
    same_key = [each for each in entries if each[0] == key]
    match rng.randrange(11):
        case 0 | 1:
            new = rng.choice((name, _misspell(rng, str(key))))
            items = [(new if each == key else each, old) for each, old in holder.items()]
            holder.clear()
            holder.update(items)
        case 2 | 3 if isinstance(value, str):
            holder[key] = _misspell(rng, value)
        case 4:
            del holder[key]
        case 5:
            rng.choice(places)[0][key] = holder.pop(key)
        case 6:
            holder[key] = rng.choice(([value], {"value": value}, [value, value], {key: value}))
        case 7 if isinstance(value, (int, float)):
            holder[key] = rng.choice((value + 1, value - 1, -value, str(value), f"${{n:-{value}}}"))
        case 8:
            holder[name] = other
        case 9 if same_key:
            holder[key] = copy.deepcopy(rng.choice(same_key)[1])
        case _:
            holder[key] = rng.choice((*VALUES, other))


def _misspell(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    changed = (
        text[:at] + text[at + 1 :],
        text[:at] + rng.choice(PIECES) + text[at:],
        text[:at] + text[at : at + 2][::-1] + text[at + 2 :],
        text[:at] + text[at : at + 3].swapcase() + text[at + 3 :],
    )
    return rng.choice(changed)


if __name__ == "__main__":
    main()
