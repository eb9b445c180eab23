"""Files of other tools, in the shapes that public repositories have them, and the specs that they convert to.

Run as a program, it writes the expected specs again; review the changes.
"""

import contextlib
import copy
import io
import itertools
import os
import random
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import yaml
from commandline import within as wdspec
from whole_spec import places

import wdspec as wds
from wdspec.base.errors import SpecError, WdspecError
from wdspec.cli.convert import spec_text
from wdspec.convert import DIALECTS
from wdspec.convert.dialect import Dialect, Given, NewSpec
from wdspec.spec.load import check
from wdspec.urls.urls import parse_shards

HERE = Path(__file__).parent
FILES = HERE / "files"
EXPECTED = HERE / "expected"
ENERGON = ("coco", "coyo")
"""Prepared folders among the files."""


def cases():
    for dialect in DIALECTS:
        folder = FILES / ("energon" if dialect.name == "energon-folder" else dialect.name)
        for path in sorted(folder.iterdir()):
            is_folder = path.name in ENERGON
            if path.name not in ("lists", "data") and is_folder == (dialect.name == "energon-folder"):
                yield pytest.param(dialect.name, path, id=f"{dialect.name}/{path.name}")


def converted(path):
    return wdspec("convert", path.relative_to(FILES), folder=FILES)


def documented():
    """(name of a file, its text, the spec that is said to come of it) of each example on the page."""
    page = (HERE.parents[1] / "docs" / "convert.md").read_text()
    return re.findall(
        r"```(?:yaml|python)\n# (\S+)\n(.*?)```\n\nbecomes[^\n]*\n\n```yaml\n(.*?)```", page, re.DOTALL
    )


@pytest.mark.parametrize(("name", "text", "said"), documented(), ids=[each[0] for each in documented()])
def test_the_examples_on_the_page_convert_as_shown(name, text, said, tmp_path):
    assert len(documented()) == 5
    (tmp_path / name).write_text(text)
    assert wdspec("convert", name, folder=tmp_path)[0] == said


@pytest.mark.parametrize(("dialect", "path"), list(cases()))
def test_each_file_converts_to_its_reviewed_spec(dialect, path, tmp_path):
    text, notes = converted(path)
    assert text == (EXPECTED / dialect / f"{path.name}.yaml").read_text()
    for note in notes.splitlines():
        assert f"# {note}" in text.splitlines()
    spec = tmp_path / "spec.yaml"
    spec.write_text(text)
    for problem in check(spec)[1]:
        assert not problem.is_error
        assert f"note: `wdspec validate` reports {problem.code}" in notes


def test_each_dialect_has_at_least_three_files():
    found = Counter(case.values[0] for case in cases())
    assert {dialect.name for dialect in DIALECTS if found[dialect.name] < 3} == {"energon-folder"}


def shares(path, split=None, tmp_path=None):
    """The share of each source in a plan; braces name shards that need not exist."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(converted(path)[0])
    plan = wds.plan(wds.load(spec, split=split, vars={"DATA": "/data"}))
    return {source.name: source.share for source in plan.sources}


@pytest.mark.parametrize("name", ["words.yaml", "plain.yaml"])
def test_shares_match_the_draws_of_webdataset(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    from webdataset.shardlists import MultiShardSample

    drawn = Counter()
    sample = MultiShardSample(str(FILES / "webdataset" / name))
    for _ in range(3):
        drawn.update(sample.get_shards_for_epoch())
    spec = wds.load(write(tmp_path, converted(FILES / "webdataset" / name)[0]))
    total = sum(drawn.values())
    found = shares(FILES / "webdataset" / name, tmp_path=tmp_path)
    for source in spec.sources:
        own = {url for part in parse_shards(source.shards, "/") for url in part.braces}
        assert sum(n for url, n in drawn.items() if url in own) / total == pytest.approx(found[source.name])


def write(tmp_path, text):
    path = tmp_path / "converted.yaml"
    path.write_text(text)
    return path


def test_upsampling_factors_give_the_shares_of_openclip(tmp_path):
    """OpenCLIP draws each shard of the pooled list with the factor of its source as weight."""
    rng = random.Random(0)
    pooled = [("LAION-400M", 1)] * 41456 + [("cc12m-train", 2)] * 2176
    drawn = Counter(rng.choices([name for name, _ in pooled], [factor for _, factor in pooled], k=20_000))
    found = shares(FILES / "openclip" / "train.sh", tmp_path=tmp_path)
    for name, share in found.items():
        assert drawn[name] / 20_000 == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("path", "split", "expected"),
    [
        ("webdataset/older.shards.yml", None, {"imagenet": 1 / 3, "openimages": 2 / 3}),
        ("webdataset-ds/epochs.ds.yml", None, {"cc": 1 / 2, "sbu": 1 / 2}),
        ("nemo/canary.yaml", None, {"audio": 0.42, "audio-2": 0.28, "audio-3": 0.3}),
        ("olmo/config.yaml", None, {"a": 2 / 3, "b": 1 / 3}),
        ("huggingface/alternate.py", None, {"de": 1 / 2, "fr": 1 / 2}),
        ("internvl/meta.json", None, {"docvqa": 2 / 7, "sharegpt4v": 5 / 7}),
        ("energon/epochized-prepared.yaml", "train", {"coco": 2030 / 2552.5, "coyo": 522.5 / 2552.5}),
    ],
)
def test_shares_match_the_documents_of_each_tool(path, split, expected, tmp_path):
    assert shares(FILES / path, split, tmp_path) == pytest.approx(expected)


def test_batches_have_the_sizes_of_nemo_buckets(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    rng = random.Random(2)
    with wds.TarWriter(str(tmp_path / "a.tar")) as writer:
        for at in range(500):
            file = io.BytesIO()
            soundfile.write(file, numpy.zeros(int(rng.uniform(0.5, 6) * 100)), 100, format="WAV")
            writer.write({"__key__": f"{at:03}", "wav": file.getvalue()})
    (tmp_path / "nemo.yaml").write_text(
        f"input_cfg: [{{type: lhotse_shar, shar_path: [{tmp_path}/a.tar]}}]\n"
        "bucket_duration_bins: [2.0, 3.5, 5.0]\nbucket_batch_size: [37, 20, 7]\n"
    )
    spec = write(tmp_path, wdspec("convert", "nemo.yaml", folder=tmp_path)[0])
    found = Counter()
    with wds.loader(spec, num_workers=0) as loader:
        for batch in itertools.islice(loader, 40):
            longest = max(soundfile.info(io.BytesIO(data)).duration for data in batch["audio"])
            assert longest <= 5.0, "longer samples are dropped"
            found[7 if longest > 3.5 else 20 if longest > 2.0 else 37, len(batch["audio"])] += 1
    assert {size for size, count in found if size == count} == {7, 20, 37}
    assert all(count <= size for size, count in found)
    assert sum(number for (size, count), number in found.items() if size == count) > 30


def test_paths_are_relative_to_the_new_spec(tmp_path):
    place = tmp_path / "deep" / "train.yaml"
    place.parent.mkdir()
    wdspec("convert", FILES / "energon" / "v1.yaml", "-o", place)
    shards = wds.load(place, split="train").sources[0].shards[0]
    assert os.path.normpath(place.parent / shards) == str(FILES / "energon" / "coco" / "coco-{00..03}.tar")
    _, said = wdspec("convert", FILES / "energon" / "v1.yaml", "-o", place, code=1)
    assert "exists" in said
    wdspec("convert", FILES / "energon" / "v1.yaml", "-o", place, "--force")


def test_shards_can_be_arguments_or_standard_input(monkeypatch):
    text, _ = wdspec("convert", "a-{0..9}.tar::b.tar")
    assert "- name: a\n" in text
    assert "- name: b\n" in text


@pytest.mark.parametrize(
    ("content", "arguments", "says", "code"),
    [
        ("a: 1\n", (), "this is not a format of a known tool; `wdspec convert --list`", 1),
        ("dataset: []\n", (), "this is already a spec of wdspec", 1),
        ("a: [1, 2\nb: 3\n", (), "this cannot be read: line 2, column 2: expected ',' or ']'", 1),
        ("{", (), "this cannot be read: line 1, column 2: ", 1),
        ("a: 1\n", ("--from", "energn"), "unknown format `energn`; did you mean `energon`?", 2),
        ("a: 1\n", ("--from", "energon"), "does not look like an Energon metadataset", 1),
        (
            "a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n" * 0 + "x",
            (),
            "not a format of a known tool",
            1,
        ),
    ],
)
def test_what_cannot_be_converted_is_reported(content, arguments, says, code, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(content)
    assert says in wdspec("convert", path, *arguments, code=code)[1]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("!!int ''", "'' is no int"),
        ("!!int '-'", "'-' is no int"),
        ("!!float ''", "'' is no float"),
        ("!!bool x", "'x' is no bool"),
    ],
)
def test_a_value_that_its_tag_does_not_fit_is_a_fault_with_its_place(value, says, tmp_path):
    (tmp_path / "x.yaml").write_text(f"a: {value}\n")
    output = wdspec("convert", tmp_path / "x.yaml", code=1)[1]
    assert "line 1, column 4" in output
    assert f"{says}; correct it, or remove the tag" in output


def test_text_that_is_not_yaml_is_an_unknown_command(tmp_path):
    (tmp_path / "x.sh").write_text("{")
    assert "this is not YAML, JSON or a known command" in wdspec("convert", tmp_path / "x.sh", code=1)[1]


def test_unbounded_growth_is_not_followed(tmp_path):
    levels = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 12))
    names = "".join(f"x{i} = [{', '.join([f'x{i - 1}'] * 9)}]\n" for i in range(1, 12))
    for name, text, code in (
        ("bomb.yaml", f"x0: &x0 [{{type: a, path: b}}]\n{levels}input_cfg: *x11\n", 1),
        (
            "bomb.py",
            f"x0 = ['a']\n{names}d = interleave_datasets([load_dataset('json', data_files=x11)])\n",
            0,
        ),
    ):
        (tmp_path / name).write_text(text)
        wdspec("convert", tmp_path / name, "--from", ("nemo", "huggingface")[name.endswith("py")], code=code)


def test_a_share_of_0_stays_0(tmp_path):
    (tmp_path / "mux.py").write_text(
        "c = CutSet.mux(CutSet.from_shar(in_dir='a'), CutSet.from_shar(in_dir='b'), weights=[0, 2])\n"
        "SimpleCutSampler(c)\n"
    )
    blend = "blend_epochized: [{path: a, repetitions: 0}, {path: b, repetitions: 2}]"
    (tmp_path / "blend.yaml").write_text(f"__class__: MetadatasetV2\nsplits: {{train: {{{blend}}}}}\n")
    for name, key in (("mux.py", "weight"), ("blend.yaml", "upsample")):
        spec = yaml.safe_load(wdspec("convert", name, folder=tmp_path)[0])
        (of_train,) = spec.get("splits", {"train": spec}).values()
        assert [source[key] for source in of_train["dataset"]] == [0, 2]


LOAD = "c0 = load_dataset('json', data_files='a.jsonl')\n"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "twice.py",
            LOAD + "".join(f"c{at} = interleave_datasets([c{at - 1}, c{at - 1}])\n" for at in range(1, 40)),
            r"the mixture has more than 1,000 others within it.* \[line 3, column 6, file twice.py\]",
        ),
        (
            "mux.py",
            "c0 = CutSet.from_shar(in_dir='a')\n"
            + "".join(f"c{at} = CutSet.mux(c{at - 1}, c{at - 1})\n" for at in range(1, 40))
            + "SimpleCutSampler(c39)\n",
            r"the mixture has more than 1,000 others within it.* \[line 3, column 6, file mux.py\]",
        ),
        (
            "deep.py",
            LOAD + "".join(f"c{at} = concatenate_datasets([c{at - 1}])\n" for at in range(1, 400)),
            r"mixtures are nested more than 50 deep.* \[line 350, column 8, file deep.py\]",
        ),
        ("itself.yaml", "input_cfg:\n" + "  - {input_cfg: itself.yaml}\n" * 20, "more than 10,000 sources"),
        (
            "blend.yaml",
            "__class__: MetadatasetV2\nsplits:\n  train:\n    blend:\n" + "      - {path: blend.yaml}\n" * 20,
            "more than 10,000 sources",
        ),
        ("deep.json", '{"a": ' * 300 + "1" + "}" * 300, "more than 64 levels"),
    ],
)
def test_infinite_mixtures_are_rejected(name, text, says, tmp_path):
    (tmp_path / name).write_text(text)
    assert re.search(says, wdspec("convert", name, folder=tmp_path, code=1)[1])


@pytest.mark.parametrize(
    ("text", "shards"),
    [
        (
            "x = CutSet.mux(x, CutSet.from_shar('a'))\nSimpleCutSampler(x)\n",
            ["unknown.tar", "a/cuts.*.jsonl.gz"],
        ),
        (
            "x = concatenate_datasets([x, load_dataset('json', data_files='a.json')])\n",
            ["unknown.tar", "a.json"],
        ),
        ("x = load_dataset('json', data_files=x)\n", ["hf://datasets/json@~parquet/default/train/*.parquet"]),
    ],
)
def test_a_name_within_its_own_value_is_an_unknown_dataset(text, shards, tmp_path):
    (tmp_path / "given.py").write_text(text)
    out, said = wdspec("convert", "given.py", folder=tmp_path)
    assert [each["shards"] for each in yaml.safe_load(out)["dataset"]] == shards
    assert "not found" in said or "made of" in said or "made by" in said or "Hub" in said


@pytest.mark.parametrize(
    ("text", "note", "expected"),
    [
        (
            "--dataset_mixer_list org/a 1.0 org/b 0\norg/c 2.0\npython x.py\n",
            "`org/b: 0` is left out: nothing of it was taken",
            [{"name": "a"}],
        ),
        (
            "dataset_mixer: {org/a: 1.0}\ndataset_mixer_eval: {org/b: 0}\n",
            "`org/b: 0` is left out: nothing of it was taken",
            [{"name": "a"}],
        ),
        (
            "interleave_datasets([load_dataset('a'), load_dataset('b')], probabilities=['p', 'q'])\n",
            "line 1: `probabilities` are not one number for each data set, or are set by code",
            [{"name": "a", "weight": 1}, {"name": "b", "weight": 1}],
        ),
        (
            '{"wids_version": 1, "datasets": [{"name": "a", "source_url": "b\\u0000"}]}',
            "its index is not read",
            [{"name": "a", "shards": "unknown.tar"}],
        ),
        (
            '{"wids_version": 1, "datasets": [{"name": "a", "source_url": "b\\ud800"}]}',
            "its index is not read",
            [{"name": "a", "shards": "unknown.tar"}],
        ),
        (
            '{"wids_version": 1, "datasets": [{"name": "a", "shardlist": [], "source_url": "index.json"}]}',
            "",
            [{"name": "a", "shards": "b.tar"}],
        ),
        (
            "python resharder.py -i in -o out -s s.npy\npython x.py --train-data out2/a.tar::out/b.tar\n",
            "",
            [{"shards": "out2/a.tar"}, {"shards": "in/", "keys": "@s.npy"}],
        ),
        (f"--train-data {'a' + '1' * 5000 + '.x'} --batch-size {'9' * 400}", "is not a whole number", [{}]),
        ('datasets: [{json_path: a.json, sampling_strategy: "\\a"}]', "sampling_strategy: \\x07", [{}]),
        (
            '{"datasets": [{"json_path": "a.json", "sampling_strategy": "\\ud800"}]}',
            "sampling_strategy: \\ud800",
            [{}],
        ),
        (
            "__class__: MetadatasetV2\nsplits: {train: {blend: [{blend: , datasets: [{path: a}]}]}}\n",
            "",
            [{"name": "mix", "dataset": [{"name": "a", "shards": "a/", "weight": 1}]}],
        ),
    ],
)
def test_odd_files_convert_to_the_recorded_result(text, note, expected, tmp_path):
    (tmp_path / "given.txt").write_text(text)
    (tmp_path / "index.json").write_text('{"shardlist": [{"url": "b.tar", "nsamples": 5}]}')
    out, said = wdspec("convert", "given.txt", folder=tmp_path)
    assert note in said
    made = yaml.safe_load(out)
    sources = made.get("dataset") or made["splits"]["train"]["dataset"]
    assert len(sources) == len(expected)
    for source, values in zip(sources, expected, strict=True):
        assert values.items() <= source.items()


WRONG = (
    *(None, True, 0, -1, 3.5, float("nan"), float("inf"), "", "x", "a::b", "{", "${", "a-{0..9}.tar", 10**30),
    *([], {}, [1], [None], ["x"], [[]], {"x": 1}, {1: 2}, [{"path": "x"}], [{"x": {}}], {"path": 1}),
)


def broken(count):
    """Files with one or two values that are of another kind."""
    rng = random.Random(5)
    files = [path for path in FILES.glob("*/*") if path.suffix in (".yaml", ".yml", ".json")]
    given = [Given.read(str(path)) for path in sorted(files)]
    for _ in range(count):
        chosen = rng.choice(given)
        value = copy.deepcopy(chosen.value)
        for path in rng.sample(places(value), rng.choice((1, 2))):
            holder = value
            with contextlib.suppress(TypeError, KeyError, IndexError):  # the first change took it away
                for step in path[:-1]:
                    holder = holder[step]
                holder[path[-1]] = copy.deepcopy(rng.choice(WRONG))
        yield replace(chosen, value=value)


TOKEN = re.compile(rb"""\"[^\"\n]*\"|'[^'\n]*'|[\w./${}@%+-]+|[^\w\s]""")
WRONG_TOKENS = (
    *(
        b"null",
        b"true",
        b"0",
        b"-1",
        b"1e400",
        b"9" * 400,
        b".nan",
        b"[]",
        b"{}",
        b"[[]]",
        b"{a: 1}",
        b"[p, 'q']",
    ),
    *(
        b"\0",
        b'"a\\0b"',
        b"\xff",
        b'"\\ud800"',
        "ü😀\u2028²".encode(),
        b"\x1b[0m",
        b"2001-01-01",
        b"&a [*a]",
        b"*a",
    ),
    *(
        b"x" * 5000,
        b"1" * 50,
        b"[" * 300,
        b"- " * 300,
        b"a::b",
        b"${",
        b"~nobody/x",
        b"pipe:x",
        b"@x",
        b"f(",
        b")",
    ),
)


def changed_texts(count, seed=6):
    """Files with lines and words that are missing, repeated, swapped, of another file, or of another kind."""
    rng = random.Random(seed)
    paths = [path for path in sorted(FILES.glob("*/*")) if path.is_file()]
    texts = [path.read_bytes() for path in paths]
    for _ in range(count):
        path = rng.choice(paths)
        data = path.read_bytes()
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            lines = data.splitlines(keepends=True) or [b""]
            words = [match.span() for match in TOKEN.finditer(data)] or [(0, 0)]
            (start, end), at = rng.choice(words), rng.randrange(len(lines))
            other = rng.choice(rng.choice(texts).splitlines(keepends=True) or [b""])
            change = rng.randrange(8)
            if change < 4:
                replaced = ([], [lines[at]] * 2, [b"  " + lines[at]], [lines[at], other])[change]
                data = b"".join([*lines[:at], *replaced, *lines[at + 1 :]])
            else:
                first, last = rng.choice(words)
                new = rng.choice(WRONG_TOKENS) if change < 7 else data[first:last]
                data = data[:start] + new + data[end:]
        yield Given.of_text(data.decode("utf-8", "replace"), str(path.parent), path.name)


def convert_all(files):
    """Convert files; a tool's file is converted, or refused with an error of ours."""
    converted = 0
    for given in files:
        for dialect in DIALECTS:
            if dialect.recognises(given):
                new = NewSpec("/")
                with contextlib.suppress(WdspecError):
                    dialect.convert(given, new)
                    check(new.spec)
                    spec_text(new.spec, new.notes).encode()
                    converted += 1
    return converted


def test_a_value_of_another_type_is_never_a_traceback():
    assert convert_all(broken(120)) > 60


def test_a_changed_text_is_never_a_traceback():
    assert convert_all(changed_texts(250)) > 60


@pytest.mark.long
def test_thousands_of_values_of_other_types_are_never_a_traceback():
    assert convert_all(broken(20_000)) > 10_000


@pytest.mark.long
def test_thousands_of_changed_texts_are_never_a_traceback():
    assert convert_all(changed_texts(20_000, seed=7)) > 5_000


def test_a_validated_file_of_another_tool_names_the_command():
    with pytest.raises(SpecError, match=r"(?s)looks like an Energon metadataset.*wdspec convert FILE -o"):
        wds.load(FILES / "energon" / "v1.yaml")
    with pytest.raises(SpecError, match=r"(?s)looks like an index of wids.*wdspec convert FILE -o"):
        wds.WebDataset(str(FILES / "wids" / "datasets.json"))


@pytest.mark.parametrize(
    "name",
    [
        "webdataset/plain.yaml",
        "webdataset-ds/absolute.ds.yml",
        "wids/named.json",
        "axolotl/tokenized.yaml",
    ],
)
def test_a_complete_conversion_loads_unedited(name, tmp_path):
    path = FILES / name
    text, notes = converted(path)
    assert notes == ""
    assert check(path)[1] == []
    expected, found = wds.load(write(tmp_path, text)), wds.load(path)
    assert found.batch == expected.batch
    assert [(each.name, each.shards, each.order) for each in found.sources] == [
        (each.name, each.shards, each.order) for each in expected.sources
    ]


def test_a_dialect_is_one_file_and_one_table_row(tmp_path, monkeypatch):
    def convert(given, new):
        new.spec["dataset"] = [new.source(name, shards) for name, shards in given.top["mine"].items()]
        new.note("mine has no weights")

    mine = Dialect("mine", "a file of mine", lambda given: "mine" in given.top, convert)
    monkeypatch.setattr("wdspec.convert.DIALECTS", (mine, *DIALECTS))
    (tmp_path / "m.yaml").write_text("mine: {a: a.tar}\n")
    text, notes = wdspec("convert", tmp_path / "m.yaml")
    assert "shards: a.tar" in text
    assert notes == "note: mine has no weights\n"


def test_the_list_names_every_dialect():
    shown, _ = wdspec("convert", "--list")
    assert all(dialect.name in shown for dialect in DIALECTS)


if __name__ == "__main__":
    for case in cases():
        dialect, path = case.values
        (EXPECTED / dialect).mkdir(parents=True, exist_ok=True)
        (EXPECTED / dialect / f"{path.name}.yaml").write_text(converted(path)[0])
        sys.stdout.write(f"{case.id}\n")


@pytest.mark.parametrize(
    ("text", "note", "kept"),
    [
        ("train_loader: {dataset: {epoch_size: 1.2.3, streams: {a: {remote: s3://b/a}}}}", "", {}),
        (
            "train_loader: {dataset: {batch_size: 0.5, streams: {a: {remote: s3://b/a}}}}",
            "`batch_size: 0.5` is not converted: it is not a whole number of at least 1",
            {},
        ),
        ("--train-data a-{0..9}.tar --seed 0 --workers 0", "", {"seed": 0, "loader": {"workers": 0}}),
    ],
)
def test_numbers_are_kept_or_noted(text, note, kept, tmp_path):
    (tmp_path / "given.txt").write_text(text)
    out, said = wdspec("convert", "given.txt", folder=tmp_path)
    assert note in said
    made = yaml.safe_load(out)
    assert "batch" not in made
    assert kept.items() <= made.items()
