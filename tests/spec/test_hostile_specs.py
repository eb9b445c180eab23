"""Whatever the file holds, the answer is a list of problems, soon."""

from __future__ import annotations

import gzip
import io
import math
import random
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whole_spec import DOCUMENT, FULL, copied, places

from wdspec.base.errors import SpecError
from wdspec.spec.load import check, load
from wdspec.spec.spec import Spec
from wdspec.spec.yaml import MAX_BYTES

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(),
    st.sampled_from(
        [math.inf, math.nan, "", " ", "${x}", "${x", "$${x}", "{0..3}", "a::b", "::", "pass", "rgb", "m:f"]
    ),
    st.sampled_from(
        ["skip", "(", "(a)(b)", "500GB", "5m", "1e400", "9" * 500, "a;b", ".jpg", "*.jpg", "pipe:ls", "@x"]
    ),
    st.text(max_size=8),
)
keys = st.one_of(
    st.sampled_from(
        ["shards", "dataset", "name", "scale", "mix", "errors", "from", "to", "size", "call", "regex", "spec"]
    ),
    st.sampled_from(
        ["extends", "vars", "splits", "environments", "sources", "defaults", "rewrite", "allow", "null"]
    ),
    st.text(max_size=5),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=6,
)


PLACES = places(DOCUMENT)


def mutated(changes: list[tuple[tuple[Any, ...], str, Any, str]]) -> dict[str, Any]:
    """The full document with values replaced, removed, or put next to others under other keys."""
    document = copied(DOCUMENT)
    for path, how, value, key in changes:
        node = document
        try:
            for step in path[:-1]:
                node = node[step]
            if how == "replace":
                node[path[-1]] = value
            elif how == "remove":
                del node[path[-1]]
            elif how == "wrap":
                node[path[-1]] = [node[path[-1]]]
            else:
                node[key] = value
        except (KeyError, IndexError, TypeError):
            continue
    return document


changes = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(["replace", "remove", "wrap", "add"]), values, keys),
    min_size=1,
    max_size=4,
)


def is_well_reported(source: Any) -> None:
    spec, problems = check(source)
    errors = [problem for problem in problems if problem.is_error]
    assert (spec is None) == bool(errors)
    for problem in problems:
        assert problem.message
        assert "Traceback" not in str(problem)
        assert "validation error" not in str(problem)
        assert "pydantic" not in str(problem)
    assert len({(p.code, p.position, p.message) for p in problems}) == len(problems)
    assert isinstance(spec, Spec) or spec is None


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(changes)
def test_wrong_values_anywhere_in_a_dict_are_problems(change: Any) -> None:
    is_well_reported(mutated(change))


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(changes)
def test_wrong_values_anywhere_in_a_file_are_problems_in_it(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(mutated(change), sort_keys=False), encoding="utf-8")
    is_well_reported(path)
    for problem in check(path)[1]:
        assert problem.file == str(path)
        assert problem.line >= 1
        assert problem.column >= 1


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)))
def test_random_bytes_are_problems(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(data)
    is_well_reported(path)


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_flipped_cut_and_repeated_bytes_are_problems(tmp_path: Path, seed: int, edits: int) -> None:
    pick = random.Random(seed)
    data = bytearray(FULL.encode())
    for _ in range(edits):
        at = pick.randrange(len(data))
        how = pick.randrange(4)
        if how == 0:
            data[at] = pick.choice(b"\t\n :-{}[],*&!|>'\"%@`#\x00\xff\x85az0.$")
        elif how == 1:
            del data[at : at + pick.randrange(1, 40)]
        elif how == 2:
            data[at:at] = data[at : at + pick.randrange(1, 40)]
        else:
            data[at:at] = pick.choice(
                [b"{", b"[", b"- ", b": ", b"${", b"::", b"\xe2\x80\xa8", b"? ", b"!!x ", b"&a ", b"*a "]
            )
    path = tmp_path / "spec.yaml"
    path.write_bytes(bytes(data))
    is_well_reported(path)


def codes(path: Path) -> list[str]:
    # Anything unbounded takes hours or all memory here; the time limit of pytest is the test.
    return [problem.code for problem in check(path)[1]]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 10_000, "E008"),
        ("{a: " * 10_000, "E008"),
        ("- " * 10_000 + "x", "E008"),
        ("".join(f"{' ' * i}a:\n" for i in range(2_000)), "E008"),
        ("a: &a [" + "x, " * 99 + "x]\nb: &b [" + "*a, " * 99 + "*a]\nc: [" + "*b, " * 99 + "*b]\n", "E009"),
        ("a: &a {k: *a}\n", "E014"),
        ("x: [" + "1, " * 150_000 + "1]\n", "E009"),
        ("name: !!python/object/apply:os.system ['true']\n", "E010"),
        ("name: !<tag:yaml.org,2002:python/name:os.system> x\n", "E010"),
        ("name: !foo x\n", "E010"),
        ("dataset:\n\t- shards: a.tar\n", "E005"),
        ("a: 'never closed\n", "E005"),
        ("a: b: c\n", "E005"),
        ("%YAML 3.0\n---\na: b\n", "E005"),
        ("? [a]\n: b\n", "E012"),
        ("1: a\n", "E012"),
        ("null: a\n", "E012"),
        ("dataset: {a: b}\n", "E202"),
        ("dataset: a.tar\n", "E202"),
        ("dataset: [a.tar]\n", "E202"),
        ("dataset: [[a]]\n", "E202"),
        ("just text\n", "E015"),
        ("---\n", "E007"),
        ("a: 1\n...\n---\nb: 1\n", "E006"),
        ("seed: " + "9" * 5000 + "\ndataset: [{shards: a.tar}]", "E202"),
        ("seed: 1e999\ndataset: [{shards: a.tar}]", "E205"),
        ("dataset: [{shards: 'a-{0..999999999999}.tar'}]", "E213"),
        ("dataset: [{shards: '" + "{a," * 3000 + "'}]", "E213"),
        (
            "vars: {a: '"
            + "${b}" * 200
            + "', b: '"
            + "${c}" * 200
            + "', c: '"
            + "x" * 200
            + "'}\nname: ${a}\n",
            "E110",
        ),
        ("vars: {a: ['${b}','${b}','${b}'], b: [" + "x," * 50_000 + "]}\nname: ${a}\n", "E110"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_hostile_yaml_is_a_problem(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    assert code in codes(path)


def test_a_file_of_100_mb_is_rejected_without_reading(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    assert codes(path) == ["E002"]


def test_an_endless_device_is_rejected_without_reading() -> None:
    assert codes(Path("/dev/zero")) == ["E001"]


def test_utf16_and_broken_utf8_are_distinguished_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes("dataset: []".encode("utf-16"))
    assert "UTF-16" in check(path)[1][0].message
    path.write_bytes("a: é\nb: ü".encode() + b"\xff\n")
    (problem,) = check(path)[1]
    assert (problem.code, problem.line, problem.column) == ("E003", 2, 5)


@pytest.mark.parametrize("padding", [0, 5 * 2**20])
def test_a_shard_is_no_spec(tmp_path: Path, padding: int) -> None:
    shard = tmp_path / "a.tar"
    with tarfile.open(shard, "w") as tar:
        tar.addfile(tarfile.TarInfo("a.cls"))
        member = tarfile.TarInfo("a.bin")
        member.size = padding
        tar.addfile(member, io.BytesIO(bytes(padding)))
    for path in (shard, shard.with_suffix(".tar.gz")):
        if path != shard:
            path.write_bytes(gzip.compress(shard.read_bytes()))
        (problem,) = check(path)[1]
        assert problem.message == "this is a binary file, not a spec"
        assert problem.code == ("E002" if path.stat().st_size > MAX_BYTES else "E003")


def test_a_byte_order_mark_is_only_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xef\xbb\xbfdataset: [{shards: a.tar}]\n")
    spec, problems = check(path)
    assert spec is not None
    assert [problem.code for problem in problems] == ["W001"]


def test_a_dict_that_contains_itself_is_a_problem() -> None:
    endless: dict[str, Any] = {"dataset": [{"shards": "a.tar"}]}
    endless["vars"] = endless
    with pytest.raises(SpecError, match="E008"):
        load(endless)
    wide: Any = ["x"]
    for _ in range(30):
        wide = [wide, wide]
    with pytest.raises(SpecError, match="E009"):
        load({"dataset": [{"shards": "a.tar"}], "vars": {"w": wide}})


@pytest.mark.parametrize(
    "value", [object(), b"bytes", {1, 2}, lambda: None, Path("x") / "y", "\ud800", "a\0b"]
)
def test_odd_python_values_are_problems_or_text(value: Any) -> None:
    is_well_reported({"name": value, "dataset": [{"shards": "a.tar"}]})


@pytest.mark.parametrize(
    "argument", ["", "a", "=", "a=", "a=[", "a.b=1", ".=1", "a..b=1", "dataset=x", "seed=!!x 1", "\ud800=1"]
)
def test_odd_overrides_are_problems(argument: str) -> None:
    _, problems = check({"dataset": [{"shards": "a.tar"}]}, overrides=[argument])
    assert all(str(problem) for problem in problems)


def test_defaults_times_sources_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    tags = ", ".join(f"k{i}: x" for i in range(40_000))
    sources = "".join(f"  - shards: s{i}.tar\n" for i in range(1_000))
    path.write_text(f"defaults: {{tags: {{{tags}}}}}\ndataset:\n{sources}")
    assert "E009" in codes(path)


def test_a_lattice_of_extends_is_fast(tmp_path: Path) -> None:
    for level in range(15):
        below = f"[{level + 1}.yaml, {level + 1}.yaml, {level + 1}.yaml]"
        (tmp_path / f"{level}.yaml").write_text(f"extends: {below}\nseed: {level}\n")
    (tmp_path / "15.yaml").write_text("dataset: [{shards: a.tar}]\n")
    assert codes(tmp_path / "0.yaml") == []


def test_a_long_word_is_checked_quickly(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(f"dataset:\n  - {{shards: a.tar, name: {'meta.csv' * 100_000}}}\nbatc: 3\n")
    start = time.process_time()
    assert [problem.code for problem in check(path)[1]] == ["E201"]
    assert time.process_time() - start < 10


def test_child_specs_that_multiply_are_limited(tmp_path: Path) -> None:
    for level in range(12):
        entries = "".join(f"  - {{spec: {level + 1}.yaml}}\n" for _ in range(10))
        (tmp_path / f"{level}.yaml").write_text(f"dataset:\n{entries}")
    (tmp_path / "12.yaml").write_text("dataset: [{shards: a.tar}]\n")
    assert "E009" in codes(tmp_path / "0.yaml")


def test_at_most_a_thousand_unknown_keys_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("".join(f"datas{i}: 1\n" for i in range(2_000)))
    found = codes(path)
    assert len(found) == 1_001
    assert "E016" in found


def test_large_specs_with_very_many_variants_are_checked_in_part(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    sources = "".join(f"  - {{shards: s{i}.tar, weight: 1, shuffle: 9}}\n" for i in range(3_000))
    environments = "".join(f"  e{i}: {{seed: {i}}}\n" for i in range(100))
    path.write_text(f"dataset:\n{sources}environments:\n{environments}")
    assert codes(path) == ["W103"]


@pytest.mark.parametrize(
    "shards",
    [
        [f"d/{{000..{number:03}}}.tar" for number in range(3)] + ["d/{000..099}.tar"] * 5000,
        "::".join(["d/{000..099}.tar"] * 10_000),
        [f"d/{{{number}..{number + 1}}}.tar" for number in range(0, 30_000, 3)],
    ],
    ids=["equal", "joined", "of one name"],
)
def test_thousands_of_patterns_are_compared_quickly(tmp_path: Path, shards: Any) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({"wdspec": 1, "dataset": [{"shards": shards}], "batch": 1}, width=10**9))
    start = time.process_time()
    _, problems = check(path)
    for problem in problems:
        str(problem)
    assert time.process_time() - start < 8
    is_twice = isinstance(shards, str) or shards[-1] == shards[-2]
    assert any(problem.code == "W303" for problem in problems) == is_twice
