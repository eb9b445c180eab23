"""`head`, `preview`, groups and lookups of values that data may have, but JSON, floats or UTF-8 do not."""

import io
import json
import tarfile

import cbor2
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from commandline import within

import wdspec
from wdspec.cli.samples import describe_value

SPEC = "dataset: [{{name: a, shards: {shards}, {more}}}]\n"


def write_tar(path, samples):
    with tarfile.open(path, "w") as tar:
        for number, files in enumerate(samples):
            for suffix, data in files.items():
                info = tarfile.TarInfo(f"{number}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def run(folder, *words, shards, more="shuffle: 0"):
    (folder / "spec.yaml").write_text(SPEC.format(shards=shards, more=more))
    return within(*words, "spec.yaml", folder=folder)


def cyclic():
    value = [1]
    value.append(value)
    return value


def doubling():
    value = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


def deep():
    value = []
    for _ in range(900):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (cyclic(), "[1, [1, [1, "),
        (doubling(), "[[[["),
        (deep(), "[[[["),
        (10**5000, "an integer of about 5,000 digits"),
        ({"n": 10**5000}, '{"n": "an integer of about 5,000 digits"}'),
        ({10**5000}, "a set"),
        ({(1, 2): "https://u:secret@h/x"}, "{(1, 2): 'https://"),
    ],
    ids=["cycle", "doubling", "deep", "integer", "nested", "set", "keys"],
)
def test_a_value_of_any_size_or_shape_is_described_in_one_line(value, shown):
    preview = describe_value(value).preview
    assert preview.startswith(shown)
    assert len(preview) <= 61
    assert "secret" not in preview


@pytest.fixture
def odd(tmp_path):
    values = [cyclic(), 10**5000, {"n": [10**5000]}]
    write_tar(tmp_path / "a.tar", [{"cbor": cbor2.dumps({"v": each}, value_sharing=True)} for each in values])
    return tmp_path


@pytest.mark.parametrize("words", [("head",), ("head", "--format", "json"), ("preview",)])
def test_cyclic_cbor_and_integers_of_any_length_are_shown(odd, words):
    output = run(odd, *words, shards="a.tar")
    assert "Traceback" not in "".join(map(str, output))


ROWS = [
    {"__key__": f"k{n}", "c": n + 0.5, "n": n, "b": n % 2 == 0, "t": "x", "l": [n], "big": 10**400}
    for n in range(4)
]


def test_tables_and_json_lines_with_columns_of_every_kind_have_a_preview(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    plain = [{name: value for name, value in row.items() if name != "big"} for row in ROWS]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(plain), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        assert "no problems" in run(tmp_path, "preview", shards=name)[0]
        page = (tmp_path / "preview.html").read_text()
        for chart in ("values of c", "classes of n", "classes of b", "length of t", "size of a sample"):
            assert chart in page
        assert page.count("k0") >= 1


@pytest.mark.parametrize(
    "more",
    [
        "where: json.lang == 'en'",
        "where: json.lang == 'en', extensions: jpg",
        "where: image.length > 0 and tag == 3, rename: {image: jpg}, tags: {tag: 3}, decode: {jpg: raw}",
        "keys_of: cls, keys: ['1', '3']",
        "subset: {of: json.lang, part: 100%}",
    ],
)
def test_a_preview_shows_the_files_of_the_samples_that_the_spec_selects(tmp_path, more):
    files = [{"jpg": b"x", "json": b'{"lang": "en"}', "cls": b"%d" % n} for n in range(4)]
    write_tar(tmp_path / "a.tar", files)
    more = more if "decode" in more else f"{more}, decode: {{jpg: raw}}"
    assert "no problems" in run(tmp_path, "preview", shards="a.tar", more=more)[0]
    page = (tmp_path / "preview.html").read_text()
    assert "no samples" not in page.lower()
    assert page.count("a.tar") >= 2


def test_files_of_selected_samples_keep_their_bytes(tmp_path):
    write_tar(tmp_path / "a.tar", [{"json": b'{ "n": %d }' % n} for n in range(4)])
    spec = wdspec.load({"dataset": [{"shards": f"{tmp_path}/a.tar", "where": "json.n > 1", "shuffle": 0}]})
    from wdspec.cli.samples import first_samples

    assert {sample["json"] for sample in first_samples(spec, 4, as_files=True)} == {
        b'{ "n": 2 }',
        b'{ "n": 3 }',
    }


def test_bench_reads_the_files_of_a_spec_that_selects_by_values(tmp_path):
    write_tar(tmp_path / "a.tar", [{"json": b'{"n": %d}' % n} for n in range(4)])
    from wdspec.cli.bench import Trial, _items

    spec = wdspec.load({"dataset": [{"shards": f"{tmp_path}/a.tar", "where": "json.n > 1"}]})
    trial = Trial(None, "read", 1)
    items = _items(trial, spec)
    assert next(items) == (1, len(b'{"n": 0}'))
    items.close()


@pytest.mark.parametrize("name", [r"$\frac{$", "$x$ and $y", r"\$"])
def test_names_of_sources_are_no_formulas_in_charts(tmp_path, name):
    write_tar(tmp_path / "a.tar", [{"txt": b"x"}])
    spec = {"dataset": [{"name": name, "shards": "a.tar"}, {"name": "b", "shards": "a.tar"}]}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    within("preview", "spec.yaml", folder=tmp_path)
    assert name in (tmp_path / "preview.html").read_text()
    within("diff", "spec.yaml", "spec.yaml", "--chart", "c.svg", folder=tmp_path)
    assert "<svg" in (tmp_path / "c.svg").read_text()


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000], ids=["large", "negative", "long"])
def test_groups_have_integers_of_any_size_in_common(tmp_path, value):
    write_tar(tmp_path / "a.tar", [{"cbor": cbor2.dumps({"v": value + n % 2})} for n in range(4)])
    batch = {"size": 2, "group_by": "cbor.v", "group_wait": 4, "incomplete": "keep"}
    spec = {"dataset": [{"shards": f"{tmp_path}/a.tar"}], "batch": batch, "epoch": "pass"}
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = [sorted(each["__key__"]) for each in loader]
    assert sorted(batches) == [["0", "2"], ["1", "3"]]


def read_lookup(folder, table, **options):
    (folder / "a.jsonl").write_text(
        "".join(
            json.dumps({"__key__": f"k{n}", "id": each}) + "\n" for n, each in enumerate(["\ud800", "k1"])
        )
    )
    lookup = {"table": f"{folder}/{table}", "key": "k", "fields": ["v"], **options}
    source = {"name": "a", "shards": f"{folder}/a.jsonl", "lookup": [lookup]}
    with wdspec.loader({"dataset": [source], "epoch": "pass"}, num_workers=0) as loader:
        return {sample["__key__"]: sample["v"] for sample in loader if sample["__mask__"]}


def test_a_lookup_finds_keys_and_gives_values_with_halves_of_surrogate_pairs(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"k": "\\ud800", "v": "\\udfff"}\n{"k": "k1", "v": "b"}\n')
    assert read_lookup(tmp_path, "t.jsonl", on="id") == {"k0": "\udfff", "k1": "b"}


def test_a_lookup_gives_long_doubles_as_they_are(tmp_path):
    values = np.array([1, 2], np.longdouble) / 3
    np.savez(tmp_path / "t.npz", k=np.array(["k0", "k1"]), v=values)
    found = read_lookup(tmp_path, "t.npz", on="__key__")
    assert found == {"k0": values[0], "k1": values[1]}
    assert found["k0"].dtype == np.longdouble


@pytest.mark.parametrize(
    "selection", [{"subset": {"of": "id", "part": "100%"}}, {"keys_of": "id", "exclude": ["k1"]}]
)
def test_selections_by_values_take_halves_of_surrogate_pairs(tmp_path, selection):
    (tmp_path / "a.jsonl").write_text('{"__key__": "k0", "id": "\\ud800"}\n')
    spec = {"dataset": [{"shards": f"{tmp_path}/a.jsonl", **selection}], "epoch": "pass"}
    with wdspec.loader(spec, num_workers=0) as loader:
        assert [sample["__key__"] for sample in loader] == ["k0"]
