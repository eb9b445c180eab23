"""Draw docs/mixture.svg: the source of each sample in the first batches of README's spec.

    python scripts/mixture.py

Run it from the root of the repository, with matplotlib (`wdspec[charts]`) and torch.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import yaml
from matplotlib import pyplot

import wdspec

ROOT = Path(__file__).parents[1]
BATCHES = 12
COLORS = {"scans": "#4c78a8", "drawn": "#f58518"}


def main() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, "README starts with a spec"
    matplotlib.rcParams["svg.hashsalt"] = "wdspec"
    with wdspec.loader(yaml.safe_load(found[1]), num_workers=0) as loader:
        batches = [batch["__source__"] for batch in islice(loader, BATCHES)]
    figure, axes = pyplot.subplots(figsize=(8, 3))
    for row, sources in enumerate(batches):
        for column, source in enumerate(sources):
            axes.add_patch(pyplot.Rectangle((column + 0.06, row + 0.06), 0.88, 0.88, color=COLORS[source]))
        count = sources.count("drawn")
        axes.text(len(sources) + 0.5, row + 0.5, f"{len(sources) - count} + {count}", va="center", fontsize=8)
    for name, color in COLORS.items():
        axes.plot([], [], "s", color=color, label=name)
    axes.set(
        xlim=(0, 36),
        ylim=(BATCHES, 0),
        xlabel="samples of a batch, in order",
        ylabel="batches",
        title="probability 0.7 and 0.3: 22.4 and 9.6 of 32 samples",
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "mixture.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
