"""docs/architecture.md: the files it names exist, every room is on it, and it leads to the answers of questions."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "wdspec"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

QUESTIONS = {
    "Where is a redirect followed?": ("stores/http_requests.py", "def follow_redirects"),
    "Where is the batch size of a rank computed?": ("planning/plan.py", "def choose_batching"),
    "Where are pages pinned?": ("run/loader.py", "pin_memory"),
    "What happens to a duplicate member?": ("formats/tar/reader.py", "duplicate member"),
    "What sets the default number of workers?": ("run/loader.py", "def choose_arguments"),
    "Where is `__source__` added?": ("read/shard.py", '"__source__"'),
    "Where does a slot find which shard to read next?": ("planning/order.py", "def entry"),
    "Which source does the next sample come from?": ("planning/draws.py", "class Draws"),
    "Where does the JSON of a state come from?": ("run/position.py", "def to_state"),
    "What refuses a state of another spec?": ("run/position.py", "def from_state"),
    "Where does a worker process start?": ("run/processes.py", "class Processes"),
    "Where are the ranks compared?": ("run/ranks.py", "def check_ranks_agree"),
    "How long is a failing store retried?": ("stores/retry.py", "class RetryPolicy"),
    "What ends a read that hangs?": ("stores/watchdog.py", "class Watch"),
    "Where are rewrite rules applied to a URL?": ("storage/environment.py", "def locate"),
    "Where are globs on a local disk matched?": ("stores/local.py", "def files_matching"),
    "Who copies a shard into the cache?": ("cache/fill.py", "class Fill"),
    "Which suffixes make a file a shard?": ("formats/compression.py", "def is_listed"),
    "Where are skipped errors counted?": ("read/budget.py", "class Budget"),
    "Which decoder does a field get?": ("fields/decode.py", "class DecodeRules"),
    "Where does `${name}` get its value?": ("spec/variables.py", "class Scope"),
    "Where is `shuffle(100)` of a Python pipeline?": ("webdataset/shuffling.py", "def shuffle"),
}
"""A question → the file that answers it, and a text in that file."""


def files_named_on_the_page() -> set[str]:
    """Paths such as `run/stream.py`; in the table of rooms, file names are relative to the room of their row."""
    named = set()
    for line in PAGE.splitlines():
        room = re.match(r"\| `(\w+)/` \|", line)
        for path in re.findall(r"`([\w/]+\.py)`", line):
            named.add(path if not room or (PACKAGE / path).exists() else f"{room[1]}/{path}")
    return named


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_page_names_the_file_that_answers_a_question(question):
    path, text = QUESTIONS[question]
    assert path in files_named_on_the_page()
    assert text in (PACKAGE / path).read_text(encoding="utf-8")


def test_every_file_on_the_page_exists():
    ours = {path for path in files_named_on_the_page() if not path.startswith(("tests/", "scripts/"))}
    assert [path for path in sorted(ours) if not (PACKAGE / path).exists()] == []
    theirs = re.findall(r"`((?:tests|scripts)/[\w/]+\.py)`", PAGE)
    assert [path for path in theirs if not (ROOT / path).exists()] == []


def test_every_room_is_on_the_page():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {room for room in rooms if f"| `{room}/` |" not in PAGE} == set()
