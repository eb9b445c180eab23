"""Kinds of places that shards are read from and written to.

A store has eight verbs, `open`, `list`, `stat`, `announce`, `output`, `exists`, `delete` and `describe`. They take a
location and return a stream, names or an output. Read `store.py` first, then `pipe.py` as an example. `table.py` finds
the store of a location, by the rows of `wdspec.urls.urls.STORES` and what users add. To add one, write its file and
its row.
"""
