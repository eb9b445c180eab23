"""The ten policies in examples/policies: a spec that complies with all, and one change that each of them reports."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from wdspec.cli.main import cli

FOLDER = Path(__file__).parents[2] / "examples" / "policies"
POLICIES = sorted(FOLDER.glob("*.yaml"))
VISION = (FOLDER / "specs" / "vision.yaml").read_text(encoding="utf-8")

CHANGES = {
    # policy: (text of the spec, what replaces it, the code and the rule)
    "licenses": ("license: CC0-1.0", "license: GPL-3.0-only", "P101 `approved-licenses`"),
    "no-nc-in-production": ("license: CC0-1.0", "license: CC BY-NC", "P101 `no-nc-in-production`"),
    "homepage": ("homepage: https://example.org/drawings", "repeat: null", "P101 `homepage`"),
    "revision": ("photos@8f3a1c2", "photos", "P101 `pinned-on-the-hub`"),
    "no-plain-http": ('to: "gs://acme-"', 'to: "http://mirror/"', "P101 `no-plain-http`"),
    "buckets": ("s3://acme-data-web/pages-v2-val", "s3://elsewhere/pages-v2-val", "P101 `our-stores`"),
    "balance": (
        "weight: 2\n        license: CC-BY-4.0",
        "weight: 9\n        license: CC-BY-4.0",
        "P101 `no-source-above-40-percent`",
    ),
    "no-user-code": ("batch: 64", "batch: 64\nmap: acme.steps:augment", "P101 `no-user-code`"),
    "version": ("requires: wdspec >= 0.1\n", "", "P101 `minimum-version`"),
    "retired": ("s3://acme-data-web/pages-v2/", "s3://acme-data-web/laion-2b/", "P102 `retired`"),
}


def validate(*arguments):
    done = CliRunner().invoke(cli, ["validate", *map(str, arguments)], standalone_mode=False)
    assert done.exception is None
    return done.return_value, done.output


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "drawings.txt").write_bytes(
        (FOLDER / "specs" / "lists" / "drawings.txt").read_bytes()
    )
    return tmp_path


def test_the_specs_comply_with_all_policies():
    assert len(POLICIES) == 10
    options = [option for path in POLICIES for option in ("--policy", path)]
    assert validate(*options, FOLDER / "specs") == (0, "2 files checked: no problems\n")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda path: path.stem)
def test_each_policy_reports_what_it_is_for(policy, folder):
    old, new, said = CHANGES[policy.stem]
    assert old in VISION
    (folder / "vision.yaml").write_text(VISION.replace(old, new), encoding="utf-8")
    assert yaml.safe_load(VISION) != yaml.safe_load((folder / "vision.yaml").read_text(encoding="utf-8"))
    exit_code, output = validate("--policy", policy, folder / "vision.yaml")
    found = [line for line in output.splitlines() if re.search(r"\.yaml:\d+:\d+: P", line)]
    assert found, output
    assert all(said in line for line in found), output
    assert exit_code == 1


def test_a_retirement_can_be_tried_before_its_day():
    archive = FOLDER / "specs" / "archive.yaml"
    assert validate("--policy", FOLDER / "retired.yaml", archive)[0] == 0
    exit_code, output = validate("--policy", FOLDER / "retired.yaml", "--retired-on", "2027-06-30", archive)
    assert exit_code == 1
    assert "archive.yaml:8:13: P102" in output
