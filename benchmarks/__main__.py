"""One command for the table beside other loaders: makes its data, measures everybody in turn, writes the table.

    python -m benchmarks                  # half an hour; 500 MB in a temporary folder; installs peers
    python -m benchmarks --quick          # seconds: checks that it runs, says nothing about speed
    python -m benchmarks --rows raw-text  # some rows; --contenders wdspec webdataset for some contenders

Every measurement is a process of its own, and contenders take turns: A B C, A B C, …
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS, REFUSED, ROWS
from benchmarks.peers import installed
from benchmarks.report import table, write_page
from benchmarks.samples import make_data

ROOT = Path(__file__).resolve().parents[1]


def measured(python: str, row: str, contender: str, data: Path, seconds: float) -> dict[str, Any]:
    """What a process of its own measures, or `{"error": …}`."""
    done = subprocess.run(
        [python, "-m", "benchmarks.one_run", row, contender, str(data), str(seconds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["it printed nothing"])[-1][:200]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rows of little data, one turn, few peers")
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="ROW")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, metavar="WHO")
    parser.add_argument("--turns", type=int, default=5, help="measurements of each contender (default: 5)")
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement (default: 3)")
    parser.add_argument(
        "--peers", type=Path, help="folder of an environment with peers, made if it is missing"
    )
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument(
        "--page", type=Path, help="file for the page of docs; the plot gets its name with .svg"
    )
    options = parser.parse_args()
    rows = options.rows or (["raw-text", "text-2"] if options.quick else list(ROWS))
    contenders = options.contenders or [
        name for name, each in CONTENDERS.items() if not options.quick or each.package in ("", "webdataset")
    ]
    turns, seconds, size = (1, 0.02, 0.01) if options.quick else (options.turns, options.seconds, 1.0)
    python, missing = (sys.executable, {}) if options.quick else installed(options.peers)
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        make_data(Path(folder), size)
        for row in rows:
            found = results[row] = {}
            for turn in range(turns):
                for name in contenders:
                    contender = CONTENDERS[name]
                    if row not in contender.rows:
                        continue
                    runs = found.setdefault(name, [])
                    if contender.package in missing:
                        runs[:] = [{"error": missing[contender.package]}]
                    elif not any("error" in run for run in runs):
                        runs.append(measured(python, row, name, Path(folder), seconds))
                        print(f"{row}, turn {turn + 1}: {name}: {runs[-1]}", file=sys.stderr)
            print("\n".join(table(row, found)), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.page:
        write_page(options.page, results, REFUSED)
    failed = [
        f"{row}: {name}: {run['error']}"
        for row in results
        for name, runs in results[row].items()
        for run in runs
        if "error" in run and not CONTENDERS[name].package
    ]
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
