"""Mixers of open-instruct: `dataset_mixer`, a map of names to fractions or counts; `dataset_mixer_list`, the same flat.

A number with a point is a fraction of a data set, also above 1; a whole number is a number of samples.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number, texts_in, with_text_keys

_ROLES = {"dataset_mixer": "train", "dataset_mixer_eval": "val"}
_OPTION = re.compile(r"--(dataset_mixer(?:_eval)?_list(?:_splits)?)((?:[^\S\n]+(?!--)\S+)+)")
"""An option and its values, which are in one line."""
_FILE = re.compile(r"\.(jsonl|json|parquet|csv)$")


def _recognises(given: Given) -> bool:
    return bool(_find_mixers(given).get("train"))


def _convert(given: Given, new: NewSpec) -> None:
    mixers = {role: entries for role, entries in _find_mixers(given).items() if entries}
    made = {role: _mix(entries, _splits(given, role), new) for role, entries in mixers.items()}
    has_val = "val" in made and made["val"]["dataset"]
    new.set_splits(made["train"], _val(made["val"]) if has_val else None)
    new.note(
        "templates and tokenizers are not converted: store token ids in the shards, or make them in a function of `map`"
    )


def _val(made: dict[str, Any]) -> dict[str, Any]:
    """Make the split of evaluation data: a pass, which ends after as many samples as the mixer took."""
    counts = [source.pop("samples", None) for source in made["dataset"]]
    limit = {"limit": counts[0]} if len(counts) == 1 and counts[0] is not None else {}
    return {"dataset": made["dataset"], **limit}


def _find_mixers(given: Given) -> dict[str, list[tuple[str, Any]]]:
    """Return the names and numbers of each mixer, by the split that it is for."""
    words = _words(given.text)
    found: dict[str, list[tuple[str, Any]]] = {}
    for key, role in _ROLES.items():
        entries = given.top.get(key)
        flat = _texts_or_numbers(given.top.get(f"{key}_list")) or words.get(f"{key}_list", [])
        found[role] = list(with_text_keys(entries).items()) or list(zip(flat[::2], flat[1::2], strict=False))
    return {
        role: [(str(name), value) for name, value in entries if number(value) is not None]
        for role, entries in found.items()
    }


def _texts_or_numbers(value: Any) -> list[Any]:
    """The texts and numbers of a list, or the words of a text."""
    if isinstance(value, str):
        return value.split()
    return [each for each in value if isinstance(each, (str, int, float))] if isinstance(value, list) else []


def _words(text: str) -> dict[str, list[Any]]:
    """The options of a command line, which may be in a script."""
    found = {}
    for name, values in _OPTION.findall(text.replace("\\\n", " ")):
        try:
            found[name] = shlex.split(values, comments=True)
        except ValueError:  # an open quote
            continue
    return found


def _splits(given: Given, role: str) -> list[str]:
    key = "dataset_mixer_list_splits" if role == "train" else "dataset_mixer_eval_list_splits"
    return (
        texts_in(given.top.get(key)) or [str(each) for each in _words(given.text).get(key, [])] or ["train"]
    )


def _mix(entries: list[tuple[str, Any]], splits: list[str], new: NewSpec) -> dict[str, Any]:
    dataset = []
    for at, (name, value) in enumerate(entries):
        if (number(value) or 0) > 0:
            dataset.append(_source(name, value, splits[at] if at < len(splits) else splits[0], new))
        else:
            new.note(f"`{name}: {value}` is left out: nothing of it was taken")
    if len(dataset) > 1:
        if all("samples" in each for each in dataset):
            return {"dataset": dataset, "mix": {"by": "samples"}}
        new.note_concatenated()
    return {"dataset": dataset}


def _source(name: str, value: Any, split: str, new: NewSpec) -> dict[str, Any]:
    texts = [
        new.path(name) if _FILE.search(name) else f"hf://datasets/{name}@~parquet/default/{split}/*.parquet"
    ]
    source = new.source(name.rpartition("/")[2] if not _FILE.search(name) else "", texts)
    amount = number(value)
    assert amount is not None, "entries have numbers"
    is_count = isinstance(amount, int) and "." not in str(value)
    if is_count:
        source["samples"] = max(1, int(amount))
        new.note(
            f"{source['name']}: {int(amount):,} samples of it were taken; write the part that this is of all its "
            "samples as `subset: …%`"
        )
    elif 0 < amount < 1:
        source["upsample"] = amount
        new.note_part(source, amount, f"{amount:g} of it")
    elif amount > 1:
        source["upsample"] = amount
        new.note(
            f"{source['name']}: it was read exactly {amount:g} times in an epoch; here that multiplies its size, so "
            "shares agree only in a long run; with `epoch: pass`, `repeat` does it exactly"
        )
    return source


DIALECT = Dialect("open-instruct", "a mixer of open-instruct", _recognises, _convert)
