"""`loader: {kind: ray}` on a cluster of several nodes that loses actors and whole nodes, and with nodes that differ."""

import json
import os
import random
import signal
import sys
import time

import psutil
import pytest
from shardmaking import write_source

import wdspec
from wdspec.base.errors import UsageError

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.long
SLOWLY = """
import time

def read(sample):
    time.sleep(0.005)
    return sample
"""
LEGS = [1, 2, 0, 4, 3, 2, 4, 1, 3, 4]
"""Numbers of actors, one after another; each reads 50 batches."""
KILLS = 20


@pytest.fixture
def cluster():
    """A head without CPUs, where the trainer is, and two nodes of two CPUs."""
    from ray.cluster_utils import Cluster

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    variables = dict(os.environ)
    os.environ.update(RAY_worker_niceness="0")  # else other tests starve the actors
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": 150 << 20},
    )
    made.nodes = [made.add_node(num_cpus=2, object_store_memory=150 << 20) for _ in range(2)]
    os.environ["RAY_ADDRESS"] = made.address
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        os.environ.clear()
        os.environ.update(variables)
        for number, handler in before.items():
            signal.signal(number, handler)


def find_actors():
    found = []
    for each in psutil.Process().children(recursive=True):
        try:
            if each.cmdline() and each.cmdline()[0].startswith("ray::WdspecReader"):
                found.append(each)
        except psutil.Error:
            pass
    return found


def make_spec(folder, workers=2, **keys):
    (folder / "slowly.py").write_text(SLOWLY)
    for name, shards in (("a", 12), ("b", 12)):
        write_source(folder, name, shards, 23)
    text = {
        "seed": 3,
        "dataset": [{"name": name, "shards": f"{name}-{{000..011}}.tar", "decode": "cls"} for name in "ab"],
        "map": "slowly:read",
        "batch": 4,
        "elastic": {"ranks": 1, "workers": 12},
        "loader": {"kind": "ray", "workers": workers},
        **keys,
    }
    (folder / "spec.yaml").write_text(json.dumps(text))
    return folder / "spec.yaml"


def row(batch):
    return batch["__key__"], batch["cls"].tolist()


@pytest.mark.timeout(900)
def test_500_batches_are_those_of_one_process_while_actors_and_a_node_are_lost(tmp_path, cluster, caplog):
    spec, dice = make_spec(tmp_path), random.Random(7)
    with wdspec.loader(spec, num_workers=0) as alone:
        expected = [row(batch) for batch, _ in zip(alone, range(500), strict=False)]
    with_actors = [step for step in range(500) if LEGS[step // 50] and 3 < step % 50 < 46]
    kills = set(dice.sample(with_actors, KILLS))
    node_at = 50 * LEGS.index(4) + 20
    found, state, stalls = [], None, []
    for leg, workers in enumerate(LEGS):
        with wdspec.loader(spec, num_workers=workers) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            killed, batches = None, iter(loader)
            for _ in range(50):
                before = time.monotonic()
                found.append(row(next(batches)))
                if killed is not None:
                    stalls.append(time.monotonic() - before)
                killed = None
                step = len(found) - 1
                if step in kills:
                    while not (actors := find_actors()):  # the one that replaces the last is still starting
                        time.sleep(0.05)
                    killed = dice.choice(actors)
                    killed.kill()
                if step == node_at:
                    killed = cluster.nodes.pop(0)
                    cluster.remove_node(killed, allow_graceful=False)
                    cluster.nodes.append(cluster.add_node(num_cpus=2, object_store_memory=150 << 20))
            state = json.dumps(loader.state_dict())
        assert loader.stream.steps.requested >= 50 * (leg + 1)
    assert found == expected
    died = [record for record in caplog.records if "died; another one" in record.message]
    print(f"{len(died)} actors were replaced; longest wait after a kill {max(stalls):.1f} s")
    assert len(died) >= KILLS // 2


def test_large_batches_never_fill_the_object_store(tmp_path, cluster):
    """Twenty times 20 MB through stores of 150 MB, also if the training loop keeps batches."""
    from ray._private.internal_api import memory_summary

    (tmp_path / "large.py").write_text(
        "import numpy as np\n\ndef make(sample):\n"
        "    return {**sample, 'x': np.full(5_000_000, sample['cls'] % 256, np.uint8)}\n"
    )
    spec = make_spec(tmp_path, map="large:make")
    with wdspec.loader(spec) as loader:
        kept = [batch for batch, _ in zip(loader, range(20), strict=False)]
        budget, lent = loader.stream.steps.budget, loader.stream.steps._lender.lent
    assert all((batch["x"][i] == label % 256).all() for batch in kept for i, label in enumerate(batch["cls"]))
    assert 0 < lent <= budget < 40 << 20
    assert "Spilled" not in memory_summary(os.environ["RAY_ADDRESS"], stats_only=True)


@pytest.mark.parametrize("lacks", ["wdspec", "pillow"])
def test_a_node_that_lacks_something_is_named(tmp_path, cluster, lacks):
    place = tmp_path / "other"
    if lacks == "wdspec":
        place.mkdir()
        (place / "sitecustomize.py").write_text("import sys\nsys.modules['wdspec'] = None\n")
        says = (
            r"^node \S+ \(.*\) cannot read this spec as the trainer would: \S+ there has no wdspec like that"
        )
    else:
        (place / "pillow-1.0.dist-info").mkdir(parents=True)
        (place / "pillow-1.0.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: pillow\nVersion: 1.0\n"
        )
        says = r"^node \S+ \(.*\) cannot read .* it has pillow 1\.0, and the trainer has \d+\.\d+.*install the same"
    for node in cluster.nodes:
        cluster.remove_node(node)
    path = os.pathsep.join([str(place), *sys.path])
    cluster.nodes = [cluster.add_node(num_cpus=2, env_vars={"PYTHONPATH": path})]
    with wdspec.loader(make_spec(tmp_path)) as loader, pytest.raises(UsageError, match=says):
        next(iter(loader))
