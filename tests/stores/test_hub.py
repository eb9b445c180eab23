"""Datasets of the Hugging Face Hub, read by the real huggingface_hub from a server with the Hub's documented API.

The API: https://huggingface.co/docs/hub/api and https://huggingface.co/.well-known/openapi.json; redirects of
`resolve`: https://huggingface.co/docs/xet/file-id. See `servers/hub.py`.
"""

import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers_made
from commandline import within
from servers.hub import Hub
from tokenizers import Tokenizer

import wdspec
from wdspec.base.process import KeyedValues
from wdspec.stores import filesystems

pytest.importorskip("huggingface_hub")
TOKEN = "hf_" + "aVerySecretTokenOfTheTests"


def parquet(first, rows=40):
    """A file with texts, and a larger column that no test needs."""
    file = io.BytesIO()
    numbers = range(first, first + rows)
    table = pa.table({"text": [f"text {n}" for n in numbers], "big": [f"{n}" * 5000 for n in numbers]})
    pq.write_table(table, file, row_group_size=10, compression="none", use_dictionary=False)
    return file.getvalue()


FILES = {f"data/train-{n}.parquet": parquet(100 * n) for n in range(5)}
OTHERS = {"README.md": b"about", "data/test-0.parquet": parquet(900), "old/train-0.parquet": parquet(950)}
TEXTS = [f"text {100 * shard + n}" for shard in range(5) for n in range(40)]


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with Hub(TOKEN) as running:
        running.commit({**FILES, **OTHERS}, "main", "v1")
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        import huggingface_hub.constants
        from huggingface_hub import HfFileSystem

        # Read from the environment when it is imported, which another test may have done.
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.url)
        monkeypatch.setattr(
            huggingface_hub.constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            running.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(filesystems._systems, "value", KeyedValues())
        HfFileSystem.clear_instance_cache()
        yield running


def spec_of(revision="", **source):
    place = f"hf://datasets/{Hub.repo}{revision}/data/train-*.parquet"
    source = {
        "name": "a",
        "shards": place,
        "extensions": "text",
        "order": "sequential",
        "shuffle": 0,
        **source,
    }
    return {"dataset": [source], "epoch": len(TEXTS)}


@pytest.mark.parametrize("revision", ["", "@main", "@v1"])
def test_a_glob_is_listed_and_read_in_order(hub, revision):
    assert [sample["text"] for sample in wdspec.compile(spec_of(revision))] == TEXTS


def test_files_are_read_by_ranges_after_a_redirect(hub):
    samples = wdspec.compile(spec_of())
    assert next(iter(samples))["text"] == "text 0"
    samples.close()
    paths = [(path, asked) for _, path, asked in hub.asked]
    assert any("/resolve/" in path for path, _ in paths)
    assert all(asked for path, asked in paths if path.startswith("/bytes/"))


def test_a_run_resumes_within_a_file(hub):
    dataset = wdspec.compile(spec_of())
    samples = iter(dataset)
    for _ in range(115):
        next(samples)
    state = json.loads(json.dumps(dataset.state_dict()))
    dataset.close()
    dataset = wdspec.compile(spec_of())
    dataset.load_state_dict(state)
    assert [sample["text"] for sample in dataset] == TEXTS[115:]


@pytest.mark.parametrize("lost", ["/tree/", "/resolve/", "/bytes/"])
def test_a_request_without_an_answer_is_sent_again(hub, monkeypatch, lost):
    """The client of the Hub waits forever by itself: a lost connection would stop a run."""
    monkeypatch.setattr(filesystems, "HUB_WAIT", 0.3)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    hub.unanswered.append(lost)
    assert [sample["text"] for sample in wdspec.compile(spec_of())] == TEXTS
    assert not hub.unanswered


def test_a_lock_has_the_files_and_notices_a_new_commit(hub, tmp_path):
    (tmp_path / "s.yaml").write_text(json.dumps(spec_of("@main")))
    logged_in = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
    within("lock", "s.yaml", folder=tmp_path, **logged_in)
    within("lock", "s.yaml", "--check", folder=tmp_path, **logged_in)
    hub.commit({**FILES, **OTHERS, "data/train-1.parquet": parquet(5000)}, "main")
    out, _ = within("lock", "s.yaml", "--check", folder=tmp_path, code=1, **logged_in)
    assert "train-1.parquet" in out
    assert "train-2.parquet" not in out


def test_files_of_a_commit_never_change_and_are_looked_up_once(hub):
    sha = hub.references["main"]
    samples = iter(wdspec.compile(spec_of(f"@{sha}")))
    first = [next(samples)["text"] for _ in range(20)]
    hub.commit({}, "main")
    hub.asked.clear()
    assert first + [next(samples)["text"] for _ in range(180)] == TEXTS
    assert not [path for _, path, _ in hub.asked if path.startswith("/api/")]


def test_little_more_than_the_needed_column_is_requested(hub):
    """The first request only learns the size, and reads ahead."""
    drawn, file = random.Random(0), io.BytesIO()
    table = pa.table({"text": ["x" * 100] * 400, "big": [drawn.randbytes(40_000) for _ in range(400)]})
    pq.write_table(table, file, row_group_size=100, compression="none", use_dictionary=False)
    hub.commit({"data/train-0.parquet": file.getvalue()}, "main")
    spec = {**spec_of(shards=f"hf://datasets/{Hub.repo}/data/train-0.parquet"), "epoch": 400}
    assert len(list(wdspec.compile(spec))) == 400
    ranges = [asked[6:].split("-") for _, path, asked in hub.asked if path.startswith("/bytes/")]
    sizes = [int(end) - int(start) + 1 for start, end in ranges]
    assert sum(sizes[1:]) < 0.15 * len(file.getvalue())


def test_missing_repositories_and_files_are_named(hub):
    with pytest.raises(wdspec.WdspecError, match="v9"):
        next(iter(wdspec.compile(spec_of("@v9"))))
    with pytest.raises(wdspec.WdspecError, match="nothing-"):
        next(iter(wdspec.compile(spec_of(shards=f"hf://datasets/{Hub.repo}/data/nothing-*.parquet"))))


def test_a_token_from_the_environment_is_not_shown(hub):
    hub.token = "another"
    with pytest.raises(wdspec.WdspecError) as caught:
        next(iter(wdspec.compile(spec_of())))
    assert "HF_TOKEN" in str(caught.value)
    seen, error = str(caught.value), caught.value.__cause__
    while error is not None:
        seen, error = seen + str(error), error.__cause__ or error.__context__
    assert TOKEN not in seen


@pytest.mark.parametrize("revision", ["", "@main", "@refs%2Fpr%2F1"])
def test_with_a_lock_a_run_reads_the_locked_commit(hub, tmp_path, revision):
    hub.references["refs/pr/1"] = sha = hub.references["main"]
    (tmp_path / "s.yaml").write_text(json.dumps(spec_of(revision)))
    within("lock", "s.yaml", folder=tmp_path, HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN)
    lock = tmp_path / "s.lock.json"
    start = f"hf://datasets/{Hub.repo}{revision}/"
    assert json.loads(lock.read_text())["sources"]["a"]["commits"] == {
        start: f"hf://datasets/{Hub.repo}@{sha}/"
    }
    hub.commit({name: parquet(5000) for name in FILES}, "main", "refs/pr/1")
    now = [sample["text"] for sample in wdspec.compile(spec_of(revision))]
    hub.asked.clear()
    dataset = wdspec.compile(spec_of(revision), lock=lock)
    samples = list(dataset)
    assert [sample["text"] for sample in samples] == TEXTS != now
    assert (
        samples[0]["__url__"] == f"{start}data/train-0.parquet"
    )  # so that states fit with and without the lock
    assert all(f"/{sha}/" in path for _, path, _ in hub.asked if "/tree/" in path or "/resolve/" in path)
    dataset.load_state_dict(wdspec.compile(spec_of(revision)).state_dict())


def test_copies_of_a_branch_are_not_read_for_a_locked_commit(hub, tmp_path):
    spec = spec_of("@main", cache=str(tmp_path / "cache"))
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    within("lock", "s.yaml", folder=tmp_path, HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN)
    hub.commit({name: parquet(5000) for name in FILES}, "main")
    assert "text 5000" in [sample["text"] for sample in wdspec.compile(spec)]
    assert [sample["text"] for sample in wdspec.compile(spec, lock=tmp_path / "s.lock.json")] == TEXTS


def test_a_commit_in_a_lock_cannot_be_edited_by_hand(hub, tmp_path):
    (tmp_path / "s.yaml").write_text(json.dumps(spec_of("@main")))
    within("lock", "s.yaml", folder=tmp_path, HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN)
    lock = tmp_path / "s.lock.json"
    lock.write_text(lock.read_text().replace(hub.references["main"], "0" * 40))
    with pytest.raises(wdspec.UsageError, match="digest"):
        wdspec.compile(spec_of("@main"), lock=lock)


def spec_of_tokenizer(tmp_path, revision):
    text = "The cat sat."
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}) + "\n")
    file = f"hf://{Hub.repo}@{revision}"
    source = {"shards": str(tmp_path / "a.jsonl"), "make": {"ids": {"tokenize": "text", "file": file}}}
    return text, {"dataset": [source], "epoch": "pass"}


def test_a_tokenizer_is_downloaded_at_its_revision(hub, tmp_path):
    made = [tokenizers_made.trained(kind) for kind in ("bpe", "wordpiece")]
    first, second = (hub.commit({"tokenizer.json": each.to_str().encode()}, "main", "v2") for each in made)
    for revision, tokenizer in ((first, made[0]), (second, made[1]), ("v2", made[1])):
        text, spec = spec_of_tokenizer(tmp_path, revision)
        (sample,) = wdspec.compile(spec)
        assert sample["ids"].tolist() == Tokenizer.from_str(tokenizer.to_str()).encode(text).ids
    hub.asked.clear()
    (sample,) = wdspec.compile(spec_of_tokenizer(tmp_path, first)[1])
    assert not hub.asked  # what is in a commit is downloaded once


def test_a_tokenizer_that_is_not_on_the_hub_is_named_with_its_revision(hub, tmp_path):
    hub.commit({"README.md": b"no tokenizer"}, "main")
    for revision in ("main", "nowhere"):
        with pytest.raises(
            wdspec.SpecError, match=f"hf://{Hub.repo}@{revision} .*check the name and the revision"
        ):
            list(wdspec.compile(spec_of_tokenizer(tmp_path, revision)[1]))


def test_validating_and_planning_download_no_tokenizer(hub, tmp_path):
    hub.asked.clear()
    _, spec = spec_of_tokenizer(tmp_path, "main")
    assert not [each for each in wdspec.validate(spec) if each.is_error]
    wdspec.plan(spec | {"epoch": 1})
    assert not hub.asked
