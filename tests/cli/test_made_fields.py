"""Commands show fields that `make` makes: `explain` in the order of the steps, `head` and `preview` their values."""

import json
import re

import pytest
from click.testing import CliRunner
from shardmaking import write_shard
from tokenizers_made import trained

from wdspec.cli.main import cli

SPEC = """
dataset:
  - name: web
    shards: a.tar
    extensions: txt json
    make:
      ids: {tokenize: txt, file: tokenizer.json, eos: "<|endoftext|>"}
      kind: {label: json.kind, names: [news, book]}
      extra: {label: kind, names: {"0": 7, "1": 8}}
    where: kind == 1
batch: {window: 20, overlong: split, pack: {fields: ids, length: 64, segment_ids: segments}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained("bpe").save("tokenizer.json")
    kinds = [json.dumps({"kind": ["news", "book"][n % 2]}).encode() for n in range(80)]
    write_shard(
        tmp_path / "a.tar",
        [(f"{n:03}", {"txt": b"a text of words " * (n % 5), "json": kinds[n]}) for n in range(80)],
    )
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


def run(*arguments):
    found = CliRunner().invoke(cli, arguments)
    assert found.exit_code == 0, found.output
    return found.output


def test_explain_shows_made_fields_where_they_are_made_and_how_full_rows_are(folder):
    shown = run("explain", "spec.yaml")
    assert (
        "make kind = label(json.kind), where kind == 1, make ids = tokenize(txt) in windows, make extra = label(kind)"
    ) in shown
    assert "rows 9" in shown
    assert "% full" in shown


def test_head_shows_what_steps_return(folder):
    shown = run("head", "spec.yaml", "-n", "1")
    text = "a text of words " * (int(re.search(r"__key__ +(\d+)", shown)[1]) % 5)
    assert f"int64 array  {1 + len(trained('bpe').encode(text).ids)} " in shown
    assert re.search(r"kind +int +1\n +extra +int +8\n", shown)


def test_preview_shows_what_steps_return(folder):
    pytest.importorskip("matplotlib")
    run("preview", "spec.yaml", "-n", "1")
    page = (folder / "preview.html").read_text()
    assert ">ids</dt>" in page
    assert ">kind</dt>" in page


def test_explain_knows_made_fields_that_are_delivered_from_tars(folder):
    spec = SPEC.replace("    extensions: txt json\n", "") + "fields: [ids, kind, extra]\n"
    (folder / "spec.yaml").write_text(spec)
    assert "W503" not in run("explain", "spec.yaml")
    (folder / "spec.yaml").write_text(spec.replace("extra]", "other]"))
    assert re.search(r"W503.*`other`", run("explain", "spec.yaml"))
