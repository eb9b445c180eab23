"""E385 and W449: texts and paddings that are no token, compared with what the library says of three tokenizers."""

import json
import os
import re
import stat

import pytest
import tokenizers_made
from tokenizers import Tokenizer

import wdspec
from wdspec.spec.load import check
from wdspec.steps import make_chat

TEXTS = [
    "<|endoftext|>",
    "<|end|>",
    "[SEP]",
    "[MASK]",
    "</s>",
    "e",
    "a",
    "<unk>",
    "é\n",
    'quo"te',
    "日本語",
    "▁",
    "Ġ",
]


def problems(path, text, step="tokenize: text, eos"):
    spec = f"dataset:\n  - {{shards: a.jsonl, make: {{ids: {{{step}: {json.dumps(text)}, file: {path}}}}}}}\n"
    with open("s.yaml", "w", encoding="utf-8") as file:
        file.write(spec)
    return [each for each in check("s.yaml")[1] if each.code != "W440"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", tokenizers_made.KINDS)
@pytest.mark.parametrize("escaped", [True, False])
def test_a_text_is_refused_if_the_library_has_no_token_of_it(here, kind, escaped):
    made = Tokenizer.from_str(tokenizers_made.trained(kind).to_str())
    made.add_tokens(["日本語", 'quo"te'])
    made.save("t.json")
    tokenizer = Tokenizer.from_file("t.json")
    (here / "t.json").write_text(json.dumps(json.loads((here / "t.json").read_text()), ensure_ascii=escaped))
    refused = {text for text in TEXTS if problems("t.json", text)}
    assert refused == {text for text in TEXTS if tokenizer.token_to_id(text) is None}
    assert "<|end|>" in refused


def test_the_problem_names_the_place_and_the_special_tokens(here):
    tokenizers_made.trained("bpe").save("t.json")
    os.mkdir("folder")
    os.link("t.json", "folder/tokenizer.json")
    for path in ("t.json", "folder"):
        (found,) = problems(path, "<|im_end|>")
        assert (found.code, found.line, found.message) == (
            "E385",
            2,
            f"`<|im_end|>` is not one token of `{here / path}`",
        )
        assert found.column == 1 + len("  - {shards: a.jsonl, make: {ids: {tokenize: text, eos: ")
        special = [
            each.content
            for each in Tokenizer.from_file("t.json").get_added_tokens_decoder().values()
            if each.special
        ]
        assert all(f"`{text}`" in found.hint for text in special[:8])
    with pytest.raises(wdspec.SpecError, match="is not one token of"):
        wdspec.load("s.yaml")


def test_the_mask_token_is_looked_up_too(here):
    tokenizers_made.trained("bpe").save("t.json")
    step = "mask_tokens: json.ids, labels: labels, mask_token"
    assert [each.code for each in problems("t.json", "[MAKS]", step)] == ["E385"]


def test_the_token_of_images_is_looked_up_too(here):
    tokenizers_made.trained("bpe").save("t.json")
    step = "chat: messages, images: pictures, image_length: 9, image_token"
    assert [each.code for each in problems("t.json", "<img>", step)] == ["E385"]
    known = Tokenizer.from_file("t.json").get_added_tokens_decoder()
    assert problems("t.json", next(iter(known.values())).content, step) == []
    added = {each.content for each in known.values()}
    (here / "chat.jinja").write_text("{% for each in messages %}{{ each.content }}{% endfor %}")
    word = max(Tokenizer.from_file("t.json").get_vocab().keys() - added, key=len)
    [problem] = problems("t.json", word, step)
    assert problem.code == "E385"
    assert f"`{word}` is not one added token of `" in problem.message
    with pytest.raises(wdspec.SpecError, match="the tokenizer has no token"):  # as the run says
        make_chat(file="t.json", template="chat.jinja", image_token=word)


def test_images_of_one_token_each_are_a_warning_unless_this_is_written(here):
    tokenizers_made.trained("bpe").save("t.json")
    known = next(iter(Tokenizer.from_file("t.json").get_added_tokens_decoder().values())).content
    step = "chat: messages, images: pictures, {}image_token"
    assert [each.code for each in problems("t.json", known, step.format(""))] == ["W461"]
    assert problems("t.json", known, step.format("image_length: 1, ")) == []
    assert problems("t.json", known, step.format("image_length: json.n, ")) == []


@pytest.mark.parametrize(
    "text",
    [
        "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 3\n",
        "",
        "[]",
        "{}",
        '{"model": {"vocab": 3}, "added_tokens": []}',
        "\0" * 99,
        "[" * 100_000,
    ],
)
def test_what_is_no_tokenizer_is_left_to_those_who_read_it(here, text):
    (here / "t.json").write_text(text)
    assert problems("t.json", "<eos>") == []


def test_nothing_is_opened_that_is_no_file(here):
    os.mkfifo("t.json")
    assert stat.S_ISFIFO(os.stat("t.json").st_mode)
    assert problems("t.json", "<eos>") == problems("missing.json", "<eos>") == []
    assert problems("hf://owner/name@abc", "<eos>") == []


@pytest.mark.parametrize(
    "batch",
    [{"pack": {"fields": "ids", "length": 64}}, {"size": 8, "collate": {"ids": {"pad": {"mask": "mask"}}}}],
)
@pytest.mark.parametrize("kind", tokenizers_made.KINDS)
def test_a_padding_above_all_ids_of_the_tokenizer_is_a_warning_whose_remedy_works(here, kind, batch):
    made = Tokenizer.from_str(tokenizers_made.trained(kind).to_str())
    made.add_special_tokens(["<|pad|>"])
    made.save("t.json")

    def hints(value):
        if "pack" in batch:
            options = {"pack": {**batch["pack"], "pad": {"ids": value}}}
        else:
            options = {"size": 8, "collate": {"ids": {"pad": {"mask": "mask", "value": value}}}}
        source = {"shards": "a.jsonl", "make": {"ids": {"tokenize": "text", "file": "t.json"}}}
        found = check({"dataset": [source, {**source, "shards": "b.jsonl"}], "batch": options})[1]
        return [each.hint for each in found if each.code == "W449"]

    size = made.get_vocab_size()
    [hint] = hints(size)
    pad, text = re.fullmatch(r"write (\d+), the id of `(.*)`", hint).groups()
    assert (int(pad), [hint]) == (made.token_to_id(text), hints(50256))
    assert not hints(size - 1)
    assert not hints(int(pad))
    os.remove("t.json")
    assert not hints(50256)
