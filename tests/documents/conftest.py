"""An empty folder in which documents run, with a proxy for their stores."""

import os
import sys
from functools import cache
from pathlib import Path

import braceexpand
import dask
import distributed
import matplotlib
import pytest
from documentblocks import Notebook
from documentstores import Stores, openimages
from servers.dask_cluster import dask_cluster


@pytest.fixture(scope="session")
def stores():
    there = Stores()
    yield there
    there.close()


@cache
def has_torchvision():
    """Whether a version for this build of torch is installed; checked before the stand-in is imported."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        sys.modules.pop("torchvision", None)
        return False
    return True


@pytest.fixture
def notebook(stores, tmp_path, monkeypatch):
    """Makes notebooks of documents, in an empty folder."""
    for name in ("HTTP_PROXY", "NO_PROXY", "no_proxy", "all_proxy", "ALL_PROXY", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", stores.url)
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    if not has_torchvision():
        monkeypatch.syspath_prepend(Path(__file__).parent / "standins")
    yield lambda document, **given: Notebook(document, dict(os.environ), **given)
    if not has_torchvision():  # or later tests would import the stand-in
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """Two shards of `gs://bucket` and an empty `gs://bucket2`, as folders reached by rules; returns the second."""
    folders = [tmp_path / "store" / name for name in ("bucket", "bucket2")]
    for folder in folders:
        folder.mkdir(parents=True)
    for number in range(2):
        (folders[0] / f"openimages-{number:06d}.tar").write_bytes(openimages(number))
    rules = ";".join(f"gs://{folder.name}/={folder}/" for folder in folders)
    monkeypatch.setenv("WDS_REWRITE", rules)
    return folders[1]


@pytest.fixture
def cluster(bucket, tmp_path):
    """The address of a Dask scheduler; its worker finds the buckets and the modules that this process finds."""
    with dask_cluster(tmp_path, workers=1, PYTHONPATH=os.pathsep.join(filter(None, sys.path))) as address:
        yield address


@pytest.fixture
def dask_block(cluster, bucket):
    """Runs the block that augments all shards by Dask; gives the folder of its output.

    The document leaves the imports and the scheduler to the reader, and has two mistakes. `braceexpand` gives an
    iterator: the inputs use it up, no output is left, and nothing is done. And `delayed(augment_wds)(args)` hands
    one pair where two arguments belong, so each task fails. What works is a list of shards, and `(*args)`.
    """

    def run(page, block):
        page.names.update(dask=dask, braceexpand=braceexpand)
        few = ("{000000..000554}", "{000000..000001}")
        listed = (f'braceexpand.braceexpand("{few[1]}")', f'list(braceexpand.braceexpand("{few[1]}"))')
        with distributed.Client(cluster):
            assert page.run(block, replace=[few]).value == ()
            assert page.names["outputs"] == []
            with pytest.raises(TypeError, match="missing 1 required positional argument: 'output'"):
                page.run(block, replace=[few, listed])
            assert not any(bucket.iterdir())
            page.run(block, replace=[few, listed, ("(args)", "(*args)")])
        assert sorted(path.name for path in bucket.iterdir()) == [
            f"openimages-augmented-{number:06d}.tar" for number in range(2)
        ]
        return bucket

    return run
