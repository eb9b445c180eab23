"""Every URL that a source reads, as written and after rewriting, as far as it is known without reading data.

Braces and local `@file` lists are expanded where an answer depends on it. A glob, a directory, or an object that
samples name is an outline (`patterns.py`); a remote list, or a command without a URL, is unknown.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from wdspec.base.errors import UrlError, WdspecError
from wdspec.policies.canonical import REVISION, canonical
from wdspec.policies.patterns import ANY_CHARACTER, ANY_TEXT, common_outline
from wdspec.spec.build import Composition
from wdspec.spec.language.locations import RewriteRule
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import ListNode, MapNode, Node, scalars
from wdspec.urls.braces import Braces
from wdspec.urls.references import parse_place
from wdspec.urls.rewrite import Rule, rewrite, start_of
from wdspec.urls.urls import Part, is_command, is_relative, kind_of, parse_shards, scheme_of

MOST_EXPANDED = 100_000
"""Shards of one text that are looked at one by one; if there are more, and it matters, the answer is unknown."""
_BRACE = re.compile(r"[\\{}]")
_VARIES = re.compile(rf"[\\{{}}{ANY_TEXT}]")
_GLOB_VARIES = re.compile(f"[{ANY_TEXT}{ANY_CHARACTER}]")
_ESCAPE = re.compile(r"[\\{},]")
_PLAIN = re.compile(r"(?:(?!::)[^\\{}*?\[@])*[^\\{}*?\[@/]")
"""Matches a line of a list that names one shard."""
_SPECIAL = re.compile(r"[\\{},*?\[\]]")
_RANGE = re.compile(r"\{[A-Za-z0-9]+\.\.[A-Za-z0-9]+(?:\.\.[0-9]+)?\}")
_MEANS_MORE = re.compile(r"[^A-Za-z0-9_,{}-]")
_ANCHORED = re.compile(r"/|[a-z][a-z0-9+.-]*://[^/]*/")
_GLOB = re.compile(r"\*+|\?|\[[^\]]*\]")


class Place(NamedTuple):
    """A URL that a source reads, or several that are written as one text."""

    at: Node
    text: str
    """As written, or after rewriting; of several, an outline."""
    base: str
    """The directory where a relative path starts."""
    raw: str = ""
    """A glob or a directory as it is written, to which rewrite rules apply."""
    many: Braces | tuple[str, ...] | None = None
    """The texts that the outline describes, if they are known."""
    how: str = ""
    """Where it comes from, if not from its text: a list, a rewrite rule."""
    unknown: str = ""
    """Why nothing is known about it."""


def places_of(composition: Composition, leaf: Draft, source: Source) -> list[Place]:
    """Every URL that a source reads."""
    rules = rules_of(composition.spec, source)
    found: list[Place] = []
    for place in _written(leaf, source, rules):
        found.append(place)
        found += _rewritten(place, rules)
    return found


def shards_of(composition: Composition, leaf: Draft, source: Source) -> list[Place]:
    """The shards that a source reads, after rewriting."""
    rules = rules_of(composition.spec, source)
    found: list[Place] = []
    for place in _written_shards(leaf, source, rules):
        changed = list(_rewritten(place, rules))
        if place.raw:
            is_replaced = any(each.raw and not each.unknown for each in changed)
        else:
            count = sum(1 if each.many is None else len(each.many) for each in changed)
            is_replaced = count == (1 if place.many is None else len(place.many))
        found += changed if is_replaced else [place, *changed]
    return found


def rules_of(spec: Spec, source: Source) -> tuple[Rule, ...]:
    """The rewrite rules of a source, in order: of the environment, of the source, of the top level."""
    written: list[RewriteRule] = [*source.rewrite, *spec.rewrite]
    written.sort(key=lambda rule: not rule.overlay)
    rules = []
    for each in written:
        try:
            rules.append(Rule(each.pattern, each.replacement, each.origin or "`rewrite`"))
        except UrlError:
            continue  # E212
    return tuple(rules)


def _rewritten(place: Place, rules: tuple[Rule, ...]) -> Iterator[Place]:
    """What rewrite rules make of a place."""
    if not rules or place.unknown:
        return
    is_chosen_by_data = place.many is None and not place.raw and ANY_TEXT in place.text
    if is_chosen_by_data or isinstance(place.many, Braces):
        pattern = place.many.pattern if isinstance(place.many, Braces) else place.text
        rule, changed = _rewrite_start(pattern, rules)
        if changed is not None and rule is not None:
            braces = None if is_chosen_by_data else Braces(changed)
            found = (
                place._replace(text=changed) if braces is None else _of_braces(place.at, braces, place.base)
            )
            yield found._replace(how=_by(rule))
        if changed is not None or rule is None:
            return
        if is_chosen_by_data:
            yield place._replace(unknown="samples choose the URL, on which a rewrite rule depends")
            return
    if place.many is not None and len(place.many) > MOST_EXPANDED:
        yield place._replace(many=None, unknown=f"rewrite rules apply to {len(place.many):,} shards")
        return
    try:
        by_rule = _rewrite_all((place.raw or place.text,) if place.many is None else place.many, rules)
    except UrlError as error:
        yield place._replace(many=None, unknown=error.message)
        return
    if place.raw and not by_rule:
        yield from _rewritten_names(place, rules)
    for rule, texts in by_rule.items():
        how = _by(rule)
        if place.many is not None:
            yield place._replace(text=_outline_of_all(texts, place.base), many=texts, how=how)
        elif place.raw:
            yield place._replace(text=_outline_of_glob(texts[0]), how=how)
        else:
            yield place._replace(text=texts[0], how=how)


def _rewritten_names(place: Place, rules: tuple[Rule, ...]) -> Iterator[Place]:
    """What rules that do not apply to a glob or a directory may make of the names that are found in it."""
    head = _GLOB_VARIES.split(place.text, maxsplit=1)[0]
    for rule in filter(lambda rule: rule.depends_on_rest(head), rules):
        becomes = _change_of_start(rule).becomes
        if becomes is None:
            why = f"the rewrite rule of {rule.origin} may change some of the names that `{place.raw[:200]}` finds"
            yield place._replace(unknown=why)
        else:
            yield Place(place.at, f"{becomes[0]}{ANY_TEXT}{becomes[1]}", place.base, how=_by(rule))


def _rewrite_start(pattern: str, rules: tuple[Rule, ...]) -> tuple[Rule | None, str | None]:
    """Rewrite the start of a brace pattern or an outline, if what follows has no effect on the result.

    Returns:
        The first rule that applies, and the new pattern; None for both if no rule applies, and for the pattern if a
        rule may apply, depending on what follows.
    """
    head = _VARIES.split(pattern, maxsplit=1)[0]
    for rule in rules:
        change = _change_of_start(rule)
        if not rule.may_match(head):
            continue
        if change.becomes is None or not head.startswith(change.start) or "\n" in pattern:
            return rule, None
        before, after = (_ESCAPE.sub(r"\\\g<0>", text) for text in change.becomes)
        if ANY_TEXT in pattern:
            before, after = change.becomes
        return rule, before + pattern[len(change.start) :] + after
    return None, None


def _by(rule: Rule) -> str:
    return f" after the rewrite rule of {rule.origin}"


@lru_cache(maxsize=1024)
def _rewrite_all(texts: Braces | tuple[str, ...], rules: tuple[Rule, ...]) -> dict[Rule, tuple[str, ...]]:
    """What each rule makes of the texts that it is the first to change."""
    found: dict[Rule, list[str]] = {}
    for text in texts:
        changed, rule = rewrite(text, rules)
        if rule is not None:
            found.setdefault(rule, []).append(changed)
    return {rule: tuple(changed) for rule, changed in found.items()}


class _Change(NamedTuple):
    """What a rewrite rule does to texts with a certain start, whatever follows."""

    start: str
    """Every text that the rule matches starts with it."""
    becomes: tuple[str, str] | None
    """What stands before and after the rest of a text afterwards; None if that depends on the rest."""


_REST = "\ue002"


@lru_cache(maxsize=1024)
def _change_of_start(rule: Rule) -> _Change:
    start, rest = start_of(rule.pattern)
    if rest > 1 or (rest and not rule.pattern.endswith(("(.*)", ".*"))):
        return _Change(start, None)
    pieces = rule.apply(start + _REST).split(_REST)
    is_simple = len(pieces) == 2 and not is_command(pieces[0])
    return _Change(start, (pieces[0], pieces[1]) if is_simple else None)


def _written_shards(leaf: Draft, source: Source, rules: Sequence[Rule]) -> Iterator[Place]:
    shards = leaf.node.get("shards")
    items = shards.items if isinstance(shards, ListNode) else (shards,)
    texts = source.shards or ()
    for number, text in enumerate(texts):
        node = items[number] if len(items) == len(texts) else shards
        yield from _of_text(node or leaf.node, text, source.base, rules)


def _written(leaf: Draft, source: Source, rules: Sequence[Rule]) -> Iterator[Place]:
    yield from _written_shards(leaf, source, rules)
    for join in source.join:
        for text in join.shards:
            yield from _of_text(find_text(leaf.node.value_or_self("join"), text), text, join.base, rules)
    for lookup in source.lookup:
        at = find_text(leaf.node.value_or_self("lookup"), lookup.table)
        yield Place(at, lookup.table.partition("#")[0], lookup.base)
    for key, named in (("keys", source.only_keys), ("exclude", source.exclude)):
        for text in named or ():
            is_remote = text.startswith("@") and scheme_of(text[1:]) not in ("", "file")
            if is_remote:  # others are reviewed with the spec
                yield Place(find_text(leaf.node.value_or_self(key), text), text[1:], source.base)
    for name, fetched in source.fetch.items():
        fetch = leaf.node.map_at("fetch")
        node = leaf.node if fetch is None else fetch.value_or_self(name)
        if fetched.root is not None:
            at = node.value_or_self("root") if isinstance(node, MapNode) else node
            yield Place(at, fetched.root + ANY_TEXT, source.base)
        elif not fetched.hosts:
            yield Place(node, "", "", unknown="samples choose the URL")
        for host in map(parse_place, fetched.hosts):
            if host.scheme:  # otherwise, a network that redirects may lead to
                yield Place(node, f"{host.scheme}://{host.host.replace('*', ANY_TEXT)}/{ANY_TEXT}", "")


def find_text(node: Node, text: str) -> Node:
    """The scalar with a text in a tree, or the tree."""
    return next((each for each in scalars(node) if each.value == text), node)


def _of_text(
    node: Node, text: str, base: str, rules: Sequence[Rule], in_list: bool = False
) -> Iterator[Place]:
    """The places of a text of `shards`, or of a line of a list."""
    try:
        parts = parse_shards((text,), base)
    except UrlError:
        return  # E213
    for part in parts:
        yield from _of_part(node, part, base, rules, in_list)


def _of_part(node: Node, part: Part, base: str, rules: Sequence[Rule], in_list: bool) -> Iterator[Place]:
    if not part.listed:
        yield _of_braces(node, part.braces, base)
        return
    if len(part.braces) > MOST_EXPANDED:
        yield Place(node, part.text, base, unknown=f"{len(part.braces):,} globs, directories or lists")
        return
    for text in part.braces:
        kind = kind_of(text)
        if kind == "list":
            yield from _of_list(node, text, base, rules) if not in_list else ()
        elif kind in ("url", "data set"):
            yield Place(node, text, base)
        else:
            yield Place(node, _outline_of_glob(text), base, text)


def _outline_of_glob(text: str) -> str:
    """An outline of what is in a glob or a directory."""
    outline = _GLOB.sub(lambda sign: ANY_TEXT if sign[0][0] == "*" else ANY_CHARACTER, text)
    outline += ANY_TEXT * text.endswith("/")
    head, any_text, tail = outline.partition(ANY_TEXT)
    outline = f"{head}{any_text}" if ".." in tail else outline
    return outline if outline[0] not in (ANY_TEXT, ANY_CHARACTER) else f"./{outline}"


def _of_braces(node: Node, braces: Braces, base: str) -> Place:
    if len(braces) == 1:
        return Place(node, braces[0], base)
    return Place(node, _outline_of(braces.pattern), base, many=braces)


@lru_cache(maxsize=4096)
def _outline_of(pattern: str) -> str:
    """An outline of the strings of a brace pattern, which may be put in canonical form; `ANY_TEXT` if there is none."""
    first = _BRACE.search(pattern)
    head = pattern[: first.start()] if first else pattern
    tail = _BRACE.split(pattern)[-1]
    middle = _RANGE.sub("", pattern[len(head) : len(pattern) - len(tail)])
    # What is in braces, or next to them, must not change how the text around it is read: as a scheme, a host, `..`.
    is_plain = not _MEANS_MORE.search(middle) and head[-1:] != "." and "%" not in head[-2:]
    is_plain &= not re.match(r"\.(?:\.|/|$)", tail) and ".." not in tail
    if not is_plain or is_command(pattern) or (":" in pattern and "://" not in head):
        return ANY_TEXT
    return f"{head or './'}{ANY_TEXT}{tail}"


def _outline_of_all(texts: Sequence[str], base: str) -> str:
    """An outline of some texts in canonical form; `ANY_TEXT` if they are not in one store."""
    outline = common_outline([canonical(text, base) for text in texts])
    return outline if ANY_TEXT not in outline or _ANCHORED.match(outline.partition(ANY_TEXT)[0]) else ANY_TEXT


def _of_list(node: Node, text: str, base: str, rules: Sequence[Rule]) -> Iterator[Place]:
    """The shards of a list, if it is a local file. Relative lines start at its folder, as it is written."""
    name = text[1:]
    try:
        location = canonical(rewrite(name, rules)[0], base)
        if scheme_of(location) or location == "-":
            yield Place(node, name, base, unknown=f"the list `{name}` is not a local file")
            return
        found = _read_list(location, name[: name.rfind("/") + 1], base)
    except GeneratorExit:  # at exit, the names below may already be None
        raise
    except (WdspecError, OSError) as error:
        reason = error.message if isinstance(error, WdspecError) else error.strerror
        yield Place(node, name, base, unknown=f"the list `{name}` cannot be read: {reason}")
        return
    for number, pattern in found.patterns:
        for place in _of_text(node, pattern, base, rules, in_list=True):
            yield place._replace(how=f" in line {number} of {name}")
    if found.plain:
        many = found.plain if len(found.plain) > 1 else None
        yield Place(node, found.outline, base, many=many, how=f" in {name}")


class _List(NamedTuple):
    """What is in a list of shards."""

    plain: tuple[str, ...]
    """Its lines with one shard."""
    outline: str
    """An outline of these."""
    patterns: tuple[tuple[int, str], ...]
    """The numbers of the other lines, and what is in them."""


@lru_cache(maxsize=256)
def _read_list(path: str, folder: str, base: str) -> _List:
    from wdspec.shards.listing import is_index, read_index_of, read_list, refuse_other_file
    from wdspec.storage.storage import Storage

    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would not end
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    storage = Storage()
    plain: list[str] = []
    patterns: list[tuple[int, str]] = []
    if is_index(f"@{path}"):
        plain = [folder + name for name in read_index_of(path, storage)]
    for number, line in () if plain else read_list(path, storage):
        if not (plain or patterns):
            refuse_other_file(line, os.path.dirname(path) + "/", "/", storage)
        start = folder if is_relative(line) and not line.startswith("{") else ""
        if _PLAIN.fullmatch(line):
            plain.append(start + line)
        else:
            patterns.append((number, _SPECIAL.sub(r"\\\g<0>", start) + line))
    outline = plain[0] if len(plain) == 1 else _outline_of_all(plain, base) if plain else ""
    return _List(tuple(plain), outline, tuple(patterns))


def count_shards(spec: Spec, leaf: Draft, source: Source) -> int | None:
    """The number of shards of a source; None if that is unknown without reading data."""
    shards = leaf.node.get("shards")
    if shards is None:
        return None
    rules = rules_of(spec, source)
    places = [place for text in source.shards or () for place in _of_text(shards, text, source.base, rules)]
    if any(place.unknown or place.raw for place in places):
        return None
    return sum(1 if place.many is None else len(place.many) for place in places)


def is_pinned(places: Iterable[Place]) -> bool:
    """Whether there are URLs, and each names a revision of a repository of the Hub."""
    texts = [place.text for place in places if not place.how]
    return bool(texts) and all(REVISION.match(text) for text in texts)
