"""Basics without any knowledge of shards, specs or stores: errors, redaction, locks, processes, user code.

Read `process` first: each module-level value of which a forked child must not have a copy (connections, threads, tables
of open files) belongs into one of its classes.
"""
