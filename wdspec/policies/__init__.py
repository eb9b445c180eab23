"""Policies: rules for specs of many teams, in YAML files that `wdspec validate` checks (docs/policies.md).

Read `language.py` first: what a policy file may say. Then `check.py`, a pure function of a policy and a composed spec.

    language.py   the keys of a policy file
    files.py      a file or a pinned URL -> a `Policy`, or its problems
    check.py      a policy and a spec of one split and environment -> findings
    subjects.py   what rules are about: the values of a source, and where they are written
    places.py     every URL that a source reads, as far as it is known without reading data
    canonical.py  the form in which URLs are compared
    judge.py      whether patterns match what is read at a place
    patterns.py   patterns, and sets of texts that are known only in part
    licenses.py   SPDX expressions
    shares.py     the shares of sources
    python.py     rules of installed packages

A tool, not a part of the core: only `cli/validate.py` uses it, and only on request. It is a room of its own, and not in
`spec`, because shares are in `planning` and lists of shards in `shards`.
"""
