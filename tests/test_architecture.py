"""docs/architecture.md: what it names exists, every room is in it, and a stranger finds the file for a question."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "wdspec"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MAP = PAGE.partition("## Every file")[0]

QUESTIONS = {
    "Where is a redirect followed?": ("stores/http/exchange.py", "def redirect_of"),
    "What happens to the samples held at the end of a pass?": ("reading/source_stream.py", "def _with_rest"),
    "Which slot reads which shard?": ("planning/shard_order.py", "def entry"),
    "How is it decided which source the next sample comes from?": ("planning/draws.py", "class Draws"),
    "Where is a state made into JSON?": ("running/states/run_state.py", "def make_state"),
    "What refuses a state of another spec?": ("running/states/run_state.py", "def read_state"),
    "Where does the worker process of a loader begin?": (
        "running/workers/worker_processes.py",
        "class WorkerStart",
    ),
    "What decides how long a store that fails is asked again?": ("streams/retrying.py", "class RetryPolicy"),
    "What ends a read that hangs?": ("streams/watchdog.py", "class Watch"),
    "Where are rewrite rules applied to a URL?": ("storage/resolution.py", "def locate"),
    "Which environment variables are read?": ("storage/environment.py", "class Environment"),
    "Where are globs on a local disk matched?": ("stores/local/globbing.py", "def files_matching"),
    "What is copied into the cache when a shard is read the first time, and by whom?": (
        "cache/fill.py",
        "class Fill",
    ),
    "Which suffixes make a file a shard?": ("formats/suffixes.py", "def is_listed"),
    "Where is a tar header's checksum compared?": ("formats/tar/headers.py", "def read_header"),
    "What turns the samples of a batch into tensors?": ("reading/collate.py", "def stack"),
    "Where are skipped errors counted?": ("reading/error_budget.py", "class Budget"),
    "Which decoder does a field get, of those that the spec names?": (
        "fields/decode_rules.py",
        "class DecodeRules",
    ),
    "Where does `${name}` in a spec get its value?": ("spec/compose/variables.py", "class Scope"),
    "How does `.shuffle(100)` of a pipeline in Python work?": ("fluent/stages/shuffling.py", "def shuffle"),
}
"""A question -> the file that answers it, and what stands there."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_in_the_file_that_the_page_leads_to(question):
    path, text = QUESTIONS[question]
    assert text in (HOUSE / path).read_text(encoding="utf-8")
    room, *_ = path.split("/")
    assert f"`{room}/`" in MAP
    folder, _, name = path.rpartition("/")
    files = PAGE.partition(f"**`wdspec/{folder}/`**")[2].partition("\n**`")[0]
    assert f"\n- `{name}`: " in files


def test_every_room_is_on_the_page():
    rooms = {path.parent.name for path in HOUSE.glob("*/__init__.py")}
    assert {room for room in rooms if f"`{room}/`" not in PAGE} == set()


def test_the_list_of_files_is_made_from_the_files():
    namespace = runpy.run_path(str(ROOT / "scripts" / "files.py"))
    assert namespace["page"]() == PAGE, "run `python scripts/files.py`"


def test_every_file_on_the_page_exists():
    names = set(re.findall(r"`((?:[\w]+/)*\w+\.py)`", MAP))
    files = {str(path.relative_to(ROOT)) for path in [*HOUSE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]}
    assert {name for name in names if not any(f"/{file}".endswith(f"/{name}") for file in files)} == set()


def test_every_module_on_the_page_exists():
    for dotted in re.findall(r"`(\w+(?:\.(?!py\b)\w+)+)`", MAP):
        parts = dotted.removeprefix("wdspec.").split(".")
        found = next(
            (i for i in range(len(parts), 0, -1) if HOUSE.joinpath(*parts[:i]).with_suffix(".py").exists()), 0
        )
        if not found:
            assert not (HOUSE / parts[0]).is_dir(), dotted
            continue
        text = HOUSE.joinpath(*parts[:found]).with_suffix(".py").read_text(encoding="utf-8")
        assert all(re.search(rf"\b{name}\b", text) for name in parts[found:]), dotted
