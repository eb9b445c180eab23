"""The jobs of language models, in one spec each and without Python: the first batches are those of plain Python.

Each test writes data as people have it, and a spec as its user would, and compares what arrives with the same files
that the bare libraries read and tokenize.
"""

import json
import math
import random
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from commandline import within
from firsttrydata import END, train_tokenizer

import wdspec

MEANS = {"web": 60, "code": 120, "wiki": 30}


def lognormal_texts(name, count, mean):
    """Texts whose numbers of words are log-normal with σ = 1 and this mean."""
    rng = random.Random(name)
    words = ["tensor", "shard", "the", "of", "mixture", "épée", "数据", "loss", name, "gradient", "a", "λ"]
    for number in range(count):
        length = max(1, round(rng.lognormvariate(math.log(mean) - 0.5, 1)))
        yield f"{name} {number}: " + " ".join(rng.choices(words, k=length))


@pytest.fixture
def corpora(tmp_path):
    """Three corpora as JSON Lines and Parquet, a tokenizer, and the ids of each document by its text's first words."""
    texts = {name: list(lognormal_texts(name, 300, mean)) for name, mean in MEANS.items()}
    for name in ("web", "wiki"):
        for part in range(3):
            rows = [{"text": text, "lang": "en"} for text in texts[name][part::3]]
            (tmp_path / f"{name}-{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.table({"text": texts["code"]}), tmp_path / "code-0.parquet", row_group_size=50)
    tokenizer = train_tokenizer(
        [text for each in texts.values() for text in each], tmp_path / "tokenizer.json"
    )
    ids = {
        name: {(*tokenizer.encode(text).ids, tokenizer.token_to_id(END)) for text in each}
        for name, each in texts.items()
    }
    return tmp_path, ids


PRETRAINING = """
defaults:
  make: {ids: {tokenize: text, file: tokenizer.json, eos: "<|endoftext|>"}}
dataset:
  - {name: web, shards: web-*.jsonl, weight: 60}
  - {name: code, shards: code-*.parquet, weight: 30}
  - {name: wiki, shards: wiki-*.jsonl, weight: 10}
batch:
  window: 200
  overlong: split
  pack: {fields: ids, length: 512, segment_ids: segments, position_ids: position_ids}
epoch: {batches: 20}
"""


def documents_of(row):
    """The documents of a packed row, by its segments."""
    ids, segments = row["ids"][0], row["segments"][0]
    return [tuple(ids[segments == number].tolist()) for number in range(1, int(segments.max()) + 1)]


def test_pretraining_from_raw_text_fills_rows_with_whole_documents_of_the_tokenizer(corpora):
    folder, ids = corpora
    (folder / "train.yaml").write_text(PRETRAINING)
    with wdspec.loader(folder / "train.yaml", num_workers=0) as loader:
        rows = list(loader)
    known = {document for each in ids.values() for document in each}
    whole = {document for document in known if len(document) <= 512}
    for row in rows:
        assert row["ids"].shape == (1, 512)
        for document in documents_of(row):
            assert document in whole or any(document in windows_of(each) for each in known - whole)
    full = [int((row["segments"] > 0).sum()) / 512 for row in rows]
    assert sum(full) / len(full) >= 0.97


def windows_of(document, length=512):
    """The parts into which a document that is longer than a row may be split: of the row's length, and the rest."""
    return {document[start : start + length] for start in range(0, len(document), length)}


def test_the_mask_of_documents_starts_its_positions_anew(corpora):
    folder, _ = corpora
    (folder / "train.yaml").write_text(PRETRAINING)
    with wdspec.loader(folder / "train.yaml", num_workers=0) as loader:
        row = next(iter(loader))
    positions, segments = row["position_ids"][0], row["segments"][0]
    for number in range(1, int(segments.max()) + 1):
        assert positions[segments == number].tolist() == list(range(int((segments == number).sum())))


def test_shares_of_tokens_are_measured_and_shown_in_tokens(corpora):
    folder, ids = corpora
    spec = PRETRAINING.replace("name: wiki,", "name: wiki, max_passes: 4,")
    (folder / "train.yaml").write_text(spec + "mix: {shares_in: tokens}\nstats: stats.json\n")
    _, said = within("explain", "train.yaml", folder=folder, code=1)
    assert "run `wdspec stats SPEC`" in said
    within("stats", "train.yaml", folder=folder)
    found = json.loads((folder / "stats.json").read_text())["sources"]
    for name, documents in ids.items():
        mean = sum(map(len, documents)) / len(documents)
        assert found[name]["cost"] == pytest.approx(mean, rel=0.01)
    (folder / "guess.yaml").write_text(
        (folder / "train.yaml").read_text().replace("wiki,", "wiki, mean_cost: 9,")
    )
    assert (
        "W109 `mean_cost: 9` of `wiki` is used, but stats.json has"
        in within("validate", "guess.yaml", folder=folder)[0]
    )
    shown, _ = within("explain", "train.yaml", folder=folder)
    assert re.search(r"source +of tokens +of samples", shown)
    assert [re.search(rf"{name} +([\d.]+)%", shown)[1] for name in ids] == ["60.00", "30.00", "10.00"]
    simulated, _ = within("simulate", "train.yaml", folder=folder)
    passes = {name: float(re.search(rf"{name} +300 +([\d.]+)", simulated)[1]) for name in ids}
    # 20 rows of 512 tokens, of which 60% are of web
    expected = 20 * 512 * 0.6 / sum(map(len, ids["web"]))
    assert passes["web"] == pytest.approx(expected, rel=0.5)


def test_the_mixture_changes_at_a_number_of_tokens_as_the_page_about_training_says(corpora):
    folder, ids = corpora
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text().partition("## Changing shares")[2]
    mix = (
        page.partition("```yaml\n")[2]
        .partition("```")[0]
        .replace("books", "wiki")
        .replace("1_000_000_000_000", "20_000")
    )
    spec = re.sub(r", weight: \d+", "", PRETRAINING).replace("batches: 20", "tokens: 200e3")
    (folder / "train.yaml").write_text(f"{spec}{mix}stats: stats.json\n")
    within("stats", "train.yaml", "--jobs", "0", folder=folder)
    shown, _ = within("explain", "train.yaml", folder=folder)
    at = int(re.search(r"shares change at about batch (\d+)", shown)[1])
    assert re.search(r"web +60\.00% +30\.00%", shown)
    read, of_two_windows, samples = Counter(), 0, 0
    with wdspec.loader(folder / "train.yaml", num_workers=0) as loader:
        for number, row in enumerate(loader):
            of_two_windows, samples = of_two_windows + (samples < 400), samples + len(row["__source__"])
            for place, source in enumerate(row["__source__"], start=1):
                read[number >= at + 20, source] += int((row["segments"] == place).sum())
    assert at == pytest.approx(
        of_two_windows, rel=0.15
    )  # of 200 samples, the first of which has 20,000 tokens
    before, after = (
        {name: read[late, name] / sum(read[late, each] for each in ids) for name in ids} for late in (0, 1)
    )
    assert before == pytest.approx({"web": 0.6, "code": 0.3, "wiki": 0.1}, abs=0.1)
    assert after == pytest.approx({"web": 0.3, "code": 0.5, "wiki": 0.2}, abs=0.05)


def test_shares_of_tokens_of_a_misspelled_column_lead_to_the_column(corpora):
    folder, _ = corpora
    spec = PRETRAINING.replace("tokenize: text", "tokenize: body").replace(
        "defaults:", "defaults:\n  rename: {body: text}"
    )
    spec = spec.replace("name: code,", "name: code, rename: {body: txet},")
    (folder / "train.yaml").write_text(spec + "mix: {shares_in: tokens}\nstats: stats.json\n")
    out, _ = within("stats", "train.yaml", folder=folder, code=1)
    assert "`rename` takes it from 'txet'" in out
    assert "Did you mean `text`?" in out
    _, said = within("explain", "train.yaml", folder=folder, code=1)
    assert "run `wdspec stats SPEC` again, which says why [source code]" in said


CHAT = """
dataset:
  - name: chats
    shards: chats.jsonl
    make:
      input_ids: {chat: messages, file: tokenizer.json, template: chat.jinja, labels: labels}
fields: [input_ids, labels]
batch: {size: 3, collate: {input_ids: {pad: {mask: attention_mask}}, labels: {pad: {value: -100}}}}
epoch: pass
"""
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def chats(tmp_path):
    conversations = [
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"What is {n} + {n}?"},
            {"role": "assistant", "content": f"{2 * n}"},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes, I am."},
        ][n % 2 :]
        for n in range(6)
    ]
    (tmp_path / "chats.jsonl").write_text(
        "".join(json.dumps({"messages": messages}) + "\n" for messages in conversations)
    )
    (tmp_path / "chat.jinja").write_text(CHATML)
    texts = [message["content"] for messages in conversations for message in messages]
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer = train_tokenizer(texts, tmp_path / "tokenizer.json", special=special)
    return tmp_path, conversations, tokenizer


def chat_in_plain_python(messages, tokenizer):
    """The ids of a conversation in ChatML, and its labels: what the assistant wrote, and its end of turn."""
    ids, labels = [], []
    for message in messages:
        head = tokenizer.encode(f"<|im_start|>{message['role']}\n").ids
        body = tokenizer.encode(f"{message['content']}<|im_end|>").ids
        tail = tokenizer.encode("\n").ids
        is_trained = message["role"] == "assistant"
        ids += head + body + tail
        labels += [-100] * len(head) + (body if is_trained else [-100] * len(body)) + [-100] * len(tail)
    return ids, labels


def test_chats_are_trained_on_what_the_assistant_wrote_and_its_end_of_turn(chats):
    folder, conversations, tokenizer = chats
    (folder / "chat.yaml").write_text(CHAT)
    seen = []
    with wdspec.loader(folder / "chat.yaml", num_workers=0) as loader:
        for batch in loader:
            for key, ids, labels, mask in zip(
                *(batch[name] for name in ("__key__", "input_ids", "labels", "attention_mask")), strict=True
            ):
                number, length = int(key.split("/")[-1]), int(mask.sum())
                expected = chat_in_plain_python(conversations[number], tokenizer)
                assert (ids[:length].tolist(), labels[:length].tolist()) == expected
                assert set(labels[length:].tolist()) <= {-100}
                seen.append(number)
    assert sorted(seen) == list(range(6))


PREFERENCE = """
dataset:
  - name: pairs
    shards: pairs.jsonl
    make:
      chosen_ids: {chat: chosen, labels: chosen_labels, prompt: prompt, file: tokenizer.json, template: chat.jinja}
      rejected_ids:
        {chat: rejected, labels: rejected_labels, prompt: prompt, file: tokenizer.json, template: chat.jinja}
fields: [chosen_ids, chosen_labels, rejected_ids, rejected_labels]
batch: {size: 2, ragged: list}
epoch: pass
"""


def test_preference_pairs_have_their_prompt_masked(chats):
    folder, conversations, tokenizer = chats
    pairs = [
        {
            "prompt": messages[:-1],
            "chosen": [messages[-1]],
            "rejected": [{"role": "assistant", "content": "No."}],
        }
        for messages in conversations
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (folder / "pairs.yaml").write_text(PREFERENCE)
    with wdspec.loader(folder / "pairs.yaml", num_workers=0) as loader:
        for batch in loader:
            for place, key in enumerate(batch["__key__"]):
                pair = pairs[int(key.split("/")[-1])]
                for side in ("chosen", "rejected"):
                    ids, labels = chat_in_plain_python([*pair["prompt"], *pair[side]], tokenizer)
                    prompt, _ = chat_in_plain_python(pair["prompt"], tokenizer)
                    expected = [-100] * len(prompt) + labels[len(prompt) :]
                    assert torch.as_tensor(batch[f"{side}_ids"][place]).tolist() == ids
                    assert torch.as_tensor(batch[f"{side}_labels"][place]).tolist() == expected


def test_documents_are_selected_by_their_tokens_not_by_their_letters(corpora):
    folder, ids = corpora
    (folder / "short.yaml").write_text(
        'dataset: [{name: web, shards: "web-*.jsonl", where: ids.length <= 40, '
        'make: {ids: {tokenize: text, file: tokenizer.json, eos: "<|endoftext|>"}}}]\nepoch: pass\n'
    )
    with wdspec.loader(folder / "short.yaml", num_workers=0) as loader:
        seen = [tuple(sample["ids"].tolist()) for sample in loader if sample["__mask__"]]
    assert sorted(seen) == sorted(document for document in ids["web"] if len(document) <= 40)


def test_the_end_of_text_inside_a_text_is_text(corpora):
    folder, _ = corpora
    (folder / "trap.jsonl").write_text(json.dumps({"text": f"one{END}two"}) + "\n")
    (folder / "trap.yaml").write_text(
        'dataset: [{shards: trap.jsonl, make: {ids: {tokenize: text, file: tokenizer.json, eos: "<|endoftext|>"}}}]\n'
        "epoch: pass\n"
    )
    from tokenizers import Tokenizer

    end = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id(END)
    with wdspec.loader(folder / "trap.yaml", num_workers=0) as loader:
        (sample,) = loader
    assert sample["ids"].tolist().count(end) == 1
    assert sample["ids"].tolist()[-1] == end


def test_another_tokenizer_under_the_same_name_is_named_on_resume(corpora):
    folder, _ = corpora
    (folder / "train.yaml").write_text(PRETRAINING)
    with wdspec.loader(folder / "train.yaml", num_workers=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    train_tokenizer(["an entirely different text"], folder / "tokenizer.json")
    with (
        wdspec.loader(folder / "train.yaml", num_workers=0) as loader,
        pytest.raises(wdspec.UsageError) as error,
    ):
        loader.load_state_dict(state)
    assert re.search(r"tokenizer\.json of `make: ids` has other contents", str(error.value))
