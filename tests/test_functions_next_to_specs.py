"""User functions of a spec come from the folder of the spec, then Python's path, then the working directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from commandline import within
from shardmaking import write_source

import wdspec
from wdspec.base.errors import SpecError
from wdspec.base.user_code import file_of_module, find_mistake, import_function

SPEC = """\
dataset:
  - {shards: "../data/a-{000..001}.tar", decode: {txt: "aug_beside:read"}, select: "aug_beside:keep"}
map: aug_beside:augment
batch: {size: 4, collate: {cls: "aug_beside:join"}}
"""
CODE = """
import helper_beside
WHERE = "%s"
def read(data): return data.decode()
def keep(sample): return True
def join(values): return WHERE
def augment(sample): return {**sample, "where": WHERE + helper_beside.MARK}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "work").mkdir()
    write_source(tmp_path / "data", "a", 2, 8)
    (tmp_path / "specs/train.yaml").write_text(SPEC)
    (tmp_path / "specs/helper_beside.py").write_text("MARK = '!'\n")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("aug_beside", "helper_beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path
    for name in ("aug_beside", "helper_beside"):
        sys.modules.pop(name, None)


def code(folder: Path, where: str) -> None:
    (folder / "aug_beside.py").write_text(CODE % where)


def first(spec: Any) -> Any:
    return next(iter(wdspec.compile(spec)))


def test_the_module_next_to_the_spec_wins(folder: Path) -> None:
    sys.path.insert(0, str(folder / "path"))
    (folder / "path").mkdir()
    for name in ("specs", "path", "work"):
        code(folder / name, name)
    batch = first("../specs/train.yaml")
    assert batch["where"] == ["specs!"] * 4
    assert batch["cls"] == "specs"
    assert file_of_module("aug_beside:augment", str(folder / "specs")) == str(folder / "specs/aug_beside.py")


@pytest.mark.parametrize(("places", "wins"), [(["path", "work"], "path"), (["work"], "work")])
def test_pythonpath_precedes_the_working_directory(folder: Path, places: list[str], wins: str) -> None:
    (folder / "path").mkdir()
    sys.path.insert(0, str(folder / "path"))
    for name in places:
        code(folder / name, name)
        (folder / name / "helper_beside.py").write_text("MARK = '?'\n")
    assert first("../specs/train.yaml")["cls"] == wins


def test_workers_find_it(folder: Path) -> None:
    code(folder / "specs", "specs")
    with wdspec.loader("../specs/train.yaml", num_workers=1) as loader:
        assert next(iter(loader))["where"] == ["specs!"] * 4


def test_another_module_with_the_same_name_is_an_error(folder: Path) -> None:
    code(folder / "specs", "specs")
    code(folder / "work", "work")
    (folder / "work/helper_beside.py").write_text("MARK = '?'\n")
    sys.path.insert(0, str(folder / "work"))
    __import__("aug_beside")
    with pytest.raises(
        SpecError, match=r"next to the spec is .*specs.aug_beside.py, but this process has imported another"
    ):
        first("../specs/train.yaml")


def test_explain_shows_where_it_is_and_runs_nothing(folder: Path) -> None:
    (folder / "specs/aug_beside.py").write_text(
        "raise SystemExit('it ran')\naugment = keep = join = read = None\n"
    )
    shown, _ = within("explain", folder / "specs/train.yaml", folder=folder)
    assert "`aug_beside`: specs/aug_beside.py" in shown
    (folder / "specs/aug_beside.py").unlink()
    shown, _ = within("explain", folder / "specs/train.yaml", folder=folder)
    assert "`aug_beside`: not found next to the spec, on Python's path, or in the working directory" in shown
    assert within("validate", folder / "specs/train.yaml", folder=folder)


def test_a_missing_function_is_reported_with_a_similar_one(tmp_path: Path) -> None:
    (tmp_path / "with_identity.py").write_text("def identity(sample): return sample\n")
    with pytest.raises(SpecError, match=r"`with_identity` has no `idnet`; did you mean `identity`\?"):
        import_function("with_identity:idnet", "map", str(tmp_path))


MODULE = """
import numpy as np
from os.path import join as combine
class Flip: ...
a, (b, c) = 1, (2, 3)
try:
    import zz
except ImportError:
    zz = None
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((f"shown:{name}", None) for name in ("np", "combine", "Flip.go", "b", "zz")),
        ("shown:Flop", "did you mean `Flip`?"),
        ("making:anything", None),
        ("broken:x", "line 1, is not Python"),
        ("pack:f", None),
        ("pack:inner", None),
        ("pack.inner:f", None),
        ("pack:g", "has no `g`; it has `f`"),
        ("pack.iner:f", "`pack` has no `iner`; did you mean `inner`?"),
        ("no_such_module:f", None),
        ("json:loads", None),
        ("builtins:int", None),
    ],
)
def test_the_names_of_a_module_are_known_without_running_it(
    tmp_path: Path, name: str, says: str | None
) -> None:
    (tmp_path / "shown.py").write_text(MODULE)
    (tmp_path / "making.py").write_text("def __getattr__(name): ...\n")
    (tmp_path / "broken.py").write_text("def x(: \n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text("from .inner import f\n")
    (tmp_path / "pack/inner.py").write_text("def f(): ...\n")
    found = find_mistake(name, str(tmp_path))
    assert found is None if says is None else says in (found or "")
