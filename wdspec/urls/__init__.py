"""URLs as texts: schemes, braces, lists of shards, rewrite rules. Nothing is looked up or opened.

Read `urls.py` first; it has the table of all schemes and their stores.
"""
