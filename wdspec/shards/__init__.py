"""The shards of a spec: lists that are resolved once and frozen.

In: a spec, perhaps a lock file. Out: `Shards`, with the list of every source and the way to its bytes. Read `shards`
first. `listing` expands globs, directories and `@file`s; `key_lists` and `lookup_tables` read what else sources name;
`lock` writes and reads lock files. Nothing here decodes samples.
"""
