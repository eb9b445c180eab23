"""Rules for rewrite rules that are wrong, have no effect, or change too much."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from wdspec.base.errors import UrlError
from wdspec.spec.build import Composition
from wdspec.spec.language.locations import RewriteRule
from wdspec.spec.problems import quote
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shards import parts_of
from wdspec.spec.tree import ListNode, MapNode, Position, Scalar
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import is_command, scheme_of, spread


@rule("E212", keys="rewrite output")
def rewrite_templates(composition: Composition) -> Findings:
    """Replacements of `rewrite:` and `output:` that do not fit their regex."""
    for holder in (composition.top, *(leaf.node for leaf in (*composition.leaves, *composition.companions))):
        rewrite = holder.get("rewrite")
        for item in (*(rewrite.items if isinstance(rewrite, ListNode) else ()), holder.get("output")):
            if isinstance(item, MapNode):
                yield from _mistakes(item)


def _mistakes(item: MapNode) -> Findings:
    regex, template = item.get("from"), item.get("to")
    if not (isinstance(regex, Scalar) and isinstance(template, Scalar)):
        return
    if not (isinstance(regex.value, str) and isinstance(template.value, str)) or len(regex.value) > 1000:
        return
    try:
        compiled = re.compile(regex.value)
    except (re.error, OverflowError, RecursionError):
        return  # already reported
    try:
        compiled.sub(template.value, "")  # checks the replacement even if nothing matches
    except (re.error, IndexError) as error:
        hint = f"the regex has {compiled.groups} groups; for a literal `\\` write `\\\\`"
        yield Finding(template, f"{quote(template.value)} cannot replace the match: {error}", hint)


MOST_TRIED = 12
"""Rules are tried on this many shards of a text, from the first to the last one."""


class Effect(NamedTuple):
    """A rewrite rule, where it is, and its effect."""

    at: MapNode
    rule: Rule
    matched: str | None
    """A shard that it would change, if there is one."""
    before: Rule | None
    """The rule that changes that shard, if this one is never the first that applies."""


def rewrite_effects(composition: Composition) -> Iterator[Effect]:
    """The effects of the rules of the top level and of each source, in file order.

    None are returned if shards are listed in files, nor a rule that may only change shards that were not tried: those
    that globs and directories find, and most of millions in braces. In an environment, only rules of its overlay are
    returned: other rules are for other places.
    """
    top, own, texts, unseen = _place_rules(composition)
    if unseen is None:
        return
    effects = [*_try_rules(top, [(own.get(name, []), urls) for name, urls in texts.items()])]
    for name, rules in own.items():
        effects += _try_rules(rules, [([], texts.get(name, []))])
    effects = [each for each in effects if each.matched or not any(map(each.rule.depends_on_rest, unseen))]
    variant = composition.variant
    yield from (
        each for each in effects if variant.environment is None or each.at.position in variant.overlaid
    )


_VARIES = re.compile(r"[\\{*?\[]")
"""What may differ from shard to shard in a text of `shards` starts with one of these."""
_Placed = list[tuple[MapNode, Rule]]


def _place_rules(
    composition: Composition,
) -> tuple[_Placed, dict[str, _Placed], dict[str, list[str]], set[str] | None]:
    """The rules of the top level and of each source, the shards that they are tried on, and how the others start; None
    if that is unknown, because some are listed in files."""
    top = _rules(composition.top, composition.spec.rewrite)
    own = {leaf.name: _rules(leaf.node, source.rewrite) for leaf, source in composition.models}
    texts: dict[str, list[str]] = {}
    if not top and not any(own.values()):
        return top, own, texts, None
    unseen: set[str] = set()
    is_whole = True
    for leaf, _, parts in parts_of(composition):
        for part in parts:
            if part.text.startswith(("@", "{")) and part.listed:
                is_whole = False
                continue
            tried = (
                [part.text] if part.listed else [part.braces[i] for i in spread(len(part.braces), MOST_TRIED)]
            )
            texts.setdefault(leaf.name, []).extend(tried)
            if part.listed or len(tried) < len(part.braces):
                unseen.add(_VARIES.split(part.text, maxsplit=1)[0])
    return top, own, texts, unseen if is_whole else None


class Rewritten(NamedTuple):
    """The shards that a rewrite rule is the first to change."""

    at: MapNode
    rule: Rule
    urls: dict[str, str]
    """Each shard, and what becomes of it."""


def rewritten_shards(composition: Composition) -> Iterator[Rewritten]:
    """What each rule changes; in an environment, only what those of its overlay change."""
    top, own, texts, _ = _place_rules(composition)
    changed: dict[int, Rewritten] = {}
    for name, urls in texts.items():
        for url in urls:
            for at, each in (*own.get(name, []), *top):
                if _changes(each, url):
                    with suppress(UrlError):
                        changed.setdefault(id(at), Rewritten(at, each, {})).urls[url] = each.apply(url)
                    break
    variant = composition.variant
    for found in changed.values():
        if variant.environment is None or found.at.position in variant.overlaid:
            yield found


def _rules(holder: MapNode, rules: tuple[RewriteRule, ...]) -> _Placed:
    node = holder.get("rewrite")
    items = node.items if isinstance(node, ListNode) else ()
    if len(items) != len(rules):
        return []
    placed: _Placed = []
    for item, written in zip(items, rules, strict=True):
        try:
            if isinstance(item, MapNode):
                placed.append((item, Rule(written.pattern, written.replacement, written.origin)))
        except UrlError:
            continue  # E212
    return placed


def _try_rules(rules: _Placed, sets: list[tuple[_Placed, list[str]]]) -> Iterator[Effect]:
    """The effects of rules; `sets` has URLs, with the rules that come before these."""
    for number, (at, tried) in enumerate(rules):
        matched: str | None = None
        before: Rule | None = None
        for earlier, url in (
            (earlier, url) for earlier, urls in sets for url in urls if _changes(tried, url)
        ):
            matched = matched or url
            others = (other for _, other in (*earlier, *rules[:number]))
            first = next((other for other in others if _changes(other, url)), None)
            before = first and (before or first)
            if first is None:
                break
        yield Effect(at, tried, matched, before)


def _changes(rule: Rule, url: str) -> bool:
    try:
        return rule.apply(url) != url
    except UrlError:
        return True


@rule(
    "W331",
    "a rewrite rule that matches nothing",
    "The regex is matched at the start of a shard's URL as it is written in the spec. A rule that changes no shard is "
    "misspelled or obsolete.",
    keys="rewrite",
    bad="rewrite:\n  - {from: s3://, to: /mnt/}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="rewrite:\n  - {from: gs://, to: /mnt/}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def unmatched_rewrites(composition: Composition) -> Findings:
    """Rules that change no shard of the spec."""
    for effect in rewrite_effects(composition):
        if effect.matched is None:
            message = f"no shard starts with {quote(effect.rule.pattern)}, so this rule has no effect"
            yield Finding(effect.at.value_or_self("from"), message, "compare it with `shards`, or remove it")


def matched_rewrites(composition: Composition) -> Iterator[Position]:
    """Yield where rules are written that change a shard, so that W331 of another split is wrong about them."""
    for effect in rewrite_effects(composition):
        if effect.matched is not None:
            yield effect.at.value_or_self("from").position


@rule(
    "W332",
    "a rewrite rule that never applies",
    "The first rule that changes a URL is used. A rule after a more general one has no effect, so write special rules "
    "first.",
    keys="rewrite",
    bad="rewrite:\n  - {from: gs://, to: /mnt/}\n  - {from: gs://b/, to: /fast/}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="rewrite:\n  - {from: gs://b/, to: /fast/}\n  - {from: gs://, to: /mnt/}\n"
    "dataset:\n  - shards: [gs://b/a.tar, gs://c/a.tar]\n",
)
def shadowed_rewrites(composition: Composition) -> Findings:
    """Rules whose shards are all changed by an earlier rule."""
    for effect in rewrite_effects(composition):
        if effect.before is not None:
            message = (
                f"an earlier rule, {quote(effect.before.pattern)}, takes every shard that this one is for"
            )
            yield Finding(
                effect.at.value_or_self("from"), message, "put the special rule before the general one"
            )


@rule(
    "W333",
    "a pipe that gets no scheme",
    "The whole match is replaced, including the scheme: if `gs://` is rewritten to `pipe:gsutil cat `, the command is "
    "`gsutil cat bucket/a.tar`, which is a local file. Keep the scheme in a group: `(gs://.*)` and `pipe:gsutil cat "
    "\\1`.",
    keys="rewrite",
    bad="rewrite:\n  - {from: 'gs://', to: 'pipe:gsutil cat '}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="rewrite:\n  - {from: '(gs://.*)', to: 'pipe:gsutil cat \\1'}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def rewrites_into_pipes(composition: Composition) -> Findings:
    """Commands that get the shard as neither a URL nor an absolute path."""
    for effect in rewrite_effects(composition):
        url = effect.matched
        command = "" if url is None else effect.rule.apply(url)
        if url is None or not is_command(command) or not scheme_of(url):
            continue
        word = _word_with(url.rpartition("/")[2], command)
        if word is not None and "://" not in word and not word.startswith(("/", ".", "~")):
            message = f"the program gets {quote(word)}, without the scheme of {quote(url)}"
            hint = "keep the scheme in a group, `(gs://.*)`, and write `\\1`"
            yield Finding(effect.at.value_or_self("to"), message, hint)


def _word_with(name: str, command: str) -> str | None:
    try:
        words = shlex.split(command.partition(":")[2])
    except ValueError:
        return None
    return next((word for word in words if name in word), None)


_DOLLAR = re.compile(r"\$(\d)")


@rule(
    "W395",
    "a rewrite rule that ends inside a name",
    "A rule replaces the start of a URL, wherever that ends: `s3://corp` also changes `s3://corp-private`. End it "
    "with a `/`. There is no warning if the regex ends with `/`, `-`, `_` or `.`, or if it ends in the middle of the "
    "names of all shards that it matches and leaves the bucket or host whole.",
    keys="rewrite",
    bad="rewrite:\n  - {from: s3://corp, to: /mnt/corp}\ndataset:\n  - {name: a, shards: s3://corp/a.tar}\n"
    "  - {name: b, shards: s3://corp-private/b.tar}\n",
    good="rewrite:\n  - {from: s3://corp/, to: /mnt/corp/}\ndataset:\n  - {name: a, shards: s3://corp/a.tar}\n"
    "  - {name: b, shards: s3://corp-private/b.tar}\n",
)
def rewrites_inside_names(composition: Composition) -> Findings:
    """Rules whose match ends between two characters of a name."""
    for at, each, urls in rewritten_shards(composition):
        ends = {url: found.end() for url in urls if (found := each.regex.match(url))}
        is_mixed = any(url[end : end + 1] == "/" for url, end in ends.items())
        for url, end in ends.items():
            is_inside = url[end - 1 : end].isalnum() and url[end : end + 1] not in ("", "/")
            if is_inside and (is_mixed or "/" not in url[:end].partition("://")[2]):
                message = (
                    f"this rule also changes {quote(url)}: it ends inside a name, after {quote(url[:end])}"
                )
                hint = f"end `from` and `to` with a `/`: `from: {each.pattern}/`"
                yield Finding(at.value_or_self("from"), message, hint)
                break


@rule(
    "W401",
    "a rewrite rule that joins two names",
    "The match is replaced as it is. If `from` ends with a `/` and `to` does not, the names before and after it become "
    "one: `s3://data/web/a.tar` with `{from: s3://data/, to: mirror}` is `mirrorweb/a.tar`. Loading a spec gives this "
    "warning, too.",
    keys="rewrite",
    bad="rewrite:\n  - {from: s3://data/, to: mirror}\ndataset:\n  - shards: s3://data/web/a.tar\n",
    good="rewrite:\n  - {from: s3://data/, to: mirror/}\ndataset:\n  - shards: s3://data/web/a.tar\n",
    warns_at_load=True,
)
def rewrites_that_join_names(composition: Composition) -> Findings:
    """Rules that match a `/` at the end, and put a letter or digit in its place."""
    for at, each, urls in rewritten_shards(composition):
        for url, result in urls.items():
            found = each.regex.match(url)
            rest = "" if found is None else url[found.end() :]
            head = result.removesuffix(rest)
            written = at.get("to")
            if found is None or not (found[0].endswith("/") and rest[:1].isalnum() and head[-1:].isalnum()):
                continue
            if isinstance(written, Scalar) and result.endswith(rest) and not is_command(each.replacement):
                name = head.rpartition("/")[2]
                message = f"this rewrite joins two names: {quote(url)} becomes {quote(name + rest)}"
                yield Finding(written, message, f"write `to: {written.written}/`")
                break


@rule("W508", keys="rewrite")
def rewrites_to_one_file(composition: Composition) -> Findings:
    """Rules that make one file of several shards."""
    for at, _, urls in rewritten_shards(composition):
        first: dict[str, str] = {}
        for url, result in urls.items():
            if first.setdefault(result, url) != url:
                message = f"this rule makes one file of several shards: {quote(first[result])} and {quote(url)} become "
                message += quote(result)
                hint = "keep the part in which they differ: put it into a group, `(.*)`, and write `\\1`"
                yield Finding(at.value_or_self("to"), message, hint)
                break


@rule(
    "W334",
    "a group in the syntax of another language",
    "In `to`, write `\\1` for the first group of the regex; `$1` is literal text.",
    keys="rewrite",
    bad="rewrite:\n  - {from: 'gs://(.*)', to: '/mnt/$1'}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="rewrite:\n  - {from: 'gs://(.*)', to: '/mnt/\\1'}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def foreign_templates(composition: Composition) -> Findings:
    """`$1` in a replacement, except in commands, where it may be for the shell."""
    for effect in rewrite_effects(composition):
        found = _DOLLAR.search(effect.rule.replacement)
        if found is not None and not is_command(effect.rule.replacement):
            message = f"`{found[0]}` is literal text"
            yield Finding(
                effect.at.value_or_self("to"), message, f"write `\\{found[1]}` for group {found[1]}"
            )
