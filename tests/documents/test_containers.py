"""The manifest of docs/containers.md has only fields of Kubernetes, and its program runs within the same limits."""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commandline import environment
from shardmaking import write_shard

PAGE = (Path(__file__).parents[2] / "docs" / "containers.md").read_text()
BLOCKS = dict(re.findall(r"```\w+\n# (job\.yaml|train\.yaml|train\.py)\n(.*?)```", PAGE, re.DOTALL))
FIELDS = {
    "Job": {"apiVersion": str, "kind": str, "metadata": "Metadata", "spec": "JobSpec"},
    "Metadata": {"name": str, "namespace": str, "labels": dict, "annotations": dict},
    "JobSpec": {
        "activeDeadlineSeconds": int,
        "backoffLimit": int,
        "backoffLimitPerIndex": int,
        "completionMode": str,
        "completions": int,
        "parallelism": int,
        "podFailurePolicy": "FailurePolicy",
        "suspend": bool,
        "template": "PodTemplate",
        "ttlSecondsAfterFinished": int,
    },
    "FailurePolicy": {"rules": ["FailureRule"]},
    "FailureRule": {"action": str, "onExitCodes": dict, "onPodConditions": ["Condition"]},
    "Condition": {"type": str, "status": str},
    "PodTemplate": {"metadata": "Metadata", "spec": "PodSpec"},
    "PodSpec": {
        "containers": ["Container"],
        "initContainers": ["Container"],
        "nodeSelector": dict,
        "restartPolicy": str,
        "serviceAccountName": str,
        "terminationGracePeriodSeconds": int,
        "tolerations": list,
        "volumes": ["Volume"],
    },
    "Container": {
        "args": [str],
        "command": [str],
        "env": ["Variable"],
        "image": str,
        "imagePullPolicy": str,
        "name": str,
        "resources": "Resources",
        "securityContext": "Security",
        "volumeMounts": ["Mount"],
        "workingDir": str,
    },
    "Variable": {"name": str, "value": str, "valueFrom": dict},
    "Resources": {"limits": {str: str}, "requests": {str: str}},
    "Security": {
        "allowPrivilegeEscalation": bool,
        "privileged": bool,
        "readOnlyRootFilesystem": bool,
        "runAsGroup": int,
        "runAsNonRoot": bool,
        "runAsUser": int,
    },
    "Mount": {"mountPath": str, "name": str, "readOnly": bool, "subPath": str},
    "Volume": {
        "name": str,
        "emptyDir": "EmptyDir",
        "persistentVolumeClaim": "Claim",
        "hostPath": dict,
        "secret": dict,
    },
    "EmptyDir": {"medium": str, "sizeLimit": str},
    "Claim": {"claimName": str, "readOnly": bool},
}
"""The fields of a Job (batch/v1) that manifests for training use, and their types."""


def misfits(value, kind, place="job"):
    """The places in a manifest that Kubernetes would refuse."""
    if isinstance(kind, str):
        if not isinstance(value, dict):
            return [place]
        known = FIELDS[kind]
        found = [f"{place}.{name}" for name in value if name not in known]
        return found + [
            each
            for name in value
            if name in known
            for each in misfits(value[name], known[name], f"{place}.{name}")
        ]
    if isinstance(kind, list):
        if not isinstance(value, list):
            return [place]
        return [
            each for number, item in enumerate(value) for each in misfits(item, kind[0], f"{place}[{number}]")
        ]
    if isinstance(kind, dict):
        return [f"{place}.{name}" for name, item in value.items() if not isinstance(item, str)]
    return [] if type(value) is kind else [place]


def test_the_manifest_has_only_fields_of_kubernetes():
    job = yaml.safe_load(BLOCKS["job.yaml"])
    assert misfits(job, "Job") == []
    pod = job["spec"]["template"]["spec"]
    mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    container = pod["containers"][0]
    container["readOnlyRoot"] = True
    container["env"][0]["value"] = 1
    assert len(misfits(job, "Job")) == 2, "mistakes are found"


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
            timeout=120,
        )
    finally:
        for folder in read_only:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "checkpoints/state.json").read_text())["batch"] == 6
    used = sum(file.stat().st_size for file in (tmp_path / "scratch/tmp").rglob("*") if file.is_file())
    assert used < 1 << 20
