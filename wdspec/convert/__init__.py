"""Specs of other tools, written anew as wdspec's: what they say of sources and shares, and notes of what is lost.

A file goes in as text (`given.py`), a plain dict in the spec language and notes come out (`new_spec.py`). Nothing is
run, no data is read; of local folders only what their tools keep beside the shards. Each tool is one file of
`dialects/` and one row of `dialect_table.py`.
"""
