"""The table of stores: a store is one file and one row."""

import subprocess
import sys

import pytest
from commandline import within as wdspec
from shardmaking import write_source

import wdspec as wds
from wdspec.base.errors import ShardError
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores import table as store_table
from wdspec.stores.store import Store
from wdspec.urls import urls as schemes

FILE = '''
"""Files, upside down: an example."""

import io

from wdspec.stores.outputs import LocalOutput
from wdspec.stores.store import KeyStore


class Attic(KeyStore):
    def path(self, location):
        return location.removeprefix("attic:/")

    def open(self, location, settings):
        return open(self.path(location), "rb", buffering=0)

    def keys(self, root, start, settings, depth):
        import os

        return os.listdir(self.path(root))

    def output(self, location, settings, *, overwrite=True, since=None):
        return LocalOutput(self.path(location), overwrite=overwrite)

    def describe(self, location, settings):
        return "a file in the attic"
'''


@pytest.fixture
def attic(tmp_path, monkeypatch):
    (tmp_path / "atticstore.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    row = schemes.StoreRow(("attic",), "atticstore:Attic")
    monkeypatch.setitem(schemes.ROWS, "attic", row)
    yield tmp_path
    sys.modules.pop("atticstore", None)
    store_table._make_store.cache_clear()


def test_a_store_is_one_file_and_one_table_row(attic):
    write_source(attic / "shards", "a", shards=3, samples=2)
    root = f"attic://{str(attic).lstrip('/')}/shards/"
    spec = {"dataset": [{"shards": f"{root}*.tar", "order": "sequential", "shuffle": 0}]}
    assert len(wds.plan(spec).sources[0].shards) == 3
    assert next(iter(wds.compile(spec)))["__key__"] == "a0000000"
    wdspec("cat", f"{root}a-{{000..002}}.tar", "-o", f"{root}all.tar")
    assert (attic / "shards" / "all.tar").exists()
    assert "a file in the attic" in wdspec("resolve", f"{root}a-000.tar")[0]


@pytest.mark.parametrize("row", schemes.STORES, ids=lambda row: row.schemes[0])
def test_every_row_names_a_store(row):
    assert isinstance(store_table._make_store(row.store), Store)


def test_unused_stores_are_not_imported():
    script = (
        "import sys; from wdspec.storage.environment import Environment; from wdspec.storage.storage import Storage;"
        "Storage.of(Environment.read()).open_location(sys.argv[1]);"
        "assert not {'urllib3', 'fsspec', 'wdspec.stores.pipe'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, __file__], check=True, timeout=200)


def test_an_unreadable_scheme_is_an_error_with_a_remedy():
    with pytest.raises(ShardError, match=r"no opener for htpps://; did you mean `https`\? register one with"):
        Storage.of(Environment.read({})).open_location("htpps://bucket/a.tar")
