"""The spec language: a file, a dict or overrides in; a frozen `Spec` out, or problems with their positions.

    text ─yaml─▶ tree ─compose─▶ Composed (merged trees, and models of their values) ─rules─▶ problems ─loading─▶ Spec

Nothing here imports, opens or runs what a spec names, but other spec files. The floors, from the ground up:

    tree/        values that know where they were written
    problems/    what is wrong, collected once each, and shown
    yaml/        text and Python values -> tree, within limits
    language/    the keys: models with the kinds of their values, JSON Schema; the reference in docs/ comes from them
    compose/     files, variants, variables and the list of sources merged into one spec with effective values
    rules/       what takes more than one value to see: one file a rule
    loading.py   `load` and `check`, which put it all in a row

Read `loading.py` first, then `language/models.py`.
"""
