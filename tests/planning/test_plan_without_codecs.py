"""A plan decodes nothing: it needs neither Pillow nor torch, nor the code that reads samples unless it counts them."""

import json
import subprocess
import sys

import pytest
from shardmaking import write_shard

PROGRAM = """
import json, sys

class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("PIL", "torch", "simplejpeg", "av", "soundfile"):
            raise ImportError(f"{name} cannot be imported")

sys.meta_path.insert(0, Absent)
import wdspec
plan = wdspec.plan(json.loads(sys.argv[1]), ranks=2, workers=2)
counts = [] if plan.finite is None else [count.samples for count in plan.finite.counts]
print(json.dumps([[source.name for source in plan.sources], counts, sorted(sys.modules)]))
"""
IMAGES = {"where": "jpg.width > 10 and cls == 1", "subset": "50%", "decode": {"jpg": "rgb8+resize=32"}}


@pytest.fixture
def source(tmp_path):
    samples = [(f"{i:03d}", {"jpg": b"\xff\xd8\xff", "txt": b"x" * (i + 1), "cls": b"1"}) for i in range(40)]
    for shard in range(4):
        write_shard(tmp_path / f"a-{shard}.tar", samples[10 * shard : 10 * shard + 10])
    (tmp_path / "keys.txt").write_text("\n".join(key for key, _ in samples[:24]))
    (tmp_path / "table.jsonl").write_text("".join(f'{{"key": "{key}", "score": 1}}\n' for key, _ in samples))
    return {"name": "a", "shards": f"{tmp_path}/a-{{0..3}}.tar"}


def plan(spec):
    """What a fresh process plans: the sources, the counts of a pass, and the imported modules of wdspec."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    sources, counts, modules = json.loads(done.stdout)
    return sources, counts, [name for name in modules if name.startswith("wdspec.")]


def within(modules, *rooms):
    return [name for name in modules if name.startswith(rooms)]


def test_listing_and_planning_imports_no_code_that_reads_samples(source, tmp_path):
    files = {
        "keys": f"@{tmp_path}/keys.txt",
        "lookup": [{"table": f"{tmp_path}/table.jsonl", "key": "key", "fields": "score"}],
    }
    batch = {"cost": "area", "max_cost": 9}
    for spec in (
        {"dataset": [source]},
        {
            "dataset": [{**source, **IMAGES, **files, "select": "m:f"}],
            "batch": batch,
            "costs": {"area": "jpg.pixels"},
        },
    ):
        sources, _, modules = plan(spec)
        assert sources == ["a"]
        assert within(modules, "wdspec.fields", "wdspec.read.", "wdspec.run", "wdspec.webdataset") == []


@pytest.mark.parametrize(
    ("options", "count"), [({}, 40), (IMAGES, None), ({"keys": "@keys.txt"}, 24), ({"repeat": 2}, 80)]
)
def test_a_pass_is_counted_without_codecs(source, tmp_path, options, count):
    if "keys" in options:
        options = {"keys": f"@{tmp_path}/keys.txt"}
    _, counts, modules = plan({"dataset": [{**source, **options}], "epoch": "pass", "batch": 4})
    assert count is None or counts == [count]
    assert within(modules, "wdspec.fields.codecs") == []


def test_a_pass_by_cost_imports_only_the_codecs_that_measure(source):
    batch = {"cost": "txt.length", "max_cost": 100}
    spec = {"dataset": [{**source, "decode": {"jpg": "rgb8"}}], "epoch": "pass", "batch": batch}
    _, _, modules = plan({**spec, "dataset": [{**source, "extensions": "txt cls"}]})
    assert within(modules, "wdspec.fields.codecs") == ["wdspec.fields.codecs", "wdspec.fields.codecs.text"]


def test_a_loader_imports_decoders_before_it_forks_workers(source):
    program = (
        "import json, sys, wdspec\n"
        "loader = wdspec.loader(json.loads(sys.argv[1]), num_workers=2)\n"
        "assert 'wdspec.fields.codecs.image_decoder' in sys.modules\n"
    )
    spec = {"dataset": [{**source, "decode": {"jpg": "rgb8"}}], "batch": 4}
    assert not subprocess.run([sys.executable, "-c", program, json.dumps(spec)]).returncode
