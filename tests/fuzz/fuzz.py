"""Runs one target under atheris for some minutes: `python tests/fuzz/fuzz.py TARGET MINUTES`."""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["wdspec"]):
    import targets

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    name, minutes = sys.argv[1], float(sys.argv[2])
    with (
        tempfile.TemporaryDirectory() as found
    ):  # new inputs go there: the corpus in the repository stays small
        limits = [
            "-timeout=20",
            "-rss_limit_mb=2048",
            "-max_len=8192",
            f"-max_total_time={round(60 * minutes)}",
        ]
        atheris.Setup([sys.argv[0], *limits, found, str(CORPUS / name)], targets.TARGETS[name])
        atheris.Fuzz()


main()
