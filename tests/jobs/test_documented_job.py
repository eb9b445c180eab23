"""The job of docs/processing.md, word for word."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
from click.testing import CliRunner

import wdspec
from wdspec.cli.process import process

PAGE = Path(__file__).parents[2] / "docs" / "processing.md"


def test_the_documented_job_augments_photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec, functions, *_ = re.findall(r"```(?:yaml|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    Path("job.yaml").write_text(spec)
    Path("augmenting.py").write_text(functions)
    with wdspec.ShardWriter("in/photos-%03d.tar", maxcount=2, verbose=0) as writer:
        for n in range(8):
            image = np.full((6, 5, 3), n * 30, np.uint8)
            writer.write({"__key__": f"{n}", "png" if n % 2 else "jpg": image, "json": {"tags": ["a"] * n}})
    result = CliRunner().invoke(process, ["job.yaml", "--jobs", "0"])
    assert result.exit_code == 0, result.output
    made = {"dataset": [{"shards": "out/photos-{000..003}.tar", "decode": "rgb8"}], "limit": 8}
    made |= {"epoch": "pass", "elastic": {"ranks": 1, "workers": 1}}
    samples = list(wdspec.compile(made))
    assert [sample["cls"] for sample in samples] == list(range(8))
    for n, sample in enumerate(samples):
        assert abs(sample["png"].mean() - n * 30) < 8
        assert sample["png"].std() > 0
    sys.modules.pop("augmenting", None)
