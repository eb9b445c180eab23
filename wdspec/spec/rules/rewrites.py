"""Rules for rewrite rules that are wrong, have no effect, or change too much."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from wdspec.base.errors import UrlError
from wdspec.spec.build import Composition
from wdspec.spec.language.locations import RewriteRule
from wdspec.spec.problems import quote
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shards import parts_of
from wdspec.spec.tree import ListNode, MapNode, Scalar
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import is_command, scheme_of, spread


@rule("E212", keys="rewrite output")
def rewrite_templates(composition: Composition) -> Findings:
    """Replacements of `rewrite:` and `output:` that do not fit their regex."""
    for holder in (composition.top, *(leaf.node for leaf in composition.leaves)):
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

    None are returned if shards are listed in files. In an environment, only rules of its overlay are returned: other
    rules are for other places.
    """
    top = _rules(composition.top, composition.spec.rewrite)
    own = {leaf.name: _rules(leaf.node, source.rewrite) for leaf, source in composition.models}
    if not top and not any(own.values()):
        return
    texts: dict[str, list[str]] = {}
    for leaf, _, parts in parts_of(composition):
        for part in parts:
            if part.text.startswith(("@", "{")) and part.listed:
                return
            tried = (
                [part.text] if part.listed else [part.braces[i] for i in spread(len(part.braces), MOST_TRIED)]
            )
            texts.setdefault(leaf.name, []).extend(tried)
    effects = [*_try_rules(top, [(own.get(name, []), urls) for name, urls in texts.items()])]
    for name, rules in own.items():
        effects += _try_rules(rules, [([], texts.get(name, []))])
    variant = composition.variant
    yield from (
        each for each in effects if variant.environment is None or each.at.position in variant.overlaid
    )


_Placed = list[tuple[MapNode, Rule]]


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
