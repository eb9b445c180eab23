"""The `wdspec` program: arguments in; tables, JSON and exit codes out.

Read `main` first: it finds the commands, one file each. `report` turns the reports of commands into tables, text and
JSON. `spec_options` and `shard_files` have the options that several commands share, and `problems` shows what
validation finds. The `*_facts`, `*_data` and `*_draws` files find out what a command of that name shows.
"""
