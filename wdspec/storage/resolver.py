"""From a URL as the spec spells it to the place its bytes come from, each step explained.

Pure: nothing is opened and no variable is read here, so that every worker comes to the parent's result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from wdspec.cache.cache_names import CacheNames, CacheSettings, Copies
from wdspec.errors import UrlError
from wdspec.spec.language.models import RewriteRule, Source, Spec
from wdspec.storage.ais_cluster import AisCluster
from wdspec.storage.environment import UrlEnvironment
from wdspec.urls.rewrite import Rule, rewrite
from wdspec.urls.schemes import path_of_file_url, scheme_of
from wdspec.urls.sequence import ShardUrl

AIS_PREFIX = "ais+"
"""Marks a location that is read through an AIStore cluster: `ais+gs://bucket/object`."""

_EMPTY_SEGMENTS = re.compile(r"/(?:\.?/)+")
_OVERLAY = "environment "


class Step(NamedTuple):
    """One step of a URL on its way: which one, what came out, and why."""

    stage: str
    url: str
    why: str


class Resolution(NamedTuple):
    """Where the bytes of a shard come from.

    ``location`` is an absolute path for a local file, else a URL for the opener of its scheme; ``rule`` is
    the one that rewrote the URL; ``copies`` where a cache may hold them.
    """

    url: ShardUrl
    location: str
    steps: tuple[Step, ...]
    rule: Rule | None = None
    copies: Copies | None = None


@dataclass(frozen=True)
class Resolver:
    """Rewrites and locates the URLs of one source: `resolver(url) -> Resolution`. Immutable; pickles.

    ``rules`` are all that apply, in order; the first that changes a URL wins, and wins once.
    """

    environment: UrlEnvironment
    rules: tuple[Rule, ...] = ()
    ais: AisCluster | None = None
    cache: CacheNames | None = None

    @classmethod
    def of(
        cls, environment: UrlEnvironment, spec: Spec | None = None, source: Source | None = None
    ) -> Resolver:
        """The resolver of a source of a spec; without them, of the spec, or of the environment alone.

        The order of rules: environment variable, overlay, source, top level.

        Raises:
            UrlError: a rule with a wrong regex or template.
            UsageError: an AIStore cluster whose address is not known.
        """
        own = _rules(source.rewrite if source else ())
        top = _rules(spec.rewrite if spec else ())
        rules = [
            *environment.rules,
            *(rule for rule in (*own, *top) if rule.origin.startswith(_OVERLAY)),
            *(rule for rule in (*own, *top) if not rule.origin.startswith(_OVERLAY)),
        ]
        cache = CacheSettings.of(environment, spec, source)
        return cls(
            environment,
            tuple(rules),
            AisCluster.of(environment.ais, environment.home, spec, source),
            None if cache is None else CacheNames(cache.directory),
        )

    def __call__(self, url: ShardUrl) -> Resolution:
        """Where the bytes of a shard come from, and where copies of it may be.

        Raises:
            UrlError: an empty result, a NUL character, a `file:` URL of another host, a `pipe:` where
                WDS_SECURE forbids it, a name that AIStore cannot have, an ETL that cannot take effect.
        """
        found = self._located(url)
        if self.cache is None or found.location == "-" or found.location.startswith("/"):
            return found
        rewritten = next((step.url for step in found.steps if step.stage == "rewrite"), url.text)
        variant = ""
        if self.ais is not None and found.location.startswith(AIS_PREFIX):
            variant = "&".join(filter(None, (self.ais.variant, self.ais.namespace)))
        copies = self.cache(url, rewritten, variant)
        why = "read from this copy, which is made if there is none"
        return found._replace(copies=copies, steps=(*found.steps, Step("cache", copies.path, why)))

    def _located(self, url: ShardUrl) -> Resolution:
        steps: list[Step] = []
        text, rule = rewrite(url.text, self.rules)
        base = url.base
        if rule is not None:
            steps.append(Step("rewrite", text, str(rule)))
            base = rule.base or base
        scheme = scheme_of(text)
        if not text or "\0" in text or (scheme == "file" and "%00" in text):
            seen = "a NUL character in a URL" if text else "an empty URL"
            raise UrlError(f"{seen}{f' after {rule}' if rule else ''}; no file has such a name", url=url.text)
        if scheme == "pipe" and self.environment.secure:
            raise UrlError(
                f"`{text}` runs a program, and WDS_SECURE forbids `pipe:`; unset it if you trust "
                "the spec and the environment",
                url=url.text,
            )
        cluster = self.ais
        if cluster is not None and scheme in cluster.schemes:
            why = f"AIStore at {cluster.endpoints[0]} serves {scheme}://"
            step = Step("ais", cluster.endpoints[0] + cluster.target(text), why)
            return Resolution(url, AIS_PREFIX + text, (*steps, step), rule)
        if cluster is not None and cluster.etl is not None:
            raise UrlError(
                f"the ETL `{cluster.etl.name}` runs in AIStore, which does not serve this; add the scheme to "
                "`use_for`, or switch it off where the bytes are transformed already: `aistore: false`",
                url=url.text,
                location=text,
            )
        if (scheme or "file") == "file" and text != "-":
            location, why = self._path(text, scheme, base)
            if location != text:
                steps.append(Step("path", location, why))
            return Resolution(url, location, tuple(steps), rule)
        return Resolution(url, text, tuple(steps), rule)

    def _path(self, text: str, scheme: str, base: str) -> tuple[str, str]:
        """Absolute path of a local file, and how it came about.

        `..` stays: a link before it may lead elsewhere.
        """
        path = path_of_file_url(text) if scheme else text
        why = "what the `file:` URL stands for"
        if path == "~" or path.startswith("~/"):
            path, why = self.environment.home + path[1:], "`~` is the home directory"
        elif path.startswith("~"):
            path, why = os.path.expanduser(path), "`~name` is the home directory of that user"
        if not path.startswith("/"):
            path, why = os.path.join(self.environment.directory, base, path), f"relative to {base}"
        elif path == text:
            why = "without empty segments"
        return tidy(path), why


def tidy(path: str) -> str:
    """A path without empty and `.` segments."""
    return _EMPTY_SEGMENTS.sub("/", path)


def _rules(rules: Iterable[RewriteRule]) -> list[Rule]:
    return [Rule(rule.pattern, rule.replacement, rule.origin or "`rewrite`") for rule in rules]
