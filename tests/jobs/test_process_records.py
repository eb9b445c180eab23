"""`wdspec process` keeps only shards that it would write the same, counts all of them, and copies unchanged fields."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from commandline import within
from offlinejobs import write_job
from PIL import Image

import wdspec
from wdspec.base.user_code import digest_code
from wdspec.cli.process import process
from wdspec.cli.shard_files import ShardFiles
from wdspec.jobs.engine import LocalEngine


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("functions", None)  # of other tests
    yield tmp_path
    sys.modules.pop("functions", None)


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(process, [*arguments, "--jobs", "0", "--format", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def refusal(*arguments: str) -> str:
    """The message of a run that does not start."""
    result = CliRunner().invoke(process, [*arguments, "--jobs", "0"])
    assert isinstance(result.exception, wdspec.UsageError), result.output
    return str(result.exception)


def samples(pattern: str) -> list[dict[str, Any]]:
    return list(ShardFiles((pattern,)).samples())


CHANGES: list[tuple[list[str], str]] = [
    (["--set", "map=functions:slow"], "out/a-000.tar`: `map` changed (4)"),
    (["--set", "map_batches.call=functions:all_of"], "`map_batches`"),
    (["--set", "defaults.extensions=cls"], "`extensions` changed (4)"),
    (["--set", "fields=cls"], "`fields` changed (4)"),
    (["--set", "limit=3"], "`limit` changed (4)"),
    (["--set", "seed=8"], "`seed` changed (4)"),
    (["--set", "defaults.where=cls > 3"], "`where` changed (4)"),
    (["--set", "defaults.errors.skip=true"], "`errors` changed (4)"),
]


@pytest.mark.parametrize(("change", "says"), CHANGES)
def test_shards_of_another_job_are_not_taken_for_those_of_this_one(
    folder: Path, change: list[str], says: str
) -> None:
    file = write_job(folder, map="functions:double")
    run(file)
    assert len(run(file)["there"]) == 4
    message = refusal(file, *change)
    assert says in message
    assert "--changed redo" in message
    assert "--changed keep" in message


@pytest.mark.parametrize(
    "same", ["batch=8", "defaults.shuffle=3", "defaults.errors.retry=9", "loader.workers=2", "epoch=10"]
)
def test_keys_without_effect_on_the_shards_change_nothing(folder: Path, same: str) -> None:
    file = write_job(folder, map="functions:double", batch=4)
    run(file)
    assert len(run(file, "--set", same)["there"]) == 4


def test_changed_code_of_a_function_is_found(folder: Path) -> None:
    file = write_job(folder, map="functions:double")
    run(file)
    text = (folder / "functions.py").read_text()
    (folder / "functions.py").write_text(text.replace("return time.", "return  time.") + "\nOTHER = 1\n")
    assert len(run(file)["there"]) == 4
    (folder / "functions.py").write_text(text.replace('["cls"] * 2', '["cls"] * 3'))
    assert "the code of `functions:double` changed (4)" in refusal(file)


def test_another_seed_is_found_where_a_step_draws_numbers(folder: Path) -> None:
    file = write_job(folder, defaults="{make: {one.json: {choose: [txt, cls]}}}")
    run(file)
    assert len(run(file)["there"]) == 4
    assert "`seed` changed (4)" in refusal(file, "--set", "seed=8")


def test_the_key_is_named_whose_file_has_changed(folder: Path) -> None:
    keys = "{keys: '@keys.txt', make: {n.json: {label: cls, file: names.txt, unknown: -1}}}"
    file = write_job(folder, defaults=keys)
    (folder / "keys.txt").write_text("a0000000\na0010000\n")
    (folder / "names.txt").write_text("0\n1\n")
    run(file)
    (folder / "names.txt").write_text("1\n0\n")
    assert "out/a-000.tar`: a file of `make: n.json` changed (4)" in refusal(file)
    (folder / "names.txt").write_text("0\n1\n")
    (folder / "keys.txt").write_text("a-001-001\n")
    assert "out/a-000.tar`: a file of `keys` changed (4)" in refusal(file)


def test_redo_writes_what_has_changed_and_keep_leaves_it(folder: Path) -> None:
    file = write_job(folder)
    run(file, "--set", "limit=3")
    os.remove("out/a-003.tar")
    kept = run(file, "--changed", "keep")
    assert [len(samples(f"out/a-00{n}.tar")) for n in range(4)] == [3, 3, 3, 10]
    assert len(kept["there"]) == 3
    redone = run(file, "--changed", "redo")
    assert [len(samples(f"out/a-00{n}.tar")) for n in range(4)] == [10] * 4
    assert (len(redone["done"]), len(redone["there"])) == (3, 1)
    assert len(run(file)["there"]) == 4


def test_a_changed_input_and_a_shard_without_a_record_are_found(folder: Path) -> None:
    file = write_job(folder)
    run(file)
    os.utime("in/a-001.tar", (1, 1))
    assert "1 of the 4 shards" in (message := refusal(file))
    assert "out/a-001.tar`: its input changed (1)" in message
    assert [done["url"] for done in run(file, "--changed", "redo")["done"]] == ["in/a-001.tar"]
    os.remove("out/.wdspec/a-002.tar.json")
    assert "out/a-002.tar`: there is no record of how it was made (1)" in refusal(file)


def test_an_interrupted_redo_never_leaves_an_older_shard_with_a_new_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wdspec.jobs import output_records

    file = write_job(folder)
    run(file, "--set", "limit=3")
    write = output_records.OutputRecord.write

    def interrupt(self: Any, *given: Any) -> None:
        write(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(output_records.OutputRecord, "write", interrupt)
        CliRunner().invoke(process, [file, "--jobs", "0", "--changed", "redo"])
    assert "3 of the 3 shards" in refusal(file)
    assert len(run(file, "--changed", "redo")["done"]) == 4


CODE = """
    import os
    LEAST = 3

    def helper(value):
        return value > LEAST

    def large(sample):
        return helper(sample["cls"])

    class Scale:
        def __call__(self, sample):
            return sample

    def other(sample):
        return sample
"""


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("LEAST = 3", "LEAST = 4", True),
        ("return value >", "return value >=", True),
        ("helper(sample", "not helper(sample", True),
        ("import os", "import os  # a comment", False),
        ("def other(sample)", "def another(sample)", False),
        ("import os", "import sys", False),
    ],
)
def test_the_code_of_a_function_is_its_definition_and_what_it_uses_in_its_file(
    folder: Path, old: str, new: str, changes: bool
) -> None:
    text = CODE.replace("\n    ", "\n")
    (folder / "code_a.py").write_text(text)
    (folder / "code_b.py").write_text(text.replace(old, new))
    before = digest_code("code_a:large", str(folder))
    assert before
    assert (before != digest_code("code_b:large", str(folder))) == changes
    assert digest_code("code_a:Scale", str(folder)) not in ("", before)
    assert digest_code("nowhere:large", str(folder)) == digest_code("code_a:absent", str(folder)) == ""


def test_totals_are_of_the_whole_job_after_a_resume(folder: Path) -> None:
    errors = {"skip": ["shard", "decode", "map"]}
    file = write_job(folder, map="functions:thirteen", errors=errors, defaults={"where": "cls < 35"})
    first = run(file)["totals"]["a"]
    assert (first["shards"], first["written"], first["dropped"], first["skipped"]) == (4, 34, 5, 1)
    assert first["written"] + first["dropped"] + first["skipped"] == 40
    os.remove("out/a-001.tar")
    assert run(file)["totals"]["a"] == first
    text = CliRunner().invoke(process, [file, "--jobs", "0"]).stdout
    assert text.splitlines()[1].split()[1:5] == ["4", "34", "5", "1"]


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "cbors", "msgpack", "jsonl", "parquet"])
def test_samples_that_are_read_are_written_dropped_or_skipped_in_every_format(
    folder: Path, suffix: str
) -> None:
    (folder / "functions.py").write_text(
        "def some(batch):\n    return [None if each['cls'] % 5 == 0 else each for each in batch]\n\n"
        "def fails(sample):\n    if sample['cls'] == 7:\n        raise ValueError('seven')\n    return sample\n"
    )
    with wdspec.ShardWriter(f"a-%d.{suffix}", maxcount=10, verbose=0) as writer:
        for n in range(30):
            writer.write({"__key__": str(n), "cls": n})
    spec = {
        "dataset": [{"name": "a", "shards": f"a-*.{suffix}", "where": "cls != 1", "map": "functions:fails"}],
        "errors": {"skip": ["map"]},
        "map_batches": {"call": "functions:some", "batch": 4},
        "output": "out/",
    }
    (folder / "p.yaml").write_text(json.dumps(spec))
    totals = run("p.yaml")["totals"]["a"]
    assert (totals["written"], totals["dropped"], totals["skipped"]) == (30 - 2 - 6, 1 + 6, 1)
    assert len(samples(f"out/a-*.{suffix}")) == totals["written"]


def test_shards_without_samples_are_read_by_the_commands_for_shards(folder: Path) -> None:
    file = write_job(folder, defaults={"where": "cls > 9"})
    run(file)
    assert (
        "no samples in 1 shard; to read them, set `empty: allow`"
        in CliRunner().invoke(process, [file]).output
    )
    for command in ("cat", "sort", "split --shards 2"):
        within(*command.split(), "out/*.tar", "-o", f"{command[:3]}-%d.tar", folder=folder)
        assert len(samples(f"{command[:3]}-*.tar")) == 30


def test_a_job_that_drops_everything_fails_and_says_why(folder: Path) -> None:
    file = write_job(folder)
    with open("functions.py", "a") as functions:
        functions.write("\ndef nothing(batch):\n    return [None] * len(batch)\n")
    arguments = [file, "--jobs", "0", "--set", "map_batches.call=functions:nothing"]
    result = CliRunner().invoke(process, arguments)
    assert result.exit_code == 1
    assert "no sample was written: 40 dropped by `map_batches`" in result.output


def test_a_field_without_an_encoder_stops_the_job_at_its_first_shard(folder: Path) -> None:
    file = write_job(folder, map="functions:odd_field")
    with open("functions.py", "a") as functions:
        functions.write("\ndef odd_field(sample):\n    return {**sample, 'score': 0.5}\n")
    report = run(file, code=1)
    assert [each["url"] for each in report["failed"]] == ["in/a-000.tar"]
    assert "`rename: {score.json: score}`" in report["failed"][0]["cause"]
    assert "stopped" in CliRunner().invoke(process, [file, "--jobs", "0"]).output


def test_formats_that_cannot_be_written_are_found_before_anything_is_read(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.ipc

    table = pa.table({"text": ["a", "b"]})
    with pa.ipc.new_file("a.arrow", table.schema) as file:
        file.write_table(table)
    (folder / "p.yaml").write_text("dataset: [{name: a, shards: '*.arrow'}]\noutput: out/\n")
    message = refusal("p.yaml")
    assert not os.path.exists("out")
    remedy = message.partition("with `")[2].partition("`")[0]
    (folder / "p.yaml").write_text(f"dataset: [{{name: a, shards: '*.arrow'}}]\n{remedy}\n")
    run("p.yaml")
    assert [each["text"] for each in samples("out/a.parquet")] == ["a", "b"]


def jpeg(value: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((16, 16, 3), value, np.uint8)).save(file, "JPEG", quality=30)
    return file.getvalue()


@pytest.mark.parametrize("suffix", ["tar", "cbors", "parquet"])
def test_fields_that_no_step_changes_keep_their_bytes(folder: Path, suffix: str) -> None:
    (folder / "functions.py").write_text(
        "def clean(sample):\n"
        "    if sample['__key__'] == '1':\n        sample['jpg'][:] = 200\n"
        "    if sample['__key__'] == '2':\n        sample['jpg'] = sample['jpg'].copy()\n"
        "    return {**sample, 'txt': sample['txt'].strip()}\n"
    )
    with wdspec.ShardWriter(f"in-%d.{suffix}", verbose=0) as writer:
        for n in range(4):
            json_text = b'{"b" :  %d}' % n
            writer.write({"__key__": str(n), "jpg": jpeg(40 * n), "json": json_text, "txt": b" word "})
    spec = {
        "dataset": [{"name": "a", "shards": f"in-0.{suffix}", "decode": {"jpg": "rgb8"}}],
        "map": "functions:clean",
        "output": "out/",
    }
    (folder / "p.yaml").write_text(json.dumps(spec))
    run("p.yaml")
    before, after = samples(f"in-0.{suffix}"), samples(f"out/in-0.{suffix}")
    assert [a["jpg"] == b["jpg"] for a, b in zip(before, after, strict=True)] == [True, False, True, True]
    assert all(a["json"] == b["json"] for a, b in zip(before, after, strict=True))
    assert {
        bytes(each["txt"], "ascii") if isinstance(each["txt"], str) else each["txt"] for each in after
    } == {b"word"}


@pytest.mark.parametrize("jobs", ["0", "1"])
def test_a_terminated_job_closes_its_engine(folder: Path, monkeypatch: pytest.MonkeyPatch, jobs: str) -> None:
    closed = []
    close = LocalEngine.close
    monkeypatch.setattr(LocalEngine, "close", lambda engine: closed.append(engine) or close(engine))
    file = write_job(folder, map="functions:terminate")
    with open("functions.py", "a") as functions:
        functions.write(f"\ndef terminate(sample):\n    os.kill({os.getpid()}, 15)\n    return sample\n")
    before = signal.getsignal(signal.SIGTERM)
    result = CliRunner().invoke(process, [file, "--jobs", jobs])
    assert result.exit_code == 143, result.output
    assert closed
    assert signal.getsignal(signal.SIGTERM) is before
