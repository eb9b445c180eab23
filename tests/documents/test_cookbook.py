"""Every recipe of the cookbook runs on its data, checks without a warning, and produces the table on its page."""

import importlib.util
import re
from pathlib import Path

import pytest
from commandline import within

ROOT = Path(__file__).parents[2]
_found = importlib.util.spec_from_file_location("cookbook", ROOT / "scripts" / "cookbook.py")
cookbook = importlib.util.module_from_spec(_found)
_found.loader.exec_module(cookbook)


@pytest.mark.parametrize("name", cookbook.RECIPES)
def test_a_recipe_produces_the_table_on_its_page(name, tmp_path):
    script = cookbook.prepare(name, tmp_path)
    shown, _ = within("validate", "--strict", "recipe.yaml", folder=tmp_path)
    assert "no problems" in shown
    with cookbook.within(tmp_path):
        exec(compile(script, f"{name}.md", "exec"), {"__name__": "recipe"})
        assert cookbook.page_of(name) == cookbook.with_table(name, cookbook.table(tmp_path)), (
            "run `python scripts/cookbook.py`"
        )


def test_the_index_names_every_recipe():
    index = (cookbook.COOKBOOK / "README.md").read_text()
    assert all(f"({name}.md)" in index for name in cookbook.RECIPES)
    assert len(cookbook.RECIPES) == 31


def test_the_comparison_has_the_numbers_of_lines_of_the_specs():
    page = (ROOT / "docs" / "comparison.md").read_text()
    rows = re.findall(r"\(cookbook/(\w+)\.md\) \| (\d+) \| [^|]+ \| (\d+) \| (\w+) \|", page)
    assert len(rows) == 6
    for name, ours, theirs, shorter in rows:
        (spec,) = re.findall(r"^```yaml\n(.*?)^```$", cookbook.page_of(name), re.MULTILINE | re.DOTALL)
        lines = [line for line in spec.splitlines() if line.strip() and not line.strip().startswith("#")]
        assert (name, int(ours)) == (name, len(lines))
        is_ours = shorter == "wdspec"
        assert (int(ours) < int(theirs)) == is_ours
        assert (int(ours) == int(theirs)) == (shorter == "equal")
