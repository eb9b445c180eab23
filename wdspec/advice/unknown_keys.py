"""Entries of `keys` and `exclude` that are the key of no sample, in words: how keys look, and what would match."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from wdspec.shards.key_lists import show_entry
from wdspec.spec.rules.sources import name_file

_AT_ONCE = 1 << 16
KeysAreKnown = Callable[[Sequence[str]], Sequence[bool]]
"""Which of some texts are keys of samples."""


class UnknownKeys(NamedTuple):
    """What is known of the entries of a list that occur in no sample."""

    key: str
    """`keys` or `exclude`."""
    unknown: int
    entries: int
    example: str = ""
    """The first one."""
    sample: str = ""
    """The key of a sample."""
    hint: str = ""

    @property
    def is_usual(self) -> bool:
        """Whether `keys` is probably a list for more shards than these: some occur, and the others look alike."""
        forms = {re.sub(r"\d", "0", re.sub(r"[^\W\d_]", "a", key)) for key in (self.example, self.sample)}
        is_part = self.key == "keys" and self.unknown < self.entries
        return is_part and not self.hint and bool(self.example) and len(forms) == 1

    def describe(self, source: str) -> str:
        """Describe them."""
        message = (
            f"{self.unknown:,} of {self.entries:,} keys in `{self.key}` of `{source}` occur in no sample"
        )
        if not self.sample:
            return message
        shown = f"{self.example!r:.80}" if self.hint else show_entry(self.example, self.sample)
        return f"{message}, such as {shown}; keys look like {self.sample!r:.80}"


def find_unknown(
    key: str, entries: Iterable[str], are_known: KeysAreKnown, sample: str, folder: str
) -> UnknownKeys | None:
    """Find the entries of a list that occur in no sample.

    Args:
        key: `keys` or `exclude`.
        entries: of the list.
        are_known: which of them occur.
        sample: the key of a sample.
        folder: of the spec, for entries that are the name of a file.
    """
    unknown = count = 0
    example, left = "", iter(entries)
    while chunk := list(islice(left, _AT_ONCE)):
        count += len(chunk)
        for entry, is_known in zip(chunk, are_known(chunk), strict=True):
            if not is_known:
                example = example if unknown else entry
                unknown += 1
    if not unknown:
        return None
    tried = list(_try_others(example))
    found = [
        each for each, is_known in zip(tried, are_known([text for text, _ in tried]), strict=True) if is_known
    ]
    hint = f"{found[0][0]!r:.80} occurs: {found[0][1]}" if found else ""
    if not found and "\0" not in example and os.path.isfile(os.path.join(folder, example)):
        hint = name_file(example)
    return UnknownKeys(key, unknown, count, example, sample, hint)


def _try_others(entry: str) -> Iterator[tuple[str, str]]:
    """What an entry may have meant, and what to do."""
    bare = entry.strip().strip(",").strip("\"'")
    yield entry.strip(), "write the keys without blanks around them"
    yield bare, "write the keys without quotes"
    yield f"./{bare}", "write the keys with `./`"
    yield bare.removeprefix("./"), "write the keys without `./`"
    yield re.split(r"[,;\t]", bare)[0].strip("\"' "), "write only the column with the keys"
    yield bare.rpartition(".")[0], f"write the keys without `.{bare.rpartition('.')[2]}`"
    yield bare.rpartition("/")[2].partition(".")[0], "write the keys without folders and endings"
    try:
        values = json.loads(entry)
    except ValueError:
        return
    for value in (
        values[:1] if isinstance(values, list) else values.values() if isinstance(values, dict) else ()
    ):
        yield str(value), "write one key per line, not JSON"
