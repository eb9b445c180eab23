"""W318: variables have braces."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts
from wdspec.urls.urls import scheme_of

_VARIABLE = re.compile(r"(?<![$\\])\$([A-Za-z_]\w*)")


@rule(
    "W318",
    "a variable of the shell",
    "`$NAME` is not replaced here: the shards are looked for under this very name. A variable of a spec is "
    "`${name}`; it comes from `--var`, the environment variable `WDS_name`, or `vars:`. `~` is the home directory.",
    bad="dataset:\n  - shards: $DATA/a.tar\n",
    good="vars: {data: s3://bucket}\ndataset:\n  - {name: a, shards: '${data}/a.tar'}\n",
)
def shell_variables(composed: Composed) -> Findings:
    """A dollar sign with a name behind it; the shell of a `pipe:` replaces its own."""
    for text, written in written_texts(composed):
        found = None if scheme_of(written) == "pipe" else _VARIABLE.search(written)
        if found is not None:
            home = found[1] == "HOME" and found.start() == 0
            hint = f"write `${{{found[1]}}}`, and set it by `--var`, `WDS_{found[1]}` or `vars:`"
            hint = f"write `~{written[found.end() :]}`" if home else hint
            message = f"`{found[0]}` is not replaced, it stands for itself"
            yield Finding(text, message, hint, text.column_at(found.start()))
