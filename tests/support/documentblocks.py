"""The code blocks of a document, run like the cells of a notebook."""

import ast
import contextlib
import io
import re
import subprocess
from pathlib import Path

import wdspec

BLOCKS = Path(__file__).parents[1] / "documents" / "blocks"
_BLOCK = re.compile(r"^```(\w*) (\d+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(document):
    """number → (language, text) of all code blocks of a document, in order."""
    text = (BLOCKS / f"{document}.md").read_text()
    return {int(number): (language, code) for language, number, code in _BLOCK.findall(text)}


class Shown:
    """What a cell shows: its printed text, and the value of its last line."""

    def __init__(self, text, value):
        self.text, self.value = text, value


class Notebook:
    """Runs blocks of one document in one namespace; `webdataset` is wdspec in it, and nothing else is changed.

    Args:
        document: its name.
        environ: the environment of shell lines; Python's own is the caller's business.
        given: names that the document uses and leaves to the reader.
    """

    def __init__(self, document, environ, **given):
        self.blocks = blocks_of(document)
        self.environ = environ
        self.names = {"__name__": "notebook", "webdataset": wdspec, "wds": wdspec, **given}

    def run(self, *numbers, replace=()):
        """Runs blocks; returns what the last one shows.

        Args:
            numbers: the blocks.
            replace: pairs (text of the document, corrected text), for errors in the document.
        """
        shown = Shown("", None)
        for number in numbers:
            language, code = self.blocks[number]
            for wrong, right in replace:
                code = code.replace(wrong, right)
            shell = language == "bash" or code.startswith("%%bash")
            shown = Shown(self.shell(code.removeprefix("%%bash\n")), None) if shell else self.python(code)
        return shown

    def shell(self, command):
        """What a shell command prints."""
        done = subprocess.run(
            ["bash", "-c", command], env=self.environ, capture_output=True, text=True, timeout=200, check=True
        )
        return done.stdout

    def python(self, code):
        """Runs a cell of Python, with IPython's lines for the shell and for magic."""
        self.names["_shell"] = lambda command: print(self.shell(command), end="")
        tree = ast.parse("\n".join(map(_translated, code.splitlines())))
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, "cell", "exec"), self.names)
            value = eval(compile(last, "cell", "eval"), self.names) if last else None
        return Shown(printed.getvalue(), value)


def _translated(line):
    body = line.lstrip()
    if body.startswith("!"):
        return line.replace(body, f"_shell({body[1:].strip()!r})")
    if body.startswith("%pylab"):
        return "from numpy import *; import numpy as np"
    if body.startswith("%"):
        return ""
    return re.sub(r"^import webdataset as", "import wdspec as", line)
