"""W323: no secret stands in a URL."""

from __future__ import annotations

from wdspec.base.redaction import redacted
from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import scalars


@rule(
    "W323",
    "a secret in a spec",
    "Specs are shared, logged and kept. Passwords, tokens and signatures come from the environment, from "
    "netrc or from the login of the store; a variable without a default takes one from the environment.",
    bad="dataset:\n  - shards: https://ann:hunter22@host/a.tar\n",
    good="dataset:\n  - shards: https://host/a.tar\n",
)
def url_secrets(composed: Composed) -> Findings:
    """Texts of the spec with something in them that is never printed."""
    for text in scalars(composed.top):
        if isinstance(text.value, str) and len(text.spans) == 1 and redacted(text.value) != text.value:
            hint = "give it to the program by the environment, netrc or the login of the store"
            yield Finding(text, "this text holds a password, token or signature", hint)
