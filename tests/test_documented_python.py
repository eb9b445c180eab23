"""docs/python.md does what it says: its blocks run from the top, one after the other."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "python.md"


def test_every_block_of_the_page_runs(tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        exec(block, names)
    assert os.path.exists("samples.db")


def test_the_names_on_the_page_are_public():
    import wdspec

    same = (
        PAGE.read_text(encoding="utf-8").partition("## What is the same")[2].partition("## What is fixed")[0]
    )
    methods = {"compose", "with_epoch", "with_length", "repeat"}
    for name in re.findall(r"`(\w+)`", same):
        assert hasattr(wdspec.DataPipeline if name in methods else wdspec, name), name
