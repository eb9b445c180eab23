"""The `wdspec` program: arguments in, tables, JSON and exit codes out.

`main.py` finds the commands: each is one file in `spec_commands` or `shard_commands`. What several of them need is in
`support`; `explain` and `simulate` hold what those two find out. Read `main.py` first.
"""
