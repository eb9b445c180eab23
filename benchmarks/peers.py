"""An environment with the peers, which sees the packages of the one that this runs in, torch among them."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

PEERS = {
    "webdataset": "webdataset==1.0.2",
    "torchdata": "torchdata",
    "spdl": "spdl",
    "streaming": "mosaicml-streaming",
    "litdata": "litdata",
    "datasets": "datasets huggingface_hub>=1.31 transformers>=5",  # last: others take older ones along
}
"""Package that is imported → what is installed."""
DEFAULT = Path.home() / ".cache" / "wdspec-benchmark-peers"


def installed(folder: Path | None) -> tuple[str, dict[str, str]]:
    """The interpreter of the environment, made if it is missing, and which peers could not be installed, and why."""
    folder = folder or DEFAULT
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        [site] = (folder / "lib").glob("python*/site-packages")
        (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    missing = {}
    for package, wanted in PEERS.items():
        if subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0:
            continue
        print(f"installing {wanted}", file=sys.stderr)
        done = subprocess.run(
            [python, "-m", "pip", "install", "-q", *wanted.split()],
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode:
            missing[package] = (
                "not installed: " + (done.stderr.strip().splitlines() or ["pip failed"])[-1][:150]
            )
    return str(python), missing
