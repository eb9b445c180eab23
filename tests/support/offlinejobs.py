"""A small job for the tests of offline processing: shards, a module of functions, a spec."""

import textwrap

from shardmaking import write_source

FUNCTIONS = """
    import os, pathlib, time
    import numpy as np
    import wdspec

    def double(sample):
        drawn = wdspec.sample_rng(sample).random(), np.random.random()
        return {**sample, "cls": sample["cls"] * 2, "draw.txt": str(drawn)}

    def odd(sample):
        return sample["cls"] % 2 == 1

    def thirteen(sample):
        if sample["cls"] == 13:
            raise ValueError("thirteen brings bad luck")
        return sample

    def first_time(sample):
        mark = pathlib.Path("failed-once")
        if sample["cls"] == 13 and not mark.exists():
            mark.touch()
            raise OSError("out of order")
        return sample

    def deadly(sample):
        if sample["cls"] == 13:
            os.kill(os.getpid(), 9)
        return sample

    def slow(sample):
        time.sleep(0.05)
        return sample

    class Counted:
        made = 0

        def __init__(self):
            Counted.made += 1

        def __call__(self, sample):
            return {**sample, "made.txt": str(Counted.made)}

    def unwritable(sample):
        return {**sample, "cls": object()}
"""


def write_job(folder, **keys):
    """`job.yaml` over four shards `in/a-NNN.tar` of ten samples (cls 0..39, txt), and `functions.py` next to it."""
    (folder / "functions.py").write_text(textwrap.dedent(FUNCTIONS))
    write_source(folder / "in", "a", shards=4, samples=10)
    lines = ["dataset:", "  - shards: in/a-{000..003}.tar"]
    keys = {"output": "out/", **keys}
    lines += [f"{key}: {value}" for key, value in keys.items()]
    (folder / "job.yaml").write_text("\n".join(lines) + "\n")
    return "job.yaml"
