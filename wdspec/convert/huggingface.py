"""Hugging Face: `load_dataset` in a Python file, also in `interleave_datasets` and `concatenate_datasets`.

The file is parsed and never run.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number, texts_in

_MIXERS = ("interleave_datasets", "concatenate_datasets")
_READABLE = ("webdataset", "json", "parquet", "arrow")
_MOST_NAMES = 1000


def _recognises(given: Given) -> bool:
    return any(f"{each}(" in given.text for each in _CALLS) and parse_python(given.text) is not None


def _convert(given: Given, new: NewSpec) -> None:
    reading = Reading(parse_python(given.text) or ast.Module([], []), new, _CALLS)
    mixers = [call for call in reading.calls if read_call(call) in _MIXERS]
    inner = {id(each) for call in mixers for each in reading.members(call)}
    tops = [call for call in mixers if id(call) not in inner] or mixers
    if len(tops) > 1:
        new.note(f"of {len(tops)} mixtures in this file the first is converted")
    if tops:
        new.spec.update(reading.mixture(tops[0], top=True))
    elif loads := [call for call in reading.calls if read_call(call) == "load_dataset"]:
        new.spec.update(reading.single(loads))
    else:
        new.note("the file calls neither load_dataset nor interleave_datasets nor concatenate_datasets")
    new.note(
        "`map`, `filter`, `take`, `skip` and similar methods are not converted: use `map`, `select` and `limit`"
    )


class Reading:
    """Finds the data sets that a Python file makes and mixes.

    Args:
        tree: the file.
        new: the spec to fill.
        makers: the names of the functions that make or mix data sets; other methods are looked through.
    """

    def __init__(self, tree: ast.Module, new: NewSpec, makers: tuple[str, ...]) -> None:
        self._new, self._makers = new, makers
        self.calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
        self.calls.sort(key=lambda each: (each.lineno, each.col_offset))
        self._assigned: dict[str, ast.expr] = {}
        for each in ast.walk(tree):
            if (
                isinstance(each, ast.Assign)
                and len(each.targets) == 1
                and isinstance(each.targets[0], ast.Name)
            ):
                self._assigned.setdefault(each.targets[0].id, each.value)

    def members(self, call: ast.Call) -> list[ast.expr]:
        """The data sets that a call mixes, each as the call that makes it."""
        listed = call.args[0] if call.args else keyword_of(call, "datasets")
        listed = self._led_back(listed) if listed is not None else None
        return (
            [self._led_back(each) for each in listed.elts]
            if isinstance(listed, (ast.List, ast.Tuple))
            else []
        )

    def mixture(self, call: ast.Call, *, top: bool = False) -> dict[str, Any]:
        new, found = self._new, self.members(call)
        dataset = [self._member(each) for each in found]
        if not found:
            new.note(
                "the data sets of this mixture are made by code, which is not run; write `dataset:` by hand"
            )
        made: dict[str, Any] = {"dataset": dataset}
        if read_call(call) == "concatenate_datasets":
            return made
        given = call.args[1] if len(call.args) > 1 else keyword_of(call, "probabilities")
        shares = self.literal(given)
        if isinstance(shares, (list, tuple)) and len(shares) == len(dataset):
            key = "probability" if abs(sum(shares) - 1) < 1e-6 else "weight"
            for source, share in zip(dataset, shares, strict=True):
                source[key] = share
        else:
            for source in dataset:
                source["weight"] = 1
            made["mix"] = {"draw": "round_robin"}
        if top and (seed := number(self.literal(keyword_of(call, "seed")))) is not None:
            made["seed"] = int(seed)
        strategy = self.literal(keyword_of(call, "stopping_strategy")) or "first_exhausted"
        new.note(
            f"`stopping_strategy={strategy!r}` is not converted: sources repeat, and an epoch ends after a number of "
            "samples: `epoch: …`"
        )
        return made

    def single(self, loads: list[ast.Call]) -> dict[str, Any]:
        """A spec of the data sets that a file loads without mixing them."""
        if len(loads) > 1:
            self._new.note(
                f"the file loads {len(loads)} data sets without mixing them: remove the sources that are not meant, or "
                "give each a share, such as `weight: 1`"
            )
        return {"dataset": [self._member(each) for each in loads]}

    def _member(self, node: ast.expr) -> dict[str, Any]:
        new = self._new
        if isinstance(node, ast.Call) and read_call(node) in _MIXERS:
            return {"name": new.name("mix"), **self.mixture(node)}
        if not isinstance(node, ast.Call) or read_call(node) not in ("load_dataset", "from_generator"):
            new.note(
                f"line {node.lineno}: the code that makes this data set was not found; correct its `shards`"
            )
            return new.source("unknown", "unknown.tar")
        path = str(self.literal(node.args[0] if node.args else keyword_of(node, "path")) or "unknown")
        split, bracket, _ = str(self.literal(keyword_of(node, "split")) or "train").partition("[")
        files = self.literal(keyword_of(node, "data_files"))
        if isinstance(files, dict):
            files = files.get(split, next(iter(files.values()), None))
        name = self.literal(node.args[1] if len(node.args) > 1 else keyword_of(node, "name"))
        wanted = "-".join(str(each) for each in (path.rpartition("/")[2], name) if each)
        if bracket:
            new.note("a part of a split, as in `train[:10%]`, is not converted: use `limit`")
        if path in _READABLE and files:
            return new.source("", [new.path(each) for each in texts_in(files)])
        texts, note = self._files_on_hub(node, path, str(name or ""), split, texts_in(files))
        source = new.source(wanted, texts)
        new.note(f"{source['name']}: {note}")
        return source

    def _files_on_hub(
        self, node: ast.Call, path: str, name: str, split: str, files: list[str]
    ) -> tuple[list[str], str]:
        """Return the files of a data set on the Hub, and a note about them."""
        revision = self.literal(keyword_of(node, "revision"))
        folder = self.literal(keyword_of(node, "data_dir"))
        root = f"hf://datasets/{path}{f'@{revision}' if revision else ''}"
        readable = "its files must be tar, JSON lines, Parquet or Arrow; correct `shards` if they are others"
        if files:
            return [f"{root}/{each}" for each in files], readable
        if folder or revision:
            pattern = f"{root}/{folder or name or 'data'}/*{split}*.parquet"
            return [pattern], f"its files are guessed from its arguments, as Parquet; {readable}"
        return [f"{root}@~parquet/{name or 'default'}/{split}/*.parquet"], (
            "these are the Parquet files that the Hub makes of every public data set, as they are now; "
            "`wdspec lock` freezes the list"
        )

    def _led_back(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """Find the call that makes a data set, through variables and methods such as `.shuffle(…)`."""
        if depth > 20:
            return node
        if isinstance(node, ast.Name) and node.id in self._assigned:
            return self._led_back(self._assigned[node.id], depth + 1)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and read_call(node) not in self._makers
        ):
            return self._led_back(node.func.value, depth + 1)
        return node

    def literal(self, node: ast.expr | None) -> Any:
        """Return the value of an expression of literals and names; None for others."""
        try:
            return (
                None if node is None else ast.literal_eval(_Named(self._assigned).visit(copy.deepcopy(node)))
            )
        except (ValueError, TypeError, SyntaxError, RecursionError):
            return None


_CALLS = (*_MIXERS, "load_dataset")


class _Named(ast.NodeTransformer):
    """Replaces names by the values that were assigned to them; a name that refers to itself stays."""

    def __init__(self, assigned: dict[str, ast.expr], left: list[int] | None = None) -> None:
        self._assigned = assigned
        self._left = [_MOST_NAMES] if left is None else left

    def visit_Name(self, node: ast.Name) -> ast.AST:  # ast's own spelling
        if node.id not in self._assigned:
            return node
        self._left[0] -= 1
        if self._left[0] < 0:
            raise ValueError("too many names")
        others = {name: value for name, value in self._assigned.items() if name != node.id}
        found: ast.AST = _Named(others, self._left).visit(copy.deepcopy(self._assigned[node.id]))
        return found


def parse_python(text: str) -> ast.Module | None:
    """Parse a Python file; None if it is none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def read_call(call: ast.Call) -> str:
    """Return the name of the function that is called, without its module."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Return the keyword argument of a call; None if it has none of this name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


DIALECT = Dialect("huggingface", "`load_dataset` of Hugging Face", _recognises, _convert)
