"""W317: what is a directory ends in a slash."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts
from wdspec.urls.urls import scheme_of

_FILE = re.compile(r"[.*?\[{}\d%$]")


@rule(
    "W317",
    "a folder without its slash",
    "A directory or prefix ends in `/`, and stands for the shards in it. Without the slash it is taken for "
    "one file.",
    bad="dataset:\n  - shards: gs://bucket/train\n",
    good="dataset:\n  - shards: gs://bucket/train/\n",
)
def open_folders(composed: Composed) -> Findings:
    """Objects of a store whose names have no suffix, pattern or number."""
    for text, written in written_texts(composed):
        last = written.rpartition("/")[2]
        remote = scheme_of(written) not in ("", "pipe", "file", "http", "https", "ais")
        if remote and last and not _FILE.search(last):
            message = f"{quoted(written)} is taken for one shard, and looks like a directory"
            yield Finding(text, message, f"write {quoted(written + '/')} if it is one")
