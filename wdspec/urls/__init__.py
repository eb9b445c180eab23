"""URLs as texts: braces, lists of shards, schemes, rewrite rules. Pure: nothing is looked up or opened.

Read `sequence.py` first; `schemes.py` holds the table of all schemes and their stores.
"""
