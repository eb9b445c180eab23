"""`validate` and loading know from `stats --lengths` that a sample is longer than a row or a batch may be."""

import json
import re
import warnings
from pathlib import Path

import pytest
from commandline import within
from tokenizers import Tokenizer, models, pre_tokenizers

import wdspec

LENGTHS = (3, 8, 21)
PACK = "pack: {fields: n, length: 20}"


def write_spec(folder: Path, batch: str, more: str = "") -> None:
    source = "{name: a, shards: a.jsonl, rename: {n: ids}}"
    text = f"stats: s.stats.json\nfields: n\ndataset: [{source}]\nbatch: {{window: 3, {batch}}}\n{more}"
    (folder / "s.yaml").write_text(text)


def find_overlong(folder: Path) -> list[str]:
    return [
        each.message + "; " + each.hint for each in wdspec.validate(folder / "s.yaml") if each.code == "W460"
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [json.dumps({"ids": [1] * length}) for length in LENGTHS]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    write_spec(tmp_path, PACK)
    within("stats", "s.yaml", "--lengths", "--jobs", "0", folder=tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("batch", "more", "said"),
    [
        (PACK, "", "`length` of `pack` is 20; raise it, or set `overlong` to `drop`, `truncate` or `split`"),
        (
            "cost: n.length, max_cost: 20, collate: {n: pad}",
            "",
            "`max_cost` is 20; raise it, or set `overlong` to",
        ),
        (
            "cost: c, max_tokens: 20, collate: {n: pad}",
            "costs: {c: n.length}\n",
            "`max_tokens` is 20; raise it",
        ),
    ],
)
def test_a_sample_that_is_longer_than_a_batch_may_be_is_a_warning(
    batch: str, more: str, said: str, folder: Path
) -> None:
    write_spec(folder, batch, more)
    [found] = find_overlong(folder)
    assert f"`n` of a sample of `a` has 21 elements, but {said}" in found
    with pytest.warns(UserWarning, match="W460"), pytest.raises(wdspec.WdspecError, match="overlong"):
        list(wdspec.loader(folder / "s.yaml", num_workers=0))


@pytest.mark.parametrize(
    ("batch", "more"),
    [
        (PACK.replace("20", "21"), ""),
        (f"overlong: drop, {PACK}", ""),
        (f"overlong: split, {PACK}", ""),
        ("pack: {fields: n, length: 20, method: concatenate}", ""),
        ("cost: 2 * n.length, max_cost: 50, collate: {n: pad}", ""),
        (PACK, "map: mylib:shorten\n"),
    ],
)
def test_other_samples_are_none(batch: str, more: str, folder: Path) -> None:
    write_spec(folder, batch, more)
    assert find_overlong(folder) == []


def test_lengths_that_were_measured_in_another_way_say_nothing(folder: Path) -> None:
    text = (folder / "s.yaml").read_text()
    (folder / "s.yaml").write_text(text.replace("{n: ids}", "{n: others}"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wdspec.load(folder / "s.yaml")


def test_a_rename_that_was_forgotten_is_named_by_the_field_that_no_sample_has(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a b a"}\n{"text": "b"}\n')
    vocabulary = {"<unk>": 0, "a": 1, "b": 2}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "t.json"))
    make = {"ids": {"tokenize": "body", "file": "t.json"}}
    source = {"name": "a", "shards": "a.jsonl", "make": make, "rename": {"body": "text"}}
    spec = {
        "mix": {"shares_in": "tokens"},
        "stats": "s.stats.json",
        "dataset": [source],
        "epoch": {"batches": 3},
    }
    spec |= {"batch": {"window": 2, "pack": {"fields": "ids", "length": 20}}}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    within("stats", "s.yaml", "--jobs", "0", folder=tmp_path)
    wdspec.plan(tmp_path / "s.yaml")
    del source["rename"]
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    said = r"costs were measured with another `rename` \(no sample has `body`, of which token ids are made\)"
    assert any(re.search(said, each.message) for each in wdspec.validate(tmp_path / "s.yaml"))
    with pytest.raises(wdspec.UsageError, match=said):
        wdspec.plan(tmp_path / "s.yaml")
