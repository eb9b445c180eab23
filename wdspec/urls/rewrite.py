"""Rewrite rules: a regex anchored at the start of a URL, and what takes the place of the match.

The first rule that changes a URL wins, and what it gives is rewritten no further. Rules come from the
variable ``WDS_REWRITE`` (``regex=replacement;regex=replacement``) and from `rewrite:` in specs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from wdspec.errors import UrlError
from wdspec.urls.regex_cost import NESTED, REMEDY, check_length, nested_repeat
from wdspec.urls.schemes import scheme_of

_RULE_TOKEN = re.compile(r"\\[;=\\]|[;=]")
_TEMPLATE_TOKEN = re.compile(r"(\\g<[^>]*>|\\[1-9][0-9]?)|\\0[0-7]{0,2}|\\.|[^\\]+", re.DOTALL)
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(['"])""", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\(|`")


@dataclass(frozen=True)
class Rule:
    """A regex and its replacement, with their origin.

    Args:
        pattern: regex, matched at the start of a URL.
        replacement: template as :func:`re.sub` has it: ``\\1``, ``\\g<name>``.
        origin: where the rule was written, for messages: ``spec.yaml:12``, ``WDS_REWRITE rule 2``.
        base: absolute directory of a result that is a relative path; None leaves it to the URL's own base.

    Raises:
        UrlError: the regex or its template is none; ``column`` is the index in the regex.
    """

    pattern: str
    replacement: str
    origin: str
    base: str | None = None
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            regex = re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            at = getattr(error, "pos", None)
            raise UrlError(
                f"the regex `{self.pattern}` of {self.origin} is wrong: {error}; a character such as `(` "
                "that is meant literally needs a `\\` before it",
                column=None if at is None else at + 1,
            ) from None
        if nested_repeat(self.pattern):
            raise UrlError(f"the regex `{self.pattern}` of {self.origin} {NESTED}; {REMEDY}")
        try:
            regex.sub(self.replacement, "")  # reads the template even where nothing matches
        except (re.error, IndexError) as error:
            raise UrlError(
                f"the replacement `{self.replacement}` of {self.origin} is wrong: {error}; the regex "
                f"`{self.pattern}` has {regex.groups} groups, and a literal `\\` is written `\\\\`"
            ) from None
        object.__setattr__(self, "regex", regex)

    def __str__(self) -> str:
        return f"{self.origin}: {self.pattern} -> {self.replacement}"

    def apply(self, url: str) -> str:
        """The URL after this rule; unchanged if the regex does not match at its start.

        Where the result is a `pipe:` command, what it takes from the URL is quoted for the shell, once: a program
        that hands its words to a shell of its own, as ssh does, takes them apart again.
        """
        check_length(self.pattern, url)
        match = self.regex.match(url)
        if match is None:
            return url
        result = match.expand(self.replacement) + url[match.end() :]
        if scheme_of(result) == "pipe" and scheme_of(url) != "pipe":
            return "".join(self._command(match))
        return result

    def _command(self, match: re.Match[str]) -> Iterator[str]:
        """The pieces of a shell command; those taken from the URL are quoted as their surroundings demand."""
        before = ""
        for token in _TEMPLATE_TOKEN.finditer(self.replacement):
            text = match.expand(token.group())
            piece = self._quoted(text, before, match.string) if token.group(1) else text
            yield piece
            before += piece
        yield self._quoted(match.string[match.end() :], before, match.string)

    def _quoted(self, text: str, before: str, url: str) -> str:
        if not text or shlex.quote(text) == text:
            return text
        quote = _open_quote(before)
        if quote != "'" and _SUBSTITUTION.search(before):
            raise UrlError(
                f"`{text}` holds characters special to the shell, and {self.origin} puts it after a `$(` or "
                "a backtick, where it cannot be quoted safely; write the command without them",
                url=url,
            )
        if quote == '"':
            return re.sub(r'([$`"\\])', r"\\\1", text)
        if quote == "'":
            return text.replace("'", "'\"'\"'")
        return shlex.quote(text)


def parse_rules(text: str, variable: str = "WDS_REWRITE", base: str | None = None) -> tuple[Rule, ...]:
    """The rules of an environment variable.

    `;` ends a rule and the first `=` ends its regex; ``\\;``, ``\\=`` and ``\\\\`` stand for `;`, `=` and one
    backslash, any other backslash for itself. Nothing is stripped; empty rules are ignored.

    Args:
        text: the value of the variable.
        variable: its name, for messages.
        base: absolute directory of relative results.

    Raises:
        UrlError: a rule without `=` or without a regex, or a wrong regex; names the rule and its column.
    """
    rules = []
    for number, (start, parts) in enumerate(_split(text), 1):
        origin = f"{variable} rule {number}"
        rule = "=".join(parts)
        if not rule.strip():
            continue
        if len(parts) == 1:
            raise UrlError(
                f"{origin}, `{rule}`, has no `=`; write `regex=replacement`, with `\\;` for a `;` that is "
                "meant literally",
                column=1 + start,
            )
        if not parts[0]:
            raise UrlError(
                f"{origin}, `{rule}`, has no regex before its `=`; write `^=…` to put something before "
                "every URL, or `\\=` for a `=` in the regex",
                column=1 + start,
            )
        rules.append(Rule(parts[0], "=".join(parts[1:]), origin, base))
    return tuple(rules)


def rewrite(url: str, rules: Iterable[Rule]) -> tuple[str, Rule | None]:
    """The URL after the first rule that changes it, and that rule; else the URL itself and None."""
    for rule in rules:
        changed = rule.apply(url)
        if changed != url:
            return changed, rule
    return url, None


def _split(text: str) -> Iterator[tuple[int, list[str]]]:
    """Start and unescaped text of each rule, cut at its first `=` if it has one."""
    start, seen, parts = 0, 0, [""]
    for token in _RULE_TOKEN.finditer(text):
        mark = token.group()
        parts[-1] += text[seen : token.start()]
        seen = token.end()
        if mark == ";":
            yield start, parts
            start, parts = seen, [""]
        elif mark == "=" and len(parts) == 1:
            parts.append("")
        else:
            parts[-1] += mark[-1]
    parts[-1] += text[seen:]
    yield start, parts


def _open_quote(command: str) -> str:
    """The quote that is open at the end of the beginning of a shell command: `'`, `"` or none."""
    return next((mark.group(1) for mark in _QUOTED.finditer(command) if mark.group(1)), "")
