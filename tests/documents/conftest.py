"""Where the documents run: an empty folder, with their stores behind a proxy."""

import os
import sys
from pathlib import Path

import matplotlib
import pytest
from documentblocks import Notebook
from documentstores import Stores


@pytest.fixture(scope="session")
def stores():
    there = Stores()
    yield there
    there.close()


@pytest.fixture
def notebook(stores, tmp_path, monkeypatch):
    """Makes notebooks of documents, in an empty folder."""
    for name in ("HTTP_PROXY", "NO_PROXY", "no_proxy", "all_proxy", "ALL_PROXY", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", stores.url)
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        monkeypatch.syspath_prepend(Path(__file__).parent / "standins")
        sys.modules.pop("torchvision", None)
    return lambda document, **given: Notebook(document, dict(os.environ), **given)
