"""The spec language: a file, a dict or overrides in; a frozen `Spec` out, or problems with their positions.

    text ─yaml─▶ tree ─build─▶ Composition (merged trees, and models of their values) ─rules─▶ problems ─load─▶ Spec

Nothing here imports, opens or runs what a spec names, but other spec files. Read `load.py` first, then `spec.py`, which
has the keys. From the ground up:

    tree.py         values that know where they were written
    problems.py     what is wrong, collected once each, and shown; `codes.py` and `data_codes.py` have their pages
    yaml.py         text -> tree, within limits; `python_values.py` does it for dicts
    language/       the kinds of values and the small models; JSON Schema (`schema.py`) and docs come from them
    files.py        files and what they extend; then variants.py, variables.py and sources.py, until
    build.py        makes one spec of it all, with effective values
    rules/          what takes more than one value to see
"""
