"""What several commands need: the options that choose a spec or name shards, where shards go, tables and JSON.

Read `tables.py` and `spec_options.py` first.
"""
