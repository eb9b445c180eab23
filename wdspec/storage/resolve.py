"""From a URL as the spec spells it, by the rewrite rules, to the place its bytes come from, each step explained.

Pure: nothing is opened and no variable is read here, so that every worker comes to the parent's result.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from wdspec.base.errors import UrlError
from wdspec.cache.names import Copies
from wdspec.storage.environment import Environment
from wdspec.stores.ais_cluster import AisCluster
from wdspec.urls.rewrite import Rule, rewrite
from wdspec.urls.urls import AIS_PREFIX, ShardUrl, is_command, path_of_file_url, scheme_of, tidy_path


class ResolutionStep(NamedTuple):
    """One step of a URL on its way: which one, what came out, and why."""

    stage: str
    url: str
    why: str


class Resolution(NamedTuple):
    """Where the bytes of a shard come from."""

    url: ShardUrl
    location: str
    """An absolute path for a local file, else a URL for the store of its scheme."""
    rewritten: str
    """The URL after rewriting."""
    steps: tuple[ResolutionStep, ...]
    rule: Rule | None = None
    """The one that rewrote the URL."""
    copies: Copies | None = None
    """Where a cache may hold them."""


def locate(
    url: ShardUrl, rules: tuple[Rule, ...], environment: Environment, cluster: AisCluster | None
) -> Resolution:
    """Where the bytes of a shard come from.

    Args:
        rules: all that apply, in order; the first that changes the URL wins, and wins once.
        cluster: what serves the schemes that it names.

    Raises:
        UrlError: an empty result, a NUL character, a `file:` URL of another host, a `pipe:` where
            WDS_SECURE forbids it, a name that AIStore cannot have, an ETL that cannot take effect.
    """
    steps: list[ResolutionStep] = []
    text, rule = rewrite(url.text, rules)
    base = url.base
    if rule is not None:
        steps.append(ResolutionStep("rewrite", text, str(rule)))
        base = rule.base or base
    scheme = scheme_of(text)
    if not text or "\0" in text or (scheme == "file" and "%00" in text):
        seen = "a NUL character in a URL" if text else "an empty URL"
        raise UrlError(f"{seen}{f' after {rule}' if rule else ''}; no file has such a name", url=url.text)
    if environment.secure and is_command(text):
        raise UrlError(
            f"`{text}` runs a program, and WDS_SECURE forbids `pipe:`; unset it if you trust "
            "the spec and the environment",
            url=url.text,
        )
    if cluster is not None and scheme in cluster.schemes:
        why = f"AIStore at {cluster.endpoints[0]} serves {scheme}://"
        step = ResolutionStep("ais", cluster.endpoints[0] + cluster.target(text), why)
        return Resolution(url, AIS_PREFIX + text, text, (*steps, step), rule)
    if cluster is not None and cluster.etl is not None:
        raise UrlError(
            f"the ETL `{cluster.etl.name}` runs in AIStore, which does not serve this; add the scheme to "
            "`use_for`, or switch it off where the bytes are transformed already: `aistore: false`",
            url=url.text,
            location=text,
        )
    if (scheme or "file") == "file" and text != "-":
        location, why = _path(text, scheme, base, environment)
        if location != text:
            steps.append(ResolutionStep("path", location, why))
        return Resolution(url, location, text, tuple(steps), rule)
    return Resolution(url, text, text, tuple(steps), rule)


def _path(text: str, scheme: str, base: str, environment: Environment) -> tuple[str, str]:
    """Absolute path of a local file, and how it came about.

    `..` stays: a link before it may lead elsewhere.
    """
    path = path_of_file_url(text) if scheme else text
    why = "what the `file:` URL stands for"
    if path == "~" or path.startswith("~/"):
        path, why = environment.home + path[1:], "`~` is the home directory"
    elif path.startswith("~"):
        path, why = os.path.expanduser(path), "`~name` is the home directory of that user"
    if not path.startswith("/"):
        path, why = os.path.join(environment.directory, base, path), f"relative to {base}"
    elif path == text:
        why = "without empty segments"
    return tidy_path(path), why
