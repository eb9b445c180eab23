"""Rows of CSV and JSON Lines: all that a writer wrote, or an error with the line."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdspec.base.text_rows import RowError, read_csv, read_json_lines

CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=3), max_size=5), st.sampled_from(",\t"))
def test_csv_gives_what_pythons_writer_wrote(rows, delimiter):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter).writerows(rows)
    lines = io.StringIO(file.getvalue(), newline="")
    assert [cells for _, cells in read_csv(lines, delimiter)] == rows


def test_a_cell_may_have_a_long_document():
    assert [*read_csv(["key,text\n", f"a,{'x' * 2_000_000}\n"], ",")] == [
        (1, ["key", "text"]),
        (2, ["a", "x" * 2_000_000]),
    ]


@pytest.mark.parametrize("cell", ['"no end', '"text" after'])
def test_a_quote_in_the_wrong_place_does_not_swallow_the_rows_after_it(cell):
    with pytest.raises(RowError, match='write `"` in a cell twice') as error:
        list(read_csv(["a,b\n", '"two\n', 'lines",x\n', f"1,{cell}\n", "2,x\n", "3,x\n"], ","))
    assert error.value.line == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "'a' occurs twice"),
        ("[1]", "an object, not list"),
        ('{"a":', "is not JSON"),
    ],
)
def test_a_line_that_is_no_row_is_named(line, message):
    with pytest.raises(RowError, match=message) as error:
        list(read_json_lines([json.dumps({"a": 0}), "", line]))
    assert error.value.line == 3
