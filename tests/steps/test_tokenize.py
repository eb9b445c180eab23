"""`tokenize`: the ids of the library, and what is said about files and texts that cannot be used."""

import json
import os

import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers_made import END, KINDS, texts, trained

from wdspec.base.errors import FieldError, LeftOutError, SpecError
from wdspec.steps import make_tokenizer
from wdspec.steps import tokenize as module

MANY = pytest.param(10_000, marks=pytest.mark.long)


@pytest.fixture
def file(tmp_path):
    """Writes a tokenizer of a kind, perhaps changed, and returns its path."""

    def write(kind="bpe", change=lambda tokenizer: None):
        tokenizer = trained(kind)
        change(tokenizer)
        tokenizer.save(str(tmp_path / f"{kind}.json"))
        return str(tmp_path / f"{kind}.json")

    return write


def ids(step, text):
    """The ids of a text as a list; [] if it is left out."""
    try:
        return step(text).tolist()
    except LeftOutError:
        return []


@pytest.mark.parametrize("is_fast", [False, True], ids=["encode", "fast"])
@pytest.mark.parametrize("count", [400, MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_library(kind, count, is_fast, file, monkeypatch):
    monkeypatch.setattr(module._is_fast, "value", [is_fast])
    if is_fast:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    plain, special = make_tokenizer(file=file(kind)), make_tokenizer(file=file(kind), allow_special=True)
    bare = make_tokenizer(file=file(kind), add_special_tokens=False)
    library = trained(kind)
    for text in texts(count):
        library.encode_special_tokens = True
        assert ids(plain, text) == library.encode(text).ids
        assert ids(bare, text) == library.encode(text, add_special_tokens=False).ids
        library.encode_special_tokens = False
        assert ids(special, text) == library.encode(text).ids


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_and_their_types_are_those_of_the_library(kind, file):
    step, library = make_tokenizer(file=file(kind), pair=True, type_ids=True), trained(kind)
    library.encode_special_tokens = True
    for first, second in zip(texts(100, seed=2), texts(100, seed=3), strict=True):
        expected = library.encode(first, second)
        if expected.ids:
            found, types = step(first, second)
            assert (found.tolist(), types.tolist()) == (expected.ids, expected.type_ids)


@pytest.mark.parametrize("most", [3, 4, 7, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_truncation_is_that_of_the_library_with_special_tokens_kept(kind, most, file):
    step, pairs = (
        (make_tokenizer(file=file(kind), truncate=most, pair=pair) for pair in (False, True))
        if most > 3
        else (make_tokenizer(file=file(kind), truncate=most), None)
    )
    library = trained(kind)
    library.encode_special_tokens = True
    library.enable_truncation(most)
    for text in texts(100):
        assert ids(step, text) == library.encode(text).ids
        if pairs is not None and text:
            assert pairs(text, "a b c d e f g").tolist() == library.encode(text, "a b c d e f g").ids


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_document_is_added_once(kind, file):
    step, library = make_tokenizer(file=file(kind), eos=KINDS[kind]), trained(kind)
    library.encode_special_tokens = True
    end = library.token_to_id(KINDS[kind])
    for text in texts(100):
        expected = library.encode(text).ids
        assert ids(step, text) == (expected if expected[-1:] == [end] else [*expected, end])


def test_the_end_is_not_doubled_if_the_text_may_have_it(file):
    step = make_tokenizer(file=file(), eos=END, allow_special=True)
    (end,) = step("").tolist()
    assert step(f"a{END}").tolist()[-2:] != [end, end]
    assert step(f"a{END}").tolist()[-1] == end
    assert step(f"a{END}b").tolist().count(end) == 2


def test_a_document_cannot_end_itself(file):
    step = make_tokenizer(file=file(), eos=END)
    (end,) = step("").tolist()
    assert step(f"a{END}b").tolist().count(end) == 1
    library = trained("bpe")
    assert "".join(map(library.id_to_token, step(f"a{END}b").tolist()[:-1])) == f"a{END}b"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [3, 5, 30])
def test_a_truncated_document_has_at_most_so_many_tokens_with_its_end(kind, most, file):
    step = make_tokenizer(file=file(kind), eos=KINDS[kind], truncate=most)
    whole = make_tokenizer(file=file(kind), eos=KINDS[kind])
    end = trained(kind).token_to_id(KINDS[kind])
    for text in texts(100):
        found, all_of_it = ids(step, text), ids(whole, text)
        assert len(found) == min(most, len(all_of_it))
        assert found[-1] == end
        assert found[:-1] == all_of_it[: len(found) - 1]


def test_several_texts_are_joined(file):
    step = make_tokenizer(file=file(), join="\n\n", eos=END)
    assert step("a title", "a text").tolist() == step("a title\n\na text").tolist()
    default = make_tokenizer(file=file())
    assert default("a", "b").tolist() == default("a\nb").tolist()


def test_a_document_without_tokens_is_left_out_unless_it_has_an_end(file):
    with pytest.raises(LeftOutError) as caught:
        make_tokenizer(file=file())("")
    assert caught.value.cause == "empty"
    assert make_tokenizer(file=file(), eos=END)("").tolist() == [0]
    assert len(make_tokenizer(file=file("wordpiece"))("")) == 2  # [CLS] [SEP]


def test_ids_are_held_in_the_smallest_type_for_the_largest_id(file):
    assert make_tokenizer(file=file())("a").dtype == np.uint16

    def add(tokenizer):
        tokenizer.add_tokens([AddedToken(f"<{number}>") for number in range(70_000)])

    step = make_tokenizer(file=file("bpe", add))
    assert step("<69999>").dtype == np.int32
    assert step("<69999>").tolist() == [trained("bpe").get_vocab_size() + 69_999]


def test_truncation_and_padding_that_are_set_in_the_file_do_not_count(file):
    def change(tokenizer):
        tokenizer.enable_truncation(4)
        tokenizer.enable_padding(length=6)

    step = make_tokenizer(file=file("bpe", change))
    for text in texts(30):
        library = trained("bpe")
        library.encode_special_tokens = True
        assert ids(step, text) == library.encode(text).ids


def test_a_folder_of_transformers_is_read(file, tmp_path):
    os.rename(file("wordpiece"), tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert make_tokenizer(file=str(tmp_path))("ea").tolist() == trained("wordpiece").encode("ea").ids


def test_a_folder_without_the_file_says_how_to_write_it(tmp_path):
    with pytest.raises(
        SpecError, match=r"tokenizer\.json of `make` does not exist; write it: `AutoTokenizer"
    ):
        make_tokenizer(file=str(tmp_path))


@pytest.mark.parametrize(
    "text", ["", "{}", "no json", '{"version": "9.0"}', json.dumps({"version": "1.0", "model": 3})]
)
def test_a_file_that_is_no_tokenizer_is_an_error_that_names_it(text, tmp_path):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(SpecError, match=r"t\.json is not a tokenizer that tokenizers \d.* can read"):
        make_tokenizer(file=str(tmp_path / "t.json"))


def test_a_file_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(SpecError, match="does not exist; correct its path"):
        make_tokenizer(file=str(tmp_path / "t.json"))


def test_an_end_that_is_not_one_token_is_an_error_that_lists_those_that_are(file):
    with pytest.raises(
        SpecError, match=r"`eos: </s>` is not one token of .*; its special tokens are `<\|endoftext\|>`"
    ):
        make_tokenizer(file=file(), eos="</s>")


@pytest.mark.parametrize(("kind", "most"), [("bpe", 1), ("wordpiece", 2), ("unigram", 1)])
def test_a_truncation_that_leaves_nothing_of_the_text_is_an_error(kind, most, file):
    with pytest.raises(SpecError, match=f"`truncate: {most}` leaves no token for the text"):
        make_tokenizer(file=file(kind), eos=KINDS[kind], truncate=most)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"abc", "decode it with `txt`"),
        (3, "name a field that is text"),
        ([3], "name a field that is text"),
        (["a"], "name one of its items, .* `take` the ids here"),
    ],
)
def test_what_is_no_text_is_an_error(value, message, file):
    with pytest.raises(FieldError, match=f"`tokenize` needs text, but this is .*{message}"):
        make_tokenizer(file=file())(value)


@pytest.mark.parametrize("is_fast", [False, True])
def test_half_of_a_surrogate_pair_is_an_error_that_says_where(is_fast, file, monkeypatch):
    monkeypatch.setattr(module._is_fast, "value", [is_fast])
    with pytest.raises(FieldError, match=r"character 2 is half of a surrogate pair, U\+D83D"):
        make_tokenizer(file=file())("ab\ud83d")


def test_one_tokenizer_serves_all_that_read_a_file(file):
    path = file()
    first = module.load_tokenizer(path)
    make_tokenizer(file=path, eos=END, truncate=9)
    assert module.load_tokenizer(path) is first
    assert module.load_tokenizer(path, allow_special=True) is not first


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="threads are counted in /proc")
def test_the_training_process_gets_no_thread(file, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    step = make_tokenizer(file=file())
    before = {*os.listdir("/proc/self/task")}
    for text in texts(50):
        ids(step, text)
    assert {*os.listdir("/proc/self/task")} <= before
