"""The `wdspec` program: arguments in, tables, JSON and exit codes out.

`main.py` finds the commands: each is one file in `spec_commands`, `team_commands` or `shard_commands`. What several of
them need is in `support`; `explain`, `simulate` and the like hold what one of them finds out. Read `main.py` first.
"""
