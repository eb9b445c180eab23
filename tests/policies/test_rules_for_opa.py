"""The rule for OPA in docs/policies.md, as an interpreter of Rego evaluates it over what `wdspec config` prints."""

import json
import re
import subprocess
import sys
from pathlib import Path

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


# In a process of its own: after it is imported, an import of torch aborts (regopy 1.5.2 and torch 2.13.0).
EVALUATE = """
import json, sys, regopy
rule, shown = json.load(sys.stdin)
interpreter = regopy.Interpreter()
interpreter.add_module("licenses", rule)
interpreter.set_input(json.loads(shown))
print(interpreter.query("data.main.deny"))
"""


def test_the_rule_on_the_page_sees_every_source(tmp_path):
    (rule,) = re.findall(r"^```rego\n(.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "train.yaml").write_text(SPEC)
    shown, _ = within("config", "--format", "json", "train.yaml", folder=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", EVALUATE],
        input=json.dumps([rule, shown]),
        capture_output=True,
        text=True,
        check=True,
    )
    (found,) = json.loads(done.stdout)["expressions"]
    says = "no license, or a non-commercial one"
    assert sorted(found) == [f"bad: {says}", f"bare: {says}", f"last: {says}"]
