"""The manifest of docs/containers.md fits the schema of Kubernetes, and its program runs within the same limits."""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from commandline import environment
from shardmaking import write_shard

PAGE = (Path(__file__).parents[2] / "docs" / "containers.md").read_text()
BLOCKS = dict(re.findall(r"```\w+\n# (job\.yaml|train\.yaml|train\.py)\n(.*?)```", PAGE, re.DOTALL))
SCHEMA = json.loads(Path(__file__).with_name("kubernetes_job.schema.json").read_text())


def misfits(job):
    """The places in a manifest that Kubernetes would refuse."""
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(job)
    return sorted(".".join(map(str, each.absolute_path)) for each in found)


def test_the_manifest_fits_the_schema_of_kubernetes():
    job = yaml.safe_load(BLOCKS["job.yaml"])
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert misfits(job) == []
    pod = job["spec"]["template"]["spec"]
    mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    container = pod["containers"][0]
    container["readOnlyRoot"] = True
    container["env"][0]["value"] = 1
    del container["name"]
    place = "spec.template.spec.containers.0"
    assert misfits(job) == [place, place, f"{place}.env.0.value"]


def without_rights():
    """Let permissions of files hold for root too, as in a container that does not run as root."""
    if os.getuid() == 0:
        libc = ctypes.CDLL(None)
        for right in (1, 2, 3):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
            libc.prctl(24, right, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.skipif(sys.platform != "linux", reason="rights of root are Linux's")
def test_its_program_runs_with_read_only_folders_and_a_small_temporary_one(tmp_path):
    container = yaml.safe_load(BLOCKS["job.yaml"])["spec"]["template"]["spec"]["containers"][0]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"] if mount["name"] != "shm"}
    for path in (*mounts, container["workingDir"]):
        (tmp_path / path[1:]).mkdir(parents=True, exist_ok=True)
    within = {path: f"{tmp_path}{path}" for path in (*mounts, container["workingDir"])}

    def inside(text):
        return re.sub("|".join(map(re.escape, within)), lambda match: within[match[0]], text)

    for number in range(2):
        write_shard(
            tmp_path / f"data/train-{number}.tar", [(f"{number}{each}", {"txt": b"a"}) for each in range(12)]
        )
    app = tmp_path / "app"
    (app / "train.yaml").write_text(BLOCKS["train.yaml"])
    (app / "train.py").write_text(inside(BLOCKS["train.py"]))
    read_only = [app, tmp_path / "data", tmp_path / "scratch", tmp_path]
    for folder in read_only:
        folder.chmod(0o555)
    writing = [sys.executable, "-c", "open('a', 'w')"]
    try:
        refused = subprocess.run(writing, cwd=app, preexec_fn=without_rights, capture_output=True)
        assert b"PermissionError" in refused.stderr, "the limits hold"
        done = subprocess.run(
            [sys.executable, inside(container["command"][1])],
            cwd=app,
            env=environment(
                PYTHONPATH=os.environ.get("PYTHONPATH", str(Path(__file__).parents[2])),
                PYTHONDONTWRITEBYTECODE="1",
                HOME="/nonexistent",
                **{each["name"]: inside(each["value"]) for each in container["env"]},
            ),
            preexec_fn=without_rights,
            capture_output=True,
            text=True,
            timeout=280,
        )
    finally:
        for folder in read_only:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "checkpoints/state.json").read_text())["batch"] == 6
    used = sum(file.stat().st_size for file in (tmp_path / "scratch/tmp").rglob("*") if file.is_file())
    assert used < 1 << 20
