"""Rules for texts under `shards` that look like something else than they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from wdspec.base.errors import UrlError
from wdspec.spec.build import Composition
from wdspec.spec.problems import quoted
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.sources import Draft
from wdspec.spec.tree import ListNode, Scalar
from wdspec.urls.urls import FSSPEC, Part, is_command, parse_shards, row_of


def shard_texts(composition: Composition) -> Iterator[tuple[Draft, Scalar, Sequence[Part] | UrlError]]:
    """Every entry of every `shards` that is a text with something in it: its source, itself, the URLs it stands for."""
    for leaf in composition.leaves:
        shards = leaf.node.get("shards")
        for item in shards.items if isinstance(shards, ListNode) else (shards,):
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.strip():
                yield leaf, item, _parsed(item.value, item.base)


def parts_of(composition: Composition) -> Iterator[tuple[Draft, Scalar, Sequence[Part]]]:
    """Those that can be read."""
    for leaf, text, parts in shard_texts(composition):
        if not isinstance(parts, UrlError):  # E213
            yield leaf, text, parts


def written_texts(composition: Composition) -> Iterator[tuple[Scalar, str]]:
    """Every such text as it is written; one that several sources inherit comes once."""
    texts = {id(text): text for _, text, _ in shard_texts(composition)}
    return ((text, str(text.value)) for text in texts.values())


@lru_cache(maxsize=4096)
def _parsed(text: str, base: str) -> Sequence[Part] | UrlError:
    try:
        return parse_shards((text,), base)
    except UrlError as error:
        return error


@rule(
    "E213",
    "wrong braces or `::` in shards",
    "Braces hold a range that counts up, `{000..123}`, or alternatives, `{a,b}`; `::` separates shard lists.",
    keys="shards",
    bad="dataset:\n  - shards: a-{0009..0000}.tar\n",
    good="dataset:\n  - shards: a-{0000..0009}.tar\n",
)
def brace_syntax(composition: Composition) -> Findings:
    """Each wrong text, at the character where it is wrong."""
    for _, text, error in shard_texts(composition):
        if isinstance(error, UrlError):
            column = None if error.column is None else text.column_at(error.column)
            yield Finding(text, error.message, column=column)


_BETWEEN = r"\s*(?:\.{3,}|\.|-|–|:|;|~|to|\.\s+\.|,\s*\.+\s*,)\s*"
_RANGE = re.compile(
    rf"\{{\s*(\d+){_BETWEEN}(\d+)\s*\}}"
    r"|\[(\d{2,})\s*(?:-|\.\.)\s*(\d{2,})\]|\((\d+)\s*\.\.\s*(\d+)\)|(?<![{\d.])(\d+)\.\.(\d+)(?![}\d]|\.\.)"
)
_ENDS = re.compile(r"\{(\w+)\.\.(\w+)\}")
_IS_END = (re.compile(r"\d+"), re.compile(r"[A-Za-z]"))


@rule(
    "W311",
    "a range that is none",
    "Braces count with two dots: `{000..123}`. Anything else between them stands for itself, braces and all.",
    keys="shards",
    bad="dataset:\n  - shards: 'a-{000-123}.tar'\n",
    good="dataset:\n  - shards: 'a-{000..123}.tar'\n",
)
def mistyped_ranges(composition: Composition) -> Findings:
    """Two numbers in braces with three dots, one dot, a hyphen, a colon, a semicolon or words between them; or in other
    brackets than braces, or in none; or two ends of which one is no number."""
    for text, written in written_texts(composition):
        for braces in _RANGE.finditer(written):
            low, high = (end for end in braces.groups() if end is not None)
            message = f"`{braces[0]}` is no range, it stands for itself"
            yield Finding(
                text,
                message,
                f"write `{{{low}..{high}}}`",
                text.column_at(braces.start()),
            )
        for braces in _ENDS.finditer(written):
            if not any(kind.fullmatch(braces[1]) and kind.fullmatch(braces[2]) for kind in _IS_END):
                message = f"`{braces[0]}` is no range, it stands for itself: its ends are no two numbers"
                yield Finding(text, message, "write `{000..123}`", text.column_at(braces.start()))


_PLACEHOLDER = re.compile(r"%0?(\d{1,2})?d|\{\w*:0?(\d{1,2})?d\}|\{(?:i|idx|index|n|shard|num)?\}|##+")


@rule(
    "W312",
    "a placeholder of another language",
    "`%03d`, `{:03d}` and `{i}` are not filled in here: the shards are looked for under this very name. "
    "Ranges count: `{000..123}`.",
    keys="shards",
    bad="dataset:\n  - shards: a-%06d.tar\n",
    good="dataset:\n  - shards: 'a-{000000..000123}.tar'\n",
)
def format_placeholders(composition: Composition) -> Findings:
    """What `printf`, `str.format` and f-strings fill in."""
    for text, written in written_texts(composition):
        for found in _PLACEHOLDER.finditer(written):
            message = f"`{found[0]}` is not filled in, it stands for itself"
            width = int(found[1] or found[2] or (len(found[0]) if found[0].startswith("#") else 6))
            hint = f"write the range that is there, such as `{{{0:0{width}d}..{123:0{width}d}}}`"
            yield Finding(text, message, hint, text.column_at(found.start()))


_BRACES = re.compile(r"\{[^{}]*\}")
_JOINED = re.compile(
    r"\.(?:tar|tgz|jsonl|cbors?|msgpack)(?:\.\w{2,4})?(\s*(?:[,;|]|(?<!:):(?![:/]))\s*|\s+(?:-\s+)?)(?=[\w./~@])"
)


@rule(
    "W313",
    "several shards in one text",
    "A text is one pattern. Commas outside braces, spaces and line ends are parts of it, so a list that was "
    "joined, or an item that was indented too far, becomes one long name.",
    keys="shards",
    bad="dataset:\n  - shards: a.tar, b.tar\n",
    good="dataset:\n  - shards: [a.tar, b.tar]\n",
)
def joined_lists(composition: Composition) -> Findings:
    """The end of one shard and the beginning of another."""
    for text, written in written_texts(composition):
        found = _JOINED.search(_without_braces(written))
        if found is not None and not is_command(written):
            folded = "- " in found[0]
            message = f"{quoted(found[0].strip())} stands inside one text, which is one pattern"
            hint = (
                "begin each item of the list in the same column"
                if folded
                else "write a list: `[first, second]`"
            )
            yield Finding(text, message, hint, text.column_at(found.start(1)))


def _without_braces(text: str) -> str:
    """The text with what stands in braces blotted out, where commas are right."""
    while (outer := _BRACES.sub(lambda match: "_" * len(match[0]), text)) != text:
        text = outer
    return text


_ONE = "\\"
_BACKSLASH = re.compile(r"\\(?![{},*?\[\]\\:@$])")


@rule(
    "W314",
    "a path with backslashes",
    "A backslash makes the next character literal, so `C:\\\\data\\\\a.tar` is read without them. Paths are "
    "written with `/`.",
    keys="shards",
    bad="dataset:\n  - shards: 'data\\train\\a.tar'\n",
    good="dataset:\n  - shards: data/train/a.tar\n",
)
def backslashes(composition: Composition) -> Findings:
    """Backslashes before what needs none."""
    for text, written in written_texts(composition):
        found = _BACKSLASH.search(written)
        if found is not None and not is_command(written):
            message = "the backslash is not part of the path, it makes the next character literal"
            yield Finding(
                text, message, f"write `{written.replace(_ONE, '/')}`", text.column_at(found.start())
            )


_PLAIN_RANGE = re.compile(r"\{(\d+)\.\.(\d+)(?:\.\.\d+)?\}")


@rule(
    "W315",
    "a range of uneven width",
    "Where one end begins with a zero, every number gets the width of the longer end: `{00..123}` is 000, "
    "001, …, 123. Where the shards were written with a fixed width, both ends have it.",
    keys="shards",
    bad="dataset:\n  - shards: 'a-{00..123}.tar'\n",
    good="dataset:\n  - shards: 'a-{000..123}.tar'\n",
)
def uneven_padding(composition: Composition) -> Findings:
    """Ranges of which one end is padded to another width than the other."""
    for text, written in written_texts(composition):
        for found in _PLAIN_RANGE.finditer(written):
            low, high = found[1], found[2]
            if len(low) != len(high) and (len(low) > len(high) or (low.startswith("0") and len(low) > 1)):
                width = max(len(low), len(high))
                message = f"the ends of `{found[0]}` differ in width; all numbers get {width} digits"
                hint = f"write `{{{low.zfill(width)}..{high.zfill(width)}}}`"
                yield Finding(text, message, hint, text.column_at(found.start()))


_UNSUITED = re.compile(
    r"(?i)\.(parquet|arrow|feather|csv|tsv|zip|7z|rar|h5|hdf5|lmdb|tfrecords?|mds|npy|npz|json|txt|"
    r"jpe?g|png|gif|webp|bmp|tiff?|wav|flac|mp3|ogg|mp4|mkv|avi|mov)$"
)


@rule(
    "W316",
    "files that are no shards",
    "Shards are tar files, or sequences of records (`.cbor`, `.msgpack`, `.jsonl`). `wdspec create` makes "
    "them of pictures, tables and folders.",
    keys="shards",
    bad="dataset:\n  - shards: 'train-{000..009}.parquet'\n",
    good="dataset:\n  - shards: 'train-{000..009}.tar'\n",
)
def unsuited_files(composition: Composition) -> Findings:
    """Suffixes of tables, archives, pictures, sound and video."""
    for text, written in written_texts(composition):
        found = _UNSUITED.search(written)
        if found is not None and not written.startswith("@") and row_of(written).globs:
            message = f"`.{found[1].lower()}` files are no shards"
            hint = "make shards of them with `wdspec create`"
            if found[1].lower() == "txt":
                hint = f"a list of shards, one in a line, is written `'@{written}'`"
            yield Finding(text, message, hint, text.column_at(found.start()))


_FILE = re.compile(r"[.*?\[{}\d%$]")


@rule(
    "W317",
    "a folder without its slash",
    "A directory or prefix ends in `/`, and stands for the shards in it. Without the slash it is taken for "
    "one file.",
    keys="shards",
    bad="dataset:\n  - shards: gs://bucket/train\n",
    good="dataset:\n  - shards: gs://bucket/train/\n",
)
def open_folders(composition: Composition) -> Findings:
    """Objects of a store whose names have no suffix, pattern or number."""
    for text, written in written_texts(composition):
        last = written.rpartition("/")[2]
        is_object = row_of(written).store == FSSPEC
        if is_object and last and not _FILE.search(last):
            message = f"{quoted(written)} is taken for one shard, and looks like a directory"
            yield Finding(text, message, f"write {quoted(written + '/')} if it is one")


_VARIABLE = re.compile(r"(?<![$\\])\$([A-Za-z_]\w*)")


@rule(
    "W318",
    "a variable of the shell",
    "`$NAME` is not replaced here: the shards are looked for under this very name. A variable of a spec is "
    "`${name}`; it comes from `--var`, the environment variable `WDS_name`, or `vars:`. `~` is the home directory.",
    keys="shards",
    bad="dataset:\n  - shards: $DATA/a.tar\n",
    good="vars: {data: s3://bucket}\ndataset:\n  - {name: a, shards: '${data}/a.tar'}\n",
)
def shell_variables(composition: Composition) -> Findings:
    """A dollar sign with a name behind it; the shell of a `pipe:` replaces its own."""
    for text, written in written_texts(composition):
        found = None if is_command(written) else _VARIABLE.search(written)
        if found is not None:
            home = found[1] == "HOME" and found.start() == 0
            hint = f"write `${{{found[1]}}}`, and set it by `--var`, `WDS_{found[1]}` or `vars:`"
            hint = f"write `~{written[found.end() :]}`" if home else hint
            message = f"`{found[0]}` is not replaced, it stands for itself"
            yield Finding(text, message, hint, text.column_at(found.start()))


_SHARD = re.compile(r"@.*\.(tar|tgz|tar\.\w{2,4}|cbors?|msgpack)", re.DOTALL)


@rule(
    "W319",
    "a shard that is read as a list",
    "`@file` is a text file with the URL of a shard in each line.",
    keys="shards",
    bad="dataset:\n  - shards: '@a-000.tar'\n",
    good="dataset:\n  - shards: a-000.tar\n",
)
def listed_archives(composition: Composition) -> Findings:
    """An `@` before the name of a tar, or of another shard."""
    for text, written in written_texts(composition):
        if _SHARD.fullmatch(written):
            message = f"{quoted(written)} would be read as a list of URLs, and is named like a shard"
            yield Finding(text, message, "write it without the `@`")
