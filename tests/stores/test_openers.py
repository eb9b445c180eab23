"""The table of openers: what users add, what packages bring, and what is said where nothing opens a URL."""

import importlib
import io
import pickle
import subprocess
import sys
import warnings

import pytest
from shardmaking import write_source

import wdspec
from wdspec.base.errors import MissingShardError, ShardError, UsageError
from wdspec.shards.listing import list_texts
from wdspec.storage.storage import Storage
from wdspec.stores import table as registry
from wdspec.stores.table import user_stores

PACKAGE = """\
import io

def open_vault(url):
    return io.BytesIO(url.encode())

class Vault:
    def open(self, url):
        return io.BytesIO(url.encode())

    def list(self, root):
        return ["b.tar", "a.tar"]

def broken(url):
    raise FileNotFoundError(url)
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.package_offers.cache_clear()
    yield
    registry.package_offers.cache_clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package that brings openers; returns how to say which."""

    def install(entries, name="vaultkit", group="wdspec.openers"):
        (tmp_path / f"{name}.py").write_text(PACKAGE)
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entries}")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()

    yield install
    sys.modules.pop("vaultkit", None)


def opened(url, secure=False):
    return Storage(users=user_stores(secure)).open_location(url)


def test_the_decorator_registers_a_function_and_returns_it():
    @wdspec.opener("Vault")
    def open_vault(url):
        return io.BytesIO(url.encode())

    assert open_vault("x").read() == b"x"
    with opened("vault://b/o.tar") as file:
        assert file.read() == b"vault://b/o.tar"
        assert file.seekable()
        assert file.seek(2) == 2
        assert file.read(3) == b"ult"


def test_a_package_that_only_opens_leaves_writing_to_wdspec(package):
    package("memory = vaultkit:open_vault\nonly = vaultkit:open_vault")
    for secure in (False, True):
        storage = Storage(users=user_stores(secure))
        output = storage.output("memory://openers/a.bin")
        output.write(b"x")
        output.commit()
        assert storage.is_written("memory://openers/a.bin")
        storage.delete("memory://openers/a.bin")
    with pytest.raises(UsageError, match="only opens, and nothing else writes to only://"):
        Storage(users=user_stores(False)).output("only://x")


def test_a_store_of_a_package_is_created_once_per_process(package):
    package("vault = vaultkit:Vault", group="wdspec.stores")
    store = user_stores(False)["vault"]
    assert store._own("vault://x") is store._own("vault://y") is user_stores(False)["vault"]._own("vault://z")


def test_an_opener_can_replace_a_built_in_one():
    wdspec.opener("pipe")(lambda url: io.BytesIO(b"mine"))
    with opened("pipe:cat x") as file:
        assert file.read() == b"mine"


@pytest.mark.parametrize("scheme", ["", "file", "a b", "vault://", 3])
def test_an_invalid_scheme_is_rejected(scheme):
    with pytest.raises(UsageError, match="cannot be the scheme of an opener"):
        wdspec.opener(scheme)
    with pytest.raises(UsageError, match="not a function"):
        wdspec.opener("vault")("open")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("/path", "returned 'str', without `read`; return a file opened for reading bytes"),
        (None, "returned 'NoneType', without `read`"),
        (io.StringIO("text"), "returned a text file; return a file opened for reading bytes"),
    ],
)
def test_the_return_value_of_an_opener_is_checked(result, message):
    wdspec.opener("vault")(lambda url: result)
    with pytest.raises(ShardError) as caught:
        opened("vault://b")
    assert message in caught.value.message
    assert (
        "test_openers:test_the_return_value_of_an_opener_is_checked.<locals>.<lambda>" in caught.value.message
    )


@pytest.mark.parametrize(("data", "seen"), [("text", "'str'"), (None, "'NoneType'")])
def test_the_reads_of_its_file_are_checked(data, seen):
    class File:
        def read(self, size):
            return data

    wdspec.opener("vault")(lambda url: File())
    with opened("vault://b") as file, pytest.raises(ShardError, match=f"gave {seen} instead of bytes"):
        file.read(10)


def test_bytes_like_objects_are_accepted():
    class File:
        def read(self, size):
            return bytearray(b"data")

    wdspec.opener("vault")(lambda url: File())
    with opened("vault://b") as file:
        assert not file.seekable()
        assert type(file.read(10)) is bytes


def test_errors_of_an_opener_are_shown_with_the_url():
    def fail(url):
        raise {"missing": FileNotFoundError, "odd": KeyError}[url.split("/")[-1]]("gone")

    wdspec.opener("vault")(fail)
    with pytest.raises(
        MissingShardError, match=r"failed: FileNotFoundError: gone \[location vault://b/missing\]"
    ):
        opened("vault://b/missing")
    with pytest.raises(ShardError, match="failed: KeyError: 'gone'") as caught:
        opened("vault://b/odd")
    assert isinstance(caught.value.__cause__, KeyError)
    assert not isinstance(caught.value, FileNotFoundError)


def test_openers_of_a_package_are_imported_when_used(package):
    package("vault = vaultkit:open_vault\n")
    openers = pickle.loads(pickle.dumps(user_stores(False)))
    assert "vaultkit" not in sys.modules
    assert Storage(users=openers).describe("vault://b") == "the opener `vaultkit:open_vault` of vaultkit"
    assert "vaultkit" not in sys.modules
    with Storage(users=openers).open_location("vault://b") as file:
        assert file.read() == b"vault://b"


def test_an_opener_of_the_program_overrides_one_of_a_package(package):
    package("vault = vaultkit:open_vault\n")
    wdspec.opener("vault")(lambda url: io.BytesIO(b"mine"))
    with opened("vault://b") as file:
        assert file.read() == b"mine"


def test_a_package_that_fails_to_import_is_named(package):
    package("vault = vaultkit:no_such\nsafe = nowhere.at_all:f\n")
    with pytest.raises(ShardError, match="`vaultkit:no_such` of vaultkit cannot be imported: AttributeError"):
        opened("vault://b")
    with pytest.raises(
        ShardError, match=r"`nowhere.at_all:f` of vaultkit cannot be imported: ModuleNotFound"
    ):
        opened("safe://b")


def test_two_packages_for_one_scheme_are_an_error_only_when_used(package):
    package("vault = vaultkit:open_vault\n")
    package("vault = otherkit:open_vault\nother = otherkit:open_vault\n", "otherkit")
    with opened("other://b") as file:
        assert file.read() == b"other://b"
    with pytest.raises(
        ShardError, match=r"several packages open vault://: .* of otherkit and .* of vaultkit"
    ):
        opened("vault://b")


def test_secure_mode_forbids_openers_of_packages(package):
    package("vault = vaultkit:open_vault\npipe = vaultkit:open_vault\n")
    with pytest.raises(
        ShardError, match=r"`vaultkit:open_vault` of vaultkit, but WDS_SECURE forbids the openers"
    ):
        opened("vault://b", secure=True)
    with opened("pipe:printf x", secure=True) as file:
        assert file.read() == b"x"
    wdspec.opener("vault")(lambda url: io.BytesIO(b"mine"))
    with opened("vault://b", secure=True) as file:
        assert file.read() == b"mine"


def test_an_unknown_scheme_is_an_error_with_a_remedy():
    with pytest.raises(ShardError) as caught:
        opened("vault://b/o.tar")
    assert caught.value.message == (
        'no opener for vault://; register one with `@wdspec.opener("vault")`, install a package that has one, or '
        "rewrite the URL with WDS_REWRITE or, in a spec, `rewrite:`"
    )
    assert not isinstance(caught.value, FileNotFoundError)
    for url, meant in {"pip://b/o.tar": "pipe", "htps://h/o.tar": "https", "sf3://b/o.tar": "s3"}.items():
        with pytest.raises(ShardError, match=rf"no opener for \w+://; did you mean `{meant}`\?"):
            opened(url)


def open_upper(url):
    """Opens what lies at the path after the scheme, as a plain file."""
    return open(url.removeprefix("upper:/"), "rb")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_have_the_openers_of_the_program(tmp_path, method):
    wdspec.opener("upper")(open_upper)
    shards = write_source(tmp_path, "a")
    spec = {"dataset": [{"name": "a", "shards": f"upper:/{shards}"}], "batch": 5, "epoch": {"batches": 4}}
    local = {**spec, "rewrite": [{"from": "upper:/", "to": ""}]}

    def keys(spec, **options):
        with wdspec.loader(spec, num_workers=1, **options) as loader:
            return [batch["__key__"] for batch in loader]

    expected = keys(local, multiprocessing_context="fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert keys(spec, multiprocessing_context=method) == expected


def test_validating_imports_nothing_of_a_package(package, tmp_path):
    package("vault = vaultkit:open_vault\n")
    (tmp_path / "spec.yaml").write_text("dataset: [{name: a, shards: 'vault://b/{0..3}.tar'}]\n")
    program = (
        "import sys; from wdspec.cli.main import main\n"
        "try: main(['validate', 'spec.yaml'])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'vaultkit' not in sys.modules and 'wdspec.stores.table' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + program],
        cwd=tmp_path,
        check=True,
    )


def test_a_package_can_provide_a_store_that_lists(package):
    package("vault = vaultkit:Vault\n", group="wdspec.stores")
    storage = Storage(users=user_stores(secure=False))
    assert [shard.text for shard in list_texts(["vault://b/"], "/", storage)] == [
        "vault://b/a.tar",
        "vault://b/b.tar",
    ]
    with storage.open_location("vault://b/a.tar") as file:
        assert file.read() == b"vault://b/a.tar"
