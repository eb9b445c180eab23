"""Licenses: SPDX expressions, and what patterns say about them. Needs the library `license-expression`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from license_expression import ExpressionError, LicenseWithExceptionSymbol, get_spdx_licensing

from wdspec.policies.patterns import matches

_WORDS = re.compile(r"(\(|\)|\s+(?:AND|OR|WITH)\s+)", re.IGNORECASE)
_SPACES = re.compile(r"[\s_]+")
_OF_CC = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/(?:licenses|publicdomain)/([a-z+-]+)/(?:(\d\.\d)(?:/[a-z]{2,9})?/?)?"
    r"(?:(?:deed|legalcode)(?:\.[\w-]+)*)?/?(?:[?#]\S*)?",
    re.IGNORECASE,
)
_OF_SPDX = re.compile(
    r"https?://(?:www\.)?spdx\.org/licenses/([\w.+-]+?)(?:\.html|\.json|\.txt)?/?", re.IGNORECASE
)
_PUBLIC = {"zero": "CC0", "mark": "CC-PDM", "certification": "CC-PDDC"}


class License(NamedTuple):
    """A license in an expression."""

    names: tuple[str, ...]
    """In lower case: its identifier, and that without an exception."""
    is_known: bool
    """Whether it is in the SPDX list."""


def _identifier(text: str) -> str:
    """The license that a URL describes; other texts as they are, with `-` between words."""
    text = text.strip()
    if match := _OF_SPDX.fullmatch(text):
        return match[1]
    if match := _OF_CC.fullmatch(text):
        kind, version = match[1].lower(), match[2] or ""
        name = _PUBLIC.get(kind) or f"CC-{kind.upper()}"
        return name if kind == "certification" else f"{name}-{version}".strip("-")
    return _SPACES.sub("-", text)


@lru_cache(maxsize=1)
def _known() -> dict[str, str]:
    """Every identifier and alias in lower case, and its identifier."""
    found: dict[str, str] = {}
    for key, symbol in get_spdx_licensing().known_symbols.items():
        for name in (*symbol.aliases, key):
            found[name.lower()] = key
    return found


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    """The expression; None if it is none."""
    tidy = "".join(part if index % 2 else _identifier(part) for index, part in enumerate(_WORDS.split(text)))
    try:
        return get_spdx_licensing().parse(tidy)
    except ExpressionError:
        return None


def _read(symbol: Any) -> License:
    if isinstance(symbol, LicenseWithExceptionSymbol):
        whole = f"{symbol.license_symbol.key} WITH {symbol.exception_symbol.key}"
        return License(
            (whole.lower(), symbol.license_symbol.key.lower()),
            symbol.license_symbol.key.lower() in _known() and symbol.exception_symbol.key.lower() in _known(),
        )
    return License((symbol.key.lower(),), symbol.key.lower() in _known() and not symbol.is_exception)


def _holds(expression: Any, test: Callable[[License], bool]) -> bool:
    """Whether what is allowed by a test satisfies an expression: one part of `OR`, every part of `AND`."""
    arguments = getattr(expression, "args", ())
    if not arguments:
        return test(_read(expression))
    is_any = isinstance(expression, get_spdx_licensing().OR)
    return (any if is_any else all)(_holds(part, test) for part in arguments)


def _matches(pattern: str, license: License) -> bool:
    """Whether a pattern matches a license; `*-NC-*` also matches a name that ends in `-NC`."""
    tidy = _identifier(pattern).lower()
    if "*" not in tidy:
        return _known().get(tidy, tidy).lower() in license.names
    return any(
        matches(tidy, form) for name in license.names for form in (name, f"{name}-", f"-{name}", f"-{name}-")
    )


@lru_cache(maxsize=1024)
def is_known_pattern(pattern: str) -> bool:
    """Whether a pattern may match a license: of the SPDX list, or one of its own (`LicenseRef-…`)."""
    tidy = _identifier(pattern)
    if tidy.lower().startswith("licenseref-"):
        return True
    return any(_matches(pattern, License((name,), True)) for name in {*map(str.lower, _known().values())})


@lru_cache(maxsize=4096)
def normalize_license(text: str) -> str:
    """Return one text for all spellings of an expression; a text that is no expression as it is."""
    expression = _parse(text)
    return text if expression is None else str(expression.simplify()).lower()


@lru_cache(maxsize=4096)
def unknown_licenses(text: str) -> tuple[str, ...]:
    """The licenses of an expression that are not in the SPDX list; the whole text if it is no expression."""
    expression = _parse(text)
    if expression is None:
        return (text,)
    return tuple(str(symbol) for symbol in expression.symbols if not _read(symbol).is_known)


@lru_cache(maxsize=4096)
def is_free_of(text: str, patterns: tuple[str, ...]) -> bool:
    """Whether one can use the data without a license that a pattern matches."""
    expression = _parse(text)
    return expression is not None and _holds(
        expression, lambda license: not any(_matches(pattern, license) for pattern in patterns)
    )


@lru_cache(maxsize=4096)
def is_allowed(text: str, patterns: tuple[str, ...]) -> bool:
    """Whether one can use the data with licenses that a pattern matches. Unknown ones must be named without `*`."""
    expression = _parse(text)
    return expression is not None and _holds(
        expression,
        lambda license: any(
            _matches(pattern, license) for pattern in patterns if license.is_known or "*" not in pattern
        ),
    )


@lru_cache(maxsize=4096)
def any_matches(text: str, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern matches any license of an expression."""
    expression = _parse(text)
    return expression is not None and any(
        _matches(pattern, _read(symbol)) for symbol in expression.symbols for pattern in patterns
    )
