"""Compare wdspec with other loaders: make the data, measure all contenders in turn, and write the tables.

    python -m benchmarks                  # an hour; 700 MB in a temporary folder; installs peers
    python -m benchmarks --quick          # seconds: checks that it runs, says nothing about speed
    python -m benchmarks --rows raw-text  # some rows; --contenders "wdspec, a spec" webdataset for some contenders

Every measurement is a separate process, and contenders take turns: A B C, A B C, … --json FILE stores the figures after
each row; another call measures other rows and contenders, or the same again, and its page has all figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS
from benchmarks.peers import installed, lacking
from benchmarks.places import served
from benchmarks.report import machine, rate_table, ratio, write_page
from benchmarks.rows import ROWS, TARGETS
from benchmarks.samples import collections_of, make_data
from benchmarks.tables import Table

ROOT = Path(__file__).resolve().parents[1]
TABLES = {
    "resume": "resume_time",
    "plan": "plan_cost",
    "listing": "listing_time",
    "start-up": "validate_time",
    "state": "state_cost",
    "memory": "worker_memory",
    "draws": "draw_cost",
}
"""Rows of figures other than rates: scripts that make separate tables."""
LARGEST = "wdspec, 100 times the data"


def output_of(command: list[str], more: Mapping[str, str], seconds: float) -> list[Any]:
    """The lines of JSON that a separate process prints; `{"error": …}` if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false", **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return [{"error": f"not done after {seconds:.0f} s"}]
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return [{"error": (done.stderr.strip().splitlines() or ["it printed nothing"])[-1][:200]}]
    return [json.loads(line) for line in lines]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rows of little data, one turn, few peers")
    parser.add_argument(
        "--rows", nargs="*", choices=[*ROWS, *TABLES], metavar="ROW", help="none: writes the page again"
    )
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, metavar="WHO")
    parser.add_argument("--hundredfold", action="store_true", help="also a hundred times the data")
    parser.add_argument("--turns", type=int, default=5, help="measurements of each contender (default: 5)")
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement (default: 3)")
    parser.add_argument(
        "--peers", type=Path, help="folder of an environment with peers, made if it is missing"
    )
    parser.add_argument(
        "--data", type=Path, help="folder in which the data stays; by default a temporary one"
    )
    parser.add_argument("--json", type=Path, help="file for all figures; what is in it stays")
    parser.add_argument(
        "--page", type=Path, help="file for the page of docs; the plot gets its name with .svg"
    )
    options = parser.parse_args()
    if options.turns < 1 or options.seconds <= 0:
        parser.error("there is at least one turn, and it takes some seconds")
    for path in (options.json, options.page):
        if path and not path.absolute().parent.is_dir():  # not after an hour
            parser.error(f"there is no folder for {path}")
    return options


def main() -> None:
    options = arguments()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users' programs are compiled once
    rows = options.rows
    if rows is None:
        rows = ["raw-text", "text-2"] if options.quick else [*ROWS, *TABLES]
    contenders = options.contenders or [
        name
        for name, each in CONTENDERS.items()
        if (name != LARGEST or options.hundredfold)
        and (not options.quick or each.package in ("", "webdataset"))
    ]
    if options.hundredfold and LARGEST not in contenders:
        contenders = [*contenders, LARGEST]
    results: dict[str, Any] = {"rates": {}, "tables": {}}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text(encoding="utf-8"))
    if rows or "machine" not in results:
        results["machine"] = machine()
    size = 0.01 if options.quick else 1.0
    turns, seconds = (1, 0.02) if options.quick else (options.turns, options.seconds)
    timed = [row for row in rows if row in ROWS]
    packages = {CONTENDERS[name].package for name in contenders if CONTENDERS[name].rows.keys() & set(timed)}
    # What is here runs here: peers take older versions of what all of us need along.
    peers = [] if options.quick else lacking(Path(sys.executable), packages)
    python, missing = installed(options.peers, peers) if peers else (sys.executable, {})
    pythons = {name: python if each.package in peers else sys.executable for name, each in CONTENDERS.items()}
    with ExitStack() as stack:
        folder = options.data or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="wdspec-benchmark-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        names = {name for row in timed for name in collections_of(ROWS[row].data, ROWS[row].kind)}
        make_data(folder, size, sorted(names))
        for row in rows:
            if row in TABLES:
                command = [sys.executable, "-m", f"benchmarks.{TABLES[row]}", "--json"]
                made = output_of(command + ["--quick"] * options.quick, {}, 900)
                results["tables"][row] = [each for each in made if "error" not in each]
                for each in made:
                    print("\n".join(Table.of_json(each).markdown()) if "error" not in each else each["error"])
            else:
                who = [name for name in contenders if row in CONTENDERS[name].rows]
                found = results["rates"].get(row, {})
                found |= measured(pythons, row, who, missing, folder, turns, seconds)
                results["rates"][row] = {name: found[name] for name in CONTENDERS if name in found}
                print("\n".join(rate_table(row, results["rates"][row]).markdown()))
            print(flush=True)
            results["rates"] = {name: results["rates"][name] for name in ROWS if name in results["rates"]}
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for target in TARGETS:
        if (asked := ratio(target, results["rates"])) is not None:
            print(": ".join(asked.cells()))
    if options.page:
        write_page(options.page, results)
    failed = [
        f"{row}: {name}: {run['error']}"
        for row in timed
        for name, runs in results["rates"][row].items()
        for run in runs
        if "error" in run and not CONTENDERS[name].package
    ] + [f"{row}: it made no table" for row in rows if row in TABLES and not results["tables"][row]]
    if failed:
        sys.exit("\n".join(failed))


def measured(
    pythons: Mapping[str, str],
    row: str,
    contenders: list[str],
    missing: Mapping[str, str],
    folder: Path,
    turns: int,
    seconds: float,
) -> dict[str, list[dict[str, Any]]]:
    """The runs of each contender in one row."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}

    def run(name: str, seconds: float) -> dict[str, Any]:
        command = [pythons[name], "-m", "benchmarks.one_run", row, name, str(folder), str(seconds)]
        run: dict[str, Any] = output_of(command, far, 600)[-1]
        return run

    with served(ROWS[row].place, folder, ROWS[row].data) as far:
        for name in contenders:
            if CONTENDERS[name].package in missing:
                found[name] = [{"error": missing[CONTENDERS[name].package]}]
            elif CONTENDERS[name].converts:
                run(name, 0)  # not counted: it leaves the files of its own format
        for turn in range(turns):
            for name, runs in found.items():
                if not any("error" in each for each in runs):
                    runs.append(run(name, seconds))
                    print(f"{row}, turn {turn + 1}: {name}: {runs[-1]}", file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
