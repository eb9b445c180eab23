"""A text in another encoding than UTF-8 is named as such, with the remedy, wherever texts are read."""

import pytest
from commandline import within
from shardmaking import write_shard

ENCODINGS = {
    "utf-16": "this text is UTF-16; save it as UTF-8",
    "utf-16-le": "this text is UTF-16; save it as UTF-8",
    "utf-32": "this text is UTF-32; save it as UTF-8",
    "latin-1": "byte 0xe9",
}
LOOKUP = "dataset: [{{shards: a.tar, lookup: {{table: m.{0}, on: __key__, fields: [x]}}}}]\n"
SHARD = "dataset: [{shards: f.tar}]\n"
HEAD = ("head", "s.yaml")
CREATE = ("-o", "new.tar", "--key-column", "key", "--value", "txt=txt")
TEXTS = {
    "a text": ("f.txt", "café\n", SHARD, HEAD),
    "a class": ("f.cls", "3é\n", SHARD, HEAD),
    "JSON Lines": ("f.jsonl", '{"a": "café"}\n', "dataset: [{shards: f.jsonl}]\n", HEAD),
    "a table of lines": ("m.jsonl", '{"key": "0", "x": "café"}\n', LOOKUP.format("jsonl"), HEAD),
    "a CSV table": ("m.csv", "key,x\n0,café\n", LOOKUP.format("csv"), HEAD),
    "a manifest": ("f.csv", "key,txt\n0,café\n", SHARD, ("create", "f.csv", *CREATE)),
    "a manifest of lines": ("f.jsonl", '{"key":"0","txt":"café"}\n', SHARD, ("create", "f.jsonl", *CREATE)),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", TEXTS)
def test_an_encoding_is_named_with_its_remedy(tmp_path, text, encoding):
    file, content, spec, command = TEXTS[text]
    data = content.encode(encoding)
    if text == "a class" and encoding == "latin-1":
        data = b"3\xe9"
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"a"})])
    write_shard(tmp_path / "f.tar", [("0", {file.partition(".")[2]: data})])
    (tmp_path / file).write_bytes(data)
    (tmp_path / "s.yaml").write_text(f"wdspec: 1\n{spec}")
    said = "".join(within(*command, folder=tmp_path, code=1))
    assert ENCODINGS[encoding] in said
    assert "as UTF-8" in said
    assert "again" not in said, "the file is not damaged"


@pytest.mark.parametrize("file", ["keys", "recipe"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_lists_of_another_encoding_are_named(tmp_path, file, encoding):
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"a"})])
    (tmp_path / file).write_bytes("0.txt text:0\n".encode(encoding))
    (tmp_path / "s.yaml").write_text("dataset: [{shards: a.tar, keys: '@keys'}]\n")
    command = HEAD if file == "keys" else ("create", "recipe", "-o", "new.tar")
    assert "this text is UTF-16; save it as UTF-8" in "".join(within(*command, folder=tmp_path, code=1))


def test_half_a_character_is_named(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"key": "0", "txt": "\\ud800"}\n')
    said = "".join(within("create", "m.jsonl", *CREATE, folder=tmp_path, code=1))
    assert "the text has U+D800, which is half of a character; remove it [key 0, field txt]" in said


def test_a_class_that_is_no_integer_is_shown(tmp_path):
    write_shard(tmp_path / "f.tar", [("0", {"cls": b"1.5"})])
    (tmp_path / "s.yaml").write_text(SHARD)
    said = "".join(within(*HEAD, folder=tmp_path, code=1))
    assert "cannot decode as cls: b'1.5' is not an integer, which consists of digits" in said
    assert "write `decode: {cls: txt}`, and the step `label` makes their numbers" in said


def test_a_last_line_that_is_cut_within_a_character_is_truncated(tmp_path):
    (tmp_path / "f.jsonl").write_bytes('{"a": "é'.encode()[:-1])
    (tmp_path / "s.yaml").write_text("dataset: [{shards: f.jsonl}]\n")
    assert "truncated" in "".join(within(*HEAD, folder=tmp_path, code=1))
