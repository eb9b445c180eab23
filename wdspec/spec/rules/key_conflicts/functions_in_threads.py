"""E318: `loader: {kind: threads}` is for specs without functions of the user's."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.function_places import user_functions
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "E318",
    "a function in threads",
    "What functions draw from torch, numpy and `random` is exact because nobody else draws from these generators while "
    "a sample is made. In one process with the training loop that cannot be.",
    bad="loader: {workers: 2, kind: threads}\ndataset:\n  - {shards: 'a-{0..9}.tar', map: 'steps:flip'}\n",
    good="loader: {workers: 2}\ndataset:\n  - {shards: 'a-{0..9}.tar', map: 'steps:flip'}\n",
)
def functions_in_threads(composed: Composed) -> Findings:
    """Functions wherever the spec names them, under reading threads."""
    if composed.spec.loader.kind == "threads":
        for at, what in user_functions(composed):
            yield Finding(at, f"{what} cannot run in reading threads", "leave out `kind: threads`")
