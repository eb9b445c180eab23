"""How far a reader has to go to follow a small spec through the code: ceilings for each stage (scripts/journey.py).

If one of these fails, look for a shape that needs fewer steps before you raise a ceiling.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CEILINGS = {
    # files, crossings between files, functions, lines of these functions
    "wdspec validate": (35, 300, 200, 1717),
    "load": (20, 120, 110, 912),
    "list shards and plan": (15, 55, 65, 403),
    "make a loader": (26, 114, 105, 822),
    "first batch": (36, 412, 200, 1706),
    "a later batch": (14, 35, 38, 482),
    "state": (9, 17, 20, 101),
}


@pytest.fixture(scope="module")
def journeys():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", ROOT / "scripts" / "journey.py"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert not done.returncode, done.stderr
    lines = (re.split(r"\s{2,}", line, maxsplit=1) for line in done.stdout.splitlines())
    return {stage: tuple(map(int, re.findall(r"\d+", counts))) for stage, counts in lines}


@pytest.mark.parametrize("stage", CEILINGS)
def test_the_way_through_the_code_stays_short(journeys, stage):
    assert all(count <= most for count, most in zip(journeys[stage], CEILINGS[stage], strict=True)), journeys[
        stage
    ]
