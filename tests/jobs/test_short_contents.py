"""Samples without a large field are compared as a whole: questions and answers, records, rows of a table."""

import json

import pytest
from commandline import within
from shardmaking import write_shard

QUESTIONS = [(f"What is {n} plus {n * 7 % 50}?", str(n + n * 7 % 50)) for n in range(80)]


def tar(path, rows, names=("question.txt", "answer.txt")):
    samples = [
        (f"{path.stem}{n:03d}", {names[0]: q.encode(), names[1]: a.encode()}) for n, (q, a) in enumerate(rows)
    ]
    write_shard(path, samples)


def records(path, rows, names=("question", "answer")):
    lines = [
        json.dumps({"__key__": f"{path.stem}{n:03d}", names[0]: q, names[1]: a})
        for n, (q, a) in enumerate(rows)
    ]
    path.write_text("\n".join(lines) + "\n")


def table(path, rows, names=("question", "answer")):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    parquet.write_table(pyarrow.table(columns), path)


WRITERS = {"tar": tar, "jsonl": records, "parquet": table}


def shared(folder, train, val):
    for name, file in (("train", train), ("val", val)):
        (folder / f"{name}.yaml").write_text(json.dumps({"dataset": [{"name": name, "shards": file}]}))
    out, _ = within(
        *("check", "train.yaml", "--all", "--jobs", "0", "--format", "json", "--against", "val.yaml"),
        folder=folder,
    )
    return [each["key"] for each in json.loads(out)["problems"] if each["code"] == "D308"]


@pytest.mark.parametrize("train", WRITERS)
@pytest.mark.parametrize("val", WRITERS)
def test_shared_questions_are_found_in_all_formats(tmp_path, train, val):
    WRITERS[train](tmp_path / f"t.{train}", QUESTIONS)
    WRITERS[val](tmp_path / f"v.{val}", QUESTIONS[30:])
    assert len(shared(tmp_path, f"t.{train}", f"v.{val}")) == 50


def test_a_question_with_another_answer_is_another_sample(tmp_path):
    tar(tmp_path / "t.tar", QUESTIONS)
    tar(tmp_path / "v.tar", [(question, f"not {answer}") for question, answer in QUESTIONS])
    assert shared(tmp_path, "t.tar", "v.tar") == []


def test_names_of_fields_do_not_count(tmp_path):
    tar(tmp_path / "t.tar", QUESTIONS)
    tar(tmp_path / "v.tar", QUESTIONS, ("q.txt", "a.txt"))
    assert len(shared(tmp_path, "t.tar", "v.tar")) == 80


def test_the_largest_field_is_chosen_for_each_sample(tmp_path):
    """The first sample of a shard says nothing of the others, some of whose answers are longer than the questions."""
    rows = [("q" * 70 + str(n), "a" * (60 + 20 * (n % 2)) + str(n)) for n in range(10)]
    tar(tmp_path / "t.tar", rows)
    tar(tmp_path / "v.tar", rows[1:])
    assert len(shared(tmp_path, "t.tar", "v.tar")) == 9


def test_equal_labels_and_rows_of_numbers_are_not_reported(tmp_path):
    write_shard(tmp_path / "t.tar", [(str(n), {"cls": str(n % 3).encode(), "txt": b"cat"}) for n in range(9)])
    write_shard(tmp_path / "v.tar", [("x" + str(n), {"cls": b"1", "txt": b"cat"}) for n in range(9)])
    assert shared(tmp_path, "t.tar", "v.tar") == []
    for name in "tv":
        rows = [{"age": 30 + n % 3, "income": 1234567.5, "flag": True, "none": None} for n in range(9)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert shared(tmp_path, "t.jsonl", "v.jsonl") == []
