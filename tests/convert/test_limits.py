"""Files that would take minutes to convert are refused, or not read, before the work starts."""

import time

import pytest
from commandline import within

FILES = {
    "a command line": ("train.sh", "--train-data " + "a.tar::" * 200_000, "more than 262,144 characters"),
    "a list of shards": ("train.sh", "a.tar::" * 200_000, "more than 262,144 characters"),
    "a number to the base of 60": ("a.yaml", "a: 1" + ":1" * 400_000, "not a format of a known tool"),
    "a fraction to the base of 60": (
        "a.yaml",
        "a: 1" + ":1" * 400_000 + ".5",
        "not a format of a known tool",
    ),
    "keys": ("a.yaml", "\n".join(f"{n}: 1" for n in range(400_000)), "more than 100,000 values"),
    "calls": ("a.py", "load_dataset" + "()" * 600_000, "not a format of a known tool"),
}


@pytest.mark.parametrize(
    "name", [pytest.param("keys", marks=pytest.mark.long), *sorted(FILES.keys() - {"keys"})]
)
def test_a_file_that_takes_too_long_is_refused(name, tmp_path):
    file, text, message = FILES[name]
    (tmp_path / file).write_text(text)
    start = time.process_time()
    _, err = within("convert", file, folder=tmp_path, code=1)
    assert time.process_time() - start < 12
    assert message in err


def test_values_that_names_repeat_are_read_up_to_a_limit(tmp_path):
    code = ["from datasets import load_dataset", "v0 = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]"]
    code += [f"v{n} = [{', '.join([f'v{n - 1}'] * 10)}]" for n in range(1, 5)]
    code += [f"load_dataset('json', data_files=v4, split='s{n}')" for n in range(100)]
    (tmp_path / "mix.py").write_text("\n".join(code))
    start = time.process_time()
    within("convert", "mix.py", folder=tmp_path)
    assert time.process_time() - start < 12


def test_usual_numbers_are_still_numbers(tmp_path):
    (tmp_path / "spec.yaml").write_text("a: 1")
    from wdspec.convert.dialect import Given

    assert Given.of_text("a: 10\nb: 1:30\nc: 1.5\nd: 1:30.5\n", str(tmp_path)).top == {
        "a": 10, "b": 90, "c": 1.5, "d": 90.5
    }  # fmt: skip
