"""The spec language: a file, a dict or overrides in; a frozen `Spec` out, or problems with their positions.

    text ─yaml─▶ tree ─build─▶ Composition (merged trees, and models of their values) ─rules─▶ problems ─load─▶ Spec

Nothing that a spec names is imported, opened or run, except other spec files. Read `load.py` first, then `spec.py`,
which defines the keys. From the bottom up:

    tree.py         values that know where they were written
    problems.py     problems: collected, and shown with their positions; `codes.md` has their pages
    yaml.py         text -> tree, within limits; `python_values.py` does the same for dicts
    language/       the kinds of values and the small models; `schema.py` and `reference.py` are made from them
    validation.py   tree -> model
    files.py        spec files and what they extend; then `variants.py`, `variables.py` and `sources.py`, which
    build.py        puts together as one spec with effective values
    rules/          checks that need more than one value
"""
