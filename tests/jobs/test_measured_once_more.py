"""Shards are read once more if, and only if, the spec now reads them differently: `check --report` and `stats`."""

import json
import shutil
import sqlite3

import pytest
from commandline import within
from shardmaking import write_shard

import wdspec
from wdspec.jobs.check import job
from wdspec.spec import reading


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for shard in range(2):
        samples = [(f"{shard}{n}", {"txt": b"x" * (n + 1), "json": b'{"id": %d}' % n}) for n in range(4)]
        write_shard(folder / f"a-{shard}.tar", samples)
    return folder


def write_spec(folder, source, more="", top=""):
    (folder / "s.yaml").write_text(
        f"wdspec: 1\n{top}\ndataset:\n- name: a\n  shards: 'a-{{0..1}}.tar'\n  {source}\n{more}"
    )


def check(folder):
    out, said = within(
        "check",
        "s.yaml",
        "--all",
        "--jobs",
        "0",
        "--report",
        "r.db",
        "--format",
        "json",
        folder=folder,
        code=0,
    )
    return json.loads(out)["sources"]["a"], said


def delivered(folder):
    return check(folder)[0]["delivered"]


@pytest.fixture
def is_checked_again(monkeypatch):
    read, look = [], job.look_at
    monkeypatch.setattr(job, "look_at", lambda task: read.append(facts := look(task)) or facts)

    def ask(folder):
        read.clear()
        check(folder)
        assert len({facts.is_unchanged for facts in read}) == 1
        return not read[0].is_unchanged

    return ask


def measure(folder, *arguments):
    within("stats", "s.yaml", "-o", "s.json", "--jobs", "0", *arguments, folder=folder, code=0)
    return json.loads((folder / "s.json").read_text())["sources"]["a"]


def test_a_list_of_keys_that_has_changed_is_checked_again(folder):
    (folder / "keys.txt").write_text("00\n01\n12\n")
    write_spec(folder, "keys: '@keys.txt'")
    assert delivered(folder) == 3
    (folder / "keys.txt").write_text("12\n")
    assert delivered(folder) == 1


def test_a_named_expression_that_has_changed_is_checked_again(folder, is_checked_again):
    write_spec(folder, "where: q > 1", top="costs: {q: txt.length}")
    assert delivered(folder) == 6
    write_spec(folder, "where: q > 1", top="costs: {q: json.id}")
    assert delivered(folder) == 4
    write_spec(folder, "where: q > 1", top="costs: {q: json.id, unused: 3}")
    assert not is_checked_again(folder)


def test_lengths_are_measured_again_after_the_rows_of_a_table_have_changed(folder):
    for text in ("abc", "abcdefgh"):
        rows = [{"key": f"{shard}{n}", "words": text} for shard in range(2) for n in range(4)]
        (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
        write_spec(folder, "lookup: {table: t.jsonl, fields: [words]}")
        assert measure(folder, "--lengths")["lengths"]["words"]["mean"] == len(text)


@pytest.mark.parametrize(
    "change",
    [
        "license: CC0-1.0",
        "homepage: https://example.org",
        "mean_cost: 3",
        "cache: copies",
        "errors: {log: skips.jsonl}",
        "errors: {timeout: 3m}",
        "errors: {retry: 2m}",
        "errors: {skip: true, max_rate: 0.1}",
        "expect: {samples: 8}",
        "storage: {region: eu}",
        "rewrite: [{from: x, to: y}]",
        "# a comment",
    ],
)
def test_a_key_that_changes_no_sample_leaves_a_report_valid(change, folder, is_checked_again):
    write_spec(folder, "revision: v1")
    check(folder)
    write_spec(folder, f"revision: v2\n  {change}")
    assert not is_checked_again(folder)


def test_a_comment_above_a_rewrite_rule_leaves_a_report_valid(folder, is_checked_again):
    rule = "rewrite: [{from: x, to: y}]"
    write_spec(folder, rule)
    check(folder)
    write_spec(folder, f"# a comment\n  {rule}")
    assert not is_checked_again(folder)


def test_a_report_stays_valid_if_the_folder_moves(folder, is_checked_again):
    (folder / "keys.txt").write_text("00\n01\n12\n")
    write_spec(folder, "keys: '@keys.txt'")
    check(folder)
    moved = folder.with_name("moved")
    shutil.move(folder, moved)
    assert not is_checked_again(moved)


def test_measurements_of_joined_and_looked_up_samples_stay_valid_if_the_folder_moves(folder):
    rows = [{"key": f"{shard}{n}", "words": "abc"} for shard in range(2) for n in range(4)]
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for shard in range(2):
        write_shard(folder / f"b-{shard}.tar", [(f"{shard}{n}", {"cls": b"1"}) for n in range(4)])
    write_spec(
        folder,
        "where: cls == 1",
        "  lookup: {table: t.jsonl, fields: [words]}\n  join: {shards: 'b-{0..1}.tar'}",
    )
    first = measure(folder, "--lengths")
    moved = folder.with_name("moved")
    shutil.move(folder, moved)
    second = measure(moved, "--lengths")
    for digest in ("reading", "decoding", "keeping"):
        assert second.get(digest) == first.get(digest)
    assert first["keeping"]


def test_results_of_an_older_version_are_replaced_and_it_says_so(folder):
    write_spec(folder, "revision: v1")
    check(folder)
    measure(folder)
    with sqlite3.connect(folder / "r.db") as database:
        database.execute("PRAGMA user_version = 2")
    _, said = check(folder)
    assert "`r.db` is of an older version of wdspec, so all shards are checked again" in said
    text = (folder / "s.json").read_text()
    (folder / "s.json").write_text(text.replace('"stats": 2', '"stats": 1'))
    _, said = within("stats", "s.yaml", "-o", "s.json", "--jobs", "0", folder=folder, code=0)
    assert "`s.json` is replaced, and all shards are read again: it was written by another wdspec" in said
    assert (folder / "s.json").read_text() == text


NAMES = ["x" * n for n in range(1, 5)]


def make_labels(*keys):
    return f"make: {{number: {{{', '.join(('label: txt', 'file: names.txt', *keys))}}}}}"


def test_a_default_of_a_step_that_is_written_out_leaves_a_report_valid(folder, is_checked_again):
    (folder / "names.txt").write_text("\n".join(NAMES))
    write_spec(folder, make_labels())
    check(folder)
    write_spec(folder, make_labels("unknown: error", "aliases: {}"))
    assert not is_checked_again(folder)
    write_spec(folder, make_labels("unknown: 7"))
    assert is_checked_again(folder)


def test_another_seed_leaves_a_report_valid_unless_a_step_draws_numbers(folder, is_checked_again):
    for steps, is_changed in (
        ("decode: {txt: txt}", False),
        ("make: {one: {choose: [txt, json]}}", True),
        ("scale: [0.5, 2]", True),
        ("decode: {jpg: rgb8+hflip=0.5}", True),
    ):
        write_spec(folder, steps, top="seed: 1")
        check(folder)
        write_spec(folder, steps, top="seed: 2")
        assert is_checked_again(folder) is is_changed, steps


def test_what_a_selection_keeps_is_counted_again_only_for_steps_that_it_reads(folder):
    def digest(where, *options, names=NAMES):
        (folder / "names.txt").write_text("\n".join(names))
        write_spec(folder, make_labels(*options), f"  where: {where}")
        return measure(folder)["keeping"]

    for where, is_same in (("txt.length > 1", True), ("number > 1", False)):
        first = digest(where)
        assert (digest(where, "unknown: 7") == first) is is_same
        assert (digest(where, names=NAMES[::-1]) == first) is is_same


def test_what_a_selection_keeps_is_counted_again_only_for_decoders_that_it_reads(folder):
    def digest(decoder, source="make: {number: {label: txt, file: names.txt}}", where="number > 1"):
        write_spec(folder, source, f"  where: {where}\n  decode: {{{decoder}}}")
        return measure(folder)["keeping"]

    (folder / "names.txt").write_text("\n".join(NAMES))
    for other in ("json: raw", "jpg: rgb8+center_crop=64", "jpg: rgb8+center_crop=96"):
        assert digest(other) == digest("")
    for read in ("txt: text", "low.txt: text"):
        assert digest(read) != digest("")
    renamed = "rename: {text: txt}", "text.length > 1"
    for read in ("txt: text", "text: text"):
        assert digest(read, *renamed) != digest("", *renamed)
    (folder / "t.jsonl").write_text('{"id": 1, "score": 2}')
    looked_up = "lookup: {table: t.jsonl, on: json.id, fields: score, missing: none}", "score == 2"
    assert digest("json: json", *looked_up) != digest("", *looked_up)


def test_a_count_of_an_older_version_stays_valid_if_no_decoder_has_changed(folder):
    def load(crop):
        write_spec(folder, f"decode: {{jpg: rgb8+center_crop={crop}}}", "  where: txt.length > 1")
        spec = wdspec.load(folder / "s.yaml")
        return spec, spec.sources[0], {}

    spec, source, _ = load(64)
    before = reading._digest(reading.describe_reading(spec, source, "shard damage choice again"))
    assert reading.digest_keeping(spec, source, {}) != before
    assert reading.is_same_selection(before, *load(64))
    assert not reading.is_same_selection(before, *load(96))
    assert not reading.is_same_selection("", *load(64))


def write_objects(folder, count, place="objects"):
    (folder / place).mkdir(exist_ok=True)
    for n in range(count):
        (folder / place / str(n)).write_bytes(b"o" * (n + 1))


def fetch_from(place, missing="error"):
    return f"fetch: {{image: {{url: json.id, root: {place}, missing: {missing}}}}}"


@pytest.fixture
def objects(folder):
    for shard in range(2):
        rows = [(f"{shard}{n}", {"json": json.dumps({"id": str(n)}).encode()}) for n in range(4)]
        write_shard(folder / f"a-{shard}.tar", rows)
    write_objects(folder, 4)
    return folder


@pytest.mark.parametrize("missing", ["error", "skip"])
def test_objects_that_were_missing_are_checked_again(missing, objects, is_checked_again):
    (objects / "objects" / "3").unlink()
    write_spec(objects, fetch_from("objects", missing))
    arguments = "check", "s.yaml", "--all", "--jobs", "0", "--report", "r.db"
    within(*arguments, folder=objects, code=1 if missing == "error" else 0)
    write_objects(objects, 4)
    assert delivered(objects) == 8
    assert not is_checked_again(objects)


def test_objects_of_another_place_are_checked_and_measured_again(objects):
    write_spec(objects, fetch_from("objects"))
    assert delivered(objects) == 8
    before = measure(objects, "--lengths")["decoding"]
    write_spec(objects, fetch_from("others"))
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", "--report", "r.db", folder=objects, code=1)
    assert "the `root` of `fetch` is not a directory" in out
    write_objects(objects, 4, "others")
    assert delivered(objects) == 8
    assert measure(objects, "--lengths")["decoding"] != before


def test_a_report_of_fetched_objects_stays_valid_if_the_folder_moves(objects, is_checked_again):
    write_spec(objects, fetch_from("objects"))
    check(objects)
    moved = objects.with_name("moved")
    shutil.move(objects, moved)
    assert not is_checked_again(moved)


def test_costs_are_measured_again_after_the_rows_of_a_table_have_changed(folder, monkeypatch):
    monkeypatch.chdir(folder)
    top = "stats: s.json\nmix: {shares_in: cost}\nbatch: {cost: tokens, max_cost: 99}"
    for tokens in (3, 30):
        rows = [{"key": f"{shard}{n}", "tokens": tokens} for shard in range(2) for n in range(4)]
        (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
        write_spec(
            folder,
            "lookup: {table: t.jsonl, fields: [tokens]}",
            "- {name: b, shards: a-0.tar, tags: {tokens: 5}}",
            top,
        )
        if tokens == 30:
            with pytest.warns(UserWarning, match="`a` follows its mean cost, which was measured with other"):
                wdspec.plan("s.yaml")
        assert measure(folder)["cost"] == tokens


def test_joined_and_looked_up_samples_are_checked_again_only_after_a_change_of_these(
    folder, is_checked_again
):
    def write_partners(text):
        for shard in range(2):
            write_shard(folder / f"b-{shard}.tar", [(f"{shard}{n}", {"cap": text}) for n in range(4)])

    def write_table(text):
        rows = [{"key": f"{shard}{n}", "words": text} for shard in range(2) for n in range(4)]
        (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))

    write_partners(b"a")
    write_table("a")
    write_spec(folder, "join: {shards: 'b-{0..1}.tar'}", "  lookup: {table: t.jsonl, fields: [words]}")
    check(folder)
    assert not is_checked_again(folder)
    for change in (lambda: write_partners(b"b" * 10_000), lambda: write_table("b")):
        change()
        assert is_checked_again(folder)
        assert not is_checked_again(folder)
    within("lock", "s.yaml", folder=folder, code=0)
    arguments = "check", "s.yaml", "--all", "--jobs", "0", "--changed", "s.lock.json", "--format", "json"
    out, _ = within(*arguments, folder=folder)
    assert (
        json.loads(out)["sources"]["a"]["as_locked"] == 0
    )  # a lock does not say what was found of their parts


_CLASSES = "make: {number: {label: txt, names: [x, xx, xxx], unknown: -1}}"


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ((_CLASSES, "number >= 0"), (_CLASSES, "number >= 1"), "`where`"),
        ((_CLASSES, "number >= 0"), (_CLASSES.replace("xx,", "xx,y,"), "number >= 0"), "`make: number`"),
        ((_CLASSES, "number >= 0"), (f"extensions: txt json\n  {_CLASSES}", "number >= 0"), "`extensions`"),
        ((_CLASSES, "number >= 0"), (_CLASSES, "number >= 0"), ""),
        ((_CLASSES, "txt.length > 1"), (_CLASSES.replace("xx,", "xx,y,"), "txt.length > 1"), ""),
    ],
)
def test_a_selection_that_has_changed_since_it_was_counted_is_said_by_validate_and_by_a_run(
    folder, before, now, named
):
    def write(source, where):
        write_spec(
            folder,
            source,
            f"  where: {where}",
            "epoch: {pass: pad, reshuffle: true}\nstats: s.json\nbatch: 1",
        )

    write(*before)
    measure(folder)
    write(*now)
    said = within("validate", "s.yaml", folder=folder)[0]
    message = f"W108 sources whose kept samples were counted with another {named}: `a`"
    assert ("W108" in said, message in said) == (bool(named), bool(named)), said
    spec = wdspec.load(folder / "s.yaml")
    if not named:
        wdspec.plan(spec)
        return
    with pytest.raises(wdspec.UsageError, match=f"as {named} changed since they were counted"):
        wdspec.plan(spec)
    within("stats", "s.yaml", folder=folder)  # the remedy
    assert "W108" not in within("validate", "s.yaml", folder=folder)[0]
    wdspec.plan(wdspec.load(folder / "s.yaml"))


def test_a_selection_that_was_not_counted_is_said_by_validate_if_a_run_needs_the_count(folder):
    top = "epoch: {pass: pad, reshuffle: true}\nstats: s.json\nbatch: 1"
    write_spec(folder, "", "", top)
    measure(folder)
    write_spec(folder, "where: txt.length > 1", "", top)
    said = within("validate", "s.yaml", folder=folder)[0]
    assert "W108 sources of which no one counted how many samples `where` or `keys_of` keeps: `a`" in said
    write_spec(folder, "where: txt.length > 1", "", "stats: s.json\nbatch: 1\nepoch: 4")
    assert "W108" not in within("validate", "s.yaml", folder=folder)[0]


def test_a_count_with_a_digest_of_an_older_version_stays_valid(folder):
    write_spec(folder, "where: txt.length > 1")
    spec = wdspec.load(folder / "s.yaml")
    source = spec.sources[0]
    before = reading._digest(reading._describe_choice(spec, source, {}))
    assert reading.is_same_selection(before, spec, source, {})
    assert reading.changed_selection(before, spec, source, {}) == []
