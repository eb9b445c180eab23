"""An environment with the other loaders, which sees the packages of the current one, including torch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = {
    "webdataset": "webdataset==1.0.2",
    "torchdata": "torchdata",
    "spdl": "spdl",
    "streaming": "mosaicml-streaming",
    "litdata": "litdata",
    "megatron.energon": "megatron-energon",
    "lhotse": "lhotse",
    "datasets": "datasets huggingface_hub>=1.31 transformers>=5",  # last: others take older ones along
}
"""Package that is imported → what is installed."""
IMPORTS = {"streaming": "from benchmarks.contenders.converted import streaming; streaming()"}
"""How a package is imported, where not by its name alone."""
UNFIT = "torchvision"
"""mosaicml-streaming takes it along, built for another torch than a CPU's, so that no import of it works."""
DEFAULT = Path.home() / ".cache" / "wdspec-benchmark-peers"


def installed(folder: Path | None, packages: Collection[str]) -> tuple[str, dict[str, str]]:
    """The interpreter of the environment, made if it is missing, and which packages could not be installed, and why."""
    folder = folder or DEFAULT
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        [site] = (folder / "lib").glob("python*/site-packages")
        seen = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (site / "shared.pth").write_text("\n".join([*seen, ""]), encoding="utf-8")
    missing = {}
    with tempfile.TemporaryDirectory() as place:
        kept = Path(place) / "kept.txt"
        kept.write_text(f"torch=={version('torch')}\n", encoding="utf-8")  # no peer may bring another one
        for package in lacking(python, packages):
            wanted = PEERS[package]
            print(f"installing {wanted}", file=sys.stderr)
            done = subprocess.run(
                [python, "-m", "pip", "install", "-q", "-c", kept, *wanted.split()],
                capture_output=True,
                text=True,
                timeout=600,
            )
            subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", UNFIT], capture_output=True)
            error = _last_line(done.stderr, "pip failed") if done.returncode else _imports(python, package)
            if error is not None:
                missing[package] = f"not installed: {error}"
    return str(python), missing


def lacking(python: Path, packages: Collection[str]) -> list[str]:
    """The packages that an environment lacks, in the order in which they are installed."""
    program = "import sys\nfrom importlib.util import find_spec\nprint(*(n for n in sys.argv[1:] if not find_spec(n)))"
    tops = {package.partition(".")[0]: package for package in PEERS if package in packages}
    done = subprocess.run([python, "-c", program, *tops], capture_output=True, text=True, check=True)
    return [tops[name] for name in done.stdout.split()]


def _imports(python: Path, package: str) -> str | None:
    """The error of an import of a package; None if it works."""
    program = IMPORTS.get(package, f"import {package}")
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, cwd=ROOT)
    return _last_line(done.stderr, "the import fails") if done.returncode else None


def _last_line(text: str, otherwise: str) -> str:
    return (text.strip().splitlines() or [otherwise])[-1][:150]
