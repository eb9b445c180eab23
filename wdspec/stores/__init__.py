"""Kinds of places that shards are read from and written to.

A store is a noun with eight verbs, `open`, `list`, `stat`, `announce`, `output`, `exists`, `delete` and `describe`. A
location goes in; a stream, names or an output come out. Read `store.py` first, then `pipe.py` as an example;
`store_table.py` finds the store of a location, by the rows of `wdspec.urls.urls.STORES` and what users add
(`user_stores.py`). To add one, write its file and its row.
"""
