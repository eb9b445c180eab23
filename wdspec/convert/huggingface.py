"""Hugging Face: `load_dataset` in a Python file, also in `interleave_datasets` and `concatenate_datasets`.

The file is parsed and never run.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number, texts_in
from wdspec.convert.python_code import Code, keyword, name_of, parse_code

_MIXERS = ("interleave_datasets", "concatenate_datasets")
_READABLE = ("webdataset", "json", "parquet", "arrow")


def _parse(given: Given) -> Code | None:
    return parse_code(given.text, *(f"{each}(" for each in _CALLS), file=given.file)


def _convert(given: Given, new: NewSpec) -> None:
    code = _parse(given)
    assert code is not None, "it is recognised by its calls"
    reading = _Reading(code, new)
    mixers = [call for call in code.calls if name_of(call) in _MIXERS]
    inner = {id(each) for call in mixers for each in code.members(call, _CALLS)}
    tops = [call for call in mixers if id(call) not in inner] or mixers
    if len(tops) > 1:
        new.note(f"of {len(tops)} mixtures in this file the first is converted")
    if tops:
        new.spec.update(reading.mixture(tops[0], top=True))
    elif loads := [call for call in code.calls if name_of(call) == "load_dataset"]:
        new.spec.update(reading.single(loads))
    else:
        new.note("the file calls neither load_dataset nor interleave_datasets nor concatenate_datasets")
    new.note(
        "`map`, `filter`, `take`, `skip` and similar methods are not converted: use `map`, `select` and `limit`"
    )


@dataclass(frozen=True)
class _Reading:
    """The mixtures in a file."""

    code: Code
    new: NewSpec

    def mixture(self, call: ast.Call, *, top: bool = False) -> dict[str, Any]:
        new, code = self.new, self.code
        with code.inside(call):
            found = code.members(call, _CALLS)
            dataset = [self._member(each) for each in found]
        if not found:
            new.note(
                "the data sets of this mixture are made by code, which is not run; write `dataset:` by hand"
            )
        made: dict[str, Any] = {"dataset": dataset}
        if name_of(call) == "concatenate_datasets":
            return made
        given = call.args[1] if len(call.args) > 1 else keyword(call, "probabilities")
        listed = code.literal(given)
        shares = [number(share) for share in listed] if isinstance(listed, (list, tuple)) else []
        known = [share for share in shares if share is not None]
        if len(known) == len(shares) == len(dataset):
            key = "probability" if abs(sum(known) - 1) < 1e-6 else "weight"
            for source, share in zip(dataset, known, strict=True):
                source[key] = share
        else:
            if given is not None and not (isinstance(given, ast.Constant) and given.value is None):
                new.note(
                    f"line {call.lineno}: `probabilities` are not one number for each data set, or are set by code, "
                    "which is not run: write a `weight` for each source"
                )
            for source in dataset:
                source["weight"] = 1
            made["mix"] = {"draw": "round_robin"}
        if top:
            new.set_seed(code.literal(keyword(call, "seed")))
        strategy = code.literal(keyword(call, "stopping_strategy")) or "first_exhausted"
        new.note(
            f"`stopping_strategy={strategy!r}` is not converted: sources repeat, and an epoch ends after a number of "
            "samples: `epoch: …`"
        )
        return made

    def single(self, loads: list[ast.Call]) -> dict[str, Any]:
        """A spec of the data sets that a file loads without mixing them."""
        if len(loads) > 1:
            self.new.note(
                f"the file loads {len(loads)} data sets without mixing them: remove the sources that are not meant, or "
                "give each a share, such as `weight: 1`"
            )
        return {"dataset": [self._member(each) for each in loads]}

    def _member(self, node: ast.expr) -> dict[str, Any]:
        new = self.new
        if isinstance(node, ast.Call) and name_of(node) in _MIXERS:
            return {"name": new.name("mix"), **self.mixture(node)}
        if not isinstance(node, ast.Call) or name_of(node) not in ("load_dataset", "from_generator"):
            return new.unknown_source(node.lineno)
        path = str(self.code.literal(node.args[0] if node.args else keyword(node, "path")) or "unknown")
        split, bracket, _ = str(self.code.literal(keyword(node, "split")) or "train").partition("[")
        files = self.code.literal(keyword(node, "data_files"))
        if isinstance(files, dict):
            files = files.get(split, next(iter(files.values()), None))
        name = self.code.literal(node.args[1] if len(node.args) > 1 else keyword(node, "name"))
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
        revision = self.code.literal(keyword(node, "revision"))
        folder = self.code.literal(keyword(node, "data_dir"))
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


_CALLS = (*_MIXERS, "load_dataset")


DIALECT = Dialect(
    "huggingface", "`load_dataset` of Hugging Face", lambda given: _parse(given) is not None, _convert
)
