"""One unchanged spec yields the same samples wherever its bytes come from, and a run resumes from another place.

Only variables of the environment, or `--env`, choose the place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import stores
from servers.aistore_double import AisDouble
from shardmaking import write_source

import wdspec

SPEC = """
seed: 5
dataset:
  - {name: day, shards: "gs://lake/day-{000..003}.tar", probability: 0.7}
  - {name: night, shards: "gs://lake/deep/er/night-{000..002}.tar", probability: 0.3}
defaults: {shuffle: 30}
batch: 5
epoch: {batches: 24}
elastic: {ranks: 1, workers: 2}
environments:
  here: {rewrite: [{from: "gs://lake/", to: "./lake/"}]}
"""
CUT = 11
"""Batches before a run is stopped, to be resumed elsewhere."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shards, and the spec next to it."""
    folder = tmp_path_factory.mktemp("environments")
    write_source(folder / "lake", "day", shards=4, samples=25)
    write_source(folder / "lake" / "deep" / "er", "night", shards=3, samples=11)
    (folder / "spec.yaml").write_text(SPEC)
    return folder


@pytest.fixture(scope="module")
def reference(lake: Path) -> tuple[list[list[str]], str]:
    """The texts of all batches from the local disk, and the state after `CUT` of them."""
    texts = []
    with wdspec.loader(lake / "spec.yaml", env="here") as loader:
        for number, batch in enumerate(loader, 1):
            texts.append(batch["txt"])
            if number == CUT:
                state = json.dumps(loader.state_dict())
    return texts, state


def objects(lake: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted((lake / "lake").rglob("*.tar")):
        yield path.relative_to(lake / "lake").as_posix(), path.read_bytes()


def check(lake: Path, reference: tuple[list[list[str]], str], **choice: str) -> None:
    """Read an epoch through workers, stop it in the middle, and resume from its state and from the local one."""
    expected, local_state = reference
    texts = []
    with wdspec.loader(lake / "spec.yaml", num_workers=2, **choice) as loader:
        for number, batch in enumerate(loader, 1):
            texts.append(batch["txt"])
            if number == CUT:
                state = json.dumps(loader.state_dict())
    assert texts == expected
    for begin in (state, local_state):
        with wdspec.loader(lake / "spec.yaml", num_workers=0, **choice) as loader:
            loader.load_state_dict(json.loads(begin))
            assert [batch["txt"] for batch in loader] == expected[CUT:]
    with wdspec.loader(lake / "spec.yaml", env="here") as loader:
        loader.load_state_dict(json.loads(state))
        assert [batch["txt"] for batch in loader] == expected[CUT:]


@pytest.fixture(params=["cold", "cached"])
def caching(request, tmp_path, monkeypatch):
    """Without a cache; and with one that an earlier run has filled."""
    if request.param == "cached":
        monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    return request.param


def read_first(lake: Path, caching: str) -> None:
    if caching == "cached":
        with wdspec.loader(lake / "spec.yaml") as loader:
            assert sum(1 for _ in loader) == 24


def check_rewritten(lake, reference, caching, monkeypatch, to: str) -> None:
    monkeypatch.setenv("WDS_REWRITE", f"gs://lake/={to}")
    read_first(lake, caching)
    check(lake, reference)


def test_local_files(lake, reference, caching, monkeypatch):
    check_rewritten(lake, reference, caching, monkeypatch, f"{lake}/lake/")


def test_a_named_environment(lake, reference):
    check(lake, reference, env="here")


def test_a_command(lake, reference, caching, monkeypatch):
    check_rewritten(lake, reference, caching, monkeypatch, f"pipe:cat {lake}/lake/")


def test_a_web_server(lake, reference, caching, monkeypatch, nginx):
    for name, data in objects(lake):
        path = nginx.root / "lake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    check_rewritten(lake, reference, caching, monkeypatch, f"{nginx.url}/lake/")


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_an_object_store(lake, reference, caching, monkeypatch, request, kind):
    store = request.getfixturevalue(kind)
    stores.use(store, monkeypatch)
    for name, data in objects(lake):
        stores.put(store, f"lake/{name}", data)
    check_rewritten(lake, reference, caching, monkeypatch, f"{store.root}lake/")


def test_an_aistore_cluster(lake, reference, caching, monkeypatch):
    with AisDouble() as double:
        for name, data in objects(lake):
            double.put(f"gs://lake/{name}", data)
        monkeypatch.setenv("AIS_ENDPOINT", double.endpoint)
        monkeypatch.setenv("USE_AIS_FOR", "gs")
        read_first(lake, caching)
        check(lake, reference)
        assert not double.violations
