"""The manifest of docs/scale.md has only fields of KubeRay's RayJob. Its schema says where it is from."""

import copy
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
MANIFEST = yaml.safe_load(re.search(r"```yaml\n(apiVersion: ray\.io.*?)```", PAGE, re.DOTALL)[1])
SCHEMA = json.loads(Path(__file__).with_name("kuberay_rayjob.json").read_text())


def test_the_manifest_is_a_rayjob():
    jsonschema.validate(MANIFEST, SCHEMA)
    groups = MANIFEST["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    placed = {group["groupName"]: group["rayStartParams"].get("num-cpus") for group in groups}
    assert placed == {"trainers": "0", "readers": None}  # actors only run where there are CPUs


@pytest.mark.parametrize(
    "path", ["spec", "spec rayClusterSpec", "spec rayClusterSpec workerGroupSpecs 1 template spec"]
)
def test_a_field_that_kuberay_does_not_have_is_noticed(path):
    manifest = copy.deepcopy(MANIFEST)
    place = manifest
    for part in path.split():
        place = place[int(part) if part.isdecimal() else part]
    place["replica"] = 2
    with pytest.raises(jsonschema.ValidationError, match="'replica' was unexpected"):
        jsonschema.validate(manifest, SCHEMA)
