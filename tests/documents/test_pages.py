"""The pages of docs/: their specs are valid, and commands that need only the demo run."""

import re
from pathlib import Path

import pytest
import yaml
from commandline import wdspec as run

import wdspec as wds
from wdspec.cli.doctor import set_variables
from wdspec.planning import keys
from wdspec.spec.load import check
from wdspec.spec.spec import Spec

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    pytest.param(text, id=f"{page.stem}, block {number}")
    for page in sorted(DOCS.glob("*.md"))
    if page.name != "codes.md"  # its bad examples are tried with its good ones
    for number, text in enumerate(
        re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    )
]
SPECS = [block for block in BLOCKS if re.search(r"^dataset:", block.values[0], re.MULTILINE)]
FORM = ("E201", "E202", "E203", "E204", "E205")
"""Codes of keys that do not exist, and of values of another kind."""
PARTS = [
    block
    for block in BLOCKS
    if block not in SPECS
    and "convert" not in block.id  # these are files of other tools
    and re.findall(r"^(\w+):", block.values[0], re.MULTILINE)[0] in Spec.model_fields
]


@pytest.mark.parametrize("text", SPECS)
def test_a_spec_on_a_page_has_no_error(text, tmp_path):
    (tmp_path / "spec.yaml").write_text(text)
    assert [problem for problem in check(tmp_path / "spec.yaml")[1] if problem.is_error] == []


@pytest.mark.parametrize("text", PARTS)
def test_spec_fragments_on_pages_use_existing_keys_and_values(text):
    part = yaml.safe_load(text)
    given = {"dataset": [{"shards": "a.tar"}], **part}
    assert [problem for problem in check(given)[1] if problem.code in FORM] == []


def test_pages_contain_specs():
    assert len(SPECS) >= 10
    assert len(PARTS) >= 10


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


class AllSet(dict):
    """An environment in which every variable is set."""

    def __contains__(self, name):
        return True

    def __missing__(self, name):
        return ""


def test_the_statements_on_the_variants_page_hold(tmp_path, monkeypatch):
    page = (DOCS / "variants.md").read_text()
    for name, text in re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WDSPEC_ENV", raising=False)
    assert wds.validate("train.yaml") == []
    assert wds.load("train.yaml#val", env="laptop").batch.size == 8
    assert wds.load("train.yaml#train").sources[1].shards == ("s3://bucket/photos/drawn-{000..009}.tar",)
    monkeypatch.setenv("WDS_root", "/env")
    assert wds.load("train.yaml#val").sources[0].shards == ("/env/val-{000..007}.tar",)
    spec = wds.load("train.yaml#train", vars={"root": "/a", "batch": 16}, overrides=["sources.real.weight=9"])
    assert (spec.batch.size, spec.seed, spec.sources[0].weight) == (16, 7, 9)
    assert spec.sources[0].shards == ("/a/train-{000..099}.tar",)
    variables = {variable.name for variable in set_variables(AllSet()) if variable.name.isupper()}
    assert len(variables) > 20
    assert [name for name in sorted(variables) if f"`{name}`" not in page] == []


def test_the_api_page_lists_every_name_that_webdataset_lacks():
    stub = (DOCS.parent / "wdspec" / "__init__.pyi").read_text()
    names = re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)
    own = {name for module, name in names if not module.startswith("wdspec.webdataset")}
    page = (DOCS / "api.md").read_text()
    assert {name for name in own if not re.search(rf"`(?:wdspec\.)?{name}\b", page)} == set()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(block, {"__name__": "page"})


def test_a_relative_path_in_args_is_passed_on_unchanged(tmp_path):
    call = {"call": "m:f", "args": {"vocab": "vocab.txt"}}
    (tmp_path / "s.yaml").write_text(f"dataset: [{{shards: a.tar, map: {call}}}]\n")
    assert wds.load(tmp_path / "s.yaml").sources[0].map[0].args == {"vocab": "vocab.txt"}


def test_only_the_readme_says_how_wdspec_is_installed():
    readme = DOCS.parent / "README.md"
    pages = [readme, *DOCS.rglob("*.md"), *(DOCS.parent / "wdspec").rglob("*.py")]
    assert [page for page in pages if re.search(r"pip install \S*(?:wdspec|\.\[)", page.read_text())] == [
        readme
    ]


def test_the_random_numbers_of_the_rules_are_those_of_the_program():
    (block,) = re.findall(r"^```python\n(from hashlib.*?)^```$", (DOCS / "order.md").read_text(), re.M | re.S)
    given: dict = {}
    exec(block, given)  # it has assertions
    for parts in ((), (0,), (7, "order", "web", 3), (-(2**70), "é 'quoted'", "\udc80"), ("", "1", 1)):
        key = given["key64"](*parts)
        assert key == keys.key64(*parts)
        assert [given["random64"](key, n) for n in (0, 1, 2**63)] == [
            keys.random64(key, n) for n in (0, 1, 2**63)
        ]
