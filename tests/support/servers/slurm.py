"""A Slurm cluster of one node, started by the tests: munged, slurmctld and slurmd with separate files."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])


def missing() -> str | None:
    """Why no cluster can be started here; None if one can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "slurmd needs root"
    absent = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    return f"{', '.join(absent)} not installed: apt-get install slurm-wlm" if absent else None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _running(*command: str, environ: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def slurm_cluster(folder: Path, cpus: int) -> Iterator[dict[str, str]]:
    """The environment in which srun reaches a cluster with one node, which pretends to have this many CPUs."""
    folder.chmod(0o755)
    key, munge = folder / "munge.key", folder / "munge.socket"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    settings = {
        "ClusterName": "tests",
        "SlurmctldHost": host,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={munge}",
        "CredType": "cred/munge",
        "SlurmUser": "root",
        "SlurmctldPort": _free_port(),
        "SlurmdPort": _free_port(),
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd.pid",
        "SlurmctldLogFile": folder / "slurmctld.log",
        "SlurmdLogFile": folder / "slurmd.log",
        "SlurmdParameters": "config_overrides",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "MpiDefault": "none",
        "ReturnToService": 2,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines.append(f"NodeName={host} CPUs={cpus} RealMemory=1000 State=UNKNOWN")
    lines.append("PartitionName=main Nodes=ALL Default=YES State=UP")
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    outside = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    environ = {**outside, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}
    named = {"key-file": key, "socket": munge}
    named |= {f"{what}-file": folder / f"munge.{what}" for what in ("log", "pid", "seed")}
    with ExitStack() as stack:
        for command in (
            ("munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in named.items())),
            ("slurmctld", "-D"),
            ("slurmd", "-D"),
        ):
            stack.enter_context(_running(*command, environ=environ))
        for _ in range(300):
            state = subprocess.run(
                ["sinfo", "--noheader", "--format=%T"],
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            if state.stdout.strip() == "idle":
                break
            time.sleep(0.1)
        else:
            logs = "\n".join(log.read_text() for log in folder.glob("*.log"))
            raise RuntimeError(f"the cluster did not start: {state.stdout}{state.stderr}\n{logs}")
        yield environ
