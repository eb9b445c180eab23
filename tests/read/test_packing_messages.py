"""What is said about rows that cannot be packed: in the words of `pack`, where its user wrote no others."""

import json

import pytest
from commandline import within
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import FieldError
from wdspec.spec.load import check

SOURCE = "dataset:\n  - {name: a, shards: a.tar, make: {ids: {take: json.ids}}%s}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = [
        (f"k{n:02}", {"json": json.dumps({"ids": [*range(5 * n + 1)]}).encode(), "txt": b"x"})
        for n in range(12)
    ]
    write_shard(tmp_path / "a.tar", samples)
    return tmp_path


def read(folder, batch):
    (folder / "s.yaml").write_text(f"{SOURCE % ''}batch: {{{batch}}}\n")
    with wdspec.loader("s.yaml", num_workers=0) as loader:
        for _, _batch in zip(range(4), loader, strict=False):
            pass


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (
            "pack: {fields: ids, length: 16}",
            "elements of `ids`, and `length` of `pack` is 16; raise it, or set `overlong` to `drop`, `truncate` or "
            "`split`",
        ),
        ("pack: {fields: ids}, max_tokens: 8", "elements of `ids`, and `max_tokens` is 8; raise it"),
        ("pack: {fields: ids}, max_cost: 8", "elements of `ids`, and `max_cost` is 8; raise it"),
        (
            "pack: {fields: ids, length: 16}, cost: 2 * ids.length",
            ", and `length` of `pack` is 16; raise it, or set `overlong` to `drop` [",
        ),
        (
            "cost: ids.length, max_tokens: 16",
            ", and `max_tokens` is 16; raise it, or set `overlong` to `drop` or `alone`",
        ),
        (
            "pack: {fields: ids, length: 16}, cost: ids.length / 2, overlong: drop",
            "`batch.cost` says less than their fields have; correct it, or leave it out to use the length of `ids`",
        ),
        ("pack: {fields: idz, length: 512}", "`pack` needs the field `idz`, which the sample does not have"),
    ],
)
def test_the_limit_of_a_row_has_the_name_that_the_user_gave_it(folder, batch, says):
    with pytest.raises(FieldError) as caught:
        read(folder, batch)
    assert says in str(caught.value)


def test_advice_on_windows_names_the_length_of_a_row(folder):
    (folder / "s.yaml").write_text(
        f"{SOURCE % ''}batch: {{pack: {{fields: ids, length: 4096}}, window: 8}}\nfields: ids\n"
    )
    out, said = within("explain", "s.yaml")
    assert "of `length` of `pack`, so batches are never full" in out + said


@pytest.mark.parametrize(
    ("top", "line", "message", "hint"),
    [
        (
            "batch: {pack: {fields: [ids, txt], length: 512}}\nfields: ids\n",
            3,
            "rows are packed of `txt`, but `fields` leaves it out",
            "add `txt` to `fields`",
        ),
        (
            "batch: {pack: {fields: [ids, labels], length: 512}}\nfields: ids labels txt\n",
            3,
            "there is no field `labels` before `map`: samples of `a` have `json`, `txt`, `ids`",
            "name one of these",
        ),
        (
            "batch: {pack: {fields: [ids], length: 512}, cost: lens.length}\nfields: ids\n",
            3,
            "there is no field `lens` before `map`: samples of `a` have `json`, `txt`, `ids`",
            "name one of these, or write `default(lens.length, 0)`",
        ),
        ("batch: {pack: {fields: [ids], length: 512}}\nfields: 'i*'\n", 0, "", ""),
        ("batch: {pack: {fields: [ids], length: 512}}\nfields: ids;tokens\n", 0, "", ""),
    ],
)
def test_a_packed_field_that_no_row_can_have_is_an_error_of_the_spec(folder, top, line, message, hint):
    (folder / "s.yaml").write_text(SOURCE % ", extensions: json txt" + top)
    found = [each for each in check("s.yaml")[1] if each.code == "E316"]
    expected = [(line, message, hint)] if message else []
    assert [(each.line, each.message, each.hint) for each in found] == expected


@pytest.mark.parametrize(("name", "hint"), [("id", "did you mean `ids`?"), ("txt", "add `txt` to `fields`")])
def test_a_packed_field_that_is_nearly_a_made_one_is_that_one(folder, name, hint):
    (folder / "s.yaml").write_text(
        f"{SOURCE % ''}batch: {{pack: {{fields: {name}, length: 512}}}}\nfields: ids\n"
    )
    assert [each.hint for each in check("s.yaml")[1] if each.code == "E316"] == [hint]


def test_explain_names_packed_fields_that_no_file_has(folder):
    (folder / "s.yaml").write_text(f"{SOURCE % ''}batch: {{pack: {{fields: [ids, labels], length: 512}}}}\n")
    out, said = within("explain", "s.yaml")
    assert "W503" in out + said
    assert "`labels`" in out + said
    within("validate", "--strict", "s.yaml")
