"""The rule for OPA in docs/policies.md, as an interpreter of Rego evaluates it over what `wdspec config` prints."""

import json
import re
from pathlib import Path

import regopy
from commandline import within

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
SPEC = """
defaults: {license: MIT}
splits:
  train:
    dataset:
      - {name: good, shards: a.tar}
      - {name: bad, shards: b.tar, license: CC-BY-NC-4.0}
      - name: mix
        defaults: {license: null}
        dataset:
          - {name: inner, shards: c.tar, license: CC-BY-4.0}
          - {name: bare, shards: d.tar, license: null}
  val:
    dataset: [{name: last, shards: e.tar, license: CC-BY-NC-SA-4.0}]
"""


def test_the_rule_on_the_page_sees_every_source(tmp_path):
    (rule,) = re.findall(r"^```rego\n(.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "train.yaml").write_text(SPEC)
    shown, _ = within("config", "--format", "json", "train.yaml", folder=tmp_path)
    interpreter = regopy.Interpreter()
    interpreter.add_module("licenses", rule)
    interpreter.set_input(json.loads(shown))
    (found,) = json.loads(str(interpreter.query("data.main.deny")))["expressions"]
    says = "no license, or a non-commercial one"
    assert sorted(found) == [f"bad: {says}", f"bare: {says}", f"last: {says}"]
