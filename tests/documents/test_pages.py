"""The pages of docs/: their specs are valid, and commands that need only the demo run."""

import re
from pathlib import Path

import pytest
from commandline import wdspec as run

from wdspec.spec.load import check

DOCS = Path(__file__).parents[2] / "docs"
SPECS = [
    pytest.param(text, id=f"{page.stem}, block {number}")
    for page in sorted(DOCS.glob("*.md"))
    if page.name != "spec.md"  # its bad examples are tried with its good ones
    for number, text in enumerate(
        re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    )
    if re.search(r"^dataset:", text, re.MULTILINE)
]


@pytest.mark.parametrize("text", SPECS)
def test_a_spec_on_a_page_has_no_error(text, tmp_path):
    (tmp_path / "spec.yaml").write_text(text)
    assert [problem for problem in check(tmp_path / "spec.yaml")[1] if problem.is_error] == []


def test_there_are_specs_on_the_pages():
    assert len(SPECS) >= 10


@pytest.mark.long
@pytest.mark.parametrize("page", ["preview.md", "bench.md"])
def test_commands_run_on_pages_that_start_with_the_demo(page, tmp_path):
    (block,) = re.findall(r"^```bash\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    begin, *commands = block.splitlines()
    assert begin == "wdspec demo demo && cd demo"
    run("demo", "demo", folder=tmp_path)
    (tmp_path / "demo" / "other.yaml").write_text((tmp_path / "demo" / "spec.yaml").read_text())
    for command in commands:
        run(*command.replace("--seconds 1", "--seconds 0.1").split()[1:], folder=tmp_path / "demo")


def test_only_the_readme_says_how_wdspec_is_installed():
    readme = DOCS.parent / "README.md"
    pages = [readme, *DOCS.rglob("*.md"), *(DOCS.parent / "wdspec").rglob("*.py")]
    assert [page for page in pages if re.search(r"pip install \S*(?:wdspec|\.\[)", page.read_text())] == [
        readme
    ]
