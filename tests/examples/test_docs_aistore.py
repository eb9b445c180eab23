"""The specs of docs/aistore.md load, and resolve as the page says."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from wdspec.cli.resolve import resolve
from wdspec.spec.language.locations import AIStore
from wdspec.spec.load import check
from wdspec.spec.validation import keys_of

PAGE = Path(__file__).parents[2].joinpath("docs/aistore.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_the_specs_load(text, monkeypatch):
    monkeypatch.setenv("AIS_ENDPOINT", "http://aistore:51080")
    assert check(yaml.safe_load(text))[1] == []


def test_the_documented_request_is_what_resolve_prints():
    environ = {"AIS_ENDPOINT": "http://aistore:51080", "USE_AIS_FOR": "gs"}
    shown = CliRunner(env=environ).invoke(resolve, ["gs://bucket/d/train-000000.tar"]).output
    request = re.search(r"http://aistore\S*provider=gcp", PAGE)[0]
    assert f"ais      {request}" in shown


def test_every_key_is_in_the_table():
    table = PAGE[PAGE.index("| key | variable") :].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", re.sub(r"\|[^|]*\|[^|]*\|\n", "|\n", table))) >= set(
        keys_of(AIStore)
    )
