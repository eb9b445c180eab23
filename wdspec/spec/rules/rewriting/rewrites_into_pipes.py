"""W333: what a rewrite rule hands to a program is still a location."""

from __future__ import annotations

import shlex

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.rewrite_effects import rewrite_effects
from wdspec.urls.urls import scheme_of


@rule(
    "W333",
    "a scheme lost on the way into a pipe",
    "The match is replaced as a whole, its scheme too: `gs://` rewritten to `pipe:gsutil cat ` calls `gsutil "
    "cat bucket/a.tar`, which is a local file. A group keeps it: `(gs://.*)` and `pipe:gsutil cat \\\\1`.",
    bad="rewrite:\n  - {from: 'gs://', to: 'pipe:gsutil cat '}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="rewrite:\n  - {from: '(gs://.*)', to: 'pipe:gsutil cat \\1'}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def rewrites_into_pipes(composed: Composed) -> Findings:
    """Commands whose word for the shard is neither a URL nor an absolute path."""
    for effect in rewrite_effects(composed):
        for url in effect.matched:
            command = effect.rule.apply(url)
            if scheme_of(command) != "pipe" or not scheme_of(url):
                continue
            word = _word_with(url.rpartition("/")[2], command)
            if word is not None and "://" not in word and not word.startswith(("/", ".", "~")):
                message = f"the program is given {quoted(word)}, without the scheme of {quoted(url)}"
                yield Finding(
                    effect.at.value_or_self("to"),
                    message,
                    "keep the scheme in a group, `(gs://.*)`, and write `\\1`",
                )


def _word_with(name: str, command: str) -> str | None:
    try:
        words = shlex.split(command.partition(":")[2])
    except ValueError:
        return None
    return next((word for word in words if name in word), None)
