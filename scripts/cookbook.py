"""Run the recipes of docs/cookbook, and write the fields of their batches into the pages: python scripts/cookbook.py"""

import contextlib
import importlib.util
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

from wdspec.cli.main import main
from wdspec.cli.samples import describe_value, first_batch
from wdspec.spec.load import load

COOKBOOK = Path(__file__).parents[1] / "docs" / "cookbook"
RECIPES = sorted(path.stem for path in COOKBOOK.glob("*.md") if path.stem != "README")
_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(<!-- table -->).*?(<!-- end -->)", re.DOTALL)
MOST_LINES = 30


def page_of(name):
    return (COOKBOOK / f"{name}.md").read_text(encoding="utf-8")


def prepare(name, folder):
    """Write the data and files of a recipe into a folder, run its commands there, and return its script."""
    spec = importlib.util.spec_from_file_location("make_data", COOKBOOK / "make_data.py")
    make_data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_data)
    folder = Path(folder)
    make_data.make(name, folder / "data")
    script, commands = "", ""
    for language, file, text in _BLOCK.findall(page_of(name)):
        if language == "yaml":
            assert len(text.splitlines()) <= MOST_LINES, f"a spec of {name} is too long"
            (folder / (file or "recipe.yaml")).write_text(text)
        elif language == "bash":
            commands += text
        elif file:
            (folder / file).write_text(text)
        else:
            script += text
    with within(folder):
        for command in commands.splitlines():
            run(command)
    return script


def run(command):
    """Run a line `wdspec …` in this process; its output is only shown if it fails."""
    program, *arguments = shlex.split(command)
    assert program == "wdspec", command
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            main(arguments)
        except SystemExit as done:
            if done.code:
                raise RuntimeError(out.getvalue()) from done


def table(folder):
    """The fields of the first batch, with types and shapes, as a table."""
    path = Path(folder) / "recipe.yaml"
    split = "train" if "splits:" in path.read_text() else None
    rows = [(name, *describe_value(value)[:2]) for name, value in first_batch(load(path, split=split))]
    lines = [f"| `{name}` | {kind} | {size} |" for name, kind, size in rows if not name.startswith("__")]
    return "\n".join(["| field | type | shape or size |", "|--|--|--|", *lines])


def with_table(name, made):
    return _TABLE.sub(lambda found: f"{found[1]}\n{made}\n{found[2]}", page_of(name))


@contextlib.contextmanager
def within(folder):
    before, path = os.getcwd(), list(sys.path)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for file in Path(folder).glob("*.py"):
            sys.modules.pop(file.stem, None)  # the next folder may have a module of that name


if __name__ == "__main__":
    for name in RECIPES:
        with tempfile.TemporaryDirectory() as folder, within(folder):
            exec(prepare(name, folder), {"__name__": "recipe"})
            (COOKBOOK / f"{name}.md").write_text(with_table(name, table(folder)), encoding="utf-8")
