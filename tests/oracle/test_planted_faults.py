"""The random specs find faults: each of these edits of one line makes the loader differ from the reference model."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import oracle.fuzz
import pytest

import wdspec

SEED, MOST = 0, 2000
"""Specs of which `test_random_specs` checks that there is no difference without a fault."""

FAULTS = {
    "the turn of a window is lost by a resume": (
        "read/windows.py",
        "turn = m if self._begun is None else self._begun.turn",
        "turn = m",
        r'"(group_by|balance)"',
    ),
    "an open window is finished by the spec of now": (
        "read/sections.py",
        "reading = next(each for each in self._all if step < each.until)",
        "reading = self.now",
        r'"(cost|pack|group_by)".*"change": "(weight|shuffle|interleave|draw)',
    ),
    "the shares of an open window are lost by a resume": (
        "read/sections.py",
        "return begun if live is None else begun._replace(segment=begun.reading.segment(live))",
        "return begun",
        r'"(cost|pack|group_by)".*"live": \[\[',
    ),
    "a pass starts again after a resume": (
        "read/pass_part.py",
        "begin = segment.first + number",
        "begin = segment.first",
        r'"pass"',
    ),
    "an open window takes the new size of the buffer": (
        "planning/past.py",
        'delays = replace(source.delays, size=old["shuffle"])',
        "delays = source.delays",
        r'"(cost|pack|group_by)".*"change": "shuffle',
    ),
    "samples in the buffer take its new size": (
        "run/resume.py",
        'delays = replace(source.delays, size=written["shuffle"])',
        "delays = source.delays",
        r'"change": "shuffle',
    ),
    "batches of a window are ordered by another number": (
        "read/windows.py",
        "key64(slot_key, window), turn, name_of)",
        "key64(slot_key, turn), turn, name_of)",
        r"",
    ),
    "a window that was read ahead keeps its shares": (
        "read/windows.py",
        "if window is not None and window.begun is not None and not self._begun.is_like(window.begun):",
        "if False:",
        r'"(select|cost": "oracle_functions:cost).*"live": \[\[',
    ),
    "the last shard of a pass is left out": (
        "read/lanes.py",
        "while len(self._lanes) < width and self.next_turn <= self._last_turn:",
        "while len(self._lanes) < width and self.next_turn < self._last_turn:",
        r"",
    ),
    "a changed shuffle applies one sample later": (
        "read/source.py",
        "in_progress._replace(until=until)",
        "in_progress._replace(until=until + 1)",
        r'"change": "(shuffle|interleave|weight)',
    ),
    "rows of tables: the last sample of a run is forgotten": (
        "read/rows.py",
        "self._last = ordinals[-1]",
        "self._last = ordinals[0]",
        r"parquet|arrow",
    ),
    "a section of a stage is one batch longer": (
        "read/stage.py",
        "until = self._next + self._batches",
        "until = self._next + self._batches + 1",
        r'"stage"',
    ),
    "samples of a pass are numbered in each slot": (
        "read/pass_part.py",
        "counter(begin), strict=False",
        "counter(number), strict=False",
        r'"pass".*(jitter|is_heads)|(jitter|is_heads).*"pass"',
    ),
    "a batch that just fits is cut": (
        "planning/windows.py",
        "cost <= self.capacity\n",
        "cost < self.max_cost\n",
        r'"in_order"|"group_by"',
    ),
    "windows draw from the step at which shares were set": (
        "planning/plan.py",
        "self.unit, start, segment.offset)",
        "self.unit, segment.start, segment.offset)",
        r'"window".*"live": \[\[',
    ),
    "a pass that follows a whole one is left out": (
        "planning/timeline.py",
        "-(-step // self.epoch_steps) * self.epoch_steps",
        "(step // self.epoch_steps + 1) * self.epoch_steps",
        r'"pass"',
    ),
    "workers get the slots of others": (
        "run/tasks.py",
        "(slot % self._plan.topology.workers - served) % workers == worker",
        "slot % self._plan.topology.workers % workers == worker",
        r'"threads": true',
    ),
    "the next step that the loop skips is not in the state": (
        "run/stream.py",
        "self._to_skip.within(self.step)",
        "self._to_skip.within(self.step + 1)",
        r'"skips": \[\[',
    ),
    "batches that were read ahead keep their shares": (
        "run/stream.py",
        "self._is_outdated |= start < self.steps.requested",
        "self._is_outdated |= start + 2 < self.steps.requested",
        r'"live": \[\[.*"threads": true',
    ),
    "a skipped step is not read": (
        "run/steps.py",
        "reader.skip(number)",
        "pass",
        r'"skip',
    ),
}
"""What is wrong -> file, text, what replaces it, and which trials may show it: others are passed over, to save time."""


def test_every_fault_can_be_planted():
    for name, (file, old, new, _) in FAULTS.items():
        text = (Path(wdspec.__file__).parent / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has changed: plant the fault elsewhere: {name}"
        compile(text.replace(old, new), file, "exec")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, tmp_path):
    file, old, new, having = FAULTS[name]
    package = tmp_path / "wdspec"
    shutil.copytree(Path(wdspec.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (package / file).read_text(encoding="utf-8")
    (package / file).write_text(text.replace(old, new), encoding="utf-8")
    support = Path(oracle.fuzz.__file__).parents[1]
    done = subprocess.run(
        [
            *(sys.executable, oracle.fuzz.__file__, "--seed", str(SEED), "--count", str(MOST)),
            *("--having", having, "--stop", "--no-shrink"),
        ],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{support}"},
        capture_output=True,
        text=True,
        check=False,
    )
    drawn = re.search(r"'drawn': (\d+)", done.stdout)
    assert drawn is not None, done.stdout + done.stderr
    print(f"{name}: found after {drawn[1]} specs")
    assert done.returncode == 1, f"not found in {MOST} specs"
