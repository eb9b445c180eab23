"""The order and the states of sixty specs are those that were recorded."""

import json

import golden
import pytest
from shardmaking import write_uneven_sources

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
WRITTEN = json.loads(golden.FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    write_uneven_sources(folder)
    return folder


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_a_spec_has_the_recorded_order_and_state(number, folder, monkeypatch):
    monkeypatch.chdir(folder)
    written = WRITTEN[number]
    assert json.loads(json.dumps(golden.observed(written["spec"]))) == {
        name: value for name, value in written.items() if name != "spec"
    }


def test_the_specs_cover_everything_that_affects_the_order():
    specs = [each["spec"] for each in WRITTEN]
    leaves = [leaf for spec in specs for each in spec["dataset"] for leaf in each.get("dataset", [each])]
    assert len(specs) >= 40
    assert {leaf["order"] for leaf in leaves} == {"shuffled", "sequential", "resampled"}
    assert any(leaf.get("interleave", 1) > 1 for leaf in leaves)
    assert {"schedule"} <= {key for spec in specs for key in (spec["mix"] or {})}
    assert {"even", "random", "round_robin"} <= {(spec["mix"] or {}).get("draw") for spec in specs}
    assert any((spec["epoch"] or {}).get("pass") for spec in specs)
