"""Record what wdspec does, to compare two commits or to check one against the frozen record.

    python tests/differential/observe.py OUT.json.xz

records the importable wdspec. Two runs write the same record. To compare the working tree with a commit:

    git worktree add /tmp/old REV
    PYTHONPATH=/tmp/old python tests/differential/observe.py old.json.xz
    PYTHONPATH=$PWD python tests/differential/observe.py new.json.xz
    python tests/differential/compare.py old.json.xz new.json.xz

Run the same checkout's `observe.py` twice, so that both records have the same cases. `compare.py --prose` ignores the
wording of messages. `--only specs` (`streams`, `expressions`, `commands`; repeatable), `--every 10` and
`--numbers 3,17` record a part of the cases.

`cases.json.xz` has the cases, and what wdspec did with them when the record was frozen, without wording (see `freeze`):

- **specs**: 5,000 specs, most of them mutated (`specs.py`): problems, values or errors of `wdspec.load`, `wdspec fmt`;
- **streams**: random specs over small shards (`streams.py`): hashes of items, states, resumed and elastic runs;
- **expressions**: pipelines in Python (`streams.py`);
- **commands**: output, exit codes and files of all commands (`commands.py`).

`test_frozen_behaviour.py` compares a part of the cases with it, and all of them with `pytest -m long`. If a change is
meant to change behaviour (CHANGELOG.md marks it ORDER, STATE FORMAT or SPEC LANGUAGE), freeze it again in its commit:

    python tests/differential/observe.py OUT.json.xz --freeze

`--add FILE.json` adds cases first: `{"specs": [{"origin": ..., "files": {...}, "entry": ...}]}`; `mutate.py` writes
such files. Records depend on the libraries that decode and draw, so each lists their versions.

Only public names are used: `wdspec.*`, the modules that code for webdataset imports, and the program `wdspec`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.metadata
import json
import lzma
import multiprocessing
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from compare import Difference, compare, show, without_wording

CASES = Path(__file__).with_name("cases.json.xz")
PARTS = ("specs", "streams", "expressions", "commands")
CHUNK = {"specs": 100, "streams": 4, "expressions": 20, "commands": 1}
"""How many cases a process takes at a time."""
LIBRARIES = ("numpy", "torch", "pillow", "pydantic", "pyyaml", "click")
FAST = {"specs": 300, "streams": 12}
"""How many cases the fast test has."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Records what the importable wdspec does.")
    parser.add_argument("out", metavar="OUT.json.xz", type=Path)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; repeatable")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth case")
    parser.add_argument("--numbers", metavar="N,N", help="only these cases")
    parser.add_argument("--fast", action="store_true", help="only the cases of the fast test")
    parser.add_argument("--check", action="store_true", help="compare with the frozen outcomes")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2); 0: this one")
    parser.add_argument("--add", type=Path, metavar="FILE.json", help="add cases to cases.json.xz first")
    parser.add_argument("--freeze", action="store_true", help="also write the outcomes to cases.json.xz")
    options = parser.parse_args()
    started = time.monotonic()
    if options.add:
        content = read(CASES)
        for part, cases in json.loads(options.add.read_text(encoding="utf-8")).items():
            content["cases"][part] += cases
        write(CASES, content)
    record: dict[str, Any] = {"about": _about()}
    for part in options.only or PARTS:
        numbers = list(range(0, len(cases_of(part)), options.every))
        if options.numbers:
            numbers = [int(each) for each in options.numbers.split(",")]
        elif options.fast:
            numbers = _content()["fast"][part]
        record[part] = observe(part, numbers, options.jobs)
    write(options.out, record)
    if options.freeze:
        freeze(record)
    found = list(_differences(record)) if options.check else []
    counts = ", ".join(f"{len(record[part]):,} {part}" for part in PARTS if part in record)
    print(f"{counts} of {record['about']['program']}; {time.monotonic() - started:.0f} s", file=sys.stderr)
    if found:
        sys.exit(show(found))


def read(path: Path) -> Any:
    return json.loads(lzma.decompress(path.read_bytes()))


def write(path: Path, content: Any) -> None:
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode()
    path.write_bytes(lzma.compress(text, preset=6))


@functools.cache
def _content() -> Any:
    return read(CASES)


def cases_of(part: str) -> list[Any]:
    """Return the cases of a part."""
    return _content()["cases"][part]


def observe(part: str, numbers: list[int], jobs: int = 0) -> dict[str, Any]:
    """Return the records of cases by their numbers.

    Args:
        jobs: processes to use; with 0 it is this one.
    """
    chunks = [(part, numbers[at : at + CHUNK[part]]) for at in range(0, len(numbers), CHUNK[part])]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="wd-", ignore_cleanup_errors=True) as folder:
        if not jobs:
            before = tempfile.tempdir
            tempfile.tempdir = folder
            try:
                for chunk in chunks:
                    found |= _observe(chunk)
            finally:
                tempfile.tempdir = before
            return found
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, _prepare, (folder,)) as pool:
            for records in pool.map(_observe, chunks):
                found |= records
    return found


def _prepare(folder: str) -> None:
    """Keep all temporary folders of this process in one, which the parent removes."""
    tempfile.tempdir = folder
    multiprocessing.set_start_method(None, force=True)  # a spawned process would spawn DataLoader's workers


def _observe(chunk: tuple[str, list[int]]) -> dict[str, Any]:
    part, numbers = chunk
    module = importlib.import_module("streams" if part == "expressions" else part)
    observe_case = module.observe_expression if part == "expressions" else module.observe
    cases = cases_of(part)
    return {str(number): observe_case(cases[number]) for number in numbers}


def _about() -> dict[str, Any]:
    import wdspec

    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"program": str(Path(wdspec.__file__).parent), "python": platform.python_version(), **versions}


def freeze(record: dict[str, Any]) -> None:
    """Write the outcomes of a record to `cases.json.xz`, without wording, and choose the cases of the fast test."""
    content = read(CASES)
    outcomes = content.setdefault("outcomes", {})
    for part in PARTS:
        outcomes[part] = outcomes.get(part, {}) | {
            number: without_wording(part, each) for number, each in record.get(part, {}).items()
        }
    content["fast"] = {
        "specs": _varied_specs(content["cases"]["specs"], outcomes["specs"]),
        "streams": _short_streams(content["cases"]["streams"]),
    }
    write(CASES, content)
    print(f"{CASES.name}: {CASES.stat().st_size:,} bytes", file=sys.stderr)


def _differences(record: dict[str, Any]) -> Iterator[Difference]:
    for part in PARTS:
        new = {number: without_wording(part, each) for number, each in record.get(part, {}).items()}
        frozen = _content()["outcomes"][part]
        yield from compare(part, {number: frozen.get(number) for number in new}, new)


def _varied_specs(cases: list[Any], outcomes: dict[str, list[str]]) -> list[int]:
    """Choose specs that together show each code with and without a hint, and then every nth."""
    quick = [number for number, case in enumerate(cases) if len(str(case["files"])) < 5_000]
    seen: set[str] = set()
    chosen: set[int] = set()
    for number in quick:
        lines = [line for line in outcomes.get(str(number), []) if line.startswith(("error", "warning"))]
        features = {f"{line[:12]} {line[-4:]}" for line in lines}
        if features - seen:
            seen |= features
            chosen.add(number)
    rest = [number for number in quick if number not in chosen]
    return sorted({*chosen, *rest[:: len(rest) // (FAST["specs"] - len(chosen)) + 1]})


def _short_streams(cases: list[Any]) -> list[int]:
    """Choose streams of all kinds that are quick to read."""

    def cost(number: int) -> int:
        legs = cases[number]["legs"]
        return sum(leg["ranks"] * leg["steps"] + 1000 * (leg["kind"] != "here") for leg in legs)

    by_kind: dict[str, list[int]] = {}
    for number in sorted(range(len(cases)), key=cost):
        by_kind.setdefault(cases[number]["kind"], []).append(number)
    each = -(-FAST["streams"] // len(by_kind))
    return sorted(number for numbers in by_kind.values() for number in numbers[:each])


if __name__ == "__main__":
    main()
