"""Rules for `shards`: what their texts mean, where they are, and how files of token ids are cut.

Texts may not mean what their author probably meant. Places may be misspelled, missing elsewhere, or AIStore clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from wdspec.base.errors import UrlError
from wdspec.spec.build import Composition
from wdspec.spec.language.values import BARE, SUFFIXES
from wdspec.spec.problems import quote
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source
from wdspec.spec.tree import MapNode, Scalar, is_null
from wdspec.urls.urls import (
    AIS_PROVIDERS,
    FSSPEC,
    Part,
    is_command,
    lance_url,
    row_of,
    scheme_of,
    slip_in,
)


def parts_of(composition: Composition) -> Iterator[tuple[Draft, Scalar, Sequence[Part]]]:
    """The parts of all texts in `shards` that can be parsed."""
    for leaf, text, parts in composition.shard_texts:
        if not isinstance(parts, UrlError):  # E213
            yield leaf, text, parts


def _list_texts(composition: Composition) -> list[tuple[Scalar, str]]:
    """All texts in `shards` as they are written; one that several sources inherit comes once."""
    texts = {id(text): text for _, text, _ in composition.shard_texts}
    return [(text, str(text.value)) for text in texts.values()]


_FOLDERS = re.compile(r"[*?\[][^\\]*/$")
"""Matches a glob that ends with `/`."""


@rule(
    "E213",
    "wrong braces or `::` in shards",
    "Braces contain a range in ascending order, `{000..123}`, or alternatives, `{a,b}`; `::` separates lists of "
    "shards.",
    keys="shards",
    bad="dataset:\n  - shards: a-{0009..0000}.tar\n",
    good="dataset:\n  - shards: a-{0000..0009}.tar\n",
)
def brace_syntax(composition: Composition) -> Findings:
    """Texts that cannot be parsed, at the character where parsing fails."""
    for _, text, parts in composition.shard_texts:
        if isinstance(parts, UrlError):
            column = None if parts.column is None else text.column_at(parts.column)
            yield Finding(text, parts.message, column=column)
        elif _FOLDERS.search(text.value) and row_of(text.value).globs:
            message = "this pattern ends with `/`, so it matches folders and no shards"
            yield Finding(text, message, f"write the shards in them: `{text.value.rstrip('/')[:60]}/*.tar`")


_BETWEEN = r"\s*(?:\.{3,}|\.|-|–|:|;|~|to|\.\s+\.|,\s*\.+\s*,)\s*"
_RANGE = re.compile(
    rf"\{{\s*(\d+){_BETWEEN}(\d+)\s*\}}"
    r"|\[(\d{2,})\s*(?:-|\.\.)\s*(\d{2,})\]|\((\d+)\s*\.\.\s*(\d+)\)|(?<![{\d.])(\d+)\.\.(\d+)(?![}\d]|\.\.)"
)
_ENDS = re.compile(r"\{(\w+)\.\.(\w+)\}")
_IS_END = (re.compile(r"\d+"), re.compile(r"[A-Za-z]"))


@rule(
    "W311",
    "braces that are not a range",
    "A range has two dots between its ends: `{000..123}`. Anything else is literal text, including the braces.",
    keys="shards",
    bad="dataset:\n  - shards: 'a-{000-123}.tar'\n",
    good="dataset:\n  - shards: 'a-{000..123}.tar'\n",
)
def mistyped_ranges(composition: Composition) -> Findings:
    """Ranges with other signs than two dots, in other brackets or none, or with an end that is not a number."""
    for text, written in _list_texts(composition):
        for braces in _RANGE.finditer(written):
            low, high = (end for end in braces.groups() if end is not None)
            message = f"`{braces[0]}` is not a range, but literal text"
            yield Finding(text, message, f"write `{{{low}..{high}}}`", text.column_at(braces.start()))
        for braces in _ENDS.finditer(written):
            if not any(kind.fullmatch(braces[1]) and kind.fullmatch(braces[2]) for kind in _IS_END):
                message = f"`{braces[0]}` is not a range, but literal text: its ends are not two numbers"
                yield Finding(text, message, "write `{000..123}`", text.column_at(braces.start()))


_PLACEHOLDER = re.compile(r"%0?(\d{1,2})?d|\{\w*:0?(\d{1,2})?d\}|\{(?:[A-Za-z_]\w*)?\}|##+")
_IS_NUMBER = re.compile(r"\{(?:i|idx|index|n|shard|num)?\}")


@rule(
    "W312",
    "a placeholder of another language",
    "`%03d`, `{:03d}`, `{i}` and `{folder}` are not replaced: wdspec looks for shards with exactly this name. "
    "Write a range: `{000..123}`.",
    keys="shards",
    bad="dataset:\n  - shards: a-%06d.tar\n",
    good="dataset:\n  - shards: 'a-{000000..000123}.tar'\n",
)
def format_placeholders(composition: Composition) -> Findings:
    """Placeholders of `printf`, `str.format` and f-strings."""
    for text, written in _list_texts(composition):
        for found in _PLACEHOLDER.finditer(written):
            message = f"`{found[0]}` is not replaced, but literal text"
            width = int(found[1] or found[2] or (len(found[0]) if found[0].startswith("#") else 6))
            hint = f"write the range of numbers, such as `{{{0:0{width}d}..{123:0{width}d}}}`"
            if found[0][1:2].isidentifier() and not _IS_NUMBER.fullmatch(found[0]) and ":" not in found[0]:
                hint = (
                    "write the names, `{train,extra}`, or `*`; `each: folder` makes a source of each folder"
                )
            yield Finding(text, message, hint, text.column_at(found.start()))


_BRACES = re.compile(r"\{[^{}]*\}")
_JOINED = re.compile(
    r"\.(?:tar|tgz|jsonl|cbors?|msgpack)(?:\.\w{2,4})?(\s*(?:[,;|]|(?<!:):(?![:/]))\s*|\s+(?:-\s+)?)(?=[\w./~@])"
)


@rule(
    "W313",
    "several shards in one text",
    "A text is one pattern. Commas outside of braces, spaces and line breaks are part of the pattern, so a list "
    "that is written as one text, or an item that is indented too far, becomes one long name.",
    keys="shards",
    bad="dataset:\n  - shards: a.tar, b.tar\n",
    good="dataset:\n  - shards: [a.tar, b.tar]\n",
)
def joined_lists(composition: Composition) -> Findings:
    """The end of one shard followed by the start of another."""
    for text, written in _list_texts(composition):
        found = _JOINED.search(_without_braces(written))
        if found is not None and not is_command(written):
            folded = "- " in found[0]
            message = f"{quote(found[0].strip())} is inside a text, which is one pattern"
            hint = (
                "start all items of the list in the same column"
                if folded
                else "write a list: `[first, second]`"
            )
            yield Finding(text, message, hint, text.column_at(found.start(1)))


def _without_braces(text: str) -> str:
    """The text with the content of braces replaced, where commas are allowed."""
    while (outer := _BRACES.sub(lambda match: "_" * len(match[0]), text)) != text:
        text = outer
    return text


_REGEX = re.compile(
    r"\\\.|\\[dw](?:[+*]|\{\d+\})|[\])](?:\+|\{\d+\})|\(\?|\([^()|/]*\|[^()/]*\)|^\^|\.[*+]\)|\$$"
)
_REPEATED = re.compile(r"(?:\\[dw]|\[[^\]]*\]|\.)(?:[+*]\??|\{\d+\})|\\[dw]")
_EITHER = re.compile(r"\((?:\?:)?([^()]*)\)")


@rule(
    "W320",
    "a regular expression",
    "A pattern in `shards` is a glob, as in a shell: `*` is any text, `?` one character, and a dot is a dot. Numbers "
    "and alternatives are in braces: `{000..123}`, `{a,b}`.",
    keys="shards",
    bad="dataset:\n  - shards: 'img/own-.*\\.tar'\n",
    good="dataset:\n  - shards: 'img/own-*.tar'\n",
)
def regular_expressions(composition: Composition) -> Findings:
    """Escaped dots, repeated classes of characters, groups of alternatives, and the anchors `^` and `$`."""
    for text, written in _list_texts(composition):
        found = _REGEX.search(written)
        if found is not None and not is_command(written):
            glob = _REPEATED.sub("*", written.removeprefix("^").removesuffix("$"))
            glob = _EITHER.sub(lambda each: f"{{{each[1].replace('|', ',')}}}", glob)
            message = f"`{found[0]}` is of a regular expression, but `shards` takes globs"
            hint = f"write `{glob.replace(_ONE, '')}`"
            yield Finding(text, message, hint, text.column_at(found.start()))


_ONE = "\\"
_BACKSLASH = re.compile(r"\\(?![{},*?\[\]\\:@$])")


_LOST = re.compile(rf"\\\\|{_BACKSLASH.pattern}")


@rule(
    "W314",
    "a path or command with backslashes",
    "A backslash makes the next character literal, so `C:\\data\\a.tar` is read without its backslashes. Write paths "
    "with `/`. In the command of `pipe:`, write each backslash twice.",
    keys="shards",
    bad="dataset:\n  - shards: 'data\\train\\a.tar'\n",
    good="dataset:\n  - shards: data/train/a.tar\n",
)
def backslashes(composition: Composition) -> Findings:
    """Backslashes before characters that do not need them."""
    for text, written in _list_texts(composition):
        found = _BACKSLASH.search(written.replace(_ONE * 2, "  ") if is_command(written) else written)
        if found is not None and (is_command(written) or not _REGEX.search(written)):  # W320
            yield Finding(text, *_explain_backslash(written), text.column_at(found.start()))


def _explain_backslash(written: str) -> tuple[str, str]:
    """The message about a backslash, and the hint."""
    if is_command(written):
        what, correct = "command", _LOST.sub(lambda _: _ONE * 2, written)
    else:
        what, correct = "path", written.replace(_ONE, "/")
    return (
        f"the backslash is not part of the {what}; it makes the next character literal",
        f"write `{correct}`",
    )


_PLAIN_RANGE = re.compile(r"\{(\d+)\.\.(\d+)(?:\.\.\d+)?\}")


@rule(
    "W315",
    "a range with ends of different widths",
    "If an end starts with a zero, all numbers have the width of the longer end: `{00..123}` is 000, 001, …, 123. If "
    "your shards have numbers of a fixed width, write both ends with that width.",
    keys="shards",
    bad="dataset:\n  - shards: 'a-{00..123}.tar'\n",
    good="dataset:\n  - shards: 'a-{000..123}.tar'\n",
)
def uneven_padding(composition: Composition) -> Findings:
    """Ranges whose ends are padded to different widths."""
    for text, written in _list_texts(composition):
        for found in _PLAIN_RANGE.finditer(written):
            low, high = found[1], found[2]
            if len(low) != len(high) and (len(low) > len(high) or (low.startswith("0") and len(low) > 1)):
                width = max(len(low), len(high))
                message = f"the ends of `{found[0]}` have different widths; all numbers get {width} digits"
                hint = f"write `{{{low.zfill(width)}..{high.zfill(width)}}}`"
                yield Finding(text, message, hint, text.column_at(found.start()))


_UNSUITED = re.compile(
    r"(?i)\.(csv|tsv|zip|7z|rar|h5|hdf5|lmdb|tfrecords?|npz|json|txt|"
    r"jpe?g|png|gif|webp|bmp|tiff?|wav|flac|mp3|ogg|mp4|mkv|avi|mov)$"
)


@rule(
    "W316",
    "files that are not shards",
    "Shards are tar files, sequences of records (`.cbor`, `.msgpack`, `.jsonl`), or tables (`.parquet`, `.arrow`, "
    "`.lance`). `wdspec create` makes them from images, CSV and folders.",
    keys="shards",
    bad="dataset:\n  - shards: 'train-{000..009}.csv'\n",
    good="dataset:\n  - shards: 'train-{000..009}.tar'\n",
)
def unsuited_files(composition: Composition) -> Findings:
    """Suffixes of tables, archives, images, audio and video, without a `format` that says what they are."""
    for text, written in _list_texts(composition):
        found = _UNSUITED.search(written)
        if found is not None and not written.startswith("@") and row_of(written).globs:
            yield from _find_unsuited(composition, text, found)


def _find_unsuited(composition: Composition, text: Scalar, found: re.Match[str]) -> Findings:
    """The finding for a suffix, unless `format` says what the shards are."""
    if any(each is text and draft.node.get("format") for draft, each, _ in composition.shard_texts):
        return
    message = f"`.{found[1].lower()}` files are not shards"
    hint = "make shards from them with `wdspec create`"
    if found[1].lower() == "txt":
        hint = f"for a list of shards, one per line, write `'@{text.value}'`"
    elif re.search(r"(?:\A|/)index\.json\Z", text.value or ""):
        hint = f"for the shards of MosaicML Streaming (MDS) that it lists, write `'@{text.value}'`"
    yield Finding(text, message, hint, text.column_at(found.start()))


@rule(
    "E346",
    "a Lance data set with another name",
    "A Lance data set is a folder whose name ends in `.lance`. `?version=7`, or a tag in place of the number, names a "
    "version of it.",
    keys="format",
    bad="dataset:\n  - {shards: data/users, format: lance}\n",
    good="dataset:\n  - {shards: 'data/users.lance?version=7'}\n",
)
def unnamed_tables(composition: Composition) -> Findings:
    """Names without the suffix in a source with `format: lance`."""
    for draft, text, parts in parts_of(composition):
        format = draft.node.get("format")
        if isinstance(format, Scalar) and format.value == "lance":
            for part in parts:
                if lance_url(part.text) is None:
                    message = f"{quote(part.text)} has another name than `format: lance` reads"
                    yield Finding(
                        text, message, "rename the folder to `….lance`, or make a link of this name to it"
                    )


_FILE = re.compile(r"[.*?\[{}\d%$]")


@rule(
    "W317",
    "a directory without its slash",
    "A directory or prefix ends with `/`, and means all shards in it. Without the slash it is a single file.",
    keys="shards",
    bad="dataset:\n  - shards: gs://bucket/train\n",
    good="dataset:\n  - shards: gs://bucket/train/\n",
)
def open_folders(composition: Composition) -> Findings:
    """Objects without a suffix, pattern or number in their names."""
    for text, written in _list_texts(composition):
        last = written.rpartition("/")[2]
        is_object = row_of(written).store == FSSPEC
        if is_object and last and not _FILE.search(last):
            message = f"{quote(written)} looks like a directory, but is read as one shard"
            yield Finding(text, message, f"write {quote(written + '/')} if it is a directory")


_VARIABLE = re.compile(r"(?<![$\\])\$([A-Za-z_]\w*)")


@rule(
    "W318",
    "a variable of the shell",
    "`$NAME` is not replaced: wdspec looks for shards with exactly this name. Write a variable of the spec as "
    "`${name}`; it is set by `--var`, the environment variable `WDS_name`, or `vars:`. `~` is the home directory.",
    keys="shards",
    bad="dataset:\n  - shards: $DATA/a.tar\n",
    good="vars: {data: s3://bucket}\ndataset:\n  - {name: a, shards: '${data}/a.tar'}\n",
)
def shell_variables(composition: Composition) -> Findings:
    """A dollar sign and a name, except in commands, where the shell replaces them."""
    for text, written in _list_texts(composition):
        found = None if is_command(written) else _VARIABLE.search(written)
        if found is not None:
            home = found[1] == "HOME" and found.start() == 0
            hint = f"write `${{{found[1]}}}`, and set it with `--var`, `WDS_{found[1]}` or `vars:`"
            hint = f"write `~{written[found.end() :]}`" if home else hint
            message = f"`{found[0]}` is not replaced, but literal text"
            yield Finding(text, message, hint, text.column_at(found.start()))


_SHARD = re.compile(r"@.*\.(tar|tgz|tar\.\w{2,4}|cbors?|msgpack|mds(\.\w{2,6})?)", re.DOTALL)


@rule(
    "W319",
    "a shard that is read as a list",
    "`@file` is a text file with the URL of a shard in each line.",
    keys="shards",
    bad="dataset:\n  - shards: '@a-000.tar'\n",
    good="dataset:\n  - shards: a-000.tar\n",
)
def listed_archives(composition: Composition) -> Findings:
    """An `@` before the name of a shard."""
    for text, written in _list_texts(composition):
        if _SHARD.fullmatch(written):
            message = f"{quote(written)} would be read as a list of URLs, but has the name of a shard"
            yield Finding(text, message, "write it without the `@`")


@rule(
    "W105",
    "a URL that looks misspelled",
    "Its scheme is similar to a known one, or is followed by one slash instead of two; or it contains curly quotes or "
    "non-breaking spaces, as text from a web page or a word processor does. It may still be correct, for example if "
    "you have an opener or a rewrite rule for it.",
    keys="shards",
    bad="dataset:\n  - shards: htps://host/a.tar\n",
    good="dataset:\n  - shards: https://host/a.tar\n",
)
def misspelt_schemes(composition: Composition) -> Findings:
    """Misspelled schemes, each once per text."""
    for _, text, parts in parts_of(composition):
        for slip in dict.fromkeys(slip_in(part.text.removeprefix("@")) for part in parts):
            if slip is not None:
                yield Finding(text, slip.message, slip.hint)


_HOME = re.compile(r"(?://)?(?:/home/[^/]+/|/Users/[^/]+/|/root/|~[^/]*/|C:/Users/[^/]+/)")


@rule(
    "W321",
    "a path in a home directory",
    "Other people do not have `/home/name`, so the spec works in one place only. Use a variable, or a rewrite rule of "
    "an environment, to say where the data is in other places.",
    keys="shards",
    bad="dataset:\n  - shards: /home/ann/data/a.tar\n",
    good="dataset:\n  - shards: ${data:-data}/a.tar\n",
)
def home_paths(composition: Composition) -> Findings:
    """Shards in a home directory."""
    for text, written in _list_texts(composition):
        found = _HOME.match(written.removeprefix("@").removeprefix("file:"))
        if found is not None:
            hint = "write `${data}/…` and set the variable, or use a path relative to the spec"
            yield Finding(text, f"`{found[0]}` is a home directory", hint)


_TEMPORARY = re.compile(r"(?://)?(?:/tmp/|/var/tmp/|/dev/shm/)")


@rule(
    "W322",
    "data in a temporary directory",
    "Files in `/tmp`, `/var/tmp` or `/dev/shm` are gone after a restart, and do not exist on other machines.",
    keys="shards",
    bad="dataset:\n  - shards: /tmp/a.tar\n",
    good="dataset:\n  - shards: data/a.tar\n",
)
def temporary_paths(composition: Composition) -> Findings:
    """Shards in a directory that the system deletes, except in specs that are not files."""
    for text, written in _list_texts(composition):
        found = _TEMPORARY.match(written.removeprefix("@").removeprefix("file:"))
        if found is not None and composition.variant.file is not None:
            yield Finding(
                text, f"`{found[0]}` is a temporary directory", "move the data to a permanent place"
            )


@rule(
    "W104",
    "an AIStore without an address",
    "The spec relies on AIS_ENDPOINT, which is not set here. Reading the data without it is an error.",
    keys="aistore shards",
    bad="aistore: {use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def unaddressed_clusters(composition: Composition) -> Findings:
    """`aistore:` and `ais://` without an endpoint, if neither the top level nor AIS_ENDPOINT has one."""
    outer = composition.spec.aistore
    if composition.variant.has_endpoint or (outer is not None and outer.endpoint):
        return
    hint = "add `endpoint: http://host:51080`, or set AIS_ENDPOINT"
    holders = [
        (composition.top, outer),
        *((leaf.node, source.aistore) for leaf, source in composition.models),
    ]
    for holder, cluster in holders:
        node = holder.get("aistore")
        if isinstance(node, MapNode) and cluster is not None and not cluster.endpoint:
            yield Finding(node, "this AIStore has no endpoint", hint)
    seen = set()
    for leaf, text, parts in parts_of(composition):
        source = leaf.model
        if source is None or outer or source.aistore or composition.spec.rewrite or source.rewrite:
            continue
        if id(text) not in seen:
            seen.add(id(text))
            if any(scheme_of(part.text) == "ais" for part in parts):
                hint = "set AIS_ENDPOINT, or add `aistore: {endpoint: http://host:51080}`"
                yield Finding(text, "no endpoint of AIStore is set, which reads `ais://`", hint)


@rule(
    "W107",
    "an AIStore that serves nothing",
    "A cluster serves `ais://` URLs, and URLs of other schemes only if `use_for` (or USE_AIS_FOR) names them. All "
    "other shards are read directly from their store.",
    keys="aistore",
    bad="aistore: {endpoint: http://ais:51080}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def idle_clusters(composition: Composition) -> Findings:
    """A top-level `aistore:` without `use_for`, if there are shards in buckets and none in `ais://`."""
    cluster, node = composition.spec.aistore, composition.top.get("aistore")
    if cluster is None or node is None or cluster.use_for or composition.variant.has_schemes:
        return
    if composition.spec.rewrite or any(source.aistore or source.rewrite for _, source in composition.models):
        return
    schemes = {scheme_of(part.text) for _, _, parts in parts_of(composition) for part in parts}
    buckets = sorted(schemes & AIS_PROVIDERS.keys())
    if buckets and "ais" not in buckets:
        message = f"this AIStore serves only `ais://`, but the shards are in `{buckets[0]}://`"
        yield Finding(node, message, f"add `use_for: [{', '.join(buckets)}]`, or set USE_AIS_FOR")


@rule(
    "E314",
    "an ETL whose errors cannot be detected",
    "If an ETL of AIStore fails in the middle of a shard, its response ends normally, with an error text at the end. "
    "Only the end marker of a tar shows that, so the shards must be tars, and the marker must be required.",
    keys="etl",
    bad="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
    "    tar: {end: lenient}\n    aistore: {etl: resize-224}\n",
    good="aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
    "    aistore: {etl: resize-224}\n",
)
def etl_cuts(composition: Composition) -> Findings:
    """Sources with an ETL that are not tars, or whose tars need no end marker."""
    for leaf, source in composition.models:
        etl = composition.spec.etl_of(source)
        if etl is None:
            continue
        if source.tar.end == "lenient":
            message = f"if the ETL `{etl.name}` fails, only the missing end marker of the tar shows it"
            hint = "remove `tar: {end: lenient}` from this source"
            yield Finding(leaf.node.key_or_self("tar"), message, hint)
        if source.format not in ("auto", "tar"):
            message = (
                f"an ETL must give tar shards, but `format` is {source.format}: nothing there shows a cut"
            )
            yield Finding(leaf.node.key_or_self("format"), message, "let the ETL write tar, or remove `etl`")


_TOKEN_FILE = re.compile(rf"(?im)({'|'.join(map(re.escape, SUFFIXES['tokens']))})(\?|$)")


@rule(
    "E335",
    "token files that are not cut into samples",
    "A token file does not define samples: `tokens: {length: 2048}` splits it into samples of equal length, and "
    "`tokens: {}` splits it into documents according to the index that Megatron writes next to a `.bin` file. "
    "Without an index, specify the token that ends documents: `tokens: {dtype: uint16, eos: 0}`.",
    keys="shards format",
    bad="dataset:\n  - {shards: 'web-{00..09}.bin'}\n",
    good="dataset:\n  - {shards: 'web-{00..09}.bin', tokens: {length: 2048}}\n",
)
def uncut_tokens(composition: Composition) -> Findings:
    """Sources of token files without `tokens`, by `format` or by the names of their shards."""
    for leaf, source in composition.models:
        if source.tokens is None and (
            source.format == "tokens"
            or (source.format == "auto" and _TOKEN_FILE.search("\n".join(source.shards or ())))
        ):
            hint = "write `tokens: {length: 2048}`, or `tokens: {}` for the documents of an index"
            message = "files of token ids, but nothing says how to cut them into samples"
            yield Finding(leaf.node.value_or_self("shards"), message, hint)


@rule(
    "E336",
    "token files without the type of their numbers",
    "nanotron's `.ds` files contain only numbers, without their type: `tokens: {dtype: uint16}`. They have no "
    "index either, so samples need a `length`, or documents an `eos`.",
    keys="tokens",
    bad="dataset:\n  - {shards: 'web-{00..09}.ds', tokens: {length: 2048}}\n",
    good="dataset:\n  - {shards: 'web-{00..09}.ds', tokens: {length: 2048, dtype: uint16}}\n",
)
def untyped_tokens(composition: Composition) -> Findings:
    """Sources of `.ds` files that lack `dtype`, or both `length` and `eos`."""
    for leaf, source in composition.models:
        names = (text.partition("?")[0].lower() for text in source.shards or ())
        if source.tokens is None or not any(name.endswith(BARE) for name in names):
            continue
        at = leaf.node.value_or_self("tokens")
        if source.tokens.dtype is None:
            yield Finding(at, "`.ds` files do not say the type of their numbers", "add `dtype: uint16`")
        elif source.tokens.length is None and source.tokens.eos is None:
            yield Finding(at, "`.ds` files have no index of documents", "add `length: 2048`, or `eos: 0`")


@rule(
    "E337",
    "an end of documents that is not used",
    "With `length`, samples are consecutive tokens, regardless of documents.",
    keys="tokens",
    bad="dataset:\n  - {shards: a.npy, tokens: {length: 2048, eos: 0}}\n",
    good="dataset:\n  - {shards: a.npy, tokens: {eos: 0, dtype: uint16}}\n",
)
def unused_eos(composition: Composition) -> Findings:
    """`tokens` with both `length` and `eos`."""
    for leaf, source in composition.models:
        if source.tokens is not None and source.tokens.length is not None and source.tokens.eos is not None:
            yield Finding(
                leaf.node.value_or_self("tokens"),
                "`eos` ends documents, but `length` cuts samples of one length",
                "remove one of them",
            )


@rule(
    "W385",
    "a key for shards of another format",
    "`tokens` is for files of token ids: shards with `format: tokens`, or with the suffix `.bin`, `.npy` or `.ds`. "
    "`key` and `tar` are for tars: in other formats, each sample has its own `__key__`, and fields have names. "
    "Other shards ignore these keys.",
    keys="tokens key tar",
    bad="dataset:\n  - {shards: a.tar, tokens: {length: 2048}}\n",
    good="dataset:\n  - {shards: a.bin, tokens: {length: 2048}}\n",
)
def idle_keys_of_formats(composition: Composition) -> Findings:
    """Sources of which no shard has the format that a key of theirs is for, by its name or by `format`."""
    for leaf, source in composition.models:
        formats = all_formats_of(source)
        for key, format, kind in _OF_ONE_FORMAT:
            written = (leaf.own if format == "tar" else leaf.node).get(key)
            if written is not None and not is_null(written) and formats and not formats & {format, ""}:
                message = f"the shards of this source are no {kind}, so `{key}` has no effect"
                hint = f"remove `{key}`; or set `format: {format}` if they are"
                yield Finding(leaf.node.key_or_self(key), message, hint)


_OF_ONE_FORMAT = (
    ("tokens", "tokens", "files of token ids"),
    ("key", "tar", "tars"),
    ("tar", "tar", "tars"),
)
"""A key of a source, the format that it is for, and what its shards are. `defaults` may have keys of tars for some.

Shards of `join` are read by the keys of their source.
"""
_SUFFIX = re.compile(r"(\.mds\.(?:br|snappy)|\.[^./]*)(?:\.(?:gz|zst|bz2|xz|lz4))?$")
"""Matches the end of the name of a shard, before that of a compression."""


def formats_of(format: str, shards: Iterable[str]) -> Iterator[str]:
    """The formats that shards have by `format` or their names; empty for a list of shards, or a name without a dot."""
    for shard in shards:
        found = _SUFFIX.search(shard.partition("?")[0].lower())
        if format != "auto":
            yield format
        elif shard.startswith("@") or found is None:
            yield ""
        else:
            yield next((each for each, suffixes in SUFFIXES.items() if found[1] in suffixes), "tar")


def all_formats_of(source: Source) -> set[str]:
    """The same, of the shards of a source and of its partners."""
    lists = [(source.format, source.shards or ()), *((each.format, each.shards) for each in source.join)]
    return {found for format, shards in lists for found in formats_of(format, shards)}


_HUB = re.compile(r"hf://((?:(?:datasets|spaces)/)?[^/@]+/[^/@]+)(@?)")
"""Matches the repository of a URL of the Hub, and the mark of a revision."""


@rule(
    "W453",
    "a revision that is only a note",
    "`revision` is a note for people, locks and policies. From the Hugging Face Hub, shards without `@` in their URL "
    "are read as they are now on the main branch. Write the revision in the URL: `hf://datasets/owner/name@v2/…`.",
    keys="revision",
    bad="dataset:\n  - {shards: 'hf://datasets/owner/name/a.tar', revision: v2}\n",
    good="dataset:\n  - {shards: 'hf://datasets/owner/name@v2/a.tar', revision: v2}\n",
)
def revisions_without_effect(composition: Composition) -> Findings:
    """Sources with `revision` whose URLs of the Hub have none."""
    for leaf, _, parts in parts_of(composition):
        revision = leaf.node.get("revision")
        found = next((match for part in parts if (match := _HUB.match(part.text))), None)
        if revision is not None and found is not None and not found[2]:
            said = str(getattr(revision, "value", ""))[:60]
            message = f"`hf://{found[1]}` is read from its main branch, whatever `revision` says"
            yield Finding(revision, message, f"write `hf://{found[1]}@{said}/…` in `shards`")
